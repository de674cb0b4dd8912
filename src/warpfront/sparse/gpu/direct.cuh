// Elimination without interchanges of one 32 x 32 block by one warp, with the inverse of its unit lower factor.
//
// Lane i holds row i of the symmetric block (both triangles) in r, and column i of the inverse in y. Step j stores
// column j of the block; by symmetry it is also row j, and the same values times 1/d are column j of L, which the
// inverse needs: one store, one warp barrier and 31 - j broadcasts feed both updates. Steps take two columns; two pairs
// alternate in `column`, so one barrier a step separates a step's reads from the next but one step's writes.
#pragma once
#include "front.cuh"

namespace wf {

constexpr double kAlpha = 0.6403882032022076;  // (1 + sqrt(17)) / 8, Bunch and Kaufman (1977)

template <typename T>
struct DirectScratch {
  T inverse[kPanel * kPitch];  // of the diagonal block: element (n, k) at k * kPitch + n
  T column[4 * kPanel];
  T reciprocal[kPanel];
  Diagonal<T> d;
  i32 verdict;
};

// Whether a pivot may be taken where it stands; uniform over the warp. `x` is the lane's entry of its column, `rest` says
// whether that is one of the rows behind the pivot.
template <bool Indefinite, typename T>
WF_DEVICE bool accept(T pivot, T x, bool rest, T share, T least) {
  if (!Indefinite) return pivot > T(0) && pivot - pivot == T(0);
  const T size = abs_value(pivot);
  return __all_sync(kFullMask, size > least && size - size == T(0) && (!rest || share * abs_value(x) <= size));
}

// 1 / d1, d1 = p1 - side^2 / p0, as p0 / (p0 p1 - side^2) where that stays in range: it needs no other reciprocal.
WF_DEVICE double reciprocal_second(double p0, double p1, double side, double d1) {
  const double determinant = fma(p0, p1, -side * side), size = abs_value(determinant);
  return size > 1e-280 && size < 1e280 ? p0 * reciprocal(determinant) : reciprocal(d1);
}
WF_DEVICE float reciprocal_second(float, float, float, float d1) { return reciprocal(d1); }

// r: in the block, out L (r[k] of lane i > k) and, for k >= width, the Schur complement. y: out, for i > lane, the
// inverse. d: the first `width` pivots, one a lane. Indefinite = false: pivots have to be positive; goes through and
// returns the first that is not, or -1. Indefinite = true: stops at the first pivot that is not above `least` or that
// the 1x1 tests refuse (against the first `full` rows, and the threshold u against all), and returns it.
template <bool Indefinite, typename T>
WF_DEVICE int eliminate_direct(T (&r)[kPanel], T (&y)[kPanel], T& d, int width, T* columns, int full, T least, T u) {
  const int lane = lane_id();
  const T share = lane < full ? max_of(T(kAlpha), u) : u;
  int bad = -1;
  d = T(1);
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) y[k] = k == lane ? T(1) : T(0);
  // Two columns a step: their two reciprocals do not wait for each other, and the updates use the columns as stored,
  // with coefficients that account for the first one's effect on the second.
  WF_UNROLL
  for (int j = 0; j < kPanel; j += 2) {
    if (j < width && !(Indefinite && bad >= 0)) {
      T* first = columns + 2 * kPanel * (j / 2 & 1);
      T* second = first + kPanel;
      const bool pair = j + 1 < width;
      first[lane] = r[j];
      second[lane] = r[j + 1];
      __syncwarp();
      const T p0 = first[j], side = first[j + 1], p1 = second[j + 1];
      const bool fine0 = accept<Indefinite>(p0, r[j], lane > j, share, least);
      const T i0 = fine0 ? reciprocal(p0) : T(0), m = side * i0, d1 = fma(-m, side, p1);
      const T l0 = r[j] * i0, below = fma(-l0, side, r[j + 1]);
      const bool fine1 = !pair || accept<Indefinite>(d1, below, lane > j + 1, share, least);
      const T i1 = !pair || !fine1 ? T(0) : reciprocal_second(p0, p1, side, d1);
      const T l1 = below * i1, z0 = y[j] * i0, z1 = fma(-z0, side, y[j + 1]) * i1;
      if (bad < 0 && !fine0) bad = j;
      if (bad < 0 && !fine1) bad = j + 1;
      if (lane == j) d = p0;
      if (lane == j + 1 && pair) d = d1;
      if (lane > j) r[j] = l0;
      const T g0 = fma(-l1, m, l0), h0 = fma(-z1, m, z0);
      // The second column itself: eliminated by the first alone.
      y[j + 1] = fma(-z0, side, y[j + 1]);
      r[j + 1] = pair && lane > j + 1 ? l1 : below;
      WF_UNROLL
      for (int k = j + 2; k < kPanel; ++k) {
        const T a = first[k], b = second[k];
        r[k] = fma(-l1, b, fma(-g0, a, r[k]));
        y[k] = fma(-z1, b, fma(-h0, a, y[k]));
      }
    }
  }
  __syncwarp();
  return bad;
}

// Row `lane` of the symmetric block at a, whose lower triangle is stored; the identity outside size x size.
template <typename T>
WF_DEVICE void load_symmetric(T (&r)[kPanel], const T* a, int ld, int size) {
  const int lane = lane_id();
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) {
    const bool inside = k < size && lane < size;
    r[k] = inside ? (k <= lane ? a[k * ld + lane] : a[lane * ld + k]) : T(k == lane);
  }
  __syncwarp();
}

