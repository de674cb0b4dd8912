// The LU of a tree of small fronts in one launch: the tickets of factor_tree.cu.
//
// Blocks of 128 threads take tickets in order: one front of more than 32 rows for the whole block, or up to four items (a
// front, or a subtree of small ones) for a warp each. An item waits for its children, which have smaller tickets; its records
// and lists, and the zeroed square, are there by then. It signals as soon as its contribution block is written; its panel
// follows. Cells: tree_sweeps.cuh; only kTicket and `up` are used, and they start at zero.
// Signals are released by one thread behind the team's barrier that ends the block's writes, and acquired before the barrier
// behind which the team reads them. Dynamic shared memory: the team's scratch and one front, or four of each for the warps; a
// barrier of the block separates tickets.
#include "lu_small.cuh"
#include "tree_sweeps.cuh"

using namespace wf;

constexpr int kTeamScratch = 18976, kWarpScratch = 11264;  // bytes; lu_schedule.py counts with them

template <int Threads, typename T>
WF_DEVICE void lu_tree_item(const LuFronts<T>& all, u32* cells, const Item& item, unsigned char* memory) {
  constexpr int kBytes = Threads == kWarp ? kWarpScratch : kTeamScratch;
  static_assert(sizeof(LuScratch<T, Threads>) <= kBytes, "the scratch has outgrown its place");
  LuScratch<T, Threads>& scratch = *reinterpret_cast<LuScratch<T, Threads>*>(memory);
  T* a = reinterpret_cast<T*>(memory + kBytes);
  for (int s = item.front; s <= item.last; ++s) {
    factor_lu_front<Threads>(
        all, s, a, scratch,
        [&] {
          if (s == item.last && item.row > 0) team_wait<Threads>(cells + item.col, static_cast<u32>(item.row));
          else team_sync<Threads>();
        },
        [&] {
          if (s != item.last || item.index != 0) return;
          team_sync<Threads>();
          if (team_rank<Threads>() == 0) add_acq_rel(cells + item.end, 1u);
        });
    team_sync<Threads>();
  }
}

template <typename T>
__global__ void __launch_bounds__(kTreeThreads, 2)
    lu_factor_tree(const Item* tickets, const Item* items, const Front* fronts, const Gather* gathers, const i32* sources,
                   const place_t* places, const T* values, const T* rule, T* panels, T* blocks, T* diagonal, i32* pivots,
                   i32* stats, u32* cells, i32 count) {
  WF_DYNAMIC_SHARED(memory);
  __shared__ i32 shared_ticket;
  const int thread = threadIdx.x, warp = thread / kWarp;
  const LuFronts<T> all = {fronts, {gathers, sources, places, values, blocks}, lu_rule(rule), panels, blocks, diagonal, pivots, stats};
  for (;;) {
    if (thread == 0) shared_ticket = static_cast<i32>(add_acq_rel(cells + kTicket, 1u));
    __syncthreads();
    const int ticket = shared_ticket;
    if (ticket >= count) return;
    const Item t = tickets[ticket];
    if (t.last == 0) lu_tree_item<kTreeThreads>(all, cells, items[t.front], memory);
    else if (warp < t.last)
      lu_tree_item<kWarp>(all, cells, items[t.front + warp],
                          memory + warp * (kWarpScratch + kPanel * kPitch * static_cast<int>(sizeof(T))));
    __syncthreads();
  }
}
