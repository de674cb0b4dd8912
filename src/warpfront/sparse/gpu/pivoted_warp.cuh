// L D L^T with pivot search of a front of at most 32 rows by one warp, everything in registers: the decisions of
// pivoted.cuh, without moving data.
//
// Lane i holds row i of the symmetric front for good; `at` is the place where an interchange has put that row. A column is
// looked at by passing its row through shared memory (symmetry), so every column is up to date at every step and the
// update is one pass over the registers. Columns of L are kept in the front's shared memory by row and are put in pivot
// order at the end.
// Barriers of a step: row of a candidate stored | read by all lanes, for each of the two candidates; one at its end,
// before the next step's candidate overwrites the rows that the update reads.
#pragma once
#include "pivoted.cuh"

namespace wf {

// Two rows of the front, and what the team's scratch would hold.
template <typename T>
struct alignas(16) WarpScratch {
  T row[2][kPanel];
  i32 stats[kStats];
};

// Row `lane` of the symmetric block of `size` rows at a, whose lower triangle stands in a square of ld - 4 rows, 16 or at
// least 32; zero outside. Every lane loads from inside the square: loads that a condition guards wait for each other's branch.
template <typename T>
WF_DEVICE void load_rows(T (&r)[kPanel], const T* a, int ld, int size) {
  const int lane = lane_id(), mask = ld < kPitch ? 15 : 31, row = lane & mask, count = lane < size ? size : 0;
  const T *below = a + row, *beside = a + row * ld;
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) {
    const int col = k & mask;
    const T v = *(col <= row ? below + col * ld : beside + col);
    r[k] = k < count ? v : T(0);
  }
  __syncwarp();
}

// Whether the first of `full` columns fails the tests by which eliminate_direct takes it: most fronts of a KKT system are
// refused there, and need not be loaded for it.
template <typename T>
WF_DEVICE bool refused_at_once(const T* a, int rows, int full, T least, T u) {
  const int lane = lane_id();
  return !accept<true>(a[0], lane < rows ? a[lane] : T(0), lane > 0, lane < full ? max_of(T(kAlpha), u) : u, least);
}

// A front's contribution block to global memory; a row a lane, its column q stands in r[q + shift].
template <typename T>
WF_DEVICE void write_block(T* block, const T (&r)[kPanel], int rows, int width, int shift) {
  const int lane = lane_id(), below = rows - width, mine = lane < rows ? lane - width : -1;
  int at = packed_at(below, -shift) + mine;
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) {
    const int q = k - shift;
    if (q >= 0 && mine >= q) block[at] = r[k];
    at += below - q - 1;
  }
}

// The row of lane `from` to all lanes, an entry each.
template <typename T>
WF_DEVICE T pass_row(const T (&r)[kPanel], int from, T* row) {
  const int lane = lane_id();
  if (lane == from) {
    WF_UNROLL
    for (int k = 0; k < kPanel; k += 2) *reinterpret_cast<Two<T>*>(row + k) = {r[k], r[k + 1]};
  }
  __syncwarp();
  return row[lane];
}

// r -= l row^T.
template <typename T>
WF_DEVICE void subtract_row(T (&r)[kPanel], T l, const T* row) {
  WF_UNROLL
  for (int k = 0; k < kPanel; k += 2) {
    const Two<T> c = *reinterpret_cast<const Two<T>*>(row + k);
    r[k] = fma(-l, c.x, r[k]), r[k + 1] = fma(-l, c.y, r[k + 1]);
  }
}

// r -= l0 row0^T, then l1 row1^T.
template <typename T>
WF_DEVICE void subtract_rows(T (&r)[kPanel], T l0, const T* row0, T l1, const T* row1) {
  WF_UNROLL
  for (int k = 0; k < kPanel; k += 2) {
    const Two<T> c = *reinterpret_cast<const Two<T>*>(row0 + k), d = *reinterpret_cast<const Two<T>*>(row1 + k);
    r[k] = fma(-l1, d.x, fma(-l0, c.x, r[k])), r[k + 1] = fma(-l1, d.y, fma(-l0, c.y, r[k + 1]));
  }
}

// The condition, and that the code for it comes first.
WF_DEVICE bool likely(bool condition) { return __builtin_expect(condition, 1); }

// Place of the first of the lanes that hold the warp's largest value, or -1 where that is zero.
template <typename T>
WF_DEVICE int first_place(T v, T largest, int at) {
  const u32 first = __reduce_min_sync(kFullMask, same_bits(v, largest) ? static_cast<u32>(at) : 0xffffu);
  return largest == T(0) ? -1 : static_cast<int>(first);
}

WF_DEVICE int lane_at(int at, int place) { return __ffs(static_cast<int>(__ballot_sync(kFullMask, at == place))) - 1; }

