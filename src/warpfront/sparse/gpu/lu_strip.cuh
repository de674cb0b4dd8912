// A strip of 32 rows of either half of a wide LU front: what it is, and its assembly from entries of A and the children's blocks.
#pragma once
#include "lu_front.cuh"

namespace wf {

constexpr int kStripThreads = 256, kBlockSize = kPanel * kPitch, kNeighbours = 4;

// s: the strip's blocks of 32 columns; the lower strip with a diagonal block holds all of that, both halves.
template <typename T>
struct Strip {
  Item item;
  Front f;
  T *s, *m, *near, *panel;
  const T *others, *published;
  u32 *block_done, *mine_done, *others_done, base;
  int columns, owned, written;  // columns of the chunk; the last block it holds; rows end here (those that pad the front count)
};

// Where a strip's rows come from when it is assembled here.
template <typename T>
struct StripSources {
  const Child* children;
  const Entry* entries;
  const i32* maps;
  const T *values, *blocks;
};

// Describes the parts of up to kPieces children from `first` on that fall on a strip, a thread each.
template <typename T>
WF_DEVICE void list_strip_pieces(const Strip<T>& x, const StripSources<T>& from, Piece* pieces, int first, int side) {
  const int c = first + static_cast<int>(threadIdx.x), bin = x.item.row / kPanel;
  if (threadIdx.x >= kPieces || c >= x.f.child1) return;
  const Child child = from.children[c];
  const i32* range = from.maps + child.range;
  const int end = range[bin + 1], held = min_of(x.columns, (x.owned + 1) * kPanel);
  pieces[threadIdx.x] = {side == 0 ? child.block : upper_block(child.block, child.below), child.map, child.below, range[bin], end,
                         0, min_of(end, range[(held + kPanel - 1) / kPanel]), 0};
}

// Adds a child's part to the strip. `across`: the other half's, which fills the diagonal block above its diagonal.
template <typename T>
WF_DEVICE void add_piece(const Strip<T>& x, const i32* map, const T* block, const Piece& piece, int rows, bool across) {
  constexpr int kGroups = kStripThreads / kWarp, kBatch = 8;
  const int lane = threadIdx.x % kWarp, group = threadIdx.x / kWarp, row0 = x.item.row;
  const int i = piece.ra + lane, row = i < piece.rb ? map[i] - row0 : -1, apart = across ? 1 : 0;
  const int pitch = across ? 1 : kPitch;
  T* target = x.s + (across ? (row0 + row) * kPitch - row0 : row);
  const bool live = row >= 0 && row < rows;
  WF_UNROLL_N(1)
  for (int base = (across ? piece.ra : 0) + group; base < piece.cb; base += kGroups * kBatch) {
    T v[kBatch];
    int into[kBatch];
    WF_UNROLL
    for (int q = 0; q < kBatch; ++q) {
      const int j = base + q * kGroups;
      const bool inside = live && j < piece.cb && i - j >= apart;
      into[q] = inside ? map[j] : x.columns;
      v[q] = inside ? block[packed_at(piece.below, j) + i] : T(0);
    }
    WF_UNROLL
    for (int q = 0; q < kBatch; ++q)
      if (into[q] < x.columns) target[into[q] * pitch] += v[q];
  }
}

// All of a strip, of the front's first chunk: entries of A, then the children in ascending order.
// Barriers: zeroed and listed | entries entered | each child added | the next list written.
template <typename T>
WF_DEVICE void assemble_strip(const Strip<T>& x, const StripSources<T>& from, Piece* pieces, int side, bool diagonal) {
  const int thread = threadIdx.x, rows = x.item.last - x.item.row, held = (x.owned + 1) * kPanel;
  list_strip_pieces(x, from, pieces, x.f.child0, side);
  for (int e = thread; e < (x.owned + 1) * kBlockSize; e += kStripThreads) x.s[e] = T(0);
  __syncthreads();
  for (i64 e = x.f.entry0 + thread; e < x.f.entry1; e += kStripThreads) {
    const Entry entry = from.entries[e];
    const bool mine = (entry.slot < 0) == (side == 1), across = diagonal && !mine;
    const int row = (across ? entry.col : entry.row) - x.item.row, col = across ? entry.row : entry.col;
    if ((mine || across) && row >= 0 && row < rows && col < held)
      x.s[col * kPitch + row] = from.values[entry.slot < 0 ? ~entry.slot : entry.slot];
  }
  __syncthreads();
  for (int c = x.f.child0; c < x.f.child1; ++c) {
    const int at = (c - x.f.child0) % kPieces;
    if (at == 0 && c != x.f.child0) {
      __syncthreads();
      list_strip_pieces(x, from, pieces, c, side);
      __syncthreads();
    }
    const Piece piece = pieces[at];
    if (piece.ra == piece.rb || piece.cb == 0) continue;
    const i32* map = from.maps + piece.map;
    WF_UNROLL_N(1)
    for (int half = 0; half <= static_cast<int>(diagonal); ++half)
      add_piece(x, map, from.blocks + (half == 0 ? piece.block : upper_block(piece.block, piece.below)), piece, rows, half != 0);
    __syncthreads();
  }
}

}  // namespace wf
