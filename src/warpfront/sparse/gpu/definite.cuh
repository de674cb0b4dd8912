// Elimination without interchanges of one 32 x 32 block by one warp, with the inverse of its unit lower factor.
//
// Lane i holds row i of the symmetric block (both triangles) in r, and column i of the inverse in y. Step j stores
// column j of the block; by symmetry it is also row j, and the same values times 1/d are column j of L, which the
// inverse needs: one store, one warp barrier and 31 - j broadcasts feed both updates. Two columns alternate in
// `scratch`, so one barrier a step separates a step's reads from the next but one step's writes.
#pragma once
#include "front.cuh"

namespace wf {

// r: in the block, out L (r[k] of lane i > k) and, for k >= width, the Schur complement. y: out, for i > lane, the
// inverse. d: D of the first `width` pivots, one a lane. Returns the first pivot that is not positive, or -1.
template <typename T>
WF_DEVICE int eliminate_definite(T (&r)[kPanel], T (&y)[kPanel], T& d, int width, T* scratch) {
  const int lane = lane_id();
  int bad = -1;
  d = T(1);
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) y[k] = k == lane ? T(1) : T(0);
  WF_UNROLL
  for (int j = 0; j < kPanel; ++j) {
    if (j < width) {
      T* column = scratch + kPanel * (j & 1);
      column[lane] = r[j];
      __syncwarp();
      const T pivot = column[j];
      const bool good = pivot > T(0) && pivot - pivot == T(0);
      if (!good && bad < 0) bad = j;
      const T inverse = good ? reciprocal(pivot) : T(0);
      const T l = r[j] * inverse, z = y[j] * inverse;
      if (lane == j) d = pivot;
      if (lane > j) r[j] = l;
      WF_UNROLL
      for (int k = j + 1; k < kPanel; ++k) {
        const T other = column[k];
        r[k] = fma(-l, other, r[k]);
        y[k] = fma(-z, other, y[k]);
      }
    }
  }
  __syncwarp();
  return bad;
}

template <typename T>
struct DefiniteScratch {
  T inverse[kPanel * kPitch];  // of the diagonal block: element (n, k) at k * kPitch + n
  T column[2 * kPanel];
  T reciprocal[kPanel];
  Diagonal<T> d;
};

// One warp: the diagonal block at column k, `size` pivots. L below, its inverse above the diagonal and in s.inverse.
template <typename T>
WF_DEVICE int definite_block(T* a, int ld, int k0, int size, DefiniteScratch<T>& s, T* diagonal, i32* pivots) {
  const int lane = lane_id();
  T r[kPanel], y[kPanel], d;
  T* block = a + k0 * ld + k0;
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) {
    const bool inside = k < size && lane < size;
    r[k] = inside ? (k <= lane ? block[k * ld + lane] : block[lane * ld + k]) : T(k == lane);
  }
  __syncwarp();
  const int bad = eliminate_definite(r, y, d, size, s.column);
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) {
    if (k < size && lane < size && k != lane) block[k * ld + lane] = lane > k ? r[k] : y[k];
    s.inverse[lane * kPitch + k] = y[k];
  }
  set_diagonal(s.d, lane, lane < size ? d : T(0), T(0), 0);
  s.reciprocal[lane] = reciprocal(d);
  if (lane < size) {
    diagonal[2 * (k0 + lane)] = d, diagonal[2 * (k0 + lane) + 1] = T(0);
    pivots[2 * (k0 + lane)] = k0 + lane, pivots[2 * (k0 + lane) + 1] = 1;
  }
  return bad < 0 ? -1 : k0 + bad;
}

}  // namespace wf
