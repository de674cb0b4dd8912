// What a team does with an LU front that it holds in shared memory: elimination with row interchanges, results written out.
//
// A panel whose diagonal entries do as pivots is eliminated in place (lu_direct.cuh), others are searched, a row a thread.
// The front is a padded x padded square (rows rounded up to 16), column-major, leading dimension padded + 4.
// A searched panel of at most 32 columns lies in registers. Its columns' largest entries are found by warp
// reductions on bits and one fold of the warps' results; the diagonal's row is laid out before that, so a column costs one
// barrier, and two more only where its diagonal entry does not do. A column without an acceptable pivot ends the panel and moves
// behind the other candidates; what is left when a pass accepts nothing is forced (lu_front.cuh).
// Barriers: each column: sizes, the diagonal's row | rows' largest | the chosen row | panel stored | interchanges made |
// triangle laid out | rows of U | trailing update. Written out: each triangle laid out | inverted.
// The contribution block is written before the panel: a parent in the same launch waits for nothing else.
#pragma once
#include "gather.cuh"
#include "lu_direct.cuh"

namespace wf {

// Where a front's results go.
template <typename T>
struct LuTarget {
  T *panel, *upper, *block, *upper_block, *diagonal;
  i32 *pivots, *col_pivots;
};

constexpr int kMostRows = 160;
template <typename T, int Threads>
struct alignas(16) LuScratch {
  static constexpr int kRows = Threads < kMostRows ? Threads : kMostRows;
  T line[2][kPanel], other[kPanel], largest[2][kWarp], top[kWarp], inverse[kPanel * kPitch];
  T reciprocal[kRows], pivot[kRows];
  LuDirect<T> direct;
  i32 at[kWarp], swap[kPanel];
  i32 order[kRows], column[kRows], kind[kRows];
};

template <typename T>
struct alignas(16) LuScratch<T, kWarp> {
  T inverse[kPanel * kPitch];  // rows of U while a warp eliminates in registers
  T line[2][kPanel], other[kPanel], largest[2][1], top[1], reciprocal[kWarp], pivot[kWarp];
  i32 at[1], swap[kPanel], order[kWarp], column[kWarp], kind[kWarp];
};

// A front of at most 32 rows in one warp's registers; `a` holds L and U in pivot order afterwards. False: a column was
// refused, and the front has to be assembled again.
template <typename T>
WF_DEVICE bool eliminate_in_warp(T* a, int ld, const Front& f, const LuRule<T>& rule, LuScratch<T, kWarp>& s,
                                 LuCounts& counts, const LuTarget<T>& to) {
  const int lane = lane_id();
  T r[kPanel];
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) r[k] = k < f.rows && lane < f.rows ? a[k * ld + lane] : T(0);
  __syncwarp();
  LuWarp<T> w = lu_warp(lu_shape(f.rows, f.width, f.width, true, rule), rule, a, ld, s.inverse);
  for (int k = 0; k < f.width; ++k) {
    const bool taken = lu_take<false>(w, r, k);
    __syncwarp();
    if (!taken) return false;
    lu_apply(w, r, k);
  }
  __syncwarp();
  counts = w.counts;
  const int place = w.place;
  const T d = w.d;
  for (int k = 0; k < f.width; ++k) {
    const T l = lane < f.rows ? a[k * ld + lane] : T(0);
    __syncwarp();
    if (place > k && lane < f.rows) a[k * ld + place] = l;
    if (lane <= k) a[k * ld + lane] = s.inverse[lane * kPitch + k - lane];
  }
  WF_UNROLL
  for (int j = 0; j < kPanel; ++j) {
    const int k = f.width + j;
    if (k < f.rows && lane < f.rows) a[k * ld + lane] = lane < f.width ? s.inverse[lane * kPitch + k - lane] : r[j];
  }
  __syncwarp();
  WF_UNROLL
  for (int j = 0; j < kPanel; ++j) {
    const int m = j - (kPanel - f.width);
    if (m >= 0 && lane < f.width) s.inverse[place * kPitch + m] = r[j];
  }
  __syncwarp();
  for (int k = 1; k < f.width; ++k)
    if (lane < k) to.panel[static_cast<i64>(k) * f.ld + lane] = s.inverse[k * kPitch + lane];
  if (lane < f.width) {
    s.order[place] = lane, s.column[lane] = lane, s.kind[lane] = 1, s.reciprocal[lane] = reciprocal(d), s.pivot[lane] = d;
  }
  __syncwarp();
  return true;
}

