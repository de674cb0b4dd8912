// What the LU kernels share: one warp's elimination with row interchanges, inverses of triangles, products, extend-add.
//
// A front's factor is L D U with unit triangles, in two halves of one layout (front.cuh): L at f.panel, U transposed behind
// it, both column by column below the diagonal, with the inverses of their 32 x 32 diagonal blocks transposed above it.
// Contribution blocks are two halves as well: the lower triangle packed by columns, behind it the upper one packed by
// rows. A child's rows keep their order in the parent, so a half is assembled from the children's same half. Sweeps for A
// take L forward and U backward, sweeps for A^T the other way round.
// `pivots` holds which row of the front each pivot came from, and for all of the matrix behind that which column, both with
// the pivot's kind (1, or 0 for a zero pivot, whose column of L and row of U are zero).
// The rule is that of sparse/numeric/_lu_kernels.py: the diagonal while it is at least a share of the largest entry of its
// column, else the largest (of equal ones the first; NaN before numbers); refused where an entry of L would pass 1/u.
// Literature: Duff and Reid (1984), threshold pivoting in unsymmetric fronts.
#pragma once
#include "front.cuh"

namespace wf {

enum : int { kShare = kEpsilon + 1 };  // behind the tolerances of front.cuh in the array `rule`

template <typename T>
struct LuRule {
  T threshold, zero, doubt, epsilon, share;
};
template <typename T>
WF_DEVICE LuRule<T> lu_rule(const T* rule) {
  return {rule[kThreshold], rule[kZero], rule[kDoubt], rule[kEpsilon], rule[kShare]};
}

// What happened to a team's pivots; the same in every thread that decides.
struct LuCounts {
  int pivots, perturbed, zeros, doubtful, failed, nonfinite;
};

WF_DEVICE double lu_size(double a) { return __longlong_as_double(__double_as_longlong(a) & 0x7fffffffffffffffll); }
WF_DEVICE float lu_size(float a) { return __int_as_float(__float_as_int(a) & 0x7fffffff); }
WF_DEVICE bool lu_same(double a, double b) { return __double_as_longlong(a) == __double_as_longlong(b); }
WF_DEVICE bool lu_same(float a, float b) { return __float_as_int(a) == __float_as_int(b); }

// Largest of a warp's sizes, NaN first: bits of non-negative numbers order as unsigned integers do.
WF_DEVICE double lu_largest(double v) {
  const u64 bits = static_cast<u64>(__double_as_longlong(v));
  const u32 high = static_cast<u32>(bits >> 32), top = __reduce_max_sync(kFullMask, high);
  const u32 low = __reduce_max_sync(kFullMask, high == top ? static_cast<u32>(bits) : 0u);
  return __longlong_as_double(static_cast<i64>(static_cast<u64>(top) << 32 | low));
}
WF_DEVICE float lu_largest(float v) {
  return __int_as_float(static_cast<int>(__reduce_max_sync(kFullMask, static_cast<u32>(__float_as_int(v)))));
}

// Where the upper halves begin. The order of the matrix lies in the record's last word.
WF_DEVICE i64 upper_panel(const Front& f) { return f.panel + static_cast<i64>(f.ld) * f.width; }
WF_DEVICE i64 side_panel(const Front& f, int side) { return side == 0 ? f.panel : upper_panel(f); }
WF_DEVICE i64 order_of(const Front& f) { return f.unused; }

constexpr u32 kNoPlace = 0xffffffffu;

// First place among the lanes that hold the largest; kNoPlace where no lane takes part.
template <typename T>
WF_DEVICE u32 lu_first(bool open, T size, T largest, int place) {
  return __reduce_min_sync(kFullMask, open && (lu_same(size, largest) || size != size) ? static_cast<u32>(place) : kNoPlace);
}

// What is done with a column. kRefuse: nothing, it has no acceptable pivot.
enum : int { kRefuse, kTake, kPerturb, kEmpty };

struct LuChoice {
  int what, place;
};

// `diagonal`: size at place k; `top`: largest in the fully summed rows, first at place `at`; `all`: largest in the column.
// Forced: takes the largest anyhow, perturbed where it is tiny; a column of zeros is empty. Not `whole`: there are rows that
// are not seen here, so a tiny pivot is perturbed in any case.
template <typename T>
WF_DEVICE LuChoice lu_choose(const LuRule<T>& rule, T diagonal, T top, T all, int k, int at, bool force, bool whole) {
  if (!whole && top <= rule.epsilon) return {kPerturb, at};
  if (!(all <= rule.zero)) {
    if (diagonal >= rule.share * all) return {kTake, k};
    if (!(top < rule.threshold * all)) return {kTake, at};
  }
  if (!force) return {kRefuse, k};
  if (all <= rule.zero || (top == T(0) && rule.epsilon == T(0))) return {kEmpty, at};
  return {top <= rule.epsilon ? kPerturb : kTake, at};
}

// Counts one pivot and returns its value; `failed` keeps the first empty column's name.
template <typename T>
WF_DEVICE T lu_count(LuCounts& c, const LuRule<T>& rule, int what, T pivot, T all, int name) {
  if (what == kEmpty) {
    if (c.failed < 0) c.failed = name;
    ++c.zeros;
    return T(0);
  }
  if (what == kPerturb) pivot = pivot < T(0) ? -rule.epsilon : rule.epsilon, ++c.perturbed;
  if (all <= rule.doubt) ++c.doubtful;
  if (!(pivot - pivot == T(0))) ++c.nonfinite;
  ++c.pivots;
  return pivot;
}

template <typename T>
WF_DEVICE T lu_inverse(int what, T pivot) { return what == kEmpty ? T(0) : reciprocal(pivot); }

// Two neighbouring values, moved at once.
template <typename T>
struct alignas(2 * sizeof(T)) LuPair {
  T a, b;
};

// A row that lies in registers, with its first entry replaced, to shared memory.
template <typename T>
WF_DEVICE void store_row(LuPair<T>* to, T first, const T (&r)[kPanel]) {
  to[0] = {first, r[1]};
  WF_UNROLL
  for (int j = 1; j < kPanel / 2; ++j) to[j] = {r[2 * j], r[2 * j + 1]};
}

// What a warp's elimination is told: `full` of the `rows` rows may hold pivots; `whole` as in lu_choose; `sure`: size above
// which a diagonal entry needs no look at the tolerances.
template <typename T>
struct LuShape {
  int rows, full, width;
  bool whole;
  T sure;
};
template <typename T>
WF_DEVICE LuShape<T> lu_shape(int rows, int full, int width, bool whole, const LuRule<T>& rule) {
  const T sure = rule.zero < rule.doubt ? rule.doubt : rule.zero;
  return {rows, full, width, whole, whole || rule.epsilon < sure ? sure : rule.epsilon};
}

// State of one warp's elimination of a matrix with at most 32 rows; lane i holds row i in r. Rows stay where they are; `place`
// says where each belongs. Column k of L goes to lower[k * pitch + lane], row k of U from its diagonal on to
// upper[k * kPitch], 16-byte aligned. d: lane k's pivot. A column that leaves r at the front makes room at its end for one of
// the inverse of L, whose rows change as the matrix's do: r ends as the remaining columns, then the inverse's, by place.
template <typename T>
struct LuWarp {
  LuShape<T> shape;
  LuRule<T> rule;
  T *lower, *upper, d, inverse;
  int pitch, place, chosen;
  bool moved;
  LuCounts counts;
};
template <typename T>
WF_DEVICE LuWarp<T> lu_warp(const LuShape<T>& shape, const LuRule<T>& rule, T* lower, int pitch, T* upper) {
  return {shape, rule, lower, upper, T(1), T(0), pitch, lane_id(), 0, false, {0, 0, 0, 0, -1, 0}};
}

// Takes a pivot of column k and lays out its row of U; a barrier of all who read that row follows, then lu_apply. False: the
// column is refused. A diagonal entry that all others of its column let pass costs a vote; only otherwise the largest is
// looked for.
template <bool Force, typename T>
WF_DEVICE bool lu_take(LuWarp<T>& w, const T (&r)[kPanel], int k) {
  const int lane = lane_id();
  const bool own = lane < w.shape.full, other = !own && lane < w.shape.rows, open = own && w.place >= k;
  const T x = r[0], size = lu_size(x);
  const int diagonal = w.moved ? __ffs(static_cast<int>(__ballot_sync(kFullMask, own && w.place == k))) - 1 : k;
  LuPair<T>* row = reinterpret_cast<LuPair<T>*>(w.upper + k * kPitch);
  if (lane == diagonal) store_row(row, x, r);
  T pivot = __shfl_sync(kFullMask, x, diagonal);
  const T akk = lu_size(pivot);
  int what = kTake;
  T all = akk;
  w.chosen = diagonal;
  if (!__all_sync(kFullMask, akk > w.shape.sure && (!(open || other) || w.rule.share * size <= akk))) {
    const T top = lu_largest(open ? size : T(0));
    all = nan_max(top, lu_largest(other ? size : T(0)));
    const u32 at = lu_first(open, size, top, w.place);
    const LuChoice choice = lu_choose(w.rule, akk, top, all, k, static_cast<int>(at), Force, w.shape.whole);
    what = choice.what;
    if (what == kRefuse) return false;
    w.chosen = __ffs(static_cast<int>(__ballot_sync(kFullMask, own && w.place == choice.place))) - 1;
    pivot = __shfl_sync(kFullMask, x, w.chosen);
    if (lane == diagonal) w.place = choice.place;
    if (lane == w.chosen) w.place = k;
    w.moved = w.moved || w.chosen != diagonal;
  }
  pivot = lu_count(w.counts, w.rule, what, pivot, all, k);
  if (w.chosen != diagonal || what != kTake) {
    __syncwarp();
    if (lane == w.chosen) store_row(row, pivot, r);
  }
  w.inverse = lu_inverse(what, pivot);
  if (lane == k) w.d = pivot;
  return true;
}

// Subtracts the row of U that lu_take laid out, and moves r on.
template <typename T>
WF_DEVICE void lu_apply(const LuWarp<T>& w, T (&r)[kPanel], int k) {
  const int lane = lane_id();
  const bool below = lane < w.shape.full ? w.place > k : lane < w.shape.rows;
  const T l = below ? r[0] * w.inverse : T(0);
  if (lane < w.shape.rows) w.lower[k * w.pitch + lane] = l;
  const LuPair<T>* row = reinterpret_cast<const LuPair<T>*>(w.upper + k * kPitch);
  WF_UNROLL
  for (int j = 0; j < kPanel / 2; ++j) {
    const LuPair<T> u = row[j];
    if (j > 0) r[2 * j - 1] = fma(-l, u.a, r[2 * j]);
    r[2 * j] = fma(-l, u.b, r[2 * j + 1]);
  }
  r[kPanel - 1] = lane == w.chosen ? T(1) : -l;
}

// Lays out a strictly lower triangle of order size <= 32 for lu_substitute: entry(m, k), m > k, is element m - k - 1 of column k.
// A barrier of the team's follows.
template <int Threads, typename T, typename Entry>
WF_DEVICE void lu_lay_out(T* square, int size, Entry entry) {
  for (int e = team_rank<Threads>(); e < size * kPanel; e += Threads) {
    const int k = e / kPanel, m = k + 1 + e % kPanel;
    square[k * kPitch + e % kPanel] = m < size ? entry(m, k) : T(0);
  }
}

// Solves with a unit lower triangle that was laid out, a right-hand side a lane; emit(k, v) takes element k of the solution.
template <typename T, typename Emit>
WF_DEVICE void lu_substitute(T (&y)[kPanel], int size, const T* square, Emit emit) {
  WF_UNROLL_N(1)
  for (int k = 0; k < size; ++k) {
    const T v = y[0];
    emit(k, v);
    const LuPair<T>* column = reinterpret_cast<const LuPair<T>*>(square + k * kPitch);
    WF_UNROLL
    for (int i = 0; i < kPanel / 2; ++i) {
      const LuPair<T> l = column[i];
      y[2 * i] = fma(-l.a, v, y[2 * i + 1]);
      y[2 * i + 1] = 2 * i + 2 < kPanel ? fma(-l.b, v, y[(2 * i + 2) % kPanel]) : T(0);
    }
  }
}

// acc[n] += A B for a 16 x (8 * N) tile: A column-major (lda), B with its columns ldb apart, `count` <= 32 deep.
template <int N, typename T>
WF_DEVICE void multiply_columns(T (&acc)[N][4], const T* a, int lda, const T* b, int ldb, int count) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  for (int k = 0; k < count; k += 16) {
    T x[8];
    WF_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int p = k + t + 4 * j;
      x[2 * j] = p < count ? a[p * lda + g] : T(0), x[2 * j + 1] = p < count ? a[p * lda + g + 8] : T(0);
    }
    WF_UNROLL
    for (int n = 0; n < N; ++n) {
      T y[4];
      WF_UNROLL
      for (int j = 0; j < 4; ++j) y[j] = k + t + 4 * j < count ? b[(8 * n + g) * ldb + k + t + 4 * j] : T(0);
      product(acc[n], x, y);
    }
  }
}