// What a 2x2 pivot's entries below have to fit (pivoted.cuh, choose): with x and y the largest of both columns,
// theirs x + y <= limit and x + mine y <= limit.
template <typename T>
struct TwoTest {
  T mine, theirs, x_rest, y_rest, limit;
};

// Columns k.. once the candidates are used up: another pass over those that were rejected, the last one by force.
WF_DEVICE void next_pass(int k, int width, int& candidates, int& pass_start, bool& force) {
  if (k < candidates || k >= width) return;
  force = force || k == pass_start;
  pass_start = k, candidates = width;
}

// Eliminates `width` columns and counts pivots in s.stats. a: shared, receives L by row; at: out, the place of the lane's row.
// put.one(k, d, row, forced), put.two(k, d, off, next d, row, next row, test) and put.zero(k, row) are told of each pivot: row is
// the lane it came from, d of a pivot that was not tested is passed with `forced`.
template <typename T, typename Put>
WF_DEVICE void pivot_in_registers(T (&r)[kPanel], T* a, int ld, int rows, int width, const T* rule, WarpScratch<T>& s,
                                  int& at, Put& put) {
  const int lane = lane_id();
  const T alpha = T(kAlpha), u = rule[kThreshold], zero = rule[kZero], doubt = rule[kDoubt], floor = rule[kEpsilon];
  const T per_u = T(1) / u;
  int k = 0, candidates = width, pass_start = 0;
  bool force = false;
  int failed = -1, perturbed = 0, twos = 0, zeros = 0, positive = 0, doubtful = 0, strange = 0;  // uniform
  at = lane;
  int lane_k = 0;  // the lane whose row stands at place k
  while (k < width) {
    const bool live = at >= k && lane < rows, behind = live && at > k, summed = behind && lane < width;
    const T x = pass_row(r, lane_k, s.row[0]), size_x = size_of(x);
    const T diagonal = s.row[0][lane_k];
    T pivot = diagonal, per_pivot = reciprocal(diagonal), y = T(0);
    const T akk = size_of(pivot);
    // The tests of a maximum hold if they hold for every value: a product with a positive factor keeps the order.
    const bool fits = behind ? akk >= u * size_x && (lane >= width || akk >= alpha * size_x) : akk >= T(0);
    const bool good = __all_sync(kFullMask, fits), some = __any_sync(kFullMask, live && !(size_x <= zero));
    const bool doubted = !__any_sync(kFullMask, live && !(size_x <= doubt));
    if (likely(some && good)) {  // taken where it stands: what most columns do is one piece of code
      const T l = behind ? x * per_pivot : T(0);
      if (lane < rows) a[k * ld + lane] = l;
      put.one(k, pivot, lane_k, false);
      lane_k = lane_at(at, ++k);
      subtract_row(r, l, s.row[0]);
      if (!(pivot - pivot == T(0))) ++strange;
      if (pivot > T(0)) ++positive;
      if (doubted) ++doubtful;
      __syncwarp();
      next_pass(k, width, candidates, pass_start, force);
      continue;
    }
    T pick[6], size = T(0), rest_x = T(0), rest_y = T(0), per_size = T(0), per_two = T(0);
    bool forced = false;
    int place = k, lane_r = lane_k;
    Choice<T> choice = {kZeroPivot, k};
    if (some) {
      choice.kind = kNoPivot;
      const T best = summed ? size_x : T(0);
      size = warp_largest(best);
      place = first_place(best, size, at);
      if (place >= 0) {
        per_size = reciprocal(size);
        lane_r = lane_at(at, place);
        y = pass_row(r, lane_r, s.row[1]);
        pick[0] = pivot, pick[1] = s.row[0][lane_r], pick[3] = s.row[1][lane_r], pick[4] = s.row[1][lane_k];
        const T size_y = size_of(y), theirs = pick[3] * per_size, mine = pivot * per_size;
        per_two = reciprocal(mine * theirs - T(1));
        const bool other = behind && at != place;
        const T x_rest = warp_largest(other ? size_x : T(0)), y_next = warp_largest(other && lane < width ? size_y : T(0));
        T low = T(0), y_below = T(0);
        if (rows > width) {
          low = warp_largest(live && lane >= width ? size_x : T(0)), y_below = warp_largest(live && lane >= width ? size_y : T(0));
        }
        rest_x = x_rest, rest_y = larger(y_next, y_below);
        choice = choose(pick, k, place, size, per_size, larger(size, low), y_below, x_rest, y_next, u, per_u);
      }
      if (choice.kind == kNoPivot && force) {
        choice.kind = kOnePivot, choice.place = k, forced = true;
        if (akk <= floor) {
          pivot = pivot < T(0) ? -floor : floor;
          per_pivot = reciprocal(pivot);
          ++perturbed;
          if (floor == T(0)) choice.kind = kZeroPivot;
        }
      }
    }
    if (doubted && (choice.kind == kOnePivot || choice.kind == kTwoPivot)) ++doubtful;
    if (likely(choice.pair)) {  // a comparison of kinds alone becomes a table of places to go to, which has to be read
      // size is that of the entry beside the diagonal
      const T off = pick[1], last = pick[3], per_off = off < T(0) ? -per_size : per_size, p = pivot * per_off, q = last * per_off;
      const T scale = per_off * per_two;
      at = at == k + 1 ? place : at == place ? k + 1 : at;
      const bool rest = live && at > k + 1;
      const T l0 = rest ? (q * x - y) * scale : T(0), l1 = rest ? (p * y - x) * scale : T(0);
      if (lane < rows) a[k * ld + lane] = l0, a[(k + 1) * ld + lane] = l1;
      const T limit = size_of(p * q - T(1)) * size * per_u;
      put.two(k, pivot, off, last, lane_k, lane_r, TwoTest<T>{size_of(p), size_of(q), rest_x, rest_y, limit});
      lane_k = lane_at(at, k += 2);
      subtract_rows(r, l0, s.row[0], l1, s.row[1]);
      ++twos;
      if (!(scale - scale == T(0)) || !(pivot + last - (pivot + last) == T(0))) ++strange;
      if (p * q < T(1)) ++positive;
      else if (pivot > T(0)) positive += 2;
    } else if (choice.kind == kNoPivot) {
      --candidates;
      at = at == k ? candidates : at == candidates ? k : at;
      lane_k = lane_at(at, k);
    } else if (choice.kind == kZeroPivot) {
      if (lane < rows) a[k * ld + lane] = T(0);
      put.zero(k, lane_k);
      if (failed < 0) failed = lane_k;
      ++zeros;
      lane_k = lane_at(at, ++k);
    } else if (choice.kind == kOnePivot) {
      const bool swapped = choice.place != k;
      if (swapped) pivot = pick[3], per_pivot = reciprocal(pivot), at = at == k ? place : at == place ? k : at;
      const T l = live && at > k ? (swapped ? y : x) * per_pivot : T(0);
      if (lane < rows) a[k * ld + lane] = l;
      put.one(k, pivot, swapped ? lane_r : lane_k, forced);
      lane_k = lane_at(at, ++k);
      subtract_row(r, l, s.row[swapped ? 1 : 0]);
      if (!(pivot - pivot == T(0))) ++strange;
      if (pivot > T(0)) ++positive;
    }
    __syncwarp();
    next_pass(k, width, candidates, pass_start, force);
  }
  if (lane != 0) return;
  s.stats[kOnes] = width - zeros - 2 * twos, s.stats[kTwos] = twos, s.stats[kPerturbed] = perturbed, s.stats[kZeros] = zeros;
  s.stats[kPositive] = positive, s.stats[kNegative] = width - zeros - positive, s.stats[kDoubtful] = doubtful;
  s.stats[kFailed] = failed, s.stats[kNonFinite] = strange;
}

