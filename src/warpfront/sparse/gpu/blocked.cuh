// Elimination without interchanges of one 32 x 32 block by one warp, eight columns at a time, with the inverse of its
// unit lower factor.
//
// W is the block's columns, and, in the rows of columns that have passed, the columns of the inverse: row i of the eight
// columns n is, behind them, row i of the block; in them a row of the unit matrix; before them 0, all of it less what the
// columns before subtract. So one substitution by the eight columns' own factor gives rows of L D behind, and columns of
// the inverse before: the same work in every lane. The 8 x 8 factor itself every lane makes for itself, from the same values:
// the chain from pivot to pivot holds no exchange between lanes. One exchange for eight columns remains: the next
// columns' W by products of what the lanes have found (FP64 tensor cores, m8n8k4; sums in a fixed order).
// The block is read only: a refused one can still be searched.
#pragma once
#include "direct.cuh"

namespace wf {

constexpr int kSub = 8, kPacked = kSub * (kSub + 1) / 2, kNextPitch = 10;
// What came of a block: all columns taken; a refused column's number, 0 and above; or to be done again by direct_block (a
// pivot that is not positive, or a product that leaves the range of numbers).
constexpr int kTaken = -1, kAgain = -2;

template <typename T>
struct alignas(16) BlockedScratch {
  T x[kPanel * kPitch];  // by rows: L D, and from the block of eight on the diagonal on the columns of the inverse
  T l[kPanel * kPitch];  // the same times 1 / D: L, and M = inv(L)^T inv(D)
  T next[kPanel * kNextPitch];
  T d[kPanel];
};

// Lower triangle of 8 x 8, by rows.
WF_DEVICE constexpr int packed_row(int r, int c) { return r * (r + 1) / 2 + c; }

template <typename T>
struct Eight {
  T g[kPacked];             // the columns' own block, in every lane; L below its diagonal in columns that have passed
  T v[kSub], l[kSub];       // the lane's row of W, and the same times 1 / D
  T d[kSub], inverse[kSub];
  u32 refused, again;       // columns that the lane's tests refuse; that leave the range
};

// Whether a pivot passes against the rows behind it within the eight columns, and the lane's own (x, where `behind`).
template <bool Indefinite, int J, typename T>
WF_DEVICE bool passes(T pivot, const T (&column)[kSub], T x, bool behind, T least) {
  if (!Indefinite) return pivot > T(0) && pivot - pivot == T(0);
  const T size = abs_value(pivot);
  bool fine = size > least && size - size == T(0) && (!behind || T(kAlpha) * abs_value(x) <= size);
  WF_UNROLL
  for (int k = J + 1; k < kSub; ++k) fine = fine && T(kAlpha) * abs_value(column[k]) <= size;
  return fine;
}

// Columns J and J + 1 of eight: their pivots, L and W, and the columns behind them. `count`: columns that are there.
template <bool Indefinite, int J, typename T>
WF_DEVICE void eliminate_two(Eight<T>& e, int count, bool behind, T least) {
  const T p0 = e.g[packed_row(J, J)], side = e.g[packed_row(J + 1, J)], p1 = e.g[packed_row(J + 1, J + 1)];
  const T i0 = reciprocal(p0);
  bool safe;
  const Second<T> second = fast_pivot(p0, i0, p1, side, true, safe);
  T first[kSub] = {}, below[kSub] = {}, l0[kSub], l1[kSub];
  first[J + 1] = side;
  WF_UNROLL
  for (int k = J + 2; k < kSub; ++k) {
    first[k] = e.g[packed_row(k, J)];
    l0[k] = first[k] * i0, below[k] = fma(-l0[k], side, e.g[packed_row(k, J + 1)]), l1[k] = below[k] * second.inverse;
    WF_UNROLL
    for (int m = J + 2; m < kSub; ++m)
      if (m <= k) e.g[packed_row(k, m)] = fma(-l1[k], below[m], fma(-l0[k], first[m], e.g[packed_row(k, m)]));
    e.g[packed_row(k, J)] = l0[k], e.g[packed_row(k, J + 1)] = l1[k];
  }
  e.g[packed_row(J + 1, J)] = side * i0;
  const T x0 = e.v[J], z0 = x0 * i0, x1 = fma(-z0, side, e.v[J + 1]), z1 = x1 * second.inverse;
  WF_UNROLL
  for (int m = J + 2; m < kSub; ++m) e.v[m] = fma(-z1, below[m], fma(-z0, first[m], e.v[m]));
  e.v[J + 1] = x1, e.l[J] = z0, e.l[J + 1] = z1;
  e.d[J] = p0, e.d[J + 1] = second.d, e.inverse[J] = i0, e.inverse[J + 1] = second.inverse;
  if (J < count && !passes<Indefinite, J>(p0, first, x0, behind, least)) e.refused |= 1u << J;
  if (J + 1 < count && !passes<Indefinite, J + 1>(second.d, below, x1, behind, least)) e.refused |= 2u << J;
  if (!safe) e.again |= 2u << J;
}

// The first of eight columns that some lane refuses, or kAgain where one left the range first; kTaken if none did.
template <bool Indefinite>
WF_DEVICE int judge(u32 refused, u32 again) {
  if (!__any_sync(kFullMask, (refused | again) != 0u)) return kTaken;
  int found = kAgain;
  if (Indefinite)
    for (int k = kSub - 1; k >= 0; --k) {
      const bool refuses = __any_sync(kFullMask, (refused >> k & 1) != 0);
      if (again >> k & 1) found = kAgain;
      else if (refuses) found = k;
    }
  return found;
}

// c -= X L^T, 8 x 8 x 8: rows of X and of L at x and l. Not used: c stays.
WF_DEVICE void subtract_product(double (&c)[2], const double* x, const double* l, bool used) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  WF_UNROLL
  for (int k = 0; k < kSub; k += 4) {
    const double a = x[g * kPitch + k + t];
    dmma_m8n8k4(c, used ? -a : 0.0, l[g * kPitch + k + t]);
  }
}
WF_DEVICE void subtract_product(float (&c)[2], const float* x, const float* l, bool used) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  WF_UNROLL
  for (int k = 0; k < kSub; ++k) {
    const float a = used ? -x[g * kPitch + k] : 0.0f;
    c[0] = fmaf(a, l[2 * t * kPitch + k], c[0]), c[1] = fmaf(a, l[(2 * t + 1) * kPitch + k], c[1]);
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
  WF_UNROLL
  for (int c = 0; c < kSub; c += 2) {
    const Two<T> a = *reinterpret_cast<const Two<T>*>(s.next + lane * kNextPitch + c);
    const bool own = lane / kSub == n;
    e.v[c] = own ? T(lane % kSub == c) : a.x, e.v[c + 1] = own ? T(lane % kSub == c + 1) : a.y;
  }
}