// acc[m][n] += (A D) B^T for a (16 M) x (8 N) tile, 32 deep: A and B column-major, D one value a column; B's fragments are
// loaded once for all rows.
template <int M, int N, typename T>
WF_DEVICE void multiply_weighted(T (&acc)[M][N][4], const T* a, const T* b, int pitch, const T* d) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  WF_UNROLL
  for (int k = 0; k < kPanel; k += 16) {
    T x[M][8];
    WF_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int p = k + t + 4 * j;
      const T weight = d[p];
      WF_UNROLL
      for (int m = 0; m < M; ++m)
        x[m][2 * j] = a[p * pitch + 16 * m + g] * weight, x[m][2 * j + 1] = a[p * pitch + 16 * m + g + 8] * weight;
    }
    WF_UNROLL
    for (int n = 0; n < N; ++n) {
      T y[4];
      WF_UNROLL
      for (int j = 0; j < 4; ++j) y[j] = b[(k + t + 4 * j) * pitch + 8 * n + g];
      WF_UNROLL
      for (int m = 0; m < M; ++m) product(acc[m][n], x[m], y);
    }
  }
}

// acc += A B^T, 16 x 8 a warp, 32 deep; all column-major.
template <int N, typename T>
WF_DEVICE void multiply_plain(T (&acc)[N][4], const T* a, const T* b, int pitch) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  WF_UNROLL
  for (int k = 0; k < kPanel; k += 16) {
    T x[8];
    WF_UNROLL
    for (int j = 0; j < 4; ++j)
      x[2 * j] = a[(k + t + 4 * j) * pitch + g], x[2 * j + 1] = a[(k + t + 4 * j) * pitch + g + 8];
    WF_UNROLL
    for (int n = 0; n < N; ++n) {
      T y[4];
      WF_UNROLL
      for (int j = 0; j < 4; ++j) y[j] = b[(k + t + 4 * j) * pitch + 8 * n + g];
      product(acc[n], x, y);
    }
  }
}

}  // namespace wf