// One warp: eliminates the diagonal block at column k0, `size` pivots. Fills s; L goes below the block's diagonal
// (Stash: above it, transposed, so that the block can still be eliminated otherwise), the inverse, unless Stash, above.
template <bool Indefinite, bool Stash, typename T>
WF_DEVICE int direct_block(T* a, int ld, int k0, int size, T least, DirectScratch<T>& s) {
  const int lane = lane_id();
  T r[kPanel], y[kPanel], d;
  T* block = a + k0 * ld + k0;
  load_symmetric(r, block, ld, size);
  const int bad = eliminate_direct<Indefinite>(r, y, d, size, s.column, kPanel, least, T(0));
  if (Indefinite && bad >= 0) return bad;
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) {
    if (k < size && lane < size && k != lane) {
      if (!Stash) block[k * ld + lane] = lane > k ? r[k] : y[k];
      else if (lane > k) block[lane * ld + k] = r[k];
    }
    s.inverse[lane * kPitch + k] = y[k];
  }
  set_diagonal(s.d, lane, lane < size ? d : T(0), T(0), 0);
  s.reciprocal[lane] = reciprocal(d);
  return bad;
}

// One warp: L from its stash to its place, the inverse above the diagonal.
template <typename T>
WF_DEVICE void settle_block(T* a, int ld, int k0, int size, const DirectScratch<T>& s) {
  const int lane = lane_id();
  T* block = a + k0 * ld + k0;
  for (int k = 0; k < size; ++k)
    if (lane > k && lane < size) block[k * ld + lane] = block[lane * ld + k];
  __syncwarp();
  for (int k = 1; k < size; ++k)
    if (lane < k) block[k * ld + lane] = s.inverse[lane * kPitch + k];
}

// D and the kinds of pivots taken in place, to global memory; one warp.
template <typename T>
WF_DEVICE void write_direct(const DirectScratch<T>& s, int k0, int size, T* diagonal, i32* pivots) {
  const int k = lane_id();
  if (k < size) {
    diagonal[2 * (k0 + k)] = s.d.own[kLead + k], diagonal[2 * (k0 + k) + 1] = T(0);
    pivots[2 * (k0 + k)] = k0 + k, pivots[2 * (k0 + k) + 1] = 1;
  }
}

template <int Threads, typename T>
WF_DEVICE void clear_diagonal(Diagonal<T>& d) {
  for (int k = team_rank<Threads>(); k < kLead + kPanel; k += Threads) d.own[k] = d.other[k] = T(0), d.step[k] = 0;
}

// Rows `first`.. of the panel k0..k0+size: L = A inv(L_kk)^T D^-1, in place, 16 rows a warp.
template <int Threads, typename T>
WF_DEVICE void direct_rows(T* a, int ld, int padded, int k0, int size, int first, const DirectScratch<T>& s) {
  const int warp = team_rank<Threads>() / kWarp, depth = (size + 15) / 16 * 16;
  for (int i0 = first / 16 * 16 + 16 * warp; i0 < padded; i0 += Threads / kWarp * 16) {
    T acc[4][4] = {};
    multiply(acc, a + k0 * ld + i0, ld, s.inverse, kPitch, depth);
    __syncwarp();
    WF_UNROLL
    for (int n = 0; n < 4; ++n)
      for (int e = 0; e < 4; ++e) {
        const int i = i0 + tile_row(e), k = 8 * n + tile_col(e);
        if (i >= first && k < size) a[(k0 + k) * ld + i] = acc[n][e] * s.reciprocal[k];
      }
  }
}

// Whether the 1x1 tests hold in rows `first`..: against the fully summed rows (before `width`), and the threshold u in
// all rows. Reads only.
template <int Threads, typename T>
WF_DEVICE bool rows_fit(const T* a, int ld, int padded, int k0, int size, int first, int width, T u,
                        const DirectScratch<T>& s) {
  const int warp = team_rank<Threads>() / kWarp, depth = (size + 15) / 16 * 16;
  bool fits = true;
  for (int i0 = first / 16 * 16 + 16 * warp; i0 < padded; i0 += Threads / kWarp * 16) {
    T acc[4][4] = {};
    multiply(acc, a + k0 * ld + i0, ld, s.inverse, kPitch, depth);
    WF_UNROLL
    for (int n = 0; n < 4; ++n)
      for (int e = 0; e < 4; ++e) {
        const int i = i0 + tile_row(e), k = 8 * n + tile_col(e);
        const T size_d = abs_value(s.d.own[kLead + k]), x = abs_value(acc[n][e]);
        if (i >= first && k < size) fits = fits && u * x <= size_d && (i >= width || T(kAlpha) * x <= size_d);
      }
  }
  return fits;
}

// A -= (L D) L^T on the lower triangle of rows and columns end.., by 16 x 16 tiles; L D of columns begin..end.
// `padded` is the order of the stored square, a multiple of 16.
template <int Threads, typename T>
WF_DEVICE void update_trailing(T* a, int ld, int padded, int begin, int end, const Diagonal<T>& d) {
  const int warp = team_rank<Threads>() / kWarp, first = end / 16, tiles = padded / 16 - first;
  const int depth = (end - begin + 15) / 16 * 16, start = min_of(begin, padded - depth);
  int ti = 0, tj = warp;
  while (tj > ti) tj -= ++ti;
  while (ti < tiles) {
    const int i0 = (first + ti) * 16, j0 = (first + tj) * 16;
    T acc[2][4] = {};
    multiply_scaled<2, true>(acc, a + start * ld + i0, ld, a + start * ld + j0, ld, depth, d, begin - start, end - begin);
    WF_UNROLL
    for (int n = 0; n < 2; ++n)
      for (int e = 0; e < 4; ++e) {
        const int i = i0 + tile_row(e), j = j0 + 8 * n + tile_col(e);
        if (j >= end && i >= j) a[j * ld + i] -= acc[n][e];
      }
    tj += Threads / kWarp;
    while (tj > ti) tj -= ++ti;
  }
}

}  // namespace wf
