// Cholesky solve of many tiny systems, A = L L^T, L y = b, L^T x = y: one warp to a block, one system to a warp (G = 32;
// cholesky_packed.cu has several).
//
// A lane owns rows g, g + G, ... of one system in registers and updates them column by column (right-looking), so the
// products reach an element in increasing k, and independent elements fill the pipeline. A column of L goes to the other
// lanes of its system through shared memory and is read back as 16-byte broadcasts. Only the lower triangle is factored.
// Steps run in loops of up to eight: the column in work is moved to register 0, so that
// a loop's registers have constant indices and the code stays small.
//
// Shared layout: `matrix` rows at odd pitch P, systems S apart: lanes that read one column of their rows fall into
// different banks (a statement about that access only). `rhs` N x R. `line` holds a column of L, two buffers.
//
// Barriers (of the warp), each after the writes it publishes: load -> check; check (reads across rows) -> factor;
// column -> its use (with two lines this also separates a column's last read from the write two columns later, and the
// last one publishes L to the sweeps); reciprocals of the diagonal, which go where a line has its slack -> sweeps;
// solution and status -> write-out. Each lane reads and writes only its own right-hand sides in the sweeps.
//
// Literature: Golub and Van Loan, Matrix Computations, 4th ed., algorithm 4.2.2 (outer products); Haidar et al.,
// "A guide for achieving high performance with very small matrices on GPU" (2018), for a row per thread in registers.
#include "small.cuh"

namespace wf {

// Status of the input, and the rows of the lower triangle with the shift on the diagonal. Symmetry is judged against
// atol + rtol * largest |entry|.
template <typename K, typename T>
WF_DEVICE int cholesky_input(T (&r)[K::kRows][K::kN], const T* a, const T* b, int g, T shift, T rtol, T atol) {
  T poison = T(0), largest = T(0), apart = T(0);
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    // A lane beyond the last row repeats it; every element of the matrix is met as itself or as a mirror.
    const int i = min_of(m * K::kG + g, K::kN - 1);
    WF_UNROLL
    for (int c = 0; c < K::kN; ++c) {
      if (c >= K::columns(m)) continue;
      const T x = a[i * K::kP + c], mirror = a[c * K::kP + i];
      poison = poisoned(poisoned(poison, x), mirror);
      largest = larger(larger(largest, size_of(x)), size_of(mirror));
      apart = larger(apart, size_of(sub(x, mirror)));
      r[m][c] = x;
    }
  }
  WF_UNROLL_N(4)
  for (int e = g; e < K::kN * K::kR; e += K::kG) poison = poisoned(poison, b[e]);
  largest = group_max<K::kG>(poison == T(0) ? largest : infinity_of(T(0)));
  apart = group_max<K::kG>(apart);
  if (shift != T(0)) {
    WF_UNROLL
    for (int m = 0; m < K::kRows; ++m) {
      WF_UNROLL
      for (int c = 0; c < K::kN; ++c)
        if (c < K::columns(m)) r[m][c] = m * K::kG + g == c ? add(r[m][c], shift) : r[m][c];
    }
  }
  return !is_finite(largest) ? kNonFiniteInput : apart <= add(atol, mul(rtol, largest)) ? kOk : kNotSymmetric;
}