// Pivots in the registers of the lane of their number, until they are written.
template <typename T>
struct PutGlobal {
  T *diagonal, d, off;
  i32 *pivots, row, kind;
  WF_DEVICE void keep(int k, T pivot, T beside, int from, int what) {
    if (lane_id() == k) d = pivot, off = beside, row = from, kind = what;
  }
  WF_DEVICE void zero(int k, int from) { keep(k, T(0), T(0), from, 0); }
  WF_DEVICE void one(int k, T pivot, int from, bool) { keep(k, pivot, T(0), from, 1); }
  WF_DEVICE void two(int k, T pivot, T beside, T next, int from, int next_from, const TwoTest<T>&) {
    keep(k, pivot, beside, from, 2);
    keep(k + 1, next, T(0), next_from, 3);
  }
  WF_DEVICE void write(int width) const {
    const int k = lane_id();
    if (k < width) diagonal[2 * k] = d, diagonal[2 * k + 1] = off, pivots[2 * k] = row, pivots[2 * k + 1] = kind;
  }
};

// L in shared memory from the order of rows to that of pivots. r is overwritten.
template <typename T>
WF_DEVICE void order_columns(T (&r)[kPanel], T* a, int ld, int rows, int width, int at) {
  const int lane = lane_id(), mask = ld < kPitch ? 15 : 31;
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) r[k] = a[(k & mask) * ld + (lane & mask)];
  __syncwarp();
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k)
    if (k < width && at > k && lane < rows) a[k * ld + at] = r[k];
  __syncwarp();
}

}  // namespace wf
