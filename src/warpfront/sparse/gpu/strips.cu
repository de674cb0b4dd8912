// Elimination of a chunk of columns of the wide fronts of one level: dataflow between strips of 32 rows.
//
// One block of 256 threads owns 32 rows (item.row..) of columns col..end of a front, all of them in shared memory:
// S, column-major, pitch 36. Strip `index` < e0 also owns the diagonal block of panel `index` of the chunk.
// Where the fully summed columns are one chunk (item.e1), the strip assembles its rows itself; otherwise assemble.cu has.
// For each panel p before its own diagonal block, a strip waits for the published block, forms its rows
//   L = S_p M,   M = P inv(L_pp)^T inv(D_p)   (P: the interchanges inside the diagonal block),
// writes them to the panel, announces them, and updates its columns behind p with the rows of the strips there.
// Then it eliminates its diagonal block and publishes M and D: a definite block's while it is eliminated, eight columns after the
// other, and the next strip forms rows as they come. So a strip waits only for strips with a smaller block index: blocks start
// in that order, and no wait can last for ever.
// Pivots are sought inside the diagonal block only (pivot_search = "panel").
// Published values carry tags (tagged.cuh), 64 * epoch + 1. Flags, one word a strip, hold 64 * epoch + panels done and are never
// cleared: writers release after a barrier, one reader acquires before one. (One word a diagonal block, too, without tags.)
// Barriers of a panel: those before have been used | published block and D landed | rows formed, before S_p is overwritten | rows
// stored, before they are announced and read | neighbours' rows announced; landed, two strips after two | own block updated.
#include "strip_rows.cuh"

using namespace wf;

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
WF_DEVICE void list_strip_pieces(const Strip<T>& x, const StripSources<T>& from, Piece* pieces, int first) {
  const int c = first + static_cast<int>(threadIdx.x), bin = x.item.row / kPanel;
  if (threadIdx.x >= kPieces || c >= x.f.child1) return;
  const Child child = from.children[c];
  const i32* range = from.maps + child.range;
  const int end = range[bin + 1];
  pieces[threadIdx.x] = {child.block, child.map, child.below, range[bin], end, 0,
                         min_of(end, range[(x.columns + kPanel - 1) / kPanel]), 0};
}

// A strip's rows of all fully summed columns: entries of A, then the children in ascending order.
// Barriers: zeroed and listed | entries entered | each child added | the next list written.
template <typename T>
WF_DEVICE void assemble_strip(const Strip<T>& x, const StripSources<T>& from, Piece* pieces, int words) {
  constexpr int kGroups = kStripThreads / kWarp, kBatch = 16;
  const int thread = threadIdx.x, lane = thread % kWarp, group = thread / kWarp, rows = x.item.last - x.item.row;
  list_strip_pieces(x, from, pieces, x.f.child0);
  for (int e = thread; e < words; e += kStripThreads) x.s[e] = T(0);
  __syncthreads();
  for (i64 e = x.f.entry0 + thread; e < x.f.entry1; e += kStripThreads) {
    const Entry entry = from.entries[e];
    const int row = entry.row - x.item.row;
    if (row >= 0 && row < rows) x.s[entry.col * kPitch + row] = from.values[entry.slot];
  }
  __syncthreads();
  for (int c = x.f.child0; c < x.f.child1; ++c) {
    const int at = (c - x.f.child0) % kPieces;
    if (at == 0 && c != x.f.child0) {
      __syncthreads();
      list_strip_pieces(x, from, pieces, c);
      __syncthreads();
    }
    const Piece piece = pieces[at];
    if (piece.ra == piece.rb || piece.cb == 0) continue;
    const i32* map = from.maps + piece.map;
    const T* block = from.blocks + piece.block;
    const int i = piece.ra + lane, row = i < piece.rb ? map[i] - x.item.row : -1;
    const bool live = row >= 0 && row < rows;
    for (int base = group; base < piece.cb; base += kGroups * kBatch) {
      T v[kBatch];
      int into[kBatch];
      WF_UNROLL
      for (int q = 0; q < kBatch; ++q) {
        const int j = base + q * kGroups;
        const bool inside = live && j < piece.cb && i >= j;
        into[q] = inside ? map[j] : x.columns;
        v[q] = inside ? block[packed_at(piece.below, j) + i] : T(0);
      }
      WF_UNROLL
      for (int q = 0; q < kBatch; ++q)
        if (into[q] < x.columns) x.s[into[q] * kPitch + row] += v[q];
    }
    __syncthreads();
  }
}