// Rows from block `owner` on lose their first column and take the update of step j: r[m][c] becomes
// r[m][c + 1] - l[m] * column[c], column[c] being L's entry in row j + 1 + c. What lies beyond the last row is old, and
// reaches only columns that nobody uses.
template <typename K, int Stage, typename T>
WF_DEVICE void cholesky_update(T (&r)[K::kRows][K::kN], const T (&l)[K::kRows], const T* column) {
  constexpr int V = K::kChunk, kFrom = Stage * K::kStage, kWide = K::kN - kFrom - 1;
  WF_UNROLL
  for (int first = 0; first < kWide; first += V) {
    T w[V];
    if constexpr (K::kG > 1) {
      unpack(load16(column + first), w);
    } else {
      WF_UNROLL
      for (int q = 0; q < V; ++q) w[q] = l[kFrom + 1 + first + q < K::kN ? kFrom + 1 + first + q : 0];
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

// The steps of one stage, then the next stages. Column j is always r[m][0]; `pivot` keeps what each row's own pivot was.
// A carried right-hand side takes part as one more column: lane j, which has no multiplier, divides it instead. After
// a failed pivot the system goes on with whatever comes of it: its results are zeroed at the end, and the warp does not
// diverge.
template <typename K, int Stage, typename T>
WF_DEVICE void cholesky_factor(T (&r)[K::kRows][K::kN], T (&b)[K::kRows], T (&pivot)[K::kRows], T* a, T* lines, int g) {
  constexpr int kFrom = Stage * K::kStage, kOwner = kFrom / K::kG;
  constexpr int kTo = kFrom + K::kStage < K::kN ? kFrom + K::kStage : K::kN;
  WF_UNROLL_N(2)
  for (int j = kFrom; j < kTo; ++j) {
    const T d = root(share<K::kG>(r[kOwner][0], j % K::kG));
    T* const column = lines + j % 2 * K::kLine + K::kWhole;
    T l[K::kRows];
    WF_UNROLL
    for (int m = 0; m < K::kRows; ++m) {
      l[m] = T(0);
      if (m < kOwner) continue;
      const int i = m * K::kG + g;
      const bool below = m > kOwner || i > j, inside = K::kN % K::kG == 0 || i < K::kN;
      const T q = quotient(below ? r[m][0] : K::kCarried ? b[m] : T(1), d);
      l[m] = below ? q : T(0);
      if (i >= j && inside) a[i * K::kP + j] = below ? q : d;
      if constexpr (K::kG > 1)
        if (inside) column[i - j - 1] = q;
      pivot[m] = i == j ? r[m][0] : pivot[m];
      if (K::kCarried && !below) b[m] = i == j ? q : b[m];
    }
    if constexpr (K::kG > 1) __syncwarp();
    if constexpr (K::kCarried) {
      const T y = K::kG > 1 ? column[-1] : b[kOwner];
      WF_UNROLL
      for (int m = 0; m < K::kRows; ++m)
        if (m > kOwner || (m == kOwner && m * K::kG + g > j)) b[m] = sub(b[m], mul(l[m], y));
    }
    cholesky_update<K, Stage>(r, l, column);
  }
  if constexpr (Stage + 1 < K::kStages) cholesky_factor<K, Stage + 1>(r, b, pivot, a, lines, g);
}

// Status of the factorisation: the first pivot that is not positive and finite.
template <typename K, typename T>
WF_DEVICE int cholesky_status(const T (&pivot)[K::kRows], int g) {
  int first = kNone;
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    const int i = m * K::kG + g;
    const bool fine = is_finite(pivot[m]);
    if (i < K::kN && !(pivot[m] > T(0) && fine)) first = min_of(first, 2 * i + (fine ? 1 : 0));
  }
  first = group_min<K::kG>(first);
  return first == kNone ? kOk : first % 2 == 0 ? kNonFiniteIntermediate : first / 2 + 1;
}

// The second sweep of a right-hand side that was carried through; it ends in shared memory. Returns whether it is finite.
template <typename K, typename T>
WF_DEVICE bool cholesky_finish(T (&x)[K::kRows], const T* a, T* b, int g) {
  T d[K::kRows], v[K::kRows];
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    const int i = min_of(m * K::kG + g, K::kN - 1);
    d[m] = a[i * K::kP + i];
    v[m] = reciprocal_of(d[m]);
  }
  sweep_own<K, true>(x, d, v, a, g);
  bool good = true;
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    if (m * K::kG + g >= K::kN) continue;
    good = good && is_finite(x[m]);
    b[m * K::kG + g] = x[m];
  }
  return good;
}

