// Tiles of 32 x 32 as operands of one warp's FP64 products, read from global memory in the order of the fragments: a load
// takes 8 x 4 entries of either orientation of the panel, whole sectors of 32 bytes.
#pragma once
#include "front.cuh"

namespace wf {

// Tile of 32 x 32 of a product's left operand, as fragments: tile[half of k][half of rows].
template <typename T>
struct Tile {
  T at[2][2][8];
};

enum Shape : int { kFull, kUnitLower, kUnitUpper };

// A(m, k) = from[m * dm + k * dk] for m < rows, k < cols; triangles have ones on the diagonal.
template <Shape S, typename T>
WF_DEVICE void load_tile(Tile<T>& a, const T* from, i64 dm, i64 dk, int rows, int cols) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  WF_UNROLL
  for (int h = 0; h < 2; ++h)
    WF_UNROLL
    for (int m = 0; m < 2; ++m)
      WF_UNROLL
      for (int j = 0; j < 4; ++j)
        WF_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int row = 16 * m + g + 8 * i, k = 16 * h + t + 4 * j;
          const bool inside = row < rows && k < cols && (S == kFull || (S == kUnitLower ? k < row : k > row));
          a.at[h][m][2 * j + i] = inside ? from[row * dm + k * dk] : S != kFull && row == k ? T(1) : T(0);
        }
}

// acc += A B; right(s, c) is the right operand's entry in row 4 s + lane % 4, column c. The warp's barrier keeps the compiler
// from splitting a loop around this by a condition that differs between lanes: a product needs all of them.
template <int N, typename T, typename Right>
WF_DEVICE void multiply_tile(T (&acc)[2][N][4], const Tile<T>& a, const Right& right) {
  const int g = lane_id() / 4;
  __syncwarp();
  T b[2][N][4];
  WF_UNROLL
  for (int h = 0; h < 2; ++h)
    WF_UNROLL
    for (int n = 0; n < N; ++n)
      WF_UNROLL
      for (int j = 0; j < 4; ++j) b[h][n][j] = right(4 * h + j, 8 * n + g);
  WF_UNROLL
  for (int h = 0; h < 2; ++h)
    WF_UNROLL
    for (int n = 0; n < N; ++n)
      WF_UNROLL
      for (int m = 0; m < 2; ++m) product(acc[m][n], a.at[h][m], b[h][n]);
}

}  // namespace wf
