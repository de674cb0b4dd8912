// LU solve of many tiny systems with partial pivoting, P A = L U: one warp to a block, one system to a warp (G = 32;
// lu_packed.cu has several).
//
// A lane owns rows g, g + G, ... of one system in registers. Rows never move: each knows the position it has reached,
// and an exchange is an exchange of two positions. In step k the candidate of greatest size wins, of equal ones that
// at the lowest position: what a serial scan with a strict > finds. The pivot's row goes to the other lanes of its
// system through shared memory and is read back as 16-byte broadcasts. The matrix is first scaled by a power of two that
// brings its largest |entry| near 1 (exact; 1 / largest would overflow below 2.94e-39), and U is scaled back at the end.
//
// Shared layout: as in cholesky.cu; `order` says which row of A has come to a position, `pivots` where row k went.
//
// Barriers (of the warp): load -> check (a lane's own rows: none is needed before the factorisation); pivot row -> its
// use, which with two lines also separates a row's last read from the write two steps later; in the placing of rows, reads
// of L in eight columns -> writes there (other columns do not meet them); LU, `order` and right-hand sides in
// place -> reads of the sweeps; those reads, and the reciprocals of U's diagonal -> solutions in their place; solution,
// scale and status -> write-out.
//
// Literature: Golub and Van Loan, Matrix Computations, 4th ed., algorithm 3.4.1 (outer products, partial pivoting);
// Abdelfattah et al., "Batched one-sided factorizations of tiny matrices using GPUs" (2018), for rows that stay put.
#include "small.cuh"

namespace wf {

// Status of the input; rows scaled. A system with a status other than 0 goes on as zeros.
template <typename K, typename T>
WF_DEVICE int lu_input(T (&r)[K::kRows][K::kN], const T* a, const T* b, int g, T& scale, T& inverse) {
  T poison = T(0), largest = T(0);
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    const int i = min_of(m * K::kG + g, K::kN - 1);  // a lane beyond the last row repeats it
    WF_UNROLL
    for (int c = 0; c < K::kN; ++c) {
      r[m][c] = a[i * K::kP + c];
      poison = poisoned(poison, r[m][c]);
      largest = larger(largest, size_of(r[m][c]));
    }
  }
  WF_UNROLL_N(4)
  for (int e = g; e < K::kN * K::kR; e += K::kG) poison = poisoned(poison, b[e]);
  largest = group_max<K::kG>(poison == T(0) ? largest : infinity_of(T(0)));
  const int code = is_finite(largest) ? kOk : kNonFiniteInput;
  power_scale(code == kOk ? largest : T(0), scale, inverse);
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    WF_UNROLL
    for (int c = 0; c < K::kN; ++c) r[m][c] = code == kOk ? mul(r[m][c], scale) : T(0);
  }
  return code;
}

// Greatest |r[.][0]| among the rows at positions k and beyond, and the lowest position that has it. All lanes.
template <typename K, typename T>
WF_DEVICE indexed<T> lu_pivot(const T (&r)[K::kRows][K::kN], const int (&at)[K::kRows], int k) {
  indexed<T> best = {T(-1), kNone};
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    const T v = size_of(r[m][0]);
    if (at[m] >= k && (v > best.value || (v == best.value && at[m] < best.index))) best = {v, at[m]};
  }
  indexed<T> found;
#if WF_ARCH >= 800
  if constexpr (K::kG == kWarp && sizeof(T) == 4) {
    // Bits of floats that are not negative order as the floats do.
    const u32 key = best.index == kNone ? 0u : __float_as_uint(static_cast<float>(best.value));
    const u32 top = __reduce_max_sync(kFullMask, key);
    found.value = static_cast<T>(__uint_as_float(top));
    found.index = static_cast<i32>(__reduce_min_sync(kFullMask, static_cast<u32>(key == top ? best.index : kNone)));
    return found;
  }
#endif
  found.value = group_max<K::kG>(best.value);
  found.index = group_min<K::kG>(best.value == found.value ? best.index : kNone);
  return found;
}

// A row, from its first column on, to the line; a carried right-hand side behind it.
template <typename K, int Wide, typename T>
WF_DEVICE void lu_publish(const T (&r)[K::kN], T b, T* line) {
  constexpr int V = K::kChunk;
  WF_UNROLL
  for (int first = 0; first < Wide; first += V) {
    T w[V];
    WF_UNROLL
    for (int q = 0; q < V; ++q) w[q] = first + q < Wide ? r[first + q < Wide ? first + q : 0] : T(0);
    store16(line + first, packed(w));
  }
  if constexpr (K::kCarried) line[K::kWhole] = b;
}

