// The whole factorisation of a tree of small fronts in one launch: a flow of tickets, as the solve's (tree_solve.cu).
//
// Blocks of 128 threads take tickets in order: one front of more than 32 rows for the whole block, or up to four items (a
// front, or a subtree of small ones) for a warp each. An item waits for its children, which have smaller tickets; its records
// and lists, and the zeroed square, are there by then. Cells: tree_sweeps.cuh; only kTicket and `up` are used, and they
// start at zero. One launch for all levels: the code is read once a multiprocessor.
// Signals are released by one thread behind the team's barrier that ends a contribution block's writes, and acquired before the barrier
// behind which the team reads them. Dynamic shared memory: one front, or four of 32 rows; the team's scratch is shared by
// both kinds of tickets, and a barrier of the block separates tickets.
#include "small_fronts.cuh"
#include "tree_sweeps.cuh"

using namespace wf;

template <typename T>
struct Forest {
  const Front* fronts;
  GatherLists<T> lists;
  const T* rule;
  T *panels, *blocks, *diagonal;
  i32 *pivots, *stats;
  u32* cells;
};

// Fronts front..last by one team.
template <bool Pivoting, int Threads, typename T>
WF_DEVICE void factor_item(const Forest<T>& forest, const Item& item, T* a, FrontScratch<T, Threads, Pivoting>& scratch) {
  for (int s = item.front; s <= item.last; ++s) {
    const Front f = forest.fronts[s];
    const Target<T> to = {forest.panels + f.panel, forest.blocks + f.block, forest.diagonal + 2 * f.first,
                          forest.pivots + 2 * f.first, forest.stats + kStats * f.stat};
    const int padded = (f.rows + 15) / 16 * 16, ld = padded + 4;
    const auto ready = [&] {
      if (s == item.last && item.row > 0) team_wait<Threads>(forest.cells + item.col, static_cast<u32>(item.row));
      else team_sync<Threads>();
    };
    gather_front<Threads>(a, padded * ld, s, forest.lists, ready);
    team_sync<Threads>();
    u32* cell = s == item.last && item.index == 0 ? forest.cells + item.end : nullptr;
    eliminate_front<Pivoting, Threads>(a, ld, padded, f, forest.rule, scratch, to, cell);
    team_sync<Threads>();
  }
}

// A team's item to shared memory: what is read from global memory anew behind an acquire comes from afar.
template <int Threads>
WF_DEVICE const Item& keep_item(const Item* items, Item* kept) {
  constexpr int kWords = sizeof(Item) / sizeof(i32);
  const int rank = team_rank<Threads>();
  if (rank < kWords) reinterpret_cast<i32*>(kept)[rank] = reinterpret_cast<const i32*>(items)[rank];
  team_sync<Threads>();
  return *kept;
}

template <typename T, bool Pivoting>
union TicketScratch {
  FrontScratch<T, kTreeThreads, Pivoting> team;
  FrontScratch<T, kWarp, Pivoting> single[kTreeThreads / kWarp];
};

template <typename T, bool Pivoting>
__global__ void __launch_bounds__(kTreeThreads, 2)
    factor_tree(const Item* tickets, const Item* items, const Front* fronts, const Gather* gathers, const i32* sources,
                const place_t* places, const T* values, const T* rule, T* panels, T* blocks, T* diagonal, i32* pivots,
                i32* stats, u32* cells, i32 count) {
  WF_DYNAMIC_SHARED(memory);
  __shared__ TicketScratch<T, Pivoting> scratch;
  __shared__ T shared_rule[kEpsilon + 1];
  __shared__ Item kept[kTreeThreads / kWarp];
  __shared__ i32 shared_ticket;
  const int thread = threadIdx.x, warp = thread / kWarp;
  const Forest<T> forest = {fronts, {gathers, sources, places, values, blocks}, shared_rule, panels, blocks, diagonal, pivots, stats, cells};
  if (Pivoting && thread <= kEpsilon) shared_rule[thread] = rule[thread];  // read behind the first ticket's barrier
  T* a = reinterpret_cast<T*>(memory);
  for (;;) {
    if (thread == 0) shared_ticket = static_cast<i32>(add_acq_rel(cells + kTicket, 1u));
    __syncthreads();
    const int ticket = shared_ticket;
    if (ticket >= count) return;
    const Item t = tickets[ticket];
    if (t.last == 0) {
      const Item& item = keep_item<kTreeThreads>(items + t.front, kept);
      factor_item<Pivoting, kTreeThreads>(forest, item, a, scratch.team);
    } else if (warp < t.last) {
      const Item& item = keep_item<kWarp>(items + t.front + warp, kept + warp);
      factor_item<Pivoting, kWarp>(forest, item, a + warp * kPanel * kPitch, scratch.single[warp]);
    }
    __syncthreads();
  }
}
