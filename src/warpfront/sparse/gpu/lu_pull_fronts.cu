// The same as lu_fronts.cu with children added by pull, one after the other, instead of by lists: kept beside it until both
// have been measured.
//
// Threads, shared memory and items: lu_fronts.cu. Barriers: zeroed | entries of A | children added (columns, and rows of the
// upper half, owned by warps) | eliminated | written out.
#include "lu_pull.cuh"
#include "lu_small.cuh"

using namespace wf;

template <int Threads, typename T>
WF_DEVICE void assemble_front(T* a, int ld, int padded, const Front& f, const Child* children, const Entry* entries,
                              const i32* maps, const T* values, const T* blocks) {
  const int rank = team_rank<Threads>();
  for (int e = rank; e < padded * ld; e += Threads) a[e] = T(0);
  team_sync<Threads>();
  for (i64 e = f.entry0 + rank; e < f.entry1; e += Threads) {
    const Entry entry = entries[e];  // of the upper half: the slot's complement, place transposed
    if (entry.slot >= 0) a[entry.col * ld + entry.row] = values[entry.slot];
    else a[entry.row * ld + entry.col] = values[~entry.slot];
  }
  team_sync<Threads>();
  pull_halves<Threads>(a, ld, f, children, maps, blocks);
  team_sync<Threads>();
}

template <typename T, int Threads>
__global__ void __launch_bounds__(Threads, Threads == 32 ? 8 : Threads == 128 ? 3 : 1)
    lu_pull_fronts(const Item* items, const Front* fronts, const Child* children, const Entry* entries, const i32* maps,
                   const T* values, const T* rule, T* panels, T* blocks, T* diagonal, i32* pivots, i32* stats) {
  WF_DYNAMIC_SHARED(memory);
  __shared__ LuScratch<T, Threads> scratch;
  T* a = reinterpret_cast<T*>(memory);
  const LuFronts<T> all = {fronts, {nullptr, nullptr, nullptr, values, blocks}, lu_rule(rule), panels, blocks, diagonal, pivots, stats};
  const Item item = items[blockIdx.x];
  for (int s = item.front; s <= item.last; ++s) {
    const Front f = fronts[s];
    const LuTarget<T> to = lu_target(all, f);
    const int padded = (f.rows + 15) / 16 * 16, ld = padded + 4;
    LuCounts counts = {0, 0, 0, 0, -1, 0};
    assemble_front<Threads>(a, ld, padded, f, children, entries, maps, values, blocks);
    bool done = false;
    if constexpr (Threads == kWarp) {
      done = eliminate_in_warp(a, ld, f, all.rule, scratch, counts, to);
      if (!done) {
        counts = {0, 0, 0, 0, -1, 0};
        assemble_front<Threads>(a, ld, padded, f, children, entries, maps, values, blocks);
      }
    }
    u32 placed = 0;
    if (!done) placed = eliminate_lu<Threads>(a, ld, padded, f, all.rule, scratch, counts, to);
    write_lu_block<Threads>(a, ld, f, to);
    write_lu_panel<Threads>(a, ld, f, done, placed, scratch, to);
    write_counts(counts, f, team_rank<Threads>(), stats + kStats * f.stat);
    team_sync<Threads>();
  }
}
