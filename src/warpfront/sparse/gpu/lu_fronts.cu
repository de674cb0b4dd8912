// LU of fronts that fit one team's shared memory: assembled, eliminated with row interchanges and written out in one go.
//
// One block takes one item: a whole subtree of small fronts (postordered range, child before parent) or a single front.
// Threads: 32 for fronts of at most 32 rows, up to 256 for fronts of at most 160 rows; a row a thread.
// Dynamic shared memory: the front as a padded x padded square, column-major, leading dimension padded + 4.
// Barriers: zeroed | elements gathered (gather.cuh) | eliminated (lu_small.cuh) | written out, before the next front of a
// subtree overwrites. A child's block that an earlier front of the same subtree wrote is visible behind that last one.
#include "lu_small.cuh"

using namespace wf;

WF_DEVICE constexpr int lu_least_blocks(int threads) { return threads == 32 ? 8 : threads == 128 ? 3 : 1; }

template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, lu_least_blocks(Threads))
    lu_eliminate_fronts(const Item* items, const Front* fronts, const Gather* gathers, const i32* sources,
                        const place_t* places, const T* values, const T* rule, T* panels, T* blocks, T* diagonal,
                        i32* pivots, i32* stats) {
  WF_DYNAMIC_SHARED(memory);
  __shared__ LuScratch<T, Threads> scratch;
  const LuFronts<T> all = {fronts, {gathers, sources, places, values, blocks}, lu_rule(rule), panels, blocks, diagonal, pivots, stats};
  const Item item = items[blockIdx.x];
  for (int s = item.front; s <= item.last; ++s) {
    factor_lu_front<Threads>(all, s, reinterpret_cast<T*>(memory), scratch, [] { team_sync<Threads>(); }, [] {});
    team_sync<Threads>();
  }
}