// Rows below position k lose their first column and take the update: r[m][c] = r[m][c + 1] - l[m] * line[c + 1].
// With one row to a lane a single branch covers it all; with more, two chunks of the line serve all rows in turn.
template <typename K, int Wide, typename T>
WF_DEVICE void lu_update(T (&r)[K::kRows][K::kN], const T (&l)[K::kRows], const int (&at)[K::kRows], const T* line, int k) {
  constexpr int V = K::kChunk, kStep = K::kRows == 1 ? (Wide + V - 1) / V * V : 2 * V;
  WF_UNROLL
  for (int first = 0; first < Wide; first += kStep) {
    T w[kStep];
    if (K::kRows > 1 || at[0] > k) {
      WF_UNROLL
      for (int q = 0; q < kStep; q += V)
        if (first + q < Wide) unpack(load16(line + first + q), reinterpret_cast<T(&)[V]>(w[q]));
    }
    WF_UNROLL
    for (int m = 0; m < K::kRows; ++m) {
      if (at[m] <= k) continue;
      WF_UNROLL
      for (int q = 0; q < kStep; ++q) {
        const int c = first + q;
        if (c > 0 && c < Wide) r[m][c - 1] = sub(r[m][c], mul(l[m], w[q]));
        if (c == Wide - 1) r[m][c] = T(0);
      }
    }
  }
}

// The steps of one stage, then the next stages; returns the status. Column k is r[m][0] of every row still at work; a row
// that has become the pivot keeps its registers from then on. A column without a pivot divides by 1.
template <typename K, int Stage, typename T>
WF_DEVICE int lu_factor(T (&r)[K::kRows][K::kN], T (&b)[K::kRows], int (&at)[K::kRows], T* a, T* lines, int* pivots, int g,
                        int code) {
  constexpr int kFrom = Stage * K::kStage, kWide = K::kN - kFrom;
  constexpr int kTo = kFrom + K::kStage < K::kN ? kFrom + K::kStage : K::kN;
  WF_UNROLL_N(2)
  for (int k = kFrom; k < kTo; ++k) {
    const indexed<T> best = lu_pivot<K>(r, at, k);
    if (code == kOk && best.value == T(0)) code = k + 1;
    if (g == 0) pivots[k] = best.index;
    T* const line = lines + k % 2 * K::kLine;
    WF_UNROLL
    for (int m = 0; m < K::kRows; ++m) {
      const bool wins = at[m] == best.index;
      if (wins) lu_publish<K, kWide>(r[m], b[m], line);
      at[m] = wins ? k : at[m] == k ? best.index : at[m];
    }
    __syncwarp();
    const T pivot = best.value == T(0) ? T(1) : line[0];
    T l[K::kRows];
    WF_UNROLL
    for (int m = 0; m < K::kRows; ++m) {
      l[m] = quotient(at[m] > k ? r[m][0] : T(1), pivot);
      if (at[m] > k) {
        a[(m * K::kG + g) * K::kP + k] = l[m];
        if constexpr (K::kCarried) b[m] = sub(b[m], mul(l[m], line[K::kWhole]));
      }
    }
    lu_update<K, kWide>(r, l, at, line, k);
  }
  if constexpr (Stage + 1 < K::kStages) code = lu_factor<K, Stage + 1>(r, b, at, a, lines, pivots, g, code);
  return code;
}

// Rows to their positions in shared memory, U still scaled: L from the row's own place eight columns at a time (all are
// read before any is written), then U from registers; a carried right-hand side likewise. Returns whether U is finite
// once it is scaled back.
template <typename K, typename T>
WF_DEVICE bool lu_place(const T (&r)[K::kRows][K::kN], const T (&b)[K::kRows], const int (&at)[K::kRows], T* a, T* rhs,
                        int* order, int g, T inverse) {
  T poison = T(0);
  WF_UNROLL_N(1)
  for (int first = 0; first < K::kN; first += 8) {
    T l[K::kRows][8];
    WF_UNROLL
    for (int m = 0; m < K::kRows; ++m)
      WF_UNROLL
      for (int q = 0; q < 8; ++q)
        if (first + q < at[m]) l[m][q] = a[(m * K::kG + g) * K::kP + first + q];
    __syncwarp();
    WF_UNROLL
    for (int m = 0; m < K::kRows; ++m)
      WF_UNROLL
      for (int q = 0; q < 8; ++q)
        if (first + q < at[m]) a[at[m] * K::kP + first + q] = l[m][q];
  }
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    if (at[m] < 0) continue;
    if constexpr (K::kCarried) rhs[at[m]] = b[m];
    else order[at[m]] = m * K::kG + g;
    T* const row = a + at[m] * K::kP + at[m];
    WF_UNROLL
    for (int c = 0; c < K::kN; ++c) {
      if (at[m] + c >= K::kN) continue;
      poison = poisoned(poison, mul(r[m][c], inverse));
      row[c] = r[m][c];
    }
  }
  return poison == T(0);
}

// The second sweep of a right-hand side that was carried through. Returns whether the solution is finite.
template <typename K, typename T>
WF_DEVICE bool lu_finish(const T* a, T* b, int g, T scale) {
  T x[K::kRows], d[K::kRows], v[K::kRows];
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    const int i = min_of(m * K::kG + g, K::kN - 1);
    x[m] = b[i];
    d[m] = a[i * K::kP + i];
    v[m] = reciprocal_of(d[m]);
  }
  __syncwarp();
  sweep_own<K, false>(x, d, v, a, g);
  bool good = true;
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    if (m * K::kG + g >= K::kN) continue;
    const T value = mul(x[m], scale);
    good = good && is_finite(value);
    b[m * K::kG + g] = value;
  }
  return good;
}

