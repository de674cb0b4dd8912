// Tiles of wide fronts: contribution blocks, and updates of columns behind a finished chunk of panels.
//
// One block of 128 threads takes a 64 x 64 tile (row, col; multiples of 64) and multiplies L D L^T over columns
// e0..e1 in slices of 32: each of its four warps holds a 32 x 32 quarter in registers. Slices arrive by 16-byte
// asynchronous copies, kStages deep; D of the next slice is loaded to registers while the present one multiplies.
// Contribution: the tile starts from minus the product, children are pulled in order, the result goes to the packed
// block. Otherwise the product is subtracted from the panel's columns col..end.
// Dynamic shared memory: kStages x (A, B) of 32 columns, pitch 68; reused for the result.
// Barriers: slice landed | multiplied, before the slice's place is filled again | result stored | each child | written.
#include "front.cuh"

using namespace wf;

constexpr int kTile = 64, kTilePitch = 68, kSlice = 32, kTileThreads = 128;

// Queues rows row0.. of columns k..k+32 of a panel: rows before `least` or behind the front, and columns behind
// `end`, are zero.
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

template <typename T, bool Contribution, int Stages, bool Paired>
__global__ void __launch_bounds__(kTileThreads)
    update_tiles(const Item* items, const Front* fronts, const Child* children, const i32* maps, T* panels, T* blocks,
                 const T* diagonal, const i32* pivots) {
  WF_DYNAMIC_SHARED(memory);
  __shared__ Diagonal<T> diag[2];
  __shared__ Piece pieces[kPieces];
  constexpr int kStage = 2 * kSlice * kTilePitch;
  T* stage = reinterpret_cast<T*>(memory);
  const Item item = items[blockIdx.x];
  const Front f = fronts[item.front];
  T* panel = panels + f.panel;
  const int thread = threadIdx.x, warp = thread / kWarp, lane = thread % kWarp;
  const int begin = item.e0, end = item.e1, slices = (end - begin + kSlice - 1) / kSlice;
  const int row0 = warp % 2 * 32, col0 = warp / 2 * 32;
  const bool idle = item.row + row0 + 31 < item.col + col0;
  auto load = [&](int slice) {
    if (slice < slices) {
      T* to = stage + slice % Stages * kStage;
      load_slice(to, panel, f, item.row, end, begin + slice * kSlice, end);
      load_slice(to + kSlice * kTilePitch, panel, f, item.col, end, begin + slice * kSlice, end);
    }
    cp_async_commit();
  };
  auto load_d = [&](int slice) {
    const int k = begin + slice * kSlice;
    if (thread < kWarp && slice < slices)
      load_diagonal(diag[slice % 2], diagonal + 2 * (f.first + k), pivots + 2 * (f.first + k), min_of(kSlice, end - k),
                    lane);
  };
  for (int s = 0; s < Stages - 1; ++s) load(s);
  load_d(0);
  if (Contribution) list_pieces<kTile, kTile>(pieces, f.child0, f, item.row, item.col, children, maps);
  T acc[2][4][4] = {};
  for (int s = 0; s < slices; ++s) {
    cp_async_wait<Stages - 2>();
    __syncthreads();
    load(s + Stages - 1);
    load_d(s + 1);
    const T* a = stage + s % Stages * kStage;
    if (!idle)
      multiply_tiles<Paired>(acc, a + row0, kTilePitch, a + kSlice * kTilePitch + col0, kTilePitch, kSlice, diag[s % 2]);
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
                                          blocks);
  const int r = thread % kTile, i = item.row + r;
  for (int c = thread / kTile; c < kTile; c += kTileThreads / kTile) {
    const int j = item.col + c;
    if (i < j || i >= f.rows || j >= item.end) continue;
    const T v = tile[c * kTilePitch + r];
    if (Contribution) {
      if (j >= f.width) blocks[f.block + packed_at(f.rows - f.width, j - f.width) + i - f.width] = v;
    } else {
      panel[static_cast<i64>(j) * f.ld + i] += v;
    }
  }
}
