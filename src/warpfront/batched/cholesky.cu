// Cholesky solve of many tiny systems, A = L L^T, L y = b, L^T x = y: one warp to a block, 32 / G systems to a warp.
//
// A lane owns rows g, g + G, ... of one system in registers and updates them column by column (right-looking), so the
// products reach an element in increasing k, and independent elements fill the pipeline. A column of L goes to the other
// lanes of its system through shared memory and is read back as 16-byte broadcasts. Only the lower triangle is factored.
// G = 32 is the contract's kernel, one system to a block; smaller G is the packed variant; G = 1 keeps a whole
// system in one lane's registers. Steps run in loops of up to eight: the column in work is moved to register 0, so that
// a loop's registers have constant indices and the code stays small.
//
// Shared layout: `matrix` rows at odd pitch P, systems S apart: lanes that read one column of their rows fall into
// different banks (a statement about that access only). `rhs` N x R. `line` holds a column of L, two buffers.
//
// Barriers (of the warp), each after the writes it publishes: load -> check; check (reads across rows) -> factor;
// column -> its use, which with two buffers also separates a column's last read from the write two columns later;
// L -> sweeps; solution and status -> write-out. Each lane reads and writes only its own right-hand sides.
//
// Literature: Golub and Van Loan, Matrix Computations, 4th ed., algorithm 4.2.2 (outer products); Haidar et al.,
// "A guide for achieving high performance with very small matrices on GPU" (2018), for a row per thread in registers.
#include "small.cuh"

namespace wf {

// Status of the input, and the rows of the lower triangle with the shift on the diagonal. Symmetry is judged against
// atol + rtol * largest |entry|; a system with a status other than 0 goes on as zeros.
template <typename K, typename T>
WF_DEVICE int cholesky_input(T (&r)[K::kRows][K::kN], const T* a, const T* b, int g, T shift, T rtol, T atol) {
  bool bad = false;
  T largest = T(0), apart = T(0);
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    const int i = m * K::kG + g;
    WF_UNROLL
    for (int c = 0; c < K::kN; ++c) {
      if (c >= K::columns(m)) continue;
      r[m][c] = i < K::kN ? a[i * K::kP + c] : T(0);
      if (i >= K::kN || c > i) continue;
      const T mirror = a[c * K::kP + i];
      bad = bad || !is_finite(r[m][c]) || !is_finite(mirror);
      largest = max_of(largest, max_of(size_of(r[m][c]), size_of(mirror)));
      apart = max_of(apart, size_of(sub(r[m][c], mirror)));
    }
  }
  WF_UNROLL_N(4)
  for (int e = g; e < K::kN * K::kR; e += K::kG) bad = bad || !is_finite(b[e]);
  largest = group_max<K::kG>(bad ? infinity_of(T(0)) : largest);
  apart = group_max<K::kG>(apart);
  const int code = !is_finite(largest) ? kNonFiniteInput : apart <= add(atol, mul(rtol, largest)) ? kOk : kNotSymmetric;
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    WF_UNROLL
    for (int c = 0; c < K::kN; ++c) {
      if (c >= K::columns(m)) continue;
      const T x = m * K::kG + g == c ? add(r[m][c], shift) : r[m][c];
      r[m][c] = code == kOk ? x : T(0);
    }
  }
  return code;
}

// Rows from block `owner` on lose their first column and take the update of step j: r[m][c] becomes
// r[m][c + 1] - l[m] * column[c], column[c] being L's entry in row j + 1 + c, or 0 beyond the last row.
template <typename K, int Stage, typename T>
WF_DEVICE void cholesky_update(T (&r)[K::kRows][K::kN], const T (&l)[K::kRows], const T* column) {
  constexpr int V = K::kChunk, kFrom = Stage * K::kStage, kWide = K::kN - kFrom - 1;
  WF_UNROLL
  for (int first = 0; first < kWide; first += V) {
    T w[V];
    if (K::kG > 1 && first + V <= K::kN) {
      unpack(load16(column + first), w);
    } else {
      WF_UNROLL
      for (int q = 0; q < V; ++q) {
        if (first + q >= kWide) continue;
        if constexpr (K::kG > 1) w[q] = column[first + q];
        else w[q] = l[kFrom + 1 + first + q < K::kN ? kFrom + 1 + first + q : 0];
      }
    }
    WF_UNROLL
    for (int q = 0; q < V; ++q) {
      const int c = first + q;
      if (c >= kWide) continue;
      WF_UNROLL
      for (int m = 0; m < K::kRows; ++m)
        if (m >= kFrom / K::kG && c + 1 < K::columns(m) - kFrom) r[m][c] = sub(r[m][c + 1], mul(l[m], w[q]));
    }
  }
}

