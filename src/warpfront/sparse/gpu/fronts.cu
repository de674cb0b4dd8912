// Fronts that fit one team's shared memory: assembled, eliminated and written out in one go.
//
// One block takes one item: a whole subtree of small fronts (postordered range, child before parent) or a single
// front. Threads: 32 for subtrees of fronts of at most 32 rows, up to 512 for fronts of at most 160 rows.
// Dynamic shared memory: the front as a padded x padded square (padded: rows rounded up to 16), column-major with
// leading dimension padded + 4.
// Barriers: zeroed | entries of A entered | children added (columns owned by warps) | each panel: diagonal block |
// rows below | trailing update | written out, before the next front of a subtree overwrites. A child's block that an
// earlier front of the same subtree wrote is visible behind that last barrier.
// Literature: Duff and Reid (1983), multifrontal elimination; docs/sparse_gpu.md for the design.
#include "pivoted.cuh"

using namespace wf;

template <typename T>
struct FrontScratch {
  DirectScratch<T> direct;
  PivotScratch<T> pivot;
};

template <int Threads, typename T>
WF_DEVICE void eliminate(T* a, int ld, int padded, const Front& f, const T*, DirectScratch<T>& s, i32*, T* diagonal,
                         i32* pivots, i32* stats) {
  int failed = -1;
  clear_diagonal<Threads>(s.d);
  for (int k0 = 0; k0 < f.width; k0 += kPanel) {
    const int size = min_of(kPanel, f.width - k0), end = k0 + size;
    team_sync<Threads>();
    if (team_rank<Threads>() < kWarp) {
      const int bad = direct_block<false, false>(a, ld, k0, size, T(0), s);
      if (failed < 0 && bad >= 0) failed = k0 + bad;
      write_direct(s, k0, size, diagonal, pivots);
    }
    team_sync<Threads>();
    if (end == f.rows) continue;
    direct_rows<Threads>(a, ld, padded, k0, size, end, s);
    team_sync<Threads>();
    update_trailing<Threads>(a, ld, padded, k0, end, s.d);
  }
  if (team_rank<Threads>() < kStats) {
    const int k = team_rank<Threads>();
    stats[k] = k == kFailed ? (failed < 0 ? -1 : static_cast<i32>(f.first) + failed) : k == kOnes || k == kPositive ? f.width : 0;
  }
  team_sync<Threads>();
}

template <int Threads, typename T>
WF_DEVICE void eliminate(T* a, int ld, int padded, const Front& f, const T* rule, FrontScratch<T>& s, i32* order,
                         T* diagonal, i32* pivots, i32* stats) {
  const int rank = team_rank<Threads>();
  for (int k = rank; k < f.width; k += Threads) order[k] = k;
  if (rank < kStats) s.pivot.stats[rank] = rank == kFailed ? -1 : 0;
  team_sync<Threads>();
  const u32 inverted = eliminate_pivoted<Threads>(a, ld, f.rows, padded, f.width, rule, s.direct, s.pivot, order, diagonal, pivots);
  for (int k0 = rank / kWarp * kPanel; k0 < f.width; k0 += Threads)
    if ((inverted >> (k0 / kPanel) & 1u) == 0) invert_unit(a + k0 * ld + k0, ld, min_of(kPanel, f.width - k0));
  if (rank < kStats) stats[rank] = s.pivot.stats[rank] + (rank == kFailed && s.pivot.stats[rank] >= 0 ? static_cast<i32>(f.first) : 0);
  team_sync<Threads>();
}

// Panel (from each diagonal block's first row on) and contribution block to global memory, a column a warp.
template <int Threads, typename T>
WF_DEVICE void write_out(const T* a, int ld, const Front& f, T* panels, T* blocks) {
  const int warp = team_rank<Threads>() / kWarp, lane = lane_id();
  const int below = f.rows - f.width;
  for (int j = warp; j < f.rows; j += Threads / kWarp) {
    if (j < f.width) {
      T* target = panels + f.panel + static_cast<i64>(j) * f.ld;
      for (int i = j / kPanel * kPanel + lane; i < f.rows; i += kWarp) target[i] = i == j ? T(1) : a[j * ld + i];
    } else {
      const int q = j - f.width;
      T* target = blocks + f.block + packed_at(below, q);
      for (int i = q + lane; i < below; i += kWarp) target[i] = a[j * ld + f.width + i];
    }
  }
}

template <bool Pivoting, typename T>
struct ScratchOf {
  typedef DirectScratch<T> type;
};
template <typename T>
struct ScratchOf<true, T> {
  typedef FrontScratch<T> type;
};

template <typename T, int Threads, bool Pivoting>
__global__ void __launch_bounds__(Threads)
    eliminate_fronts(const Item* items, const Front* fronts, const Child* children, const Entry* entries,
                     const i32* maps, const T* values, const T* rule, T* panels, T* blocks, T* diagonal, i32* pivots,
                     i32* stats) {
  WF_DYNAMIC_SHARED(memory);
  __shared__ typename ScratchOf<Pivoting, T>::type scratch;
  __shared__ i32 order[Pivoting ? Threads : 1];
  T* a = reinterpret_cast<T*>(memory);
  const int rank = team_rank<Threads>();
  const Item item = items[blockIdx.x];
  for (int s = item.front; s <= item.last; ++s) {
    const Front f = fronts[s];
    const int padded = (f.rows + 15) / 16 * 16, ld = padded + 4;
    for (int e = rank; e < padded * ld; e += Threads) a[e] = T(0);
    team_sync<Threads>();
    for (i64 e = f.entry0 + rank; e < f.entry1; e += Threads) a[entries[e].col * ld + entries[e].row] = values[entries[e].slot];
    team_sync<Threads>();
    pull_front<Threads>(a, ld, f, children, maps, blocks);
    team_sync<Threads>();
    eliminate<Threads>(a, ld, padded, f, rule, scratch, order, diagonal + 2 * f.first, pivots + 2 * f.first,
                       stats + kStats * f.stat);
    write_out<Threads>(a, ld, f, panels, blocks);
    team_sync<Threads>();
  }
}
