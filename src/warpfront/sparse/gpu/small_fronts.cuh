// What a team does with a front that it holds in shared memory: elimination by the plan's rule, results written out.
//
// Square of padded rows (rounded up to 16), column-major, leading dimension padded + 4.
// Barriers: each panel: diagonal block | rows below | trailing update | written out.
// A contribution block is written before its front's panel, and who waits for it is told: nothing else is waited for.
// Literature: Duff and Reid (1983), multifrontal elimination; docs/sparse_gpu.md for the design.
#pragma once
#include "gather.cuh"
#include "pivoted_block.cuh"

namespace wf {

// Shared memory besides the front: by team and rule.
template <typename T, int Threads, bool Pivoting>
struct FrontScratch {
  DirectScratch<T> direct;
  PivotScratch<T> pivot;
  SearchScratch<T, Threads> search;
  i32 order[Threads];
};
template <typename T, int Threads>
struct FrontScratch<T, Threads, false> {
  DirectScratch<T> direct;
};
template <typename T>
struct alignas(16) FrontScratch<T, kWarp, true> {
  T column[8 * kPanel];
  WarpScratch<T> search;
};
template <typename T>
struct alignas(16) FrontScratch<T, kWarp, false> {
  T column[8 * kPanel];
};

// Where a front's results go.
template <typename T>
struct Target {
  T *panel, *block, *diagonal;
  i32 *pivots, *stats;
};

// Who waits for a front's contribution block: a cell that counts, or nobody.
template <int Threads>
WF_DEVICE void tell(u32* cell) {
  if (cell == nullptr) return;
  team_sync<Threads>();
  if (team_rank<Threads>() == 0) add_acq_rel(cell, 1u);
}

// Statistics of a front taken in place.
template <typename T>
WF_DEVICE void write_stats(const Target<T>& to, const Front& f, int rank, int failed, int positive) {
  if (rank >= kStats) return;
  to.stats[rank] = rank == kFailed     ? (failed < 0 ? -1 : static_cast<i32>(f.first) + failed)
                   : rank == kOnes     ? f.width
                   : rank == kPositive ? positive
                   : rank == kNegative ? f.width - positive
                                       : 0;
}

// Statistics of a front that was searched.
template <typename T>
WF_DEVICE void write_search_stats(const i32* stats, const Front& f, const Target<T>& to, int k) {
  if (k < kStats) to.stats[k] = stats[k] + (k == kFailed && stats[k] >= 0 ? static_cast<i32>(f.first) : 0);
}

// A positive definite front: panel after panel of 32 columns.
template <int Threads, typename T>
WF_DEVICE void definite_front(T* a, int ld, int padded, const Front& f, DirectScratch<T>& s, const Target<T>& to) {
  int failed = -1;
  clear_diagonal<Threads>(s.d);
  for (int k0 = 0; k0 < f.width; k0 += kPanel) {
    const int size = min_of(kPanel, f.width - k0), end = k0 + size;
    team_sync<Threads>();
    if (team_rank<Threads>() < kWarp) {
      const int bad = direct_block<false, false>(a, ld, k0, size, T(0), s);
      if (failed < 0 && bad >= 0) failed = k0 + bad;
      write_direct(s, k0, size, to.diagonal, to.pivots);
    }
    team_sync<Threads>();
    if (end == f.rows) continue;
    direct_rows<Threads>(a, ld, padded, k0, size, end, s);
    team_sync<Threads>();
    update_trailing<Threads>(a, ld, padded, k0, end, s.d);
  }
  write_stats(to, f, team_rank<Threads>(), failed, f.width);
  team_sync<Threads>();
}

// The search of all rows: few fronts need it.
template <int Threads, typename T>
__device__ __noinline__ void search_whole(T* a, int ld, int padded, Front f, const T* rule,
                                          FrontScratch<T, Threads, true>* scratch, Target<T> to, bool hopeful) {
  PivotScratch<T>& s = scratch->pivot;
  i32* order = scratch->order;
  const int rank = team_rank<Threads>();
  for (int k = rank; k < f.width; k += Threads) order[k] = k;
  if (rank < kStats) s.stats[rank] = rank == kFailed ? -1 : 0;
  team_sync<Threads>();
  const u32 inverted =
      eliminate_pivoted<Threads>(a, ld, f.rows, padded, f.width, rule, &scratch->direct, s, order, to.diagonal, to.pivots, hopeful);
  for (int k0 = rank / kWarp * kPanel; k0 < f.width; k0 += Threads)
    if ((inverted >> (k0 / kPanel) & 1u) == 0) invert_unit(a + k0 * ld + k0, ld, min_of(kPanel, f.width - k0));
  write_search_stats(s.stats, f, to, rank);
  team_sync<Threads>();
}

// A front with interchanges: a narrow one in place, or by one warp's search; else, or where these refuse, by the block's.
template <int Threads, typename T>
WF_DEVICE void pivot_front(T* a, int ld, int padded, const Front& f, const T* rule, FrontScratch<T, Threads, true>& scratch,
                           const Target<T>& to) {
  PivotScratch<T>& s = scratch.pivot;
  bool hopeful = true;
  if (f.width <= kPanel) {
    if (narrow_front<Threads>(a, ld, f.rows, padded, f.width, rule, scratch.direct, s, scratch.search, to.diagonal, to.pivots)) {
      write_search_stats(scratch.search.warp.stats, f, to, team_rank<Threads>());
      return;
    }
    hopeful = false;
  }
  search_whole<Threads>(a, ld, padded, f, rule, &scratch, to, hopeful);
}

// Contribution block, then panel (from each diagonal block's first row on, with the rows that pad it), to global memory; a
// column a warp.
template <int Threads, typename T>
WF_DEVICE void write_out(const T* a, int ld, const Front& f, const Target<T>& to, u32* cell) {
  const int warp = team_rank<Threads>() / kWarp, lane = lane_id();
  const int below = f.rows - f.width;
  for (int q = warp; q < below; q += Threads / kWarp) {
    T* target = to.block + packed_at(below, q);
    for (int i = q + lane; i < below; i += kWarp) target[i] = a[(f.width + q) * ld + f.width + i];
  }
  tell<Threads>(cell);
  for (int j = warp; j < f.width; j += Threads / kWarp) {
    T* target = to.panel + static_cast<i64>(j) * f.ld;
    for (int i = j / kPanel * kPanel + lane; i < f.ld; i += kWarp) target[i] = i == j ? T(1) : a[j * ld + i];
  }
}

// A front of at most 32 rows, a row a lane, in registers from here to global memory. False: refused; what was
// written is of no use.
template <bool Indefinite, typename T>
WF_DEVICE bool eliminate_in_registers(const T* a, int ld, const Front& f, const T* rule, T* columns, const Target<T>& to,
                                      u32* cell) {
  const int lane = lane_id();
  const bool stored = lane < f.ld;
  const T least = Indefinite ? rule[kDoubt] : T(0), u = Indefinite ? rule[kThreshold] : T(0);
  if (Indefinite && refused_at_once(a, f.rows, f.width, least, u)) return false;
  T r[kPanel], d = T(1);
  load_rows(r, a, ld, f.rows);
  const int bad = eliminate_direct<Indefinite, false>(r, f.rows, f.width, columns, f.width, least, u, [&](int j, T pivot, T l, T y) {
    if (lane == j) d = pivot;
    if (stored) to.panel[j * f.ld + lane] = lane > j ? l : y;
  });
  if (Indefinite && bad >= 0) return false;
  write_block(to.block, r, f.rows, f.width, 0);
  tell<kWarp>(cell);
  if (lane < f.width) {
    to.diagonal[2 * lane] = d, to.diagonal[2 * lane + 1] = T(0);
    to.pivots[2 * lane] = lane, to.pivots[2 * lane + 1] = 1;
  }
  const int positive = __popc(__ballot_sync(kFullMask, lane < f.width && d > T(0)));
  write_stats(to, f, lane, bad, Indefinite ? positive : f.width);
  return true;
}

// The same with interchanges; L and its inverse pass through the front's shared memory.
template <typename T>
__device__ __noinline__ void pivot_warp_front(T* a, int ld, Front f, const T* rule, WarpScratch<T>& s, Target<T> to, u32* cell) {
  const int lane = lane_id();
  T r[kPanel];
  int at;
  load_rows(r, a, ld, f.rows);
  PutGlobal<T> put = {to.diagonal, T(0), T(0), to.pivots, 0, 0};
  pivot_in_registers(r, a, ld, f.rows, f.width, rule, s, at, put);
  write_block(to.block, r, f.rows, f.width, f.width);
  tell<kWarp>(cell);
  put.write(f.width);
  order_columns(r, a, ld, f.rows, f.width, at);
  invert_unit(a, ld, f.width);
  write_search_stats(s.stats, f, to, lane);
  __syncwarp();
  for (int k = 0; k < f.width; ++k)
    if (lane < f.ld) to.panel[k * f.ld + lane] = lane == k ? T(1) : a[k * ld + lane];
}

// `cell` is told once the contribution block is written.
template <bool Pivoting, int Threads, typename T>
WF_DEVICE void eliminate_front(T* a, int ld, int padded, const Front& f, const T* rule,
                               FrontScratch<T, Threads, Pivoting>& s, const Target<T>& to, u32* cell = nullptr) {
  if constexpr (Threads == kWarp) {
    if (eliminate_in_registers<Pivoting>(a, ld, f, rule, s.column, to, cell)) return;
    if constexpr (Pivoting) pivot_warp_front(a, ld, f, rule, s.search, to, cell);
    return;
  } else if constexpr (Pivoting) {
    pivot_front<Threads>(a, ld, padded, f, rule, s, to);
  } else {
    definite_front<Threads>(a, ld, padded, f, s.direct, to);
  }
  write_out<Threads>(a, ld, f, to, cell);
}

}  // namespace wf