// Both sweeps for every right-hand side; the solution replaces it in shared memory. Returns whether all is finite.
template <typename K, typename T>
WF_DEVICE bool cholesky_sweeps(const T* a, T* b, const T* inverse, int g) {
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
    sweep<K, true, true, false>(x, a, inverse, s, lane);
    sweep<K, false, true, true>(x, a, inverse, s, lane);
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
// of 16. Grid: ceil(batch / kSystems) blocks of 32 threads, of which `Blocks` are to fit a multiprocessor (registers).
template <typename T, int N, int R, int G, int P, int S, bool Vec, int Blocks>
__global__ void __launch_bounds__(32, Blocks)
    cholesky_warp(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ factor, T* __restrict__ solution,
                  int* __restrict__ status, long long batch, T shift, T rtol, T atol) {
  using namespace wf;
  typedef small<T, N, R, G, P, S> K;
  constexpr bool kVecA = Vec && N * N % K::kChunk == 0, kVecB = Vec && N * R % K::kChunk == 0;
  constexpr int kAll = K::kSystems, kWideA = kVecA ? K::kChunk : 1, kWideB = kVecB ? K::kChunk : 1;
  __shared__ T matrix[kAll * S];
  __shared__ T rhs[R > 0 ? kAll * N * R : 1];
  __shared__ __align__(16) T line[kAll * 2 * K::kLine];
  __shared__ int codes[kAll];
  const i64 first = static_cast<i64>(blockIdx.x) * kAll;
  if (first >= batch) return;
  const int present = static_cast<int>(min_of<i64>(kAll, batch - first));
  const int lane = static_cast<int>(threadIdx.x), g = lane % G, system = lane / G;
  T* const mine = matrix + system * S;
  T* const mine_b = rhs + system * N * R;
  T* const lines = line + system * 2 * K::kLine;
  stream_in<T, kAll * N * N, kVecA>(a + first * (N * N), static_cast<u32>(present * N * N),
                                    [&](u32 e, const T (&x)[kWideA]) { put_matrix<K>(matrix, e, x); });
  stream_in<T, kAll * N * R, kVecB>(b + first * (N * R), static_cast<u32>(present * N * R), [&](u32 e, const T (&x)[kWideB]) {
    WF_UNROLL
    for (int q = 0; q < kWideB; ++q) rhs[e + static_cast<u32>(q)] = x[q];
  });
  if constexpr (G > 1)
    for (int e = g; e < 2 * K::kLine; e += G) lines[e] = T(0);
  __syncwarp();
  T r[K::kRows][N], carried[K::kRows], pivot[K::kRows];
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    carried[m] = K::kCarried && m * G + g < N ? mine_b[m * G + g] : T(0);
    pivot[m] = T(0);
  }
  int code = cholesky_input<K>(r, mine, mine_b, g, shift, rtol, atol);
  __syncwarp();
  cholesky_factor<K, 0>(r, carried, pivot, mine, lines, g);
  const int verdict = cholesky_status<K>(pivot, g);
  code = code == kOk ? verdict : code;
  bool good;
  if constexpr (K::kCarried) {
    good = cholesky_finish<K>(carried, mine, mine_b, g);
  } else {
    invert_diagonal<K>(mine, lines, g);
    __syncwarp();
    good = cholesky_sweeps<K>(mine, mine_b, lines, g);
  }
  const bool all_good = group_min<G>(good ? 1 : 0) != 0;
  if (code == kOk && !all_good) code = kNonFiniteIntermediate;
  if (g == 0) codes[system] = code;
  __syncwarp();
  stream_out<T, kAll * N * N, kVecA>(factor + first * (N * N), static_cast<u32>(present * N * N), [&](u32 e, T (&x)[kWideA]) {
    const place at = place_of<K>(e);
    WF_UNROLL
    for (int q = 0; q < kWideA; ++q) {
      const place p = place_after<K, kWideA>(at, e, q);
      x[q] = codes[p.system] == kOk && p.column <= p.row ? matrix[p.at] : T(0);
    }
  });
  stream_out<T, kAll * N * R, kVecB>(solution + first * (N * R), static_cast<u32>(present * N * R), [&](u32 e, T (&x)[kWideB]) {
    WF_UNROLL
    for (int q = 0; q < kWideB; ++q) {
      const u32 at = e + static_cast<u32>(q);
      x[q] = codes[at / (N * (R > 0 ? R : 1))] == kOk ? rhs[at] : T(0);
    }
  });
  if (lane < present) status[first + lane] = codes[lane];
}