// The search of a column whose diagonal entry does not do; `all` is the largest size in the column.
template <int Threads, typename T>
WF_DEVICE LuChoice choose_row(T akk, T size, T all, bool open, int k, bool force, const LuRule<T>& rule,
                              LuScratch<T, Threads>& s) {
  const int i = team_rank<Threads>(), lane = i % kWarp, warp = i / kWarp;
  T top = lu_largest(open ? size : T(0));
  u32 at = lu_first(open, size, top, i);
  if (Threads > kWarp) {
    if (lane == 0) s.top[warp] = top, s.at[warp] = static_cast<i32>(at);
    team_sync<Threads>();
    const bool live = lane < Threads / kWarp;
    const T v = live ? s.top[lane] : T(0);
    const i32 from = live ? s.at[lane] : -1;
    top = lu_largest(v);
    at = lu_first(from != -1, v, top, from);
  }
  return lu_choose(rule, akk, top, all, k, static_cast<int>(at), force, true);
}

// Columns from k0 on, at most 32 of the candidates; returns the first one not eliminated. Stores L and U of the panel, and
// what is left of columns behind a refused one.
template <int Threads, typename T>
WF_DEVICE int lu_panel(T* a, int ld, int rows, int width, int k0, int end, bool force, const LuRule<T>& rule,
                       LuScratch<T, Threads>& s, LuCounts& counts) {
  constexpr int kWarps = Threads / kWarp;
  const int i = team_rank<Threads>(), lane = i % kWarp, warp = i / kWarp;
  T r[kPanel];
  WF_UNROLL
  for (int j = 0; j < kPanel; ++j) r[j] = k0 + j < end && i >= k0 && i < rows ? a[(k0 + j) * ld + i] : T(0);
  int k = k0;
  const T sure = lu_shape(rows, width, width, true, rule).sure;
  for (; k < end; ++k) {
    const int half = k % 2;
    const T size = lu_size(r[0]);
    T all = lu_largest(i >= k && i < rows ? size : T(0));
    if (Threads > kWarp && lane == 0) s.largest[half][warp] = all;
    if (i == k) store_row(reinterpret_cast<LuPair<T>*>(s.line[half]), r[0], r);
    team_sync<Threads>();
    if (Threads > kWarp) all = lu_largest(lane < kWarps ? s.largest[half][lane] : T(0));
    const T* row = s.line[half];
    const T akk = lu_size(row[0]);
    LuChoice choice = {kTake, k};
    if (!(akk > sure && akk >= rule.share * all)) {
      choice = choose_row<Threads>(akk, size, all, i >= k && i < width, k, force, rule, s);
      if (choice.what == kRefuse) break;
    }
    if (choice.place != k) {
      if (i == choice.place) {
        store_row(reinterpret_cast<LuPair<T>*>(s.other), r[0], r);
        WF_UNROLL
        for (int j = 0; j < kPanel; ++j) r[j] = row[j];
      }
      team_sync<Threads>();
      row = s.other;
    }
    const T pivot = lu_count(counts, rule, choice.what, row[0], all, s.column[k]);
    const T inverse = lu_inverse(choice.what, pivot);
    if (i == 0) {
      s.swap[k - k0] = choice.place, s.kind[k] = choice.what == kEmpty ? 0 : 1, s.reciprocal[k] = inverse, s.pivot[k] = pivot;
    }
    if (i < end - k) a[(k + i) * ld + k] = i == 0 ? pivot : row[i];
    const T l = i > k && i < rows ? r[0] * inverse : T(0);
    if (i > k && i < rows) a[k * ld + i] = l;
    WF_UNROLL
    for (int j = 0; j < kPanel / 2; ++j) {
      const LuPair<T> u = reinterpret_cast<const LuPair<T>*>(row)[j];
      if (j > 0) r[2 * j - 1] = fma(-l, u.a, r[2 * j]);
      r[2 * j] = fma(-l, u.b, r[2 * j + 1]);
    }
    r[kPanel - 1] = T(0);
    if (Threads == kWarp) team_sync<Threads>();
  }
  WF_UNROLL
  for (int j = 0; j < kPanel; ++j)
    if (k + j < end && i >= k && i < rows) a[(k + j) * ld + i] = r[j];
  team_sync<Threads>();
  return k;
}

