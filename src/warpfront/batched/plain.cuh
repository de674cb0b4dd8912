// The plain way: what a packed kernel does for a warp one of whose systems its short forms cannot vouch for. The recurrence in
// rolled loops with IEEE's operations alone, in shared memory: small code that is seldom run. All 32 lanes call together;
// g is the lane of its system. The layout is that of packed.cuh.
#pragma once
#include "packed.cuh"

namespace wf {

// The matrix scaled, `shift` on its diagonal, and the right-hand sides; zeros unless `here`. Barrier at the end.
template <typename K, typename T>
WF_DEVICE void plain_load(const T* a, const T* b, bool here, T* to, T* right, int g, T scale, T shift) {
  WF_UNROLL_N(1)
  for (int e = g; e < K::kN * K::kN; e += K::kG) {
    const int i = e / K::kN, c = e % K::kN;
    const T x = here ? mul(a[e], scale) : T(0);
    to[K::at(i, c)] = i == c && shift != T(0) ? add(x, shift) : x;
  }
  WF_UNROLL_N(1)
  for (int e = g; e < K::kN * K::kR; e += K::kG) right[e] = here ? b[e] : T(0);
  __syncwarp();
}

// L in place of the lower triangle, zeros above. Returns a status: the first pivot that failed.
template <typename K, typename T>
WF_DEVICE int plain_cholesky(T* a, int g) {
  int code = kOk;
  WF_UNROLL_N(1)
  for (int j = 0; j < K::kN; ++j) {
    const T p = a[K::at(j, j)], d = root(p);
    if (code == kOk && !(p > T(0) && is_finite(p))) code = is_finite(p) ? j + 1 : kNonFiniteIntermediate;
    __syncwarp();
    WF_UNROLL_N(1)
    for (int i = g; i < K::kN; i += K::kG) {
      T& x = a[K::at(i, j)];
      x = i < j ? T(0) : i == j ? d : quotient(x, d);
    }
    __syncwarp();
    WF_UNROLL_N(1)
    for (int i = j + 1 + g; i < K::kN; i += K::kG) {
      const T l = a[K::at(i, j)];
      WF_UNROLL_N(1)
      for (int c = j + 1; c <= i; ++c) a[K::at(i, c)] = sub(a[K::at(i, c)], mul(l, a[K::at(c, j)]));
    }
    __syncwarp();
  }
  return code;
}

// L and U in place, rows and right-hand sides exchanged. Returns a status: the first pivot that is zero.
template <typename K, typename T>
WF_DEVICE int plain_lu(T* a, T* right, int* pivots, int g) {
  int code = kOk;
  WF_UNROLL_N(1)
  for (int k = 0; k < K::kN; ++k) {
    T best = T(-1);
    int p = k;
    WF_UNROLL_N(1)
    for (int i = k; i < K::kN; ++i) {
      const T v = size_of(a[K::at(i, k)]);
      p = v > best ? i : p;
      best = v > best ? v : best;
    }
    code = code == kOk && best == T(0) ? k + 1 : code;
    if (g == 0) pivots[k] = p;
    __syncwarp();
    WF_UNROLL_N(1)
    for (int c = g; c < K::kN + K::kR; c += K::kG) {
      T& up = c < K::kN ? a[K::at(k, c)] : right[k * K::kR + c - K::kN];
      T& low = c < K::kN ? a[K::at(p, c)] : right[p * K::kR + c - K::kN];
      const T held = up;
      up = low;
      low = held;
    }
    __syncwarp();
    const T pivot = best == T(0) ? T(1) : a[K::at(k, k)];
    WF_UNROLL_N(1)
    for (int i = k + 1 + g; i < K::kN; i += K::kG) {
      const T l = quotient(a[K::at(i, k)], pivot);
      a[K::at(i, k)] = l;
      WF_UNROLL_N(1)
      for (int c = k + 1; c < K::kN; ++c) a[K::at(i, c)] = sub(a[K::at(i, c)], mul(l, a[K::at(k, c)]));
    }
    __syncwarp();
  }
  return code;
}

// Both sweeps, a lane to a right-hand side: L and its transpose (Across), or L with a diagonal of 1 and U; the solution
// scaled. Returns whether the system's solutions are finite.
template <typename K, bool Across, typename T>
WF_DEVICE bool plain_solve(const T* a, T* right, int g, T scale) {
  T poison = T(0);
  WF_UNROLL_N(1)
  for (int c = g; c < K::kR; c += K::kG) {
    WF_UNROLL_N(1)
    for (int step = 0; step < 2 * K::kN; ++step) {
      const bool down = step < K::kN;
      const int i = down ? step : 2 * K::kN - 1 - step, count = down ? i : K::kN - 1 - i;
      T x = right[i * K::kR + c];
      WF_UNROLL_N(1)
      for (int q = 0; q < count; ++q) {
        const int k = down ? q : K::kN - 1 - q;
        x = sub(x, mul(a[down || !Across ? K::at(i, k) : K::at(k, i)], right[k * K::kR + c]));
      }
      right[i * K::kR + c] = !Across && down ? x : quotient(x, a[K::at(i, i)]);
    }
    WF_UNROLL_N(1)
    for (int i = 0; i < K::kN; ++i) {
      const T value = mul(right[i * K::kR + c], scale);
      poison = poisoned(poison, value);
      right[i * K::kR + c] = value;
    }
  }
  return group_min<K::kG>(poison == T(0) ? 1 : 0) != 0;
}

// Whether L, and U multiplied, are finite.
template <typename K, typename T>
WF_DEVICE bool plain_finite(const T* a, int g, T factor) {
  T poison = T(0);
  WF_UNROLL_N(1)
  for (int e = g; e < K::kN * K::kN; e += K::kG) {
    const int i = e / K::kN, c = e % K::kN;
    poison = poisoned(poison, mul(a[K::at(i, c)], c >= i ? factor : T(1)));
  }
  return group_min<K::kG>(poison == T(0) ? 1 : 0) != 0;
}

}  // namespace wf
