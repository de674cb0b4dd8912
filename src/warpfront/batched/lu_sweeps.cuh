// Triangular sweeps of the packed LU, and what a lane and a system hold. A single right-hand side is spread over the rows'
// lanes, which read their own rows of U; of several a lane has whole columns.
//
// Barrier (of the warp): right-hand sides read, in their rows' order -> solutions written.
#pragma once
#include "packed.cuh"

namespace wf {

template <typename K, typename T>
struct rows {
  T r[K::kRows][K::kWhole];
  T b[K::kRows];
  T scale, inverse;
  doubt<T> doubts;
};

// What a system has in shared memory.
template <typename T>
struct places {
  T *a, *right, *inverse, *lines;
  int *pivots, *order;
};

// The second sweep of a right-hand side that travelled with its rows. Columns from block Block * kChunk down; a lane reads
// its own rows of U.
template <typename K, int Block, typename T>
WF_DEVICE void lu_back(T (&x)[K::kRows], const T (&size)[K::kRows], const T (&v)[K::kRows], const T (&sign)[K::kRows],
                       const T* a, int g, doubt<T>& doubts) {
  constexpr int V = K::kChunk, kFirst = Block * V, kOwner = kFirst / K::kG;
  T w[K::kRows][V];
  WF_UNROLL
  for (int m = 0; m <= kOwner; ++m)
    unpack(load16(a + K::at(min_of(m * K::kG + g, K::kN - 1), kFirst)), w[m]);
  WF_UNROLL
  for (int back = 0; back < V; ++back) {
    const int k = kFirst + V - 1 - back, sk = k % K::kG;
    if (k >= K::kN) continue;
    const T own = mul(over(x[kOwner], size[kOwner], v[kOwner], doubts), sign[kOwner]), t = share<K::kG>(own, sk);
    x[kOwner] = g == sk ? own : x[kOwner];
    WF_UNROLL
    for (int m = 0; m <= kOwner; ++m)
      if (m < kOwner || g < sk) x[m] = sub(x[m], mul(w[m][V - 1 - back], t));
  }
  if constexpr (Block > 0) lu_back<K, Block - 1>(x, size, v, sign, a, g, doubts);
}

template <typename K, typename T>
WF_DEVICE void lu_finish(rows<K, T>& h, const places<T>& s, int g) {
  T size[K::kRows], v[K::kRows], sign[K::kRows];
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    const int i = min_of(m * K::kG + g, K::kN - 1);
    const T d = s.a[K::at(i, i)];
    size[m] = size_of(d), sign[m] = d < T(0) ? T(-1) : T(1), v[m] = s.inverse[i];
  }
  lu_back<K, (K::kN - 1) / K::kChunk>(h.b, size, v, sign, s.a, g, h.doubts);
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    if (m * K::kG + g >= K::kN) continue;
    const T value = mul(h.b[m], h.scale);
    h.doubts.poison = poisoned(h.doubts.poison, value);
    s.right[m * K::kG + g] = value;
  }
}

// Several right-hand sides: a lane has whole columns, and takes rows a block at a time. Down: x[0] is the block's first row;
// what is done goes to `to`, the other rows take its products in increasing k and move up in the registers.
template <typename K, int From, typename T>
WF_DEVICE void lu_down(T (&x)[K::kWhole], const T* a, T* to, bool mine) {
  constexpr int V = K::kChunk, kTo = From + K::kStage < K::kN ? From + K::kStage : K::kN, kWide = K::kWhole - From;
  WF_UNROLL_N(1)
  for (int j = From; j < kTo; j += V) {
    const T* const corner = a + K::at(j, j);
    T done[V], w[V];
    WF_UNROLL
    for (int q = 0; q < V; ++q) {
      done[q] = x[q];
      if (!K::kAligned && j + q >= K::kN) continue;
      unpack(load16(corner + q * K::kP), w);
      WF_UNROLL
      for (int p = 0; p < q; ++p) done[q] = sub(done[q], mul(w[p], done[p]));
      if (mine) to[(j + q) * K::kR] = done[q];
    }
    WF_UNROLL
    for (int r = V; r < kWide; ++r) {
      if (r + K::kStage >= K::kN - From + V && j + r >= K::kN) continue;
      unpack(load16(corner + r * K::kP), w);
      x[r - V] = x[r];
      WF_UNROLL
      for (int q = 0; q < V; ++q) x[r - V] = sub(x[r - V], mul(w[q], done[q]));
    }
  }
  if constexpr (From + K::kStage < K::kN) lu_down<K, From + K::kStage>(x, a, to, mine);
}

// Up, from the last row on: the last registers are the block's rows. `Left`: rows, done ones taken off, at the stage's begin.
template <typename K, int Left, typename T>
WF_DEVICE void lu_up(T (&x)[K::kWhole], const places<T>& s, T* to, bool mine, T scale, doubt<T>& doubts) {
  constexpr int V = K::kChunk, kLast = K::kWhole - V, kEnd = Left > K::kStage ? Left - K::kStage : 0;
  WF_UNROLL_N(1)
  for (int j = Left - V; j >= kEnd; j -= V) {
    const T* const corner = s.a + K::at(j, j);
    T w[V], done[V];
    WF_UNROLL
    for (int q = V - 1; q >= 0; --q) {
      done[q] = T(0);
      if (!K::kAligned && j + q >= K::kN) continue;
      unpack(load16(corner + q * K::kP), w);
      T value = x[kLast + q];
      WF_UNROLL
      for (int p = V - 1; p > q; --p)
        if (K::kAligned || j + p < K::kN) value = sub(value, mul(w[p], done[p]));
      done[q] = mul(over(value, size_of(w[q]), s.inverse[j + q], doubts), w[q] < T(0) ? T(-1) : T(1));
      value = mul(done[q], scale);
      doubts.poison = poisoned(doubts.poison, value);
      if (mine) to[(j + q) * K::kR] = value;
    }
    WF_UNROLL
    for (int d = 1; d <= Left - V; ++d) {
      if (d > kEnd && d > j) continue;
      unpack(load16(corner - d * K::kP), w);
      T value = x[kLast - d];
      WF_UNROLL
      for (int q = V - 1; q >= 0; --q)
        if (K::kAligned || j + q < K::kN) value = sub(value, mul(w[q], done[q]));
      x[K::kWhole - d] = value;
    }
  }
  if constexpr (kEnd > 0) lu_up<K, kEnd>(x, s, to, mine, scale, doubts);
}

template <typename K, typename T>
WF_DEVICE void lu_sweeps(rows<K, T>& h, const places<T>& s, int g) {
  T x[K::kExtra > 0 ? K::kExtra : 1][K::kWhole];
  WF_UNROLL
  for (int e = 0; e < K::kExtra; ++e)
    WF_UNROLL
    for (int k = 0; k < K::kWhole; ++k)
      x[e][k] = k < K::kN ? s.right[s.order[k < K::kN ? k : 0] * K::kR + min_of(e * K::kG + g, K::kR - 1)] : T(0);
  __syncwarp();
  WF_UNROLL
  for (int e = 0; e < K::kExtra; ++e) {
    const bool mine = e * K::kG + g < K::kR;
    T* const to = s.right + min_of(e * K::kG + g, K::kR - 1);
    lu_down<K, 0>(x[e], s.a, to, mine);
    WF_UNROLL
    for (int k = 0; k < K::kWhole; ++k) x[e][k] = mine && k < K::kN ? to[(k < K::kN ? k : 0) * K::kR] : T(0);
    lu_up<K, K::kWhole>(x[e], s, to, mine, h.scale, h.doubts);
  }
}

}  // namespace wf
