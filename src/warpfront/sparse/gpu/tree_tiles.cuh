// The columns of one small front in a sweep, as products of FP64 tiles: R right-hand sides (8, or one of which the product's
// other columns are zero). A column of a product is made alike whatever stands in the others, so bits do not depend on R.
#pragma once
#include "wide_tiles.cuh"

namespace wf {

// acc += A B for up to 32 x 32: A as in load_tile, right(k, c) for k < cols. Halves that are not there cost nothing. Columns of
// the product from R on repeat those before: no lane takes another way than the rest. (A compiler that splits the loop by such a
// condition leaves each way a product that waits for all lanes; so would one by rows, which the warp's barrier prevents.)
template <Shape S, int R, typename T, typename Right>
WF_DEVICE void multiply_small(T (&acc)[2][4], const T* from, int dm, int dk, int rows, int cols, const Right& right) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  WF_UNROLL_N(1)
  for (int h = 0; h < 32 && h < cols; h += 16) {
    __syncwarp();
    T a[2][8], b[4];
    WF_UNROLL
    for (int m = 0; m < 2; ++m)
      WF_UNROLL
      for (int j = 0; j < 4; ++j)
        WF_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int row = 16 * m + g + 8 * i, k = h + t + 4 * j;
          const bool inside = row < rows && k < cols && (S == kFull || (S == kUnitLower ? k < row : k > row));
          a[m][2 * j + i] = inside ? from[row * dm + k * dk] : S != kFull && row == k ? T(1) : T(0);
        }
    WF_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int k = h + t + 4 * j;
      b[j] = k < cols ? right(k, g % R) : T(0);
    }
    product(acc[0], a[0], b);
    if (rows > 16) product(acc[1], a[1], b);
  }
}

// each(row, column, value) for the elements that are there.
template <int R, typename T, typename Each>
WF_DEVICE void each_element(const T (&acc)[2][4], int rows, const Each& each) {
  WF_UNROLL
  for (int m = 0; m < 2; ++m)
    WF_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int row = 16 * m + tile_row(e), c = tile_col(e);
      if (row < rows && c < R) each(row, c, acc[m][e]);
    }
}

// t: the solved columns, and the rows below less what the columns take from them; y: own values not yet reached.
// solved(k0, size) is called for each block of columns once they stand in t, by all threads.
template <int Threads, int R, int Pitch, typename T, typename Solved>
WF_DEVICE void forward_tiles(const Front& f, const T* at, int pitch, T (*t)[Pitch], T (*y)[Pitch], const Solved& solved) {
  const int warp = team_rank<Threads>() / kWarp;
  for (int k0 = 0; k0 < f.width; k0 += kPanel) {
    const int size = min_of(kPanel, f.width - k0);
    if (warp == 0) {
      T acc[2][4] = {};
      multiply_small<kUnitLower, R>(acc, at + k0 * pitch + k0, pitch, 1, size, size, [&](int k, int c) { return y[c][k0 + k]; });
      each_element<R>(acc, size, [&](int row, int c, T v) { t[c][k0 + row] = v; });
    }
    team_sync<Threads>();
    solved(k0, size);
    for (int i0 = k0 + size + warp * kPanel; i0 < f.rows; i0 += Threads) {
      T acc[2][4] = {};
      const int rows = min_of(kPanel, f.rows - i0);
      multiply_small<kFull, R>(acc, at + k0 * pitch + i0, 1, pitch, rows, size, [&](int k, int c) { return t[c][k0 + k]; });
      each_element<R>(acc, rows, [&](int row, int c, T v) {
        if (i0 + row < f.width) y[c][i0 + row] -= v;
        else t[c][i0 + row] -= v;
      });
    }
    team_sync<Threads>();
  }
}

// t: D^-1 z and the solution in the rows below; the columns' solution takes their place. y is scratch.
template <int Threads, int R, int Pitch, typename T, typename Solved>
WF_DEVICE void backward_tiles(const Front& f, const T* at, int pitch, T (*t)[Pitch], T (*y)[Pitch], const Solved& solved) {
  constexpr int kHalf = Threads == kWarp ? kPanel : kPanel / 2;  // columns a warp
  const int warp = team_rank<Threads>() / kWarp, m0 = warp * kHalf;
  for (int k0 = (f.width - 1) / kPanel * kPanel; k0 >= 0; k0 -= kPanel) {
    const int size = min_of(kPanel, f.width - k0), rows = min_of(kHalf, size - m0), behind = k0 + size;
    if (rows > 0) {
      T acc[2][4] = {};
      for (int i0 = behind; i0 < f.rows; i0 += kPanel)
        multiply_small<kFull, R>(acc, at + (k0 + m0) * pitch + i0, pitch, 1, rows, min_of(kPanel, f.rows - i0),
                                 [&](int k, int c) { return t[c][i0 + k]; });
      each_element<R>(acc, rows, [&](int row, int c, T v) { y[c][m0 + row] = t[c][k0 + m0 + row] - v; });
    }
    team_sync<Threads>();
    if (warp == 0) {
      T acc[2][4] = {};
      multiply_small<kUnitUpper, R>(acc, at + k0 * pitch + k0, 1, pitch, size, size, [&](int k, int c) { return y[c][k]; });
      each_element<R>(acc, size, [&](int row, int c, T v) { t[c][k0 + row] = v; });
    }
    team_sync<Threads>();
    solved(k0, size);
  }
  team_sync<Threads>();
}

}  // namespace wf
