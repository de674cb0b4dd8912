// Inverses of larger diagonal blocks of the wide fronts, by doubling: of unit lower L = [A; C B] the inverse has -inv(B) C inv(A)
// in its lower left corner. It lies transposed above the diagonal of the panel, where nothing else is, as the inverses of 32
// columns do that the elimination leaves; the solves then multiply (wide_sweeps.cu).
//
// One block of four warps makes 32 columns of a corner: item.row is where A begins, item.e0 its order, item.end where B ends,
// item.col the first of the columns. Its warps take 32 rows at a time: W = C inv(A) goes to shared memory, then -inv(B) W to the
// panel. A launch doubles all blocks of one order; the next one reads what it wrote.
// Shared: W, column-major. Barrier: W complete.
// Du Croz and Higham (1992), Stability of methods for matrix inversion: multiplying by inverses of diagonal blocks.
#include "wide_tiles.cuh"

using namespace wf;

enum : int { kInvertThreads = 128, kInvertWarps = kInvertThreads / kWarp, kMostOrder = 128, kCornerPitch = kMostOrder + 4 };

template <typename T>
__global__ void __launch_bounds__(kInvertThreads) invert_corner(const Item* items, const Front* fronts, T* panels) {
  __shared__ T w[kPanel][kCornerPitch];
  const Item item = items[blockIdx.x];
  const Front f = fronts[item.front];
  T* panel = panels + f.panel;
  const int warp = threadIdx.x / kWarp, t4 = lane_id() % 4, order = item.e0, row0 = item.row + order, left = item.col - item.row;
  const i64 ld = f.ld;
  Tile<T> a;
  for (int i = warp * kPanel; row0 + i < item.end; i += kInvertWarps * kPanel) {
    T acc[2][4][4] = {};
    for (int k = left; k < order; k += kPanel) {
      load_tile<kFull>(a, panel + (item.row + k) * ld + row0 + i, 1, ld, item.end - row0 - i, kPanel);
      multiply_tile<4>(acc, a, [&](int s, int c) {
        const int at = k + 4 * s + t4 - left;
        return at > c ? panel[(item.col + at) * ld + item.col + c] : at == c ? T(1) : T(0);
      });
    }
    WF_UNROLL
    for (int m = 0; m < 2; ++m)
      WF_UNROLL
      for (int n = 0; n < 4; ++n)
        WF_UNROLL
        for (int e = 0; e < 4; ++e) w[8 * n + tile_col(e)][i + 16 * m + tile_row(e)] = acc[m][n][e];
  }
  __syncthreads();
  for (int i = warp * kPanel; row0 + i < item.end; i += kInvertWarps * kPanel) {
    T acc[2][4][4] = {};
    const int rows = item.end - row0 - i;
    for (int k = 0; k <= i; k += kPanel) {
      const T* at = panel + (row0 + i) * ld + row0 + k;
      if (k == i) load_tile<kUnitLower>(a, at, ld, 1, rows, kPanel);
      else load_tile<kFull>(a, at, ld, 1, rows, kPanel);
      multiply_tile<4>(acc, a, [&](int s, int c) { return w[c][k + 4 * s + t4]; });
    }
    WF_UNROLL
    for (int m = 0; m < 2; ++m)
      WF_UNROLL
      for (int n = 0; n < 4; ++n)
        WF_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int row = i + 16 * m + tile_row(e);
          if (row0 + row < item.end) panel[(row0 + row) * ld + item.col + 8 * n + tile_col(e)] = -acc[m][n][e];
        }
  }
}
