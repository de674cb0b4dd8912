// Elimination without interchanges of one 32 x 32 block, eight columns at a time, with the inverse of its unit lower factor.
//
// W is the block's columns, and, in the rows of columns that have passed, the columns of the inverse: row i of the eight
// columns n is, behind them, row i of the block; in them a row of the unit matrix; before them 0, all of it less what the
// columns before subtract. So one substitution by the eight columns' own factor gives rows of L D behind, and columns of
// the inverse before: the same work in every lane. The 8 x 8 factor itself every lane makes for itself, from the same values:
// the chain from pivot to pivot holds no exchange between lanes. One exchange for eight columns remains: the next
// columns' W by products of what the lanes have found (FP64 tensor cores, m8n8k4; sums in a fixed order).
// The block's first warp eliminates, the second prepares the next columns' W but for what the present ones subtract, the third hands
// on what is found, and the last of it the next ones with it. A barrier lies behind each eight columns.
// The block is read only: a refused one can still be searched.
// Eight columns of which a pivot fails, or two pivots' product leaves the range of numbers, are done again from where they began,
// carefully: that depends on their values alone.
#pragma once
#include "direct.cuh"

namespace wf {

constexpr int kSub = 8, kPacked = kSub * (kSub + 1) / 2, kNextPitch = 10;

template <typename T>
struct alignas(16) BlockedScratch {
  T x[kPanel * kPitch];  // by rows: L D, and from the block of eight on the diagonal on the columns of the inverse
  T l[kPanel * kPitch];  // the same times 1 / D: L, and M = inv(L)^T inv(D)
  T own[kPanel * kSub];  // L within eight columns, by rows
  T next[kPanel * kNextPitch];           // W of the eight columns that come next
  T unit[kSub * kNextPitch];             // its rows in the columns themselves
  T ahead[2][kPanel / kSub][2 * kWarp];  // of those, and of the ones behind them, what is known before their turn: a lane's pairs
  T d[kPanel];
  i32 bad[2];  // the first column that fails, or -1, as known behind even and odd eights
};

// Lower triangle of 8 x 8, by rows.
WF_DEVICE constexpr int packed_row(int r, int c) { return r * (r + 1) / 2 + c; }

template <typename T>
struct Eight {
  T g[kPacked];             // the columns' own block, in every lane; L below its diagonal in columns that have passed
  T v[kSub], l[kSub];       // the lane's row of W, and the same times 1 / D
  T d[kSub];
  u32 refused, unsafe;      // columns that the lane's tests refuse; first columns of two whose pivots or product are out of range
};

// Sign and exponent, from bit 0 on, and magnitudes as integers: they order as the numbers do, NaN behind all of them. Tests of
// numbers by these keep out of the way of FP64 arithmetic, on whose latency the chain hangs.
WF_DEVICE u32 exponent_of(double v) { return static_cast<u32>(__double_as_longlong(v) >> 52) & 0xfffu; }
WF_DEVICE u32 exponent_of(float v) { return static_cast<u32>(__float_as_int(v)) >> 23; }
WF_DEVICE u64 magnitude_of(double v) { return static_cast<u64>(__double_as_longlong(v)) & 0x7fffffffffffffffull; }
WF_DEVICE u64 magnitude_of(float v) { return static_cast<u32>(__float_as_int(v)) & 0x7fffffffu; }
WF_DEVICE double of_magnitude(u64 bits, double) { return __longlong_as_double(static_cast<i64>(bits)); }
WF_DEVICE float of_magnitude(u64 bits, float) { return __int_as_float(static_cast<int>(bits)); }

// Whether a number is far from where products with it leave the range, and, unless `Indefinite`, positive.
template <bool Indefinite>
WF_DEVICE bool in_range(double v) { return (exponent_of(v) & (Indefinite ? 0x7ffu : 0xfffu)) - 623u < 800u; }
template <bool Indefinite>
WF_DEVICE bool in_range(float v) { return (exponent_of(v) & (Indefinite ? 0xffu : 0x1ffu)) - 77u < 100u; }

// 1 / d = x + x q.
struct Rough {
  double x, q;
};
WF_DEVICE Rough rough_reciprocal(double d) {
#ifdef WARPFRONT_SIMT
  const double x = 1.0 / d;
#else
  double x;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(x) : "d"(d));
#endif
  const double e = fma(-d, x, 1.0);
  return {x, fma(e, e, e)};
}
struct RoughFloat {
  float x, q;
};
WF_DEVICE RoughFloat rough_reciprocal(float d) { return {1.0f / d, 0.0f}; }

