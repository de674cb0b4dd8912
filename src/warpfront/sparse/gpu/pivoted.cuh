// L D L^T with cooperative pivot search of a front in shared memory: one thread a row, every decision that of a
// serial scan (sparse/numeric/_ldlt_kernels.py holds the CPU's; the rule is Duff and Reid 1983 with the 1x1 / 2x2
// choice of Bunch and Kaufman 1977).
//
// Panels of at most 32 columns. A candidate column is brought up to date when it is looked at, the columns behind the
// panel when it ends. W = L D is formed from L and D, one panel column a lane, and passed on by shuffles.
//
// One step, and what each barrier separates:
//   pass 1  x = column k; r and lambda = first maximum over the fully summed rows behind k, maximum of all rows
//           below -> slots.  BARRIER: slots written | folded by every warp.
//   pass 2  (only where the diagonal is not clearly good) y = column r; the four maxima of the 1x1 test at r and of
//           the 2x2 test -> slots.  BARRIER: slots written, all reads of the columns done | folded, rows exchanged.
//   apply   interchange, columns of L, D.  BARRIER: columns written | read by the next step.
// The slots of two passes are apart, and a pass's slots are written again only behind the third barrier.
// Maxima propagate NaN, and equal values give the smaller index.
#pragma once
#include "direct.cuh"

