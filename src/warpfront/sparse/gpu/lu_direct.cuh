// LU of a panel whose diagonal entries do as pivots, as nearly all do once rows are matched to columns.
//
// Four warps eliminate a block of 32 rows and columns, two columns a step (direct.cuh says why two): the first holds it by
// rows, the second by columns; the third and fourth hold the inverses of U and of L. A step's columns of L D come from the
// first, its rows of D U from the second, and the same lines advance the inverses. No value is held back for an interchange:
// where an entry is refused the block still stands where it stood, and what was written is of no use.
// The two copies of the block round differently; L is taken from one, U from the other, pivots from the first.
// A barrier a step: lines stored | read. Lines alternate, and the next step's are stored as soon as they are
// made; so it also separates a step's reads from the next one's stores. The first warp's verdict alternates as well, and is read a
// step later.
// The rule takes a diagonal entry of at least a share of its column's largest without looking at another one (lu_front.cuh). In a
// front, the rows below say so once they are formed: |L| <= 1 / share is the same question.
#pragma once
#include "direct.cuh"
#include "lu_front.cuh"

namespace wf {

constexpr int kLine = 2 * kPanel;  // entries behind a block's are zero: an update reads 32 from the pivot on

template <typename T>
struct alignas(16) LuDirect {
  T line[2][4 * kLine];  // two columns of L D, two rows of D U
  T reciprocal[kPanel];
  i32 refused[2], verdict;
};

// What a lane has of a block that was eliminated: the warp's role, and for each pivot k column k of L (role 0), row k of U (1),
// column k of the inverse of U (2), row k of that of L (3), element `lane`; U is divided by its pivots. d: lane k's pivot.
template <typename T>
struct LuTaken {
  T v[kPanel], d, per_d;
  int role;
};

// The second of two pivots and its reciprocal, from their determinant, whose reciprocal does not wait for the first pivot's;
// `cross` is the product of the entries beside them. Not safe: the determinant leaves the range in which that is exact.
WF_DEVICE Second<double> lu_second(double p0, double i0, double p1, double cross, bool& safe) {
  const double determinant = fma(p0, p1, -cross), size = lu_size(determinant);
  safe = size > 1e-280 && size < 1e280;
  return {determinant * i0, p0 * reciprocal(determinant)};
}
WF_DEVICE Second<float> lu_second(float, float i0, float p1, float cross, bool& safe) {
  const float d = fmaf(-i0, cross, p1);
  safe = true;
  return {d, reciprocal(d)};
}

// Whether a diagonal entry does; `size` is that of the lane's entry of its column, `rest` whether that is one behind it.
template <typename T>
WF_DEVICE bool lu_passes(T pivot, T size, bool rest, T sure, T share) {
  const T own = lu_size(pivot);
  return own > sure && own - own == T(0) && (!rest || share * size <= own);
}

// The whole block of at least 128 threads: `size` pivots of `block` (leading dimension pitch, left as it is). False: a pivot was
// refused. Ends behind a barrier.
// What is found stays in registers: a step's columns leave at their front and its results come in at their end. Stores to
// global memory would be waited for at every barrier.
template <typename T>
WF_DEVICE bool lu_direct_block(const T* block, int pitch, int size, T sure, T share, LuDirect<T>& s, LuTaken<T>& to) {
  const int lane = lane_id(), role = static_cast<int>(threadIdx.x) / kWarp;
  T(&v)[kPanel] = to.v;
  to.role = role, to.d = T(1), to.per_d = T(0);
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) v[k] = T(k == lane);
  if (role < 2 && lane < size) {
    const T* from = block + lane * (role == 0 ? 1 : pitch);
    const int apart = role == 0 ? pitch : 1;
    WF_UNROLL
    for (int k = 0; k < kPanel; ++k)
      if (k < size) v[k] = from[k * apart];
  }
  if (role < 4) {
    s.line[0][role * kLine + kPanel + lane] = s.line[1][role * kLine + kPanel + lane] = T(0);
    if (role == 0 && lane == 0) s.refused[1] = s.verdict = 0;
  }
  const auto store = [&](int step) {
    T* line = s.line[step % 2] + 2 * role * kLine + lane;
    if (role < 2) line[0] = v[0], line[kLine] = v[1];
  };
  store(0);
  WF_UNROLL_N(1)
  for (int j = 0; j < size; j += 2) {
    __syncthreads();
    const int refused = s.refused[(j / 2 + 1) % 2], left = size - j;
    if (role >= 4) {
      if (refused != 0) break;
      continue;
    }
    const T* here = s.line[j / 2 % 2];
    const T *mine = here + role % 2 * 2 * kLine + j, *theirs = here + (1 - role % 2) * 2 * kLine + j;
    const T p0 = here[j], p1 = here[kLine + j + 1], side = theirs[1], cross = mine[1];
    bool safe;
    const T i0 = reciprocal(p0);
    const Second<T> next = lu_second(p0, i0, p1, side * cross, safe);
    const T v0 = v[0], l0 = v0 * i0, below = fma(-l0, side, v[1]), l1 = below * next.inverse;
    const T lead = fma(-l1, cross * i0, l0);
    advance<0, 2>(v, lead, l1, theirs, theirs + kLine);
    store(j / 2 + 1);
    advance<8, 2>(v, lead, l1, theirs, theirs + kLine);
    advance<16, 2>(v, lead, l1, theirs, theirs + kLine);
    advance<24, 2>(v, lead, l1, theirs, theirs + kLine);
    v[kPanel - 2] = role < 2 ? l0 : v0, v[kPanel - 1] = role < 2 ? l1 : below;
    if (role == 0) {
      const bool fine = safe && lu_passes(p0, lu_size(v0), lane > j, sure, share) &&
                        (left == 1 || lu_passes(next.d, lu_size(below), lane > j + 1, sure, share));
      const bool all = __all_sync(kFullMask, fine);
      if (lane == 0) s.refused[j / 2 % 2] = !all;
      if (lane == 0 && !all) s.verdict = 1;
    }
    if (lane == j) to.d = p0, to.per_d = i0;
    if (lane == j + 1) to.d = next.d, to.per_d = next.inverse;
    if (refused != 0) break;
  }
  if (role == 0) s.reciprocal[lane] = lane < size ? to.per_d : T(0);
  __syncthreads();
  return s.verdict == 0;
}