template <bool Indefinite, typename T>
WF_DEVICE bool passes_alone(T pivot, T least) {
  return (Indefinite ? abs_value(pivot) > least : pivot > T(0)) & (pivot - pivot == T(0));
}

// Whether an indefinite pivot passes against the rows behind it within the eight columns, and the lane's own (x, where `behind`).
template <int J, typename T>
WF_DEVICE bool passes(T pivot, const T (&column)[kSub], T x, bool behind, T least) {
  u64 most = behind ? magnitude_of(x) : 0;
  WF_UNROLL
  for (int k = J + 1; k < kSub; ++k) {
    const u64 here = magnitude_of(column[k]);
    most = here > most ? here : most;
  }
  return passes_alone<true>(pivot, least) & (T(kAlpha) * of_magnitude(most, T()) <= abs_value(pivot));
}

// Columns J and J + 1 of eight: their pivots, L and W, and the columns behind them. `count`: columns that are there.
// The second column's L is what both subtract, times the first pivot, over the determinant of the two: neither waits for the
// reciprocal of the other. Careful: no product of pivots; a pivot that fails has the reciprocal 0.
template <bool Indefinite, bool Careful, int J, typename T>
WF_DEVICE void eliminate_two(Eight<T>& e, int count, bool behind, T least) {
  const T p0 = e.g[packed_row(J, J)], side = e.g[packed_row(J + 1, J)], p1 = e.g[packed_row(J + 1, J + 1)];
  const T det = fma(p0, p1, -side * side);
  const auto rough = rough_reciprocal(det);
  const T i0 = !Careful || passes_alone<Indefinite>(p0, least) ? reciprocal(p0) : T(0);
  const T d1 = Careful ? fma(-side * i0, side, p1) : det * i0;
  const T i1 = Careful && passes_alone<Indefinite>(d1, least) ? reciprocal(d1) : T(0);
  const auto over = [&](T a0, T a1, T rest) -> T {  // the entry of L behind a0 and a1, of which the first column leaves `rest`
    if (Careful) return rest * i1;
    const T y = fma(a1, p0, -a0 * side) * rough.x;
    return fma(y, rough.q, y);
  };
  T first[kSub] = {}, below[kSub] = {}, l0[kSub], l1[kSub];
  first[J + 1] = side;
  WF_UNROLL
  for (int k = J + 2; k < kSub; ++k) {
    const T a1 = e.g[packed_row(k, J + 1)];
    first[k] = e.g[packed_row(k, J)];
    l0[k] = first[k] * i0, below[k] = fma(-l0[k], side, a1), l1[k] = over(first[k], a1, below[k]);
    WF_UNROLL
    for (int m = J + 2; m < kSub; ++m)
      if (m <= k) e.g[packed_row(k, m)] = fma(-l1[k], below[m], fma(-l0[k], first[m], e.g[packed_row(k, m)]));
    e.g[packed_row(k, J)] = l0[k], e.g[packed_row(k, J + 1)] = l1[k];
  }
  e.g[packed_row(J + 1, J)] = side * i0;
  const T x0 = e.v[J], z0 = x0 * i0, x1 = fma(-z0, side, e.v[J + 1]), z1 = over(x0, e.v[J + 1], x1);
  WF_UNROLL
  for (int m = J + 2; m < kSub; ++m) e.v[m] = fma(-z1, below[m], fma(-z0, first[m], e.v[m]));
  e.v[J + 1] = x1, e.l[J] = z0, e.l[J + 1] = z1, e.d[J] = p0, e.d[J + 1] = d1;
  if (!Careful) e.unsafe |= static_cast<u32>(!(in_range<Indefinite>(p0) & in_range<Indefinite>(det))) << J;
  if (!Careful && !Indefinite) return;
  const bool fine0 = Indefinite ? passes<J>(p0, first, x0, behind, least) : passes_alone<false>(p0, least);
  const bool fine1 = Indefinite ? passes<J + 1>(d1, below, x1, behind, least) : passes_alone<false>(d1, least);
  e.refused |= static_cast<u32>((J < count) & !fine0) << J | static_cast<u32>((J + 1 < count) & !fine1) << (J + 1);
}

template <bool Indefinite, bool Careful, typename T>
WF_DEVICE void eliminate_eight(Eight<T>& e, int count, bool behind, T least) {
  e.refused = e.unsafe = 0;
  eliminate_two<Indefinite, Careful, 0>(e, count, behind, least);
  eliminate_two<Indefinite, Careful, 2>(e, count, behind, least);
  eliminate_two<Indefinite, Careful, 4>(e, count, behind, least);
  eliminate_two<Indefinite, Careful, 6>(e, count, behind, least);
}