// Interchanges of a panel k0..k1 in the columns that were not in its registers: a column a thread.
template <int Threads, typename T>
WF_DEVICE void exchange_rows(T* a, int ld, int rows, int k0, int k1, int end, LuScratch<T, Threads>& s) {
  for (int c = team_rank<Threads>(); c < rows; c += Threads) {
    if (c >= k1 && c < end) continue;
    for (int q = c >= k0 && c < k1 ? c - k0 + 1 : 0; q < k1 - k0; ++q) {
      const int other = s.swap[q];
      if (other == k0 + q) continue;
      T *here = a + c * ld + k0 + q, *there = a + c * ld + other;
      const T t = *here;
      *here = *there, *there = t;
    }
  }
  if (team_rank<Threads>() == Threads - 1)  // has no column, mostly
    for (int q = 0; q < k1 - k0; ++q) {
      const int other = s.swap[q], t = s.order[k0 + q];
      s.order[k0 + q] = s.order[other], s.order[other] = t;
    }
}

// Rows k0..k1 of U in the columns from `end` on, a column a thread, then the trailing matrix.
template <int Threads, typename T>
WF_DEVICE void follow_panel(T* a, int ld, int padded, int rows, int k0, int k1, int end, LuScratch<T, Threads>& s) {
  const int count = k1 - k0, c = end + team_rank<Threads>();
  const bool live = c < rows;
  lu_lay_out<Threads>(s.inverse, count, [&](int m, int k) { return a[(k0 + k) * ld + k0 + m]; });
  team_sync<Threads>();
  T *column = a + c * ld + k0, y[kPanel];
  WF_UNROLL
  for (int j = 0; j < kPanel; ++j) y[j] = live && j < count ? column[j] : T(0);
  lu_substitute(y, count, s.inverse, [&](int k, T v) { if (live) column[k] = v; });
  team_sync<Threads>();
  lu_trailing<Threads>(a, ld, padded, k0, k1, end);
}

// Tries the panel k0..end in place. False: the front is as it was.
template <int Threads, typename T>
WF_DEVICE bool direct_panel(T* a, int ld, int padded, const Front& f, int k0, int end, const LuRule<T>& rule,
                            LuScratch<T, Threads>& s, LuCounts& counts, const LuTarget<T>& to) {
  const int size = end - k0, rank = team_rank<Threads>(), lane = lane_id();
  const i64 at = static_cast<i64>(k0) * f.ld + k0;
  const T sure = lu_shape(f.rows, f.width, f.width, true, rule).sure;
  T* square = s.inverse;
  LuTaken<T> taken;
  if (!lu_direct_block(a + k0 * ld + k0, ld, size, sure, rule.share, s.direct, taken)) return false;
  if (taken.role == 2 || taken.role == 3) {
    T* to = square + lane * (taken.role == 2 ? kPitch : 1);
    lu_each(taken, size, [&](int k, T v) { if (lane < k) to[k * (taken.role == 2 ? 1 : kPitch)] = v; });
  }
  __syncthreads();
  if (end < f.rows && !lu_direct_rows<Threads>(a, ld, f.rows, k0, end, rule.share, square, s.direct.reciprocal)) return false;
  lu_place_block(taken, size, to.panel + at, to.upper + at, f.ld);
  if (taken.role == 0 && lane < size) s.pivot[k0 + lane] = taken.d;
  if (rank < size) s.kind[k0 + rank] = 1, s.reciprocal[k0 + rank] = s.direct.reciprocal[rank];
  counts.pivots += size;
  if (end < f.rows) lu_trailing<Threads>(a, ld, padded, k0, end, end);
  else team_sync<Threads>();
  return true;
}

