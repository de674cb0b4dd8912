// Tiles of wide LU fronts: contribution blocks, and updates of what lies behind a finished chunk of panels.
//
// One block of 128 threads takes a 64 x 64 tile (row, col; multiples of 64) of the lower triangle of one half (item.last, see
// lu_front.cuh) and multiplies A D B^T over columns e0..e1 in slices of 32, A from this half, B from the other: each of its
// four warps holds a 32 x 32 quarter in registers. Slices arrive by 16-byte asynchronous copies, Stages deep.
// Contribution: the tile starts from minus the product, children are pulled in order, the result goes to the packed half
// block. Otherwise the product is subtracted from the half's columns col..end.
// Dynamic shared memory: Stages x (A, B) of 32 columns, pitch 68; reused for the result.
// Barriers: slice landed | multiplied, before the slice's place is filled again | result stored | each child | written.
#include "lu_front.cuh"

using namespace wf;

constexpr int kTile = 64, kTilePitch = 68, kSlice = 32, kTileThreads = 128;

// Queues rows row0.. of columns k..k+32 of a half: rows before `least` or behind the front, and columns behind `end`, are
// zero.
template <typename T>
WF_DEVICE void load_slice(T* to, const T* panel, const Front& f, int row0, int least, int k, int end) {
  constexpr int kPer = 16 / static_cast<int>(sizeof(T)), kLanes = kTile / kPer, kStep = kTileThreads / kLanes;
  const int r = static_cast<int>(threadIdx.x) % kLanes * kPer, row = row0 + r;
  for (int c = static_cast<int>(threadIdx.x) / kLanes; c < kSlice; c += kStep) {
    const bool inside = k + c < end && row + kPer > least && row < f.rows;
    const int count = inside ? min_of(kPer, f.rows - row) : 0;
    const T* from = inside ? panel + static_cast<i64>(k + c) * f.ld + row : panel;
    cp_async16(to + c * kTilePitch + r, from, static_cast<u32>(count * sizeof(T)));
  }
}

template <typename T, bool Contribution, int Stages>
__global__ void __launch_bounds__(kTileThreads)
    lu_update_tiles(const Item* items, const Front* fronts, const Child* children, const i32* maps, T* panels, T* blocks,
                    const T* diagonal) {
  WF_DYNAMIC_SHARED(memory);
  __shared__ T weights[2][kSlice];
  __shared__ Piece pieces[kPieces];
  constexpr int kStage = 2 * kSlice * kTilePitch;
  T* stage = reinterpret_cast<T*>(memory);
  const Item item = items[blockIdx.x];
  const Front f = fronts[item.front];
  const int side = item.last;
  T *panel = panels + side_panel(f, side), *other = panels + side_panel(f, 1 - side);
  const int thread = threadIdx.x, warp = thread / kWarp;
  const int begin = item.e0, end = item.e1, slices = (end - begin + kSlice - 1) / kSlice;
  const int row0 = warp % 2 * 32, col0 = warp / 2 * 32;
  const bool idle = item.row + row0 + 31 < item.col + col0;
  auto load = [&](int slice) {
    if (slice < slices) {
      T* to = stage + slice % Stages * kStage;
      load_slice(to, panel, f, item.row, end, begin + slice * kSlice, end);
      load_slice(to + kSlice * kTilePitch, other, f, item.col, end, begin + slice * kSlice, end);
    }
    cp_async_commit();
  };
  auto load_d = [&](int slice) {
    const int k = begin + slice * kSlice + thread;
    if (thread < kSlice && slice < slices) weights[slice % 2][thread] = k < end ? diagonal[2 * (f.first + k)] : T(0);
  };
  for (int s = 0; s < Stages - 1; ++s) load(s);
  load_d(0);
  if (Contribution) list_pieces<kTile, kTile>(pieces, f.child0, f, item.row, item.col, children, maps, side);
  T acc[2][4][4] = {};
  for (int s = 0; s < slices; ++s) {
    cp_async_wait<Stages - 2>();
    __syncthreads();
    load(s + Stages - 1);
    load_d(s + 1);
    const T* a = stage + s % Stages * kStage;
    if (!idle) multiply_weighted(acc, a + row0, a + kSlice * kTilePitch + col0, kTilePitch, weights[s % 2]);
  }
  cp_async_wait<0>();
  __syncthreads();
  T* tile = stage;
  WF_UNROLL
  for (int m = 0; m < 2; ++m)
    for (int n = 0; n < 4; ++n)
      for (int e = 0; e < 4; ++e)
        tile[(col0 + 8 * n + tile_col(e)) * kTilePitch + row0 + 16 * m + tile_row(e)] = -acc[m][n][e];
  __syncthreads();
  if (Contribution)
    pull_tile<kTile, kTile, kTileThreads>(tile, kTilePitch, pieces, f, item.row, item.col, f.width, children, maps,
                                          blocks, side);
  const int below = f.rows - f.width, r = thread % kTile, i = item.row + r;
  T* block = blocks + (side == 0 ? f.block : upper_block(f.block, below));
  for (int c = thread / kTile; c < kTile; c += kTileThreads / kTile) {
    const int j = item.col + c;
    if (i < j || i >= f.rows || j >= item.end) continue;
    const T v = tile[c * kTilePitch + r];
    if (Contribution) {
      if (j >= f.width) block[packed_at(below, j - f.width) + i - f.width] = v;
    } else {
      panel[static_cast<i64>(j) * f.ld + i] += v;
    }
  }
}