// The first of eight columns that some lane refuses, or -1.
WF_DEVICE int first_refused(u32 refused) {
  int found = -1;
  for (int k = kSub - 1; k >= 0; --k)
    if (__any_sync(kFullMask, (refused >> k & 1) != 0)) found = k;
  return found;
}

// A 8 x 4, B 4 x 8, one element of each a lane; c as the FP64 unit has it.
WF_DEVICE void product_eight(double (&c)[2], double a, double b) { dmma_m8n8k4(c, a, b); }
WF_DEVICE void product_eight(float (&c)[2], float a, float b) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  for (int k = 0; k < 4; ++k) {
    const float x = __shfl_sync(kFullMask, a, 4 * g + k);
    for (int h = 0; h < 2; ++h) c[h] = fmaf(x, __shfl_sync(kFullMask, b, 4 * (2 * t + h) + k), c[h]);
  }
}

// c -= X L^T, 8 x 8 x 8: rows of X and of L at x and l. Not used: c stays.
template <typename T>
WF_DEVICE void subtract_product(T (&c)[2], const T* x, const T* l, bool used) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  WF_UNROLL
  for (int k = 0; k < kSub; k += 4) {
    const T a = x[g * kPitch + k + t];
    product_eight(c, used ? -a : T(0), l[g * kPitch + k + t]);
  }
}

// Columns n of W, four tiles of 8 x 8 as the products have them: the block itself, with a unit diagonal behind `size`.
template <typename T>
WF_DEVICE void start_columns(T (&w)[4][2], const T* block, int ld, int size, int n) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  WF_UNROLL
  for (int b = 0; b < 4; ++b)
    WF_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int row = kSub * b + g, col = kSub * n + 2 * t + h;
      const T a = block[col * ld + row];
      w[b][h] = b < n ? T(0) : row < size && col < size ? a : row == col ? T(1) : T(0);
    }
}

// What eight columns q subtract from columns n of W.
template <typename T>
WF_DEVICE void subtract_columns(T (&w)[4][2], const BlockedScratch<T>& s, int q, int n) {
  const T* l = s.l + kSub * n * kPitch + kSub * q;
  WF_UNROLL
  for (int b = 0; b < 4; ++b) subtract_product(w[b], s.x + kSub * b * kPitch + kSub * q, l, b <= q || b >= n);
}

template <typename T>
WF_DEVICE void hand_over(const T (&w)[4][2], BlockedScratch<T>& s) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  WF_UNROLL
  for (int b = 0; b < 4; ++b) *reinterpret_cast<Two<T>*>(s.next + (kSub * b + g) * kNextPitch + 2 * t) = {w[b][0], w[b][1]};
}

// The lane's row of columns n of W, and the columns' own block.
template <typename T>
WF_DEVICE void take_over(Eight<T>& e, const BlockedScratch<T>& s, int n) {
  const int lane = lane_id();
  WF_UNROLL
  for (int r = 0; r < kSub; ++r)
    WF_UNROLL
    for (int c = 0; c < kSub; c += 2) {
      if (c > r) continue;
      const Two<T> a = *reinterpret_cast<const Two<T>*>(s.next + (kSub * n + r) * kNextPitch + c);
      e.g[packed_row(r, c)] = a.x;
      if (c < r) e.g[packed_row(r, c < r ? c + 1 : 0)] = a.y;
    }
  const T* row = lane / kSub == n ? s.unit + lane % kSub * kNextPitch : s.next + lane * kNextPitch;
  WF_UNROLL
  for (int c = 0; c < kSub; c += 2) {
    const Two<T> a = *reinterpret_cast<const Two<T>*>(row + c);
    e.v[c] = a.x, e.v[c + 1] = a.y;
  }
}

// Eight values to consecutive places, the first at a multiple of two.
template <typename T>
WF_DEVICE void store_eight(T* to, const T (&v)[kSub]) {
  WF_UNROLL
  for (int c = 0; c < kSub; c += 2) *reinterpret_cast<Two<T>*>(to + c) = {v[c], v[c + 1]};
}

// One lane: L of the eight columns' own block, where the lanes' rows have the inverse.
template <typename T>
WF_DEVICE void keep_own(const Eight<T>& e, T* own) {
  WF_UNROLL
  for (int r = 1; r < kSub; ++r)
    WF_UNROLL
    for (int c = 0; c < kSub; c += 2)
      if (c < r) *reinterpret_cast<Two<T>*>(own + r * kSub + c) = {e.g[packed_row(r, c)], e.g[packed_row(r, c + 1 < r ? c + 1 : c)]};
}