// The steps of one stage, then the next stages. Column j is always r[m][0]. A failed pivot is replaced by 1 and the
// system carried on: its results are zeroed at the end, and the warp does not diverge.
template <typename K, int Stage, typename T>
WF_DEVICE int cholesky_factor(T (&r)[K::kRows][K::kN], T* a, T* lines, int g, int code) {
  constexpr int kFrom = Stage * K::kStage, kOwner = kFrom / K::kG;
  constexpr int kTo = kFrom + K::kStage < K::kN ? kFrom + K::kStage : K::kN;
  WF_UNROLL_N(1)
  for (int j = kFrom; j < kTo; ++j) {
    const T v = share<K::kG>(r[kOwner][0], j % K::kG);
    const bool good = v > T(0) && is_finite(v);
    if (code == kOk && !good) code = is_finite(v) ? j + 1 : kNonFiniteIntermediate;
    const T d = root(good ? v : T(1));
    T* const column = lines + j % 2 * K::kLine;
    T l[K::kRows];
    WF_UNROLL
    for (int m = 0; m < K::kRows; ++m) {
      const int i = m * K::kG + g;
      const bool below = i > j && i < K::kN;
      l[m] = T(0);
      if (m >= kOwner) {
        const T q = quotient(below ? r[m][0] : T(1), d);
        l[m] = below ? q : T(0);
        if (i >= j && i < K::kN) a[i * K::kP + j] = below ? q : d;
      }
      if constexpr (K::kG > 1)
        if (i < K::kN) column[i > j ? i - j - 1 : i - j - 1 + K::kN] = l[m];
    }
    if constexpr (K::kG > 1) __syncwarp();
    cholesky_update<K, Stage>(r, l, column);
  }
  if constexpr (Stage + 1 < K::kStages) code = cholesky_factor<K, Stage + 1>(r, a, lines, g, code);
  return code;
}

// Both sweeps for every right-hand side; the solution replaces it in shared memory. Returns whether all is finite.
template <typename K, typename T>
WF_DEVICE bool cholesky_sweeps(const T* a, T* b, int g) {
  const int s = g / K::kAcross, lane = g % K::kAcross;
  bool good = true;
  WF_UNROLL_N(1)
  for (int round = 0; round < K::kRounds; ++round) {
    const int c = round * K::kAcross + lane;
    T x[K::kHeld];
    WF_UNROLL
    for (int m = 0; m < K::kHeld; ++m) {
      const int row = m * K::kGroups + s;
      x[m] = row < K::kN && c < K::kR ? b[row * K::kR + c] : T(0);
    }
    sweep<K, true, true, false>(x, a, s, lane);
    sweep<K, false, true, true>(x, a, s, lane);
    WF_UNROLL
    for (int m = 0; m < K::kHeld; ++m) {
      const int row = m * K::kGroups + s;
      if (row >= K::kN || c >= K::kR) continue;
      good = good && is_finite(x[m]);
      b[row * K::kR + c] = x[m];
    }
  }
  return good;
}

}  // namespace wf

// `batch` systems; a, factor N x N, b, solution N x R, row-major, one after the other. Vec: every pointer is a multiple
// of 16. Grid: ceil(batch / kSystems) blocks of 32 threads.
template <typename T, int N, int R, int G, int P, int S, bool Vec>
__global__ void __launch_bounds__(32)
    cholesky_warp(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ factor, T* __restrict__ solution,
                  int* __restrict__ status, long long batch, T shift, T rtol, T atol) {
  using namespace wf;
  typedef small<T, N, R, G, P, S> K;
  constexpr bool kVecA = Vec && N * N % K::kChunk == 0, kVecB = Vec && N * R % K::kChunk == 0;
  constexpr int kAll = K::kSystems;
  __shared__ T matrix[kAll * S];
  __shared__ T rhs[R > 0 ? kAll * N * R : 1];
  __shared__ __align__(16) T line[kAll * 2 * K::kLine];
  __shared__ int codes[kAll];
  const i64 first = static_cast<i64>(blockIdx.x) * kAll;
  if (first >= batch) return;
  const int present = static_cast<int>(min_of<i64>(kAll, batch - first));
  const int lane = lane_id(), g = lane % G, system = lane / G;
  stream_in<T, kAll * N * N, kVecA>(a + first * (N * N), present * N * N, [&](int e, T x) {
    const int i = e % (N * N);
    matrix[e / (N * N) * S + i / N * P + i % N] = x;
  });
  stream_in<T, kAll * N * R, kVecB>(b + first * (N * R), present * N * R, [&](int e, T x) { rhs[e] = x; });
  __syncwarp();
  T* const mine = matrix + system * S;
  T* const mine_b = rhs + system * N * R;
  T r[K::kRows][N];
  int code = cholesky_input<K>(r, mine, mine_b, g, shift, rtol, atol);
  __syncwarp();
  code = cholesky_factor<K, 0>(r, mine, line + system * 2 * K::kLine, g, code);
  __syncwarp();
  const bool good = cholesky_sweeps<K>(mine, mine_b, g);
  const bool all_good = group_min<G>(good ? 1 : 0) != 0;
  if (code == kOk && !all_good) code = kNonFiniteIntermediate;
  if (g == 0) codes[system] = code;
  __syncwarp();
  stream_out<T, kAll * N * N, kVecA>(factor + first * (N * N), present * N * N, [&](int e) {
    const int i = e % (N * N), s = e / (N * N);
    return codes[s] == kOk && i % N <= i / N ? matrix[s * S + i / N * P + i % N] : T(0);
  });
  stream_out<T, kAll * N * R, kVecB>(solution + first * (N * R), present * N * R,
                                     [&](int e) { return codes[e / (N * (R > 0 ? R : 1))] == kOk ? rhs[e] : T(0); });
  if (lane < present) status[first + lane] = codes[lane];
}