// The whole front with refusals: passes over the candidates, the last one forced. Returns a bit for each block of 32 columns
// whose diagonal block is in its place in the panels already, with its inverses.
template <int Threads, typename T>
WF_DEVICE u32 eliminate_lu(T* a, int ld, int padded, const Front& f, const LuRule<T>& rule, LuScratch<T, Threads>& s,
                            LuCounts& counts, const LuTarget<T>& to) {
  const int rank = team_rank<Threads>();
  for (int k = rank; k < f.width; k += Threads) s.order[k] = s.column[k] = k;
  team_sync<Threads>();
  int k = 0, candidates = f.width, pass_start = 0;
  bool force = false;
  u32 placed = 0;
  while (k < f.width) {
    const int end = min_of(candidates, k + kPanel);
    bool direct = false;
    if constexpr (Threads > kWarp) {
      direct = k % kPanel == 0 && (end == k + kPanel || end == f.width);
      if (direct) direct = direct_panel<Threads>(a, ld, padded, f, k, end, rule, s, counts, to);
      if (direct) placed |= 1u << (k / kPanel);
    }
    const int next = direct ? end : lu_panel<Threads>(a, ld, f.rows, f.width, k, end, force, rule, s, counts);
    if (!direct && next > k) {
      exchange_rows<Threads>(a, ld, f.rows, k, next, end, s);
      team_sync<Threads>();
      if (end < f.rows) follow_panel<Threads>(a, ld, padded, f.rows, k, next, end, s);
    }
    if (next < end) {  // refused: behind the other candidates
      --candidates;
      for (int i = rank; i < f.rows && candidates > next; i += Threads) {
        const T t = a[next * ld + i];
        a[next * ld + i] = a[candidates * ld + i], a[candidates * ld + i] = t;
      }
      if (rank == 0) {
        const i32 t = s.column[next];
        s.column[next] = s.column[candidates], s.column[candidates] = t;
      }
      team_sync<Threads>();
    }
    k = next;
    if (k >= candidates && k < f.width) {
      force = force || k == pass_start;
      pass_start = k, candidates = f.width;
    }
  }
  return placed;
}

// Both halves of the contribution block to global memory, a column a warp.
template <int Threads, typename T>
WF_DEVICE void write_lu_block(const T* a, int ld, const Front& f, const LuTarget<T>& to) {
  const int warp = team_rank<Threads>() / kWarp, lane = lane_id(), below = f.rows - f.width;
  for (int q = warp; q < below; q += Threads / kWarp) {
    const int at = packed_at(below, q), j = f.width + q;
    for (int i = q + lane; i < below; i += kWarp) {
      to.block[at + i] = a[j * ld + f.width + i];
      to.upper_block[at + i] = a[(f.width + i) * ld + j];
    }
  }
}

// Both halves of the panel with the rows that pad them and the inverses of the diagonal blocks (L's unless `inverted`), and
// the pivots; a column a warp. Blocks that are `placed` are there already.
template <int Threads, typename T>
WF_DEVICE void write_lu_panel(const T* a, int ld, const Front& f, bool inverted, u32 placed, LuScratch<T, Threads>& s,
                              const LuTarget<T>& to) {
  const int rank = team_rank<Threads>(), warp = rank / kWarp, lane = rank % kWarp;
  for (int b = 0; b < (f.width + kPanel - 1) / kPanel * 2; ++b) {
    if ((inverted && b % 2 == 0) || (placed >> (b / 2) & 1u) != 0) continue;
    const int k0 = b / 2 * kPanel, size = min_of(kPanel, f.width - k0);
    const bool lower = b % 2 == 0;
    const T *block = a + k0 * ld + k0, *scale = s.reciprocal + k0;
    T* target = (lower ? to.panel : to.upper) + static_cast<i64>(k0) * f.ld + k0;
    lu_lay_out<Threads>(s.inverse, size, [&](int m, int k) { return lower ? block[k * ld + m] : block[m * ld + k] * scale[k]; });
    team_sync<Threads>();
    if (warp == 0) {
      T y[kPanel];
      WF_UNROLL
      for (int j = 0; j < kPanel; ++j) y[j] = T(j == lane);
      lu_substitute(y, size, s.inverse, [&](int m, T v) { if (lane < m) target[static_cast<i64>(m) * f.ld + lane] = v; });
    }
    team_sync<Threads>();
  }
  for (int j = warp; j < f.width; j += Threads / kWarp) {
    T *target = to.panel + static_cast<i64>(j) * f.ld, *upper = to.upper + static_cast<i64>(j) * f.ld;
    const T scale = s.reciprocal[j];
    const bool there = (placed >> (j / kPanel) & 1u) != 0;
    for (int i = (there ? min_of(f.width, (j / kPanel + 1) * kPanel) : j) + lane; i < f.ld; i += kWarp) {
      target[i] = i == j ? T(1) : a[j * ld + i];
      upper[i] = i == j ? T(1) : a[i * ld + j] * scale;
    }
  }
  for (int k = rank; k < f.width; k += Threads) {
    to.pivots[2 * k] = s.order[k], to.col_pivots[2 * k] = s.column[k];
    to.pivots[2 * k + 1] = to.col_pivots[2 * k + 1] = s.kind[k];
    to.diagonal[2 * k] = s.pivot[k], to.diagonal[2 * k + 1] = T(0);
  }
}

