// Elimination without interchanges of one 32 x 32 block by one warp, with the inverse of its unit lower factor.
//
// Lane i holds row i of the symmetric block (both triangles), and column i of the inverse. A step stores its columns of
// the block; by symmetry they are also rows, and the same values times 1/d are columns of L, which the inverse needs: one
// store, one warp barrier and a broadcast for each column that is left feed both updates. Two pairs of columns alternate in
// `column`, so one barrier a step separates a step's reads from the next but one step's writes.
#pragma once
#include "front.cuh"

namespace wf {

constexpr double kAlpha = 0.6403882032022076;  // (1 + sqrt(17)) / 8, Bunch and Kaufman (1977)

template <typename T>
struct alignas(16) DirectScratch {
  T inverse[kPanel * kPitch];  // of the diagonal block: element (n, k) at k * kPitch + n
  T column[8 * kPanel];
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

// D and its reciprocal of the second of two columns: d1 = p1 - side^2 / p0 = (p0 p1 - side^2) / p0, which needs no
// reciprocal of the first where the products stay in range. Both come from the same determinant: L D has to give back
// what was divided.
template <typename T>
struct Second {
  T d, inverse;
};
template <typename T>
WF_DEVICE Second<T> divided_pivot(T i0, T p1, T side) {
  const T d = fma(-side * i0, side, p1);
  return {d, reciprocal(d)};
}
WF_DEVICE Second<double> fast_pivot(double p0, double i0, double p1, double side, bool fine, bool& safe) {
  const double determinant = fma(p0, p1, -side * side), size = abs_value(determinant);
  safe = fine && size > 1e-280 && size < 1e280;
  return {determinant * i0, p0 * reciprocal(determinant)};
}
WF_DEVICE Second<float> fast_pivot(float, float i0, float p1, float side, bool, bool& safe) {
  safe = true;
  return divided_pivot(i0, p1, side);
}
template <typename T>
WF_DEVICE Second<T> second_pivot(T p0, T i0, T p1, T side, bool fine) {
  bool safe;
  const Second<T> fast = fast_pivot(p0, i0, p1, side, fine, safe);
  return safe ? fast : divided_pivot(i0, p1, side);
}

template <typename T>
struct alignas(2 * sizeof(T)) Two {
  T x, y;
};

// v[k - Shift] = v[k] - g a[k] - h b[k] for Begin <= k < Begin + 8 (from Shift on, where Begin is 0).
template <int Begin, int Shift, typename T>
WF_DEVICE void advance(T (&v)[kPanel], T g, T h, const T* a, const T* b) {
  WF_UNROLL
  for (int k = Begin; k < Begin + 8; k += 2) {
    const Two<T> s = *reinterpret_cast<const Two<T>*>(a + k), t = *reinterpret_cast<const Two<T>*>(b + k);
    if (k >= Shift) v[k < Shift ? 0 : k - Shift] = fma(-h, t.x, fma(-g, s.x, v[k]));
    if (k + 1 >= Shift) v[k + 1 < Shift ? 0 : k + 1 - Shift] = fma(-h, t.y, fma(-g, s.y, v[k + 1]));
  }
}

// The same for the columns that are left, eight at a time.
template <int Shift, typename T>
WF_DEVICE void advance_all(T (&v)[kPanel], T g, T h, const T* a, const T* b, int left) {
  advance<0, Shift>(v, g, h, a, b);
  if (left > 8) advance<8, Shift>(v, g, h, a, b);
  if (left > 16) advance<16, Shift>(v, g, h, a, b);
  if (left > 24) advance<24, Shift>(v, g, h, a, b);
}

// The same by two columns of a block and of its inverse together: what both read is read once.
template <int Begin, typename T>
WF_DEVICE void advance_both(T (&r)[kPanel], T (&y)[kPanel], T gr, T hr, T gy, T hy, const T* a, const T* b) {
  WF_UNROLL
  for (int k = Begin; k < Begin + 8; k += 2) {
    const Two<T> s = *reinterpret_cast<const Two<T>*>(a + k), t = *reinterpret_cast<const Two<T>*>(b + k);
    if (k < 2) continue;
    r[k < 2 ? 0 : k - 2] = fma(-hr, t.x, fma(-gr, s.x, r[k])), r[k < 2 ? 0 : k - 1] = fma(-hr, t.y, fma(-gr, s.y, r[k + 1]));
    y[k < 2 ? 0 : k - 2] = fma(-hy, t.x, fma(-gy, s.x, y[k])), y[k < 2 ? 0 : k - 1] = fma(-hy, t.y, fma(-gy, s.y, y[k + 1]));
  }
}

// Eliminates `width` columns of a symmetric block of `rows` rows. r: a row a lane, both triangles; comes back as the
// Schur complement, its column k in r[k - width]. put(j, d, l, y) is called for each column: its pivot, the lane's
// entry of L (lanes behind j) and of row j of the inverse (lanes before j; 1 at j, 0 behind).
//
// The code of a step is the same for all: its columns stand first in the registers, and the update moves the others
// down. (Unrolled over all columns it would be read from memory once a launch, at a cost above that of its work.) A step
// takes two columns: their reciprocals do not wait for each other, and the update uses the columns as stored, with
// coefficients that account for the first one's effect on the second.
//
// Indefinite = false: pivots have to be positive; goes through and returns the first that is not, or -1.
// Indefinite = true: stops at the first pivot that is not above `least` or that the 1x1 tests refuse (against the first
// `full` rows, and the threshold u against all), and returns it.
// Square: rows = width.
template <bool Indefinite, bool Square, typename T, typename Put>
WF_DEVICE int eliminate_direct(T (&r)[kPanel], int rows, int width, T* columns, int full, T least, T u, const Put& put) {
  const int lane = lane_id();
  const T share = lane < full ? max_of(T(kAlpha), u) : u;
  T y[kPanel];
  int bad = -1, j = 0;
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) y[k] = k == lane ? T(1) : T(0);
  WF_UNROLL
  for (int k = 0; k < 4; ++k) columns[2 * kPanel * k + kPanel + lane] = T(0);  // read behind the last column
  WF_UNROLL_N(1)
  for (; j + 1 < width; j += 2) {
    T* first = columns + 4 * kPanel * (j / 2 & 1);
    T* second = first + 2 * kPanel;
    first[lane] = r[0], second[lane] = r[1];
    __syncwarp();
    const T p0 = first[j], side = first[j + 1], p1 = second[j + 1];
    const bool fine0 = accept<Indefinite>(p0, r[0], lane > j, share, least);
    const T i0 = fine0 ? reciprocal(p0) : T(0), m = side * i0;
    const Second<T> next = second_pivot(p0, i0, p1, side, fine0);
    const T l0 = r[0] * i0, below = fma(-l0, side, r[1]);
    const bool fine1 = accept<Indefinite>(next.d, below, lane > j + 1, share, least);
    const T i1 = fine1 ? next.inverse : T(0);
    if (bad < 0 && !(fine0 && fine1)) bad = fine0 ? j + 1 : j;
    if (Indefinite && bad >= 0) break;
    const T l1 = below * i1, z0 = y[0] * i0, y1 = fma(-z0, side, y[1]), z1 = y1 * i1;
    put(j, p0, l0, y[0]);
    put(j + 1, next.d, l1, y1);
    const T lead_r = fma(-l1, m, l0), lead_y = fma(-z1, m, z0);
    if (Square) {
      const T *a = first + j, *b = second + j;
      const int left = width - j;
      advance_both<0>(r, y, lead_r, l1, lead_y, z1, a, b);
      if (left > 8) advance_both<8>(r, y, lead_r, l1, lead_y, z1, a, b);
      if (left > 16) advance_both<16>(r, y, lead_r, l1, lead_y, z1, a, b);
      if (left > 24) advance_both<24>(r, y, lead_r, l1, lead_y, z1, a, b);
    } else {
      advance_all<2>(r, lead_r, l1, first + j, second + j, rows - j);
      advance_all<2>(y, lead_y, z1, first + j, second + j, width - j);
    }
  }
  if (j < width && !(Indefinite && bad >= 0)) {
    T* first = columns + 4 * kPanel * (j / 2 & 1);
    first[lane] = r[0];
    __syncwarp();
    const T pivot = first[j];
    const bool fine = accept<Indefinite>(pivot, r[0], lane > j, share, least);
    if (bad < 0 && !fine) bad = j;
    if (!(Indefinite && bad >= 0)) {
      const T l = r[0] * (fine ? reciprocal(pivot) : T(0));
      put(j, pivot, l, y[0]);
      advance_all<1>(r, l, T(0), first + j, first + j, rows - j);
    }
  }
  __syncwarp();
  return bad;
}

// Row `lane` of the symmetric block at a, whose lower triangle is stored; zero outside size x size.
template <typename T>
WF_DEVICE void load_symmetric(T (&r)[kPanel], const T* a, int ld, int size) {
  const int lane = lane_id();
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) {
    const bool inside = k < size && lane < size;
    r[k] = inside ? (k <= lane ? a[k * ld + lane] : a[lane * ld + k]) : T(0);
  }
  __syncwarp();
}

// One warp: eliminates the diagonal block at column k0, `size` pivots. Fills s; L goes below the block's diagonal
// (Stash: above it, transposed, so that the block can still be eliminated otherwise), the inverse, unless Stash, above.
template <bool Indefinite, bool Stash, typename T>
WF_DEVICE int direct_block(T* a, int ld, int k0, int size, T least, DirectScratch<T>& s) {
  const int lane = lane_id();
  T r[kPanel], d = T(1);
  T* block = a + k0 * ld + k0;
  load_symmetric(r, block, ld, size);
  const bool inside = lane < size;
  const auto put = [&](int j, T pivot, T l, T y) {
    if (lane == j) d = pivot;
    if (inside && lane > j) block[Stash ? lane * ld + j : j * ld + lane] = l;
    if (!Stash && lane < j) block[j * ld + lane] = y;
    s.inverse[lane * kPitch + j] = y;
  };
  const int bad = eliminate_direct<Indefinite, true>(r, size, size, s.column, kPanel, least, T(0), put);
  if (Indefinite && bad >= 0) return bad;
  for (int k = size; k < kPanel; ++k) s.inverse[lane * kPitch + k] = T(0);
  set_diagonal(s.d, lane, inside ? d : T(0), T(0), 0);
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