// A strip that has been assembled by a launch before, or updated by the chunks before this one.
template <typename T>
WF_DEVICE void load_strip(const Strip<T>& x, int owned) {
  const int lane = threadIdx.x % kWarp;
  for (int c = static_cast<int>(threadIdx.x) / kWarp; c < (owned + 1) * kPanel; c += kStripThreads / kWarp) {
    const int row = x.item.row + lane, col = x.item.col + c;
    const bool inside = row < x.item.last && c < x.columns && row >= col;
    x.s[c * kPitch + lane] = inside ? x.panel[static_cast<i64>(col) * x.f.ld + row] : T(0);
  }
}

// Tags: diagonal blocks eight columns at a time (blocked.cuh), published as values with tags, which is faster for definite ones
// alone; otherwise two columns at a time, and announced by a flag.
template <typename T, bool Pivoting, bool Tags>
__global__ void __launch_bounds__(kStripThreads, 1)
    eliminate_strips(const Item* items, const Front* fronts, const Child* children, const Entry* entries, const i32* maps,
                     const T* values, const T* blocks_of_children, const T* rule, T* panels, T* diagonal, i32* pivots,
                     u32* published, u32* flags, i32* stats) {
  WF_DYNAMIC_SHARED(memory);
  __shared__ Diagonal<T> d;
  __shared__ Piece pieces[kPieces];
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp;
  Strip<T> x;
  x.item = items[blockIdx.x], x.f = fronts[x.item.front];
  const int blocks = x.item.e0, index = x.item.index, owned = min_of(index, blocks - 1), first = x.item.col / kPanel;
  x.m = reinterpret_cast<T*>(memory), x.near = x.m + kBlockSize, x.s = x.near + kNeighbours * kBlockSize;
  x.panel = panels + x.f.panel, x.tagged = reinterpret_cast<Tagged*>(published) + x.f.work + static_cast<i64>(first) * kPublished;
  x.published = reinterpret_cast<T*>(published) + x.f.work + static_cast<i64>(first) * kPublished;
  x.block_done = flags + x.f.flag + 2 * first, x.rows_done = x.block_done + blocks;
  x.base = 64 * flags[0], x.columns = x.item.end - x.item.col;
  x.written = x.item.last == x.f.rows ? x.f.ld : x.item.last;
  if (x.item.e1 != 0) {
    const StripSources<T> from = {children, entries, maps, values, blocks_of_children};
    assemble_strip(x, from, pieces, (owned + 1) * kBlockSize);
  } else {
    load_strip(x, owned);
  }
  for (int k = thread; k < kLead; k += kStripThreads) d.own[k] = d.other[k] = T(0), d.step[k] = 0;
  follow_strips<Pivoting, Tags>(x, d, blocks, owned);
  // The diagonal block; columns behind the chunk are zero and stay out.
  if (index >= blocks) return;
  __shared__ typename ScratchOf<Pivoting, T>::type scratch;
  __shared__ i32 order[kPanel];
  const int size = min_of(kPanel, x.columns - index * kPanel), k0 = x.item.col + index * kPanel;
  T* block = x.s + index * kBlockSize;
  BlockedScratch<T>& blocked = *reinterpret_cast<BlockedScratch<T>*>(x.near);
  const i64 at = static_cast<i64>(index) * kPublished;
  const BlockOutput<T> to = {diagonal + 2 * (x.f.first + k0), pivots + 2 * (x.f.first + k0), stats + kStats * (x.f.stat + first + index),
                             Tags ? reinterpret_cast<T*>(&blocked) : x.published + at, x.block_done + index, x.base + 1,
                             Tags ? x.tagged + at : nullptr};
  eliminate_block<Tags>(warp, block, size, rule, blocked, scratch, order, to);
  if (warp != 0) return;
  __syncwarp();
  for (int k = 0; k < size; ++k)
    if (lane < size) x.panel[static_cast<i64>(k0 + k) * x.f.ld + k0 + lane] = lane == k ? T(1) : block[k * kPitch + lane];
  if (lane < size) to.pivots[2 * lane] += k0;
  if (lane == kFailed && to.stats[lane] >= 0) to.stats[lane] += static_cast<i32>(x.f.first) + k0;
}