WF_DEVICE void write_counts(const LuCounts& c, const Front& f, int rank, i32* stats) {
  if (rank >= kStats) return;
  stats[rank] = rank == kOnes        ? c.pivots
                : rank == kPerturbed ? c.perturbed
                : rank == kZeros     ? c.zeros
                : rank == kDoubtful  ? c.doubtful
                : rank == kNonFinite ? c.nonfinite
                : rank == kFailed    ? (c.failed < 0 ? -1 : static_cast<i32>(f.first) + c.failed)
                                     : 0;
}

// Fronts, and where their elements come from and their results go.
template <typename T>
struct LuFronts {
  const Front* fronts;
  GatherLists<T> lists;
  LuRule<T> rule;
  T *panels, *blocks, *diagonal;
  i32 *pivots, *stats;
};

template <typename T>
WF_DEVICE LuTarget<T> lu_target(const LuFronts<T>& to, const Front& f) {
  return {to.panels + f.panel, to.panels + upper_panel(f), to.blocks + f.block,
          to.blocks + upper_block(f.block, f.rows - f.width), to.diagonal + 2 * f.first, to.pivots + 2 * f.first,
          to.pivots + 2 * (order_of(f) + f.first)};
}

// A warp's front that was refused, from its sources on: rare, and a function of its own because it is large.
template <typename T>
__device__ __noinline__ LuCounts factor_refused(T* a, Front f, int s, LuFronts<T> all, LuScratch<T, kWarp>* scratch) {
  const int padded = (f.rows + 15) / 16 * 16, ld = padded + 4;
  LuCounts counts = {0, 0, 0, 0, -1, 0};
  gather_front<kWarp>(a, padded * ld, s, all.lists, [] { __syncwarp(); });
  __syncwarp();
  eliminate_lu<kWarp>(a, ld, padded, f, all.rule, *scratch, counts, lu_target(all, f));
  return counts;
}

// One front from its sources to its results. `ready` is a barrier of the team behind which its children's blocks may be read,
// `written` is called by the team when its own block is; a barrier of the caller's separates fronts.
template <int Threads, typename T, typename Ready, typename Written>
WF_DEVICE void factor_lu_front(const LuFronts<T>& all, int s, T* a, LuScratch<T, Threads>& scratch, const Ready& ready,
                               const Written& written) {
  const Front f = all.fronts[s];
  const LuTarget<T> to = lu_target(all, f);
  const int padded = (f.rows + 15) / 16 * 16, ld = padded + 4;
  LuCounts counts = {0, 0, 0, 0, -1, 0};
  gather_front<Threads>(a, padded * ld, s, all.lists, ready);
  team_sync<Threads>();
  bool done = false;
  u32 placed = 0;
  if constexpr (Threads == kWarp) {
    done = eliminate_in_warp(a, ld, f, all.rule, scratch, counts, to);
    if (!done) counts = factor_refused(a, f, s, all, &scratch);
  } else {
    placed = eliminate_lu<Threads>(a, ld, padded, f, all.rule, scratch, counts, to);
  }
  write_lu_block<Threads>(a, ld, f, to);
  written();
  write_lu_panel<Threads>(a, ld, f, done, placed, scratch, to);
  write_counts(counts, f, team_rank<Threads>(), all.stats + kStats * f.stat);
}

}  // namespace wf