// Eight values to consecutive places, the first at a multiple of two.
template <typename T>
WF_DEVICE void store_eight(T* to, const T (&v)[kSub]) {
  WF_UNROLL
  for (int c = 0; c < kSub; c += 2) *reinterpret_cast<Two<T>*>(to + c) = {v[c], v[c + 1]};
}

// One lane: D of columns n, and L of their own block, where the lanes' rows had the inverse.
template <typename T>
WF_DEVICE void keep_own(const Eight<T>& e, BlockedScratch<T>& s, int n) {
  store_eight(s.d + kSub * n, e.d);
  T* to = s.l + kSub * n * (kPitch + 1);
  WF_UNROLL
  for (int r = 1; r < kSub; ++r)
    WF_UNROLL
    for (int c = 0; c < kSub; c += 2)
      if (c < r) *reinterpret_cast<Two<T>*>(to + r * kPitch + c) = {e.g[packed_row(r, c)], e.g[packed_row(r, c + 1 < r ? c + 1 : c)]};
}

// One warp: eliminates the block at `block`, `size` pivots, whose lower triangle is read. put(n, e) is called for each eight columns
// n that are taken. Returns kTaken, kAgain (always for a definite block with a pivot that is not positive), or the column that the
// tests of 1 x 1 pivots refuse.
template <bool Indefinite, typename T, typename Put>
WF_DEVICE int eliminate_blocked(const T* block, int ld, int size, T least, BlockedScratch<T>& s, const Put& put) {
  const int lane = lane_id(), parts = (size + kSub - 1) / kSub;
  T w[4][2];
  start_columns(w, block, ld, size, 0);
  hand_over(w, s);
  WF_UNROLL_N(1)
  for (int n = 0; n < parts; ++n) {
    __syncwarp();  // columns n have been handed over
    Eight<T> e;
    e.refused = e.again = 0;
    take_over(e, s, n);
    if (n + 1 < parts) {
      start_columns(w, block, ld, size, n + 1);
      WF_UNROLL_N(1)
      for (int q = 0; q < n; ++q) subtract_columns(w, s, q, n + 1);
    }
    const int count = size - kSub * n;
    const bool behind = lane >= kSub * (n + 1);
    eliminate_two<Indefinite, 0>(e, count, behind, least);
    eliminate_two<Indefinite, 2>(e, count, behind, least);
    eliminate_two<Indefinite, 4>(e, count, behind, least);
    eliminate_two<Indefinite, 6>(e, count, behind, least);
    store_eight(s.x + lane * kPitch + kSub * n, e.v);
    store_eight(s.l + lane * kPitch + kSub * n, e.l);
    const int verdict = judge<Indefinite>(e.refused, e.again);
    if (verdict != kTaken) return verdict == kAgain ? kAgain : kSub * n + verdict;
    __syncwarp();  // columns n of L have been stored, and W read
    if (n + 1 < parts) {
      subtract_columns(w, s, n, n + 1);
      hand_over(w, s);
    }
    put(n, e);
    if (lane == 0) keep_own(e, s, n);
  }
  __syncwarp();
  return kTaken;
}

}  // namespace wf
