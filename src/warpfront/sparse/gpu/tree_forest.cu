// One sweep through the forest of small fronts below wide ones, in one launch: the tickets of tree_solve.cu without the rest.
//
// Launches of one solve follow one another and share the ticket counter, which start_tree clears before the first: a launch
// of `count` tickets takes them from `base` on, and each of its blocks one more that ends it. Cells count rounds.
// blockIdx.y is a group of R right-hand sides, with cells of its own.
// Barriers and signals: tree_sweeps.cuh, tree_solve.cu. `active` as in solve.cu.
#include "tree_sweeps.cuh"

using namespace wf;

template <typename T, int R, bool Tiles>
__global__ void __launch_bounds__(kTreeThreads)
    sweep_forest(const Item* tickets, const Item* items, const Front* fronts, const RowList* lists, const i32* list_sources,
                 const i32* below_ind, const T* panels, const T* diagonal, const i32* pivots, T* x, T* z, T* upd,
                 const i32* active, u32* cells, const i64* sizes, i32 begin, i32 count, i32 base, i32 round, i32 forward,
                 i32 cell_words) {
  grid_release();
  grid_wait();
  WF_DYNAMIC_SHARED(memory);
  __shared__ T work[2 * R * (kTreeRows + 4)];
  __shared__ i32 shared_ticket;
  if (active != nullptr && *active == 0) return;
  const int thread = threadIdx.x, warp = thread / kWarp;
  const i64 group = static_cast<i64>(blockIdx.y) * R;
  x += group * sizes[0], z += group * sizes[0], upd += group * sizes[1];
  cells += static_cast<i64>(blockIdx.y) * cell_words;
  const Tree<T> tree = {fronts, lists, list_sources, below_ind, panels, diagonal, pivots, nullptr, nullptr, nullptr, x, nullptr,
                        nullptr, x, z, upd, nullptr, cells, sizes[0], sizes[1], static_cast<u32>(round + 1)};
  for (;;) {
    if (thread == 0) shared_ticket = static_cast<i32>(add_acq_rel(cells + kTicket, 1u)) - base;
    __syncthreads();
    const int ticket = shared_ticket;
    if (ticket >= count) return;
    const Item t = tickets[begin + ticket];
    T* panel = reinterpret_cast<T*>(memory);
    if (t.last == 0) {
      if (forward != 0) forward_item<kTreeThreads, R, Tiles>(tree, items[t.front], panel, work);
      else backward_item<kTreeThreads, R, Tiles>(tree, items[t.front], panel, work);
    } else if (warp < t.last) {
      T* own = work + warp * 2 * R * kPitch;
      panel += warp * kPanel * kTreePitch;
      if (forward != 0) forward_item<kWarp, R, Tiles>(tree, items[t.front + warp], panel, own);
      else backward_item<kWarp, R, Tiles>(tree, items[t.front + warp], panel, own);
    }
    __syncthreads();
  }
}