// The first warp: columns n, which have been handed over; `bad` is the first column that has failed so far.
template <bool Indefinite, typename T>
WF_DEVICE void eliminate_part(Eight<T>& e, int n, int size, T least, int& bad, BlockedScratch<T>& s) {
  const int lane = lane_id(), count = size - kSub * n;
  const bool behind = lane >= kSub * (n + 1);
  __syncwarp();  // columns n have been handed over
  take_over(e, s, n);
  eliminate_eight<Indefinite, false>(e, count, behind, least);
  if (__any_sync(kFullMask, (e.refused | e.unsafe) != 0u)) {
    int refused = first_refused(e.refused);
    if (!Indefinite || refused < 0 || (e.unsafe & ((1u << refused) - 1u)) != 0) {
      take_over(e, s, n);
      eliminate_eight<Indefinite, true>(e, count, behind, least);
      refused = first_refused(e.refused);
    }
    if (bad < 0 && refused >= 0) bad = kSub * n + refused;
  }
  store_eight(s.x + lane * kPitch + kSub * n, e.v);
  store_eight(s.l + lane * kPitch + kSub * n, e.l);
  if (lane == 0) s.bad[n % 2] = bad, store_eight(s.d + kSub * n, e.d);
}

// The second warp: columns n of W, but for what those right before them subtract.
template <typename T>
WF_DEVICE void prepare_columns(const T* block, int ld, int size, int n, BlockedScratch<T>& s) {
  T w[4][2];
  start_columns(w, block, ld, size, n);
  WF_UNROLL_N(1)
  for (int q = 0; q < n - 1; ++q) {
    subtract_columns(w, s, q, n);
    __syncwarp();
  }
  WF_UNROLL
  for (int b = 0; b < 4; ++b) *reinterpret_cast<Two<T>*>(&s.ahead[n % 2][b][2 * lane_id()]) = {w[b][0], w[b][1]};
}

// The first warp: that, and the rest.
template <typename T>
WF_DEVICE void finish_columns(int n, BlockedScratch<T>& s) {
  T w[4][2];
  WF_UNROLL
  for (int b = 0; b < 4; ++b) {
    const Two<T> a = *reinterpret_cast<const Two<T>*>(&s.ahead[n % 2][b][2 * lane_id()]);
    w[b][0] = a.x, w[b][1] = a.y;
  }
  subtract_columns(w, s, n - 1, n);
  hand_over(w, s);
}

// The whole block, `role` a thread's warp: eliminates the block at `block`, `size` pivots, whose lower triangle is read.
// put(n, part, of) is called by the third warp for each eight columns n that are taken, and for the last ones by four warps, each
// with its `part` of `of`.
// Indefinite = false: goes through; returns the first pivot that is not positive, or -1. Indefinite = true: stops at the first column
// that the tests of 1 x 1 pivots refuse, and returns it.
template <bool Indefinite, typename T, typename Put>
WF_DEVICE int eliminate_blocked(int role, const T* block, int ld, int size, T least, BlockedScratch<T>& s, const Put& put) {
  const int parts = (size + kSub - 1) / kSub;
  int bad = -1;
  if (role == 0) {
    T w[4][2];
    start_columns(w, block, ld, size, 0);
    hand_over(w, s);
    const int row = lane_id() / kSub, col = lane_id() % kSub;
    s.unit[row * kNextPitch + col] = T(row == col), s.unit[(row + 4) * kNextPitch + col] = T(row + 4 == col);
  }
  WF_UNROLL_N(1)
  for (int n = 0; n < parts; ++n) {
    Eight<T> e;
    if (role == 0) eliminate_part<Indefinite>(e, n, size, least, bad, s);
    if (role == 1 && n + 1 < parts) prepare_columns(block, ld, size, n + 1, s);
    if (role == 2 && n > 0) put(n - 1, 0, 1);
    __syncthreads();  // columns n have been found, and what comes next is prepared
    if (Indefinite && s.bad[n % 2] >= 0) return s.bad[n % 2];
    if (role != 0) continue;
    if (n + 1 < parts) finish_columns(n + 1, s);
    if (lane_id() == 0) keep_own(e, s.own + n * kSub * kSub);
  }
  if (role >= 2 && role < 6) put(parts - 1, role - 2, 4);
  __syncwarp();
  return s.bad[(parts - 1) % 2];
}

}  // namespace wf
