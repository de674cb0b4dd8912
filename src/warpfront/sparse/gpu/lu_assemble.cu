// Fully summed columns and rows of the wide LU fronts: entries of A and the children's blocks, pulled, for both halves.
//
// One block of 128 threads takes one item: rows row..row+64 of columns col..col+32 of one half (item.last, see lu_front.cuh)
// of a front, in shared memory (column-major, pitch 68). Each element of the half's lower trapezoid, and of the rows that pad
// it, is written once.
// Barriers: zeroed | entries entered | one after each child (pull_tile) | written.
#include "lu_front.cuh"

using namespace wf;

template <typename T>
__global__ void __launch_bounds__(128)
    lu_assemble_panels(const Item* items, const Front* fronts, const Child* children, const Entry* entries,
                       const i32* maps, const T* values, T* panels, const T* blocks) {
  constexpr int kRows = 64, kCols = 32, kLd = 68, kThreads = 128;
  __shared__ T tile[kCols * kLd];
  __shared__ Piece pieces[kPieces];
  const Item item = items[blockIdx.x];
  const Front f = fronts[item.front];
  const int thread = threadIdx.x, side = item.last;
  list_pieces<kRows, kCols>(pieces, f.child0, f, item.row, item.col, children, maps, side);
  for (int e = thread; e < kCols * kLd; e += kThreads) tile[e] = T(0);
  __syncthreads();
  for (int e = item.e0 + thread; e < item.e1; e += kThreads) {
    const Entry entry = entries[f.entry0 + e];
    const int row = entry.row - item.row;
    if (row < 0 || row >= kRows || (entry.slot < 0) != (side == 1)) continue;
    tile[(entry.col - item.col) * kLd + row] = values[side == 1 ? ~entry.slot : entry.slot];
  }
  __syncthreads();
  pull_tile<kRows, kCols, kThreads>(tile, kLd, pieces, f, item.row, item.col, 0, children, maps, blocks, side);
  T* panel = panels + side_panel(f, side);
  const int lane = thread % kRows, i = item.row + lane;
  for (int c = thread / kRows; c < kCols; c += kThreads / kRows) {
    const int j = item.col + c;
    if (j < f.width && i >= j && i < f.ld) panel[static_cast<i64>(j) * f.ld + i] = tile[c * kLd + lane];
  }
}
