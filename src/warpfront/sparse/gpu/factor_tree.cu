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

constexpr bool kRehearse = true;
constexpr int kRehearsed = 4;  // columns

template <typename T>
struct Forest {
  const Front* fronts;
  GatherLists<T> lists;
  const T* rule;
  T *panels, *blocks, *diagonal;
  i32 *pivots, *stats;
  u32* cells;
};

// Whether a team that is about to wait would do so.
template <int Threads>
WF_DEVICE bool team_pending(const u32* cell, u32 value) {
  const bool pending = team_rank<Threads>() == 0 && static_cast<i32>(acquire_load(cell) - value) < 0;
  if constexpr (Threads == kWarp) return __any_sync(kFullMask, pending) != 0;
  else return __syncthreads_or(pending) != 0;
}

// A front for the rehearsal of f: the same rows below and a few columns, so that its results fit f's places.
WF_DEVICE void shorten(Front& f) {
  const int below = f.rows - f.width;
  f.width = min_of(kRehearsed, f.width);
  f.rows = below + f.width, f.ld = (f.rows + 3) / 4 * 4;
}

// Two columns that are taken in place, two that are taken together after that was refused; one thread.
template <typename T>
WF_DEVICE void set_rehearsal(T* a, int ld, int width) {
  if (width < kRehearsed) return;
  a[0] = a[ld + 1] = T(1);
  a[2 * ld + 3] = T(1);
}

// Fronts front..last by one team. A team that has not yet met its kind of front in this launch and would wait rehearses: it
// eliminates a small matrix of no meaning first, with the results where those of `last` will overwrite them. That brings the
// code into the multiprocessor's cache while there is nothing else to do.
template <bool Pivoting, int Threads, typename T>
WF_DEVICE void factor_item(const Forest<T>& forest, const Item& item, i32& cold, T* a, FrontScratch<T, Threads, Pivoting>& scratch) {
  constexpr int kind = Threads == kWarp ? 1 : 2;
  const bool rehearse = kRehearse && (cold & kind) != 0 && item.row > 0 &&
                        team_pending<Threads>(forest.cells + item.col, static_cast<u32>(item.row));
  cold &= ~kind;
  for (int s = item.front - (rehearse ? 1 : 0); s <= item.last; ++s) {
    const bool real = s >= item.front;
    Front f = forest.fronts[real ? s : item.last];
    if (!real) shorten(f);
    const Target<T> to = {forest.panels + f.panel, forest.blocks + f.block, forest.diagonal + 2 * f.first,
                          forest.pivots + 2 * f.first, forest.stats + kStats * f.stat};
    const int padded = (f.rows + 15) / 16 * 16, ld = padded + 4;
    const auto ready = [&] {
      if (s == item.last && item.row > 0) team_wait<Threads>(forest.cells + item.col, static_cast<u32>(item.row));
      else team_sync<Threads>();
      if (!real && team_rank<Threads>() == 0) set_rehearsal(a, ld, f.width);
    };
    gather_front<Threads>(a, padded * ld, real ? s : item.last, forest.lists, ready, real);
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
  __shared__ i32 cold[kTreeThreads];  // kinds of fronts not met yet: bit 0 a warp's, bit 1 the block's; a word a thread
  const int thread = threadIdx.x, warp = thread / kWarp;
  const Forest<T> forest = {fronts, {gathers, sources, places, values, blocks}, shared_rule, panels, blocks, diagonal, pivots, stats, cells};
  if (Pivoting && thread <= kEpsilon) shared_rule[thread] = rule[thread];  // read behind the first ticket's barrier
  T* a = reinterpret_cast<T*>(memory);
  cold[thread] = 3;
  for (;;) {
    if (thread == 0) shared_ticket = static_cast<i32>(add_acq_rel(cells + kTicket, 1u));
    __syncthreads();
    const int ticket = shared_ticket;
    if (ticket >= count) return;
    const Item t = tickets[ticket];
    if (t.last == 0) {
      const Item& item = keep_item<kTreeThreads>(items + t.front, kept);
      factor_item<Pivoting, kTreeThreads>(forest, item, cold[thread], a, scratch.team);
    } else if (warp < t.last) {
      const Item& item = keep_item<kWarp>(items + t.front + warp, kept + warp);
      factor_item<Pivoting, kWarp>(forest, item, cold[thread], a + warp * kPanel * kPitch, scratch.single[warp]);
    }
    __syncthreads();
  }
}