// Both sweeps for every right-hand side; the solution replaces it in shared memory. Returns whether all is finite.
template <typename K, typename T>
WF_DEVICE bool lu_sweeps(const T* a, T* b, const T* inverse, const int* order, int g, T scale) {
  const int s = g / K::kAcross, lane = g % K::kAcross;
  bool good = true;
  WF_UNROLL_N(1)
  for (int round = 0; round < K::kRounds; ++round) {
    const int c = round * K::kAcross + lane;
    T x[K::kHeld];
    WF_UNROLL
    for (int m = 0; m < K::kHeld; ++m) {
      const int row = m * K::kGroups + s;
      x[m] = row < K::kN && c < K::kR ? b[order[row] * K::kR + c] : T(0);
    }
    __syncwarp();
    sweep<K, true, false, false>(x, a, inverse, s, lane);
    sweep<K, false, true, false>(x, a, inverse, s, lane);
    WF_UNROLL
    for (int m = 0; m < K::kHeld; ++m) {
      const int row = m * K::kGroups + s;
      if (row >= K::kN || c >= K::kR) continue;
      const T value = mul(x[m], scale);
      good = good && is_finite(value);
      b[row * K::kR + c] = value;
    }
  }
  return good;
}

}  // namespace wf

// As cholesky_warp. `pivots` [batch, N]: row k was exchanged with row pivots[k], both from 0.
template <typename T, int N, int R, int G, int P, int S, bool Vec, int Blocks>
__global__ void __launch_bounds__(32, Blocks)
    lu_warp(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ factor, T* __restrict__ solution,
            int* __restrict__ pivots, int* __restrict__ status, long long batch) {
  using namespace wf;
  typedef small<T, N, R, G, P, S> K;
  static_assert(G > 1, "a pivot's row is found by its lane");
  constexpr bool kVecA = Vec && N * N % K::kChunk == 0, kVecB = Vec && N * R % K::kChunk == 0;
  constexpr int kAll = K::kSystems, kWideA = kVecA ? K::kChunk : 1, kWideB = kVecB ? K::kChunk : 1;
  __shared__ T matrix[kAll * S];
  __shared__ T rhs[R > 0 ? kAll * N * R : 1];
  __shared__ __align__(16) T line[kAll * 2 * K::kLine];
  __shared__ T inverses[kAll];
  __shared__ int order[K::kCarried ? 1 : kAll * N], rows[kAll * N], codes[kAll];
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
  __syncwarp();
  T r[K::kRows][N], carried[K::kRows], scale, inverse;
  int at[K::kRows];
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    at[m] = m * G + g < N ? m * G + g : -1;
    carried[m] = K::kCarried && m * G + g < N ? mine_b[m * G + g] : T(0);
  }
  int code = lu_input<K>(r, mine, mine_b, g, scale, inverse);
  code = lu_factor<K, 0>(r, carried, at, mine, lines, rows + system * N, g, code);
  bool good = lu_place<K>(r, carried, at, mine, mine_b, K::kCarried ? order : order + system * N, g, inverse);
  __syncwarp();
  if constexpr (K::kCarried) {
    good = lu_finish<K>(mine, mine_b, g, scale) && good;
  } else {
    invert_diagonal<K>(mine, lines, g);
    good = lu_sweeps<K>(mine, mine_b, lines, order + system * N, g, scale) && good;
  }
  const bool all_good = group_min<G>(good ? 1 : 0) != 0;
  if (code == kOk && !all_good) code = kNonFiniteIntermediate;
  if (g == 0) codes[system] = code, inverses[system] = inverse;
  __syncwarp();
  stream_out<T, kAll * N * N, kVecA>(factor + first * (N * N), static_cast<u32>(present * N * N), [&](u32 e, T (&x)[kWideA]) {
    const place at = place_of<K>(e);
    WF_UNROLL
    for (int q = 0; q < kWideA; ++q) {
      const place p = place_after<K, kWideA>(at, e, q);
      const T y = codes[p.system] == kOk ? matrix[p.at] : T(0);
      x[q] = p.column >= p.row ? mul(y, inverses[p.system]) : y;
    }
  });
  stream_out<T, kAll * N * R, kVecB>(solution + first * (N * R), static_cast<u32>(present * N * R), [&](u32 e, T (&x)[kWideB]) {
    WF_UNROLL
    for (int q = 0; q < kWideB; ++q) {
      const u32 at = e + static_cast<u32>(q);
      x[q] = codes[at / (N * (R > 0 ? R : 1))] == kOk ? rhs[at] : T(0);
    }
  });
  stream_out<int, kAll * N, false>(pivots + first * N, static_cast<u32>(present * N),
                                   [&](u32 e, int (&x)[1]) { x[0] = codes[e / N] == kOk ? rows[e] : -1; });
  if (lane < present) status[first + lane] = codes[lane];
}
