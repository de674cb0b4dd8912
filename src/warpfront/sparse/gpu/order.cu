// Interchanges of the strips' diagonal blocks, applied to the columns before them.
#include "front.cuh"

using namespace wf;

constexpr int kOrderThreads = 256;

// Rows of each diagonal block of a wide front take the block's interchanges in the columns before it. One warp of
// 256 threads a column; item: front, row (first of the block), col..end.
template <typename T>
__global__ void __launch_bounds__(kOrderThreads)
    order_rows(const Item* items, const Front* fronts, T* panels, const i32* pivots) {
  const Item item = items[blockIdx.x];
  const Front f = fronts[item.front];
  const int lane = threadIdx.x % kWarp, row = item.row + lane;
  const int from = row < f.width ? pivots[2 * (f.first + row)] - item.row : lane;
  if (!__any_sync(kFullMask, from != lane)) return;
  for (int c = item.col + threadIdx.x / kWarp; c < item.end; c += kOrderThreads / kWarp) {
    T* at = panels + f.panel + static_cast<i64>(c) * f.ld + row;
    const T v = __shfl_sync(kFullMask, row < f.width ? *at : T(0), from);
    if (row < f.width) *at = v;
  }
}