namespace wf {

enum : int { kNoPivot, kOnePivot, kTwoPivot, kZeroPivot };

template <typename T>
struct PivotScratch {
  T top[kWarp], low[kWarp], rest[3][kWarp];
  i32 at[kWarp];
  T pick[6];  // x_k, x_r, x_{k+1}, y_r, y_k, y_{k+1}
  Diagonal<T> d;
  i32 stats[kStats];
};

// Largest of a warp's non-negative values, NaN first: their bits order as unsigned integers do.
WF_DEVICE double warp_largest(double v) {
  const u64 bits = static_cast<u64>(__double_as_longlong(v));
  const u32 high = static_cast<u32>(bits >> 32), top = __reduce_max_sync(kFullMask, high);
  const u32 low = __reduce_max_sync(kFullMask, high == top ? static_cast<u32>(bits) : 0u);
  return __longlong_as_double(static_cast<i64>(static_cast<u64>(top) << 32 | low));
}
WF_DEVICE float warp_largest(float v) {
  return __int_as_float(static_cast<int>(__reduce_max_sync(kFullMask, static_cast<u32>(__float_as_int(v)))));
}
WF_DEVICE bool same_bits(double a, double b) { return __double_as_longlong(a) == __double_as_longlong(b); }
WF_DEVICE bool same_bits(float a, float b) { return __float_as_int(a) == __float_as_int(b); }
WF_DEVICE double size_of(double a) { return __longlong_as_double(__double_as_longlong(a) & 0x7fffffffffffffffll); }
WF_DEVICE float size_of(float a) { return __int_as_float(__float_as_int(a) & 0x7fffffff); }
// The greater of two sizes, NaN first: in integers, which a comparison and a selection take.
WF_DEVICE double larger(double a, double b) {
  const i64 x = __double_as_longlong(a), y = __double_as_longlong(b);
  return __longlong_as_double(x > y ? x : y);
}
WF_DEVICE float larger(float a, float b) {
  const i32 x = __float_as_int(a), y = __float_as_int(b);
  return __int_as_float(x > y ? x : y);
}

// First lane that holds the warp's largest value, or -1 where that is zero.
template <typename T>
WF_DEVICE int first_of(T v, T largest) {
  const u32 who = __ballot_sync(kFullMask, same_bits(v, largest) && !(v == T(0)));
  return who == 0 ? -1 : __ffs(static_cast<int>(who)) - 1;
}

// Maximum over the team of a value a warp, through `slots`; the caller's barrier lies between put and take. One warp
// needs no slots.
template <int Threads, typename T>
WF_DEVICE T put_max(T v, T* slots) {
  v = warp_largest(v);
  if (Threads > kWarp && lane_id() == 0) slots[team_rank<Threads>() / kWarp] = v;
  return v;
}
template <int Threads, typename T>
WF_DEVICE T take_max(T mine, const T* slots) {
  return Threads == kWarp ? mine : warp_largest(lane_id() < Threads / kWarp ? slots[lane_id()] : T(0));
}

// Element (row, j) of the trailing matrix brought up to date by the panel's columns begin..k; row >= k.
template <typename T>
WF_DEVICE T current(const T* a, int ld, int row, bool live, int begin, int k, int j, const Diagonal<T>& d) {
  const int lane = lane_id(), depth = k - begin;
  T w = T(0);
  if (lane < depth) {
    const T* l = a + (begin + lane) * ld + j;
    w = l[0] * d.own[kLead + lane] + l[d.step[kLead + lane] * ld] * d.other[kLead + lane];
  }
  T x = !live ? T(0) : row < j ? a[row * ld + j] : a[j * ld + row];
  for (int p0 = 0; p0 < depth; p0 += 8) {
    T l[8];
    WF_UNROLL
    for (int q = 0; q < 8; ++q) l[q] = live && p0 + q < depth ? a[(begin + p0 + q) * ld + row] : T(0);
    WF_UNROLL
    for (int q = 0; q < 8; ++q) x = fma(-l[q], __shfl_sync(kFullMask, w, (p0 + q) % kWarp), x);
  }
  return x;
}

// Interchanges columns k < r: rows of the finished columns, and the trailing triangle (its stored, not updated values).
// Row i of column k is touched by thread i alone.
template <int Threads, typename T>
WF_DEVICE void exchange(T* a, int ld, int rows, int finished, int k, int r, i32* order) {
  if (k == r) return;
  const int i = team_rank<Threads>();
  for (int p = i; p < finished; p += Threads) {
    const T t = a[p * ld + k];
    a[p * ld + k] = a[p * ld + r], a[p * ld + r] = t;
  }
  if (i >= k && i < rows && i != r) {
    T* mine = a + k * ld + i;
    T* other = i == k ? a + r * ld + r : i < r ? a + i * ld + r : a + r * ld + i;
    const T t = *mine;
    *mine = *other, *other = t;
  }
  if (i == 0) {
    const i32 t = order[k];
    order[k] = order[r], order[r] = t;
  }
}

// What the second pass decides: the pivot's kind, and the row it is taken from.
template <typename T>
struct Choice {
  int kind, place;
  bool pair = false;  // a 2x2 pivot, as a condition of its own
};

// `inverse`: that of size, which the caller can have on its way early.
template <typename T>
WF_DEVICE Choice<T> choose(const T* pick, int k, int r, T size, T inverse, T below, T y_below, T x_rest, T y_next, T u, T per_u) {
  const T alpha = T(kAlpha);
  const T akk = size_of(pick[0]), arr = size_of(pick[3]);
  const T y_full = larger(y_next, size_of(pick[4])), y_all = larger(y_full, y_below);
  const T mine = pick[0] * inverse, theirs = pick[3] * inverse, determinant = size_of(mine * theirs - T(1));
  const T y_rest = larger(y_next, y_below), limit = determinant * size * per_u;
  // Each test by itself, without branches, and then the first that holds.
  const bool small_k = akk >= u * below, small_r = arr >= u * y_all;
  const bool first_k = (akk * y_full >= alpha * size * size) & small_k, first_r = (arr >= alpha * y_full) & small_r;
  const bool two = (size > T(0)) & (determinant > T(1e-8)) & (size_of(theirs) * x_rest + y_rest <= limit) &
                   (x_rest + size_of(mine) * y_rest <= limit);
  const bool last_k = (akk > T(0)) & small_k, last_r = (arr > T(0)) & small_r;
  const bool pair = !first_k & !first_r & two;
  const bool at_k = first_k | (!first_r & !two & last_k), at_r = !first_k & (first_r | (!two & !last_k & last_r));
  return {pair ? kTwoPivot : at_k | at_r ? kOnePivot : kNoPivot, pair | at_r ? r : k, pair};
}

// Columns from `k` on until the panel is full or the candidates are used up; returns the first one not eliminated.
// `candidates` comes back reduced by the columns that were rejected and moved behind the others.
template <int Threads, typename T>
WF_DEVICE int pivot_panel(T* a, int ld, int rows, int width, int begin, int& candidates, bool force, const T* rule,
                          PivotScratch<T>& s, i32* order) {
  const int i = team_rank<Threads>(), warp = i / kWarp;
  const T alpha = T(kAlpha), u = rule[kThreshold], zero = rule[kZero], doubt = rule[kDoubt];
  const T floor = rule[kEpsilon], per_u = T(1) / u;
  int k = begin;
  while (k < candidates && k - begin < kPanel) {
    const bool live = i >= k && i < rows;
    T x = current(a, ld, i, live, begin, k, k, s.d), y = T(0);
    const T size_x = size_of(x);
    T best = i > k && i < width ? size_x : T(0), low = live && i >= width ? size_x : T(0);
    const T top = put_max<Threads>(best, s.top);
    int r = first_of(best, top);
    r = r < 0 ? -1 : i - lane_id() + r;
    if (Threads > kWarp && lane_id() == 0) s.at[warp] = r;
    low = put_max<Threads>(low, s.low);
    if (i == k) s.pick[0] = x;
    team_sync<Threads>();
    best = top;
    if (Threads > kWarp) {
      const T v = lane_id() < Threads / kWarp ? s.top[lane_id()] : T(0);
      best = warp_largest(v);
      const int from = first_of(v, best);
      r = from < 0 ? -1 : s.at[from];
    }
    const T size = r < 0 ? T(0) : best;
    const T below = nan_max(size, take_max<Threads>(low, s.low));
    const T xk = s.pick[0], akk = size_of(xk), largest = nan_max(akk, below);
    Choice<T> choice = {kOnePivot, k};
    T pivot = xk;
    if (largest <= zero) {
      choice.kind = kZeroPivot;
    } else if (!(akk >= alpha * size && akk >= u * below)) {
      choice.kind = kNoPivot;
      if (r >= 0) {
        y = current(a, ld, i, live, begin, k, r, s.d);
        const T size_y = size_of(y);
        const bool other = i > k && live && i != r;
        const T y_below = put_max<Threads>(live && i >= width ? size_y : T(0), s.rest[0]);
        const T x_rest = put_max<Threads>(other ? size_x : T(0), s.rest[1]);
        const T y_next = put_max<Threads>(other && i < width ? size_y : T(0), s.rest[2]);
        if (i == r) s.pick[1] = x, s.pick[3] = y;
        if (i == k + 1) s.pick[2] = x, s.pick[5] = y;
        if (i == k) s.pick[4] = y;
        team_sync<Threads>();
        choice = choose(s.pick, k, r, size, reciprocal(size), below, take_max<Threads>(y_below, s.rest[0]),
                        take_max<Threads>(x_rest, s.rest[1]), take_max<Threads>(y_next, s.rest[2]), u, per_u);
      }
      if (choice.kind == kNoPivot && force) {
        choice.kind = kOnePivot, choice.place = k;
        if (akk <= floor) {
          pivot = xk < T(0) ? -floor : floor;
          if (i == 0) ++s.stats[kPerturbed];
          if (floor == T(0)) choice.kind = kZeroPivot;
        }
      }
    }
    if (choice.kind == kTwoPivot && k - begin == kPanel - 1) break;  // no room for its second column
    const int slot = k - begin;
    if (i == 0 && largest <= doubt && (choice.kind == kOnePivot || choice.kind == kTwoPivot)) ++s.stats[kDoubtful];
    if (choice.kind == kNoPivot) {
      exchange<Threads>(a, ld, rows, k, k, --candidates, order);
    } else if (choice.kind == kZeroPivot) {
      if (i > k && i < rows) a[k * ld + i] = T(0);
      if (i == 0) {
        set_diagonal(s.d, slot, T(0), T(0), 0);
        if (s.stats[kFailed] < 0) s.stats[kFailed] = order[k];
        ++s.stats[kZeros];
      }
      ++k;
    } else if (choice.kind == kOnePivot) {
      if (choice.place != k) {
        pivot = s.pick[3];
        exchange<Threads>(a, ld, rows, k, k, choice.place, order);
        x = i == choice.place ? s.pick[4] : y;
      }
      if (i > k && i < rows) a[k * ld + i] = x * reciprocal(pivot);
      if (i == 0) {
        set_diagonal(s.d, slot, pivot, T(0), 0);
        ++s.stats[kOnes];
        if (!(pivot - pivot == T(0))) ++s.stats[kNonFinite];
        ++s.stats[pivot > T(0) ? kPositive : kNegative];
      }
      ++k;
    } else {
      const T off = s.pick[1], last = s.pick[3], per_off = reciprocal(off), p = xk * per_off, q = last * per_off;
      const T scale = per_off * reciprocal(p * q - T(1));
      exchange<Threads>(a, ld, rows, k, k + 1, choice.place, order);
      if (i == choice.place) x = s.pick[2], y = s.pick[5];
      if (i == k + 1) a[k * ld + i] = T(0);
      if (i > k + 1 && i < rows) {
        a[k * ld + i] = (q * x - y) * scale;
        a[(k + 1) * ld + i] = (p * y - x) * scale;
      }
      if (i == 0) {
        set_diagonal(s.d, slot, xk, off, 1);
        set_diagonal(s.d, slot + 1, last, off, -1);
        ++s.stats[kTwos];
        if (!(scale - scale == T(0)) || !(xk + last - (xk + last) == T(0))) ++s.stats[kNonFinite];
        if (p * q < T(1)) ++s.stats[kPositive], ++s.stats[kNegative];
        else s.stats[xk > T(0) ? kPositive : kNegative] += 2;
      }
      k += 2;
    }
    team_sync<Threads>();
  }
  return k;
}

// Tries columns k0..k0+size in place: takes them if every one of them passes the tests that let the serial rule take it
// without looking at another column, and leaves the front as it was otherwise.
// Barriers: block eliminated | rows tested | block settled | rows formed. The team is a whole block.
// A function of its own, as what else is large and called in several places or rarely: the time to compile a kernel
// grows faster than its length.
template <int Threads, typename T>
__device__ __noinline__ bool try_direct(T* a, int ld, int rows, int padded, int width, int k0, int size, const T* rule,
                          DirectScratch<T>& s, i32* stats) {
  const int rank = team_rank<Threads>(), end = k0 + size;
  if (rank < kWarp) {
    const int bad = direct_block<true, true>(a, ld, k0, size, rule[kDoubt], s);
    if (rank == 0) s.verdict = bad < 0;
  }
  team_sync<Threads>();
  if (s.verdict == 0) return false;
  const bool fits = end == rows || rows_fit<Threads>(a, ld, padded, k0, size, end, width, rule[kThreshold], s);
  if (!__syncthreads_and(fits)) return false;
  if (rank < kWarp) {
    settle_block(a, ld, k0, size, s);
    const int positive = __popc(__ballot_sync(kFullMask, rank < size && s.d.own[kLead + rank] > T(0)));
    if (rank == 0) stats[kOnes] += size, stats[kPositive] += positive, stats[kNegative] += size - positive;
  }
  team_sync<Threads>();
  if (end < rows) {
    direct_rows<Threads>(a, ld, padded, k0, size, end, s);
    team_sync<Threads>();
  }
  return true;
}

// Eliminates the first `width` columns of a front of `rows` <= Threads rows. `order` and p.stats are set up by the
// caller; D and the pivots go to global memory. A block tries panels in place first where it is `hopeful`, until one
// refuses; what one warp holds its caller has tried (`s` is not used).
// Returns a bit for each 32 columns whose diagonal block has its inverse above the diagonal already.
template <int Threads, typename T>
WF_DEVICE u32 eliminate_pivoted(T* a, int ld, int rows, int padded, int width, const T* rule, DirectScratch<T>* s,
                                PivotScratch<T>& p, i32* order, T* diagonal, i32* pivots, bool hopeful = Threads > kWarp) {
  const int i = team_rank<Threads>();
  int k = 0, candidates = width, pass_start = 0;
  bool force = false;
  u32 inverted = 0;
  if constexpr (Threads > kWarp) clear_diagonal<Threads>(s->d);
  while (k < width) {
    clear_diagonal<Threads>(p.d);
    team_sync<Threads>();
    int end = min_of(width, k + kPanel);
    hopeful = hopeful && candidates == width && !force;
    if constexpr (Threads > kWarp) {
      if (hopeful) hopeful = try_direct<Threads>(a, ld, rows, padded, width, k, end - k, rule, *s, p.stats);
      if (hopeful) {
        if (i < kWarp) write_direct(*s, k, end - k, diagonal, pivots);
        if (k % kPanel == 0) inverted |= 1u << (k / kPanel);
        if (end < rows) update_trailing<Threads>(a, ld, padded, k, end, s->d);
      }
    }
    if (!hopeful) {
      end = pivot_panel<Threads>(a, ld, rows, width, k, candidates, force, rule, p, order);
      if (i < end - k) {
        const int step = p.d.step[kLead + i];
        diagonal[2 * (k + i)] = p.d.own[kLead + i];
        diagonal[2 * (k + i) + 1] = step == 1 ? p.d.other[kLead + i] : T(0);
        pivots[2 * (k + i) + 1] = step == 1 ? 2 : step == -1 ? 3 : p.d.own[kLead + i] == T(0) ? 0 : 1;
      }
    }
    if (!hopeful && end > k && end < rows) update_trailing<Threads>(a, ld, padded, k, end, p.d);
    team_sync<Threads>();
    k = end;
    if (k >= candidates && k < width) {
      force = force || k == pass_start;
      pass_start = k, candidates = width;
    }
  }
  for (int q = i; q < width; q += Threads) pivots[2 * q] = order[q];
  return inverted;
}

// Rows Begin.. of eight of an inverse less what two columns of L have in them, moved up by two. L is read in pairs from row k
// on, modulo `mask` + 1: what is read behind the last row goes into rows that nobody needs.
template <int Begin, typename T>
WF_DEVICE void next_rows(T (&y)[kPanel], T y0, T y1, const T* first, const T* second, int k, int mask) {
  WF_UNROLL
  for (int m = max_of(Begin, 2); m < Begin + 8; m += 2) {
    const int row = (k + m) & mask;
    const Two<T> s = *reinterpret_cast<const Two<T>*>(first + row), t = *reinterpret_cast<const Two<T>*>(second + row);
    y[m - 2] = fma(-y1, t.x, fma(-y0, s.x, y[m])), y[m - 1] = fma(-y1, t.y, fma(-y0, s.y, y[m + 1]));
  }
}

// The same for the rows that are left, eight at a time.
template <typename T>
WF_DEVICE void next_rows(T (&y)[kPanel], T y0, T y1, const T* first, const T* second, int k, int left, int mask) {
  next_rows<0>(y, y0, y1, first, second, k, mask);
  if (left > 8) next_rows<8>(y, y0, y1, first, second, k, mask);
  if (left > 16) next_rows<16>(y, y0, y1, first, second, k, mask);
  if (left > 24) next_rows<24>(y, y0, y1, first, second, k, mask);
}

// Inverse of the unit lower `size` x `size` block at a, written transposed above its diagonal; one warp, one lane a
// column. Reads below the diagonal, writes above it; a barrier between the two in each step.
template <typename T>
WF_DEVICE void invert_unit(T* a, int ld, int size) {
  const int lane = lane_id(), mask = ld < kPitch ? 15 : 31;
  T y[kPanel];
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) y[k] = k == lane ? T(1) : T(0);
  // Two rows of the inverse stand first, the update moves the others up: see direct.cuh.
  WF_UNROLL_N(1)
  for (int k = 0; k + 1 < size; k += 2) {
    T *first = a + k * ld, *second = first + ld;
    const T y0 = y[0], y1 = fma(-first[k + 1], y0, y[1]);
    next_rows(y, y0, y1, first, second, k, size - k, mask);
    __syncwarp();
    if (lane < k) first[lane] = y0;
    if (lane <= k) second[lane] = y1;
  }
  if (size % 2 == 1 && lane < size - 1) a[(size - 1) * ld + lane] = y[0];
}

}  // namespace wf
