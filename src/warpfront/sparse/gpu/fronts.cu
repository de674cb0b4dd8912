// Fronts that fit one team's shared memory: assembled, eliminated and written out in one go.
//
// One block takes one item: a whole subtree of small fronts (postordered range, child before parent) or a single
// front. Threads: 32 for subtrees of fronts of at most 32 rows, up to 512 for fronts of at most 160 rows.
// Dynamic shared memory: the front as a padded x padded square (padded: rows rounded up to 16), column-major with
// leading dimension padded + 4.
// Barriers: zeroed | elements gathered (gather.cuh) | eliminated (small_fronts.cuh) | written out, before the next front
// of a subtree overwrites. A child's block that an earlier front of the same subtree wrote is visible behind that last one.
#include "small_fronts.cuh"

using namespace wf;

// Blocks on a multiprocessor that registers must allow: many small fronts are in flight at the bottom of the tree.
WF_DEVICE constexpr int least_blocks(int threads, bool pivoting) {
  return threads == 32 ? (pivoting ? 10 : 12) : threads == 128 ? (pivoting ? 2 : 3) : 1;
}

template <typename T, int Threads, bool Pivoting>
__global__ void __launch_bounds__(Threads, least_blocks(Threads, Pivoting))
    eliminate_fronts(const Item* items, const Front* fronts, const Gather* gathers, const i32* sources,
                     const place_t* places, const T* values, const T* rule, T* panels, T* blocks, T* diagonal,
                     i32* pivots, i32* stats) {
  WF_DYNAMIC_SHARED(memory);
  __shared__ FrontScratch<T, Threads, Pivoting> scratch;
  T* a = reinterpret_cast<T*>(memory);
  const GatherLists<T> lists = {gathers, sources, places, values, blocks};
  const Item item = items[blockIdx.x];
  for (int s = item.front; s <= item.last; ++s) {
    const Front f = fronts[s];
    const Target<T> to = {panels + f.panel, blocks + f.block, diagonal + 2 * f.first, pivots + 2 * f.first,
                          stats + kStats * f.stat};
    const int padded = (f.rows + 15) / 16 * 16, ld = padded + 4;
    gather_front<Threads>(a, padded * ld, s, lists, [] { team_sync<Threads>(); });
    team_sync<Threads>();
    eliminate_front<Pivoting, Threads>(a, ld, padded, f, rule, scratch, to);
    team_sync<Threads>();
  }
}