// put(k, v) for each pivot k.
template <typename T, typename Put>
WF_DEVICE void lu_each(const LuTaken<T>& from, int size, const Put& put) {
  const int before = kPanel - (size + 1) / 2 * 2;
  WF_UNROLL
  for (int i = 0; i < kPanel; ++i)
    if (i >= before && i - before < size) put(i - before, from.v[i]);
}

// A block's results to its place in both panels, leading dimension ld.
template <typename T>
WF_DEVICE void lu_place_block(const LuTaken<T>& from, int size, T* lower, T* upper, i64 ld) {
  const int lane = lane_id(), role = from.role;
  if (role >= 4) return;
  T* target = (role == 0 || role == 3 ? lower : upper) + lane;
  lu_each(from, size, [&](int k, T v) {
    if (role < 2 ? lane >= k && lane < size : lane < k) target[k * ld] = lane == k ? T(1) : v;
  });
}

// acc += S M for 16 rows: element (i, p) of S at s[i * di + p * dp]; M unit upper triangular of order `count`, its element
// (p, n) at m[p * mp + n * mn]. Columns from `count` on are zero.
template <typename T>
WF_DEVICE void multiply_triangle(T (&acc)[4][4], const T* s, int di, int dp, const T* m, int mp, int mn, int count) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  WF_UNROLL
  for (int k = 0; k < kPanel; k += 16) {
    T x[8];
    WF_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int p = k + t + 4 * j;
      x[2 * j] = p < count ? s[g * di + p * dp] : T(0), x[2 * j + 1] = p < count ? s[(g + 8) * di + p * dp] : T(0);
    }
    WF_UNROLL
    for (int n = 0; n < 4; ++n) {
      if (8 * n + 7 < k) continue;  // below the diagonal
      T y[4];
      WF_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int p = k + t + 4 * j, c = 8 * n + g;
        y[j] = p < c && c < count ? m[p * mp + c * mn] : T(p == c);
      }
      product(acc[n], x, y);
    }
    __syncwarp();
  }
}

// Behind a block k0..end of a front that was eliminated in place: rows of L, unless one of them is too large (false; nothing is
// changed), and rows of U, 16 rows or columns a warp. `square` holds the block's inverses: U's above the diagonal by rows, L's
// below it. Rows of L are made twice, which is cheaper than the code to keep them until they are judged.
// Barriers: judged, before anything is stored | stored.
template <int Threads, typename T>
WF_DEVICE bool lu_direct_rows(T* a, int ld, int rows, int k0, int end, T share, const T* square, const T* reciprocals) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, size = end - k0, first = end / 16 * 16, tiles = (rows - first + 15) / 16;
  bool fits = true;
  WF_UNROLL_N(1)
  for (int pass = 0; pass < 2; ++pass) {
    if (pass == 1 && !__syncthreads_and(fits)) return false;
    WF_UNROLL_N(1)
    for (int q = warp; q < (pass == 0 ? tiles : 2 * tiles); q += Threads / kWarp) {
      const bool upper = q >= tiles;
      const int i0 = first + 16 * (upper ? q - tiles : q), di = upper ? ld : 1, dc = upper ? 1 : ld;
      T* tile = a + i0 * di + k0 * dc;
      T acc[4][4] = {};
      multiply_triangle(acc, tile, di, dc, square, upper ? 1 : kPitch, upper ? kPitch : 1, size);
      WF_UNROLL
      for (int n = 0; n < 4; ++n)
        for (int e = 0; e < 4; ++e) {
          const int i = tile_row(e), c = 8 * n + tile_col(e);
          const T v = upper ? acc[n][e] : acc[n][e] * reciprocals[c];
          if (i0 + i < end || i0 + i >= rows || c >= size) continue;
          if (pass == 1) tile[i * di + c * dc] = v;
          else if (!(share * lu_size(v) <= T(1))) fits = false;
        }
    }
  }
  __syncthreads();
  return true;
}

// The matrix behind a panel k0..k1: rows from k1, columns from `end` on. Ends behind a barrier.
template <int Threads, typename T>
WF_DEVICE void lu_trailing(T* a, int ld, int padded, int k0, int k1, int end) {
  const int warp = team_rank<Threads>() / kWarp, count = k1 - k0;
  const int row_tiles = padded / 16 - k1 / 16, first = end / 16, col_tiles = padded / 16 - first;
  for (int tile = warp; tile < row_tiles * col_tiles; tile += Threads / kWarp) {
    const int i0 = (k1 / 16 + tile % row_tiles) * 16, j0 = (first + tile / row_tiles) * 16;
    T acc[2][4] = {};
    multiply_columns(acc, a + k0 * ld + i0, ld, a + j0 * ld + k0, ld, count);
    WF_UNROLL
    for (int n = 0; n < 2; ++n)
      for (int e = 0; e < 4; ++e) {
        const int i = i0 + tile_row(e), j = j0 + 8 * n + tile_col(e);
        if (j >= end && i >= k1) a[j * ld + i] -= acc[n][e];
      }
  }
  team_sync<Threads>();
}

}  // namespace wf
