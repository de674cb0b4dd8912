// LU solve of many tiny systems with partial pivoting, P A = L U: one warp to a block, 32 / G systems to a warp.
//
// A lane owns the rows at positions g, g + G, ... of one system in registers, columns from the block in work on. Rows are
// exchanged: the lane that has the pivot publishes its row in a line, the lane whose place the pivot takes hands its own
// over in another. So rows retire in order, updates need no test, a register of a row always has the same column, and U lies
// where the sweeps want it. The pivot's row is read back as 16-byte broadcasts: one serves N / G rows of every system.
// Columns go four at a time (two in float64): the last of them shifts the registers, so a loop over such blocks has constant
// registers. The matrix is first scaled by a power of two that brings its largest |entry| near 1 (exact; 1 / largest would
// overflow below 2.94e-39); U is scaled back on its way out.
//
// Shared layout: `matrix` as in packed.cuh (its pitch an odd number of chunks); `right` N x R; `line` pivot's and displaced
// row, two of each; `inverses` 1 / |diagonal of U|; `pivots` where row k went; `order` which row of b has come to a position
// (several right-hand sides; a single one travels with its row).
//
// Barriers (of the warp), each after the writes it publishes: copies -> check; check (rows of lanes that repeat one) ->
// factor; pivot's and displaced row -> their use (with two lines this also separates a line's last read from the write two
// steps later; rows of L are exchanged after it, so after the stores of their block); factor -> sweeps; right-hand sides
// read (in their order) -> solutions; sweep -> the plain way or zeros for a failed system -> write-out.
//
// Literature: Golub and Van Loan, Matrix Computations, 4th ed., algorithm 3.4.1 (outer products, partial pivoting);
// Markstein, "Computation of elementary functions on the IBM RISC System/6000" (1990), for quotients corrected by their
// remainder; Abdelfattah et al., "Batched one-sided factorizations of tiny matrices using GPUs" (2018).
#include "lu_sweeps.cuh"
#include "plain.cuh"

namespace wf {

// Status of the input; rows scaled, zeros in the place of rows and columns beyond the matrix.
template <typename K, typename T>
WF_DEVICE int lu_input(rows<K, T>& h, const places<T>& s, int g) {
  constexpr int V = K::kChunk;
  T largest = T(0), poison = T(0);
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    const int i = m * K::kG + g;
    const bool inside = K::kN % K::kG == 0 || i < K::kN;
    WF_UNROLL
    for (int first = 0; first < K::kWhole; first += V) {
      T w[V];
      if constexpr (K::kAligned) unpack(load16(s.a + K::at(inside ? i : 0, first)), w);
      WF_UNROLL
      for (int q = 0; q < V; ++q) {
        const int c = first + q;
        T x = T(0);
        if (c < K::kN) x = K::kAligned ? w[q] : s.a[K::at(inside ? i : 0, c)];
        largest = nan_larger(largest, size_of(x));
        h.r[m][c] = inside ? x : T(0);
      }
    }
    h.b[m] = T(0);
    if (K::kCarried && inside) h.b[m] = s.right[i];
    poison = poisoned(poison, h.b[m]);
  }
  if constexpr (K::kR > 1) {
    WF_UNROLL_N(4)
    for (int e = g; e < K::kN * K::kR; e += K::kG) poison = poisoned(poison, s.right[e]);
    WF_UNROLL
    for (int m = 0; m < K::kRows; ++m)
      if (m * K::kG + g < K::kN) s.order[m * K::kG + g] = m * K::kG + g;
  }
  largest = group_nan_max<K::kG>(poison == T(0) ? largest : infinity_of(T(0)));
  const int code = is_finite(largest) ? kOk : kNonFiniteInput;
  power_scale(code == kOk ? largest : T(0), h.scale, h.inverse);
  h.doubts = no_doubt<T>();
  h.doubts.odd = !is_moderate(largest);
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m)
    WF_UNROLL
    for (int c = 0; c < K::kWhole; ++c) h.r[m][c] = mul(h.r[m][c], h.scale);
  return code;
}

// The position, from k on, of the greatest |column q|; of equal ones the lowest. All lanes.
template <typename K, int Owner, int Q, typename T>
WF_DEVICE int lu_search(rows<K, T>& h, int k, int g) {
  T best = T(-1);
  int at = k;
  WF_UNROLL
  for (int m = Owner; m < K::kRows; ++m) {
    const int i = m * K::kG + g;
    T v = size_of(h.r[m][Q]);
    if (m == Owner) v = i >= k ? v : T(-1);
    if (K::kN % K::kG != 0 && m == K::kRows - 1) v = i < K::kN ? v : T(-1);
    const bool wins = v > best;
    best = wins ? v : best;
    at = wins ? i : at;
  }
  const T found = group_max<K::kG>(best);
  h.doubts.odd = h.doubts.odd || !(found > T(0));
  return group_min<K::kG>(best == found ? at : kNone);
}

// Columns of a row from the block's first on, to a line; a carried right-hand side behind them.
template <typename K, int Wide, typename T>
WF_DEVICE void lu_write(const T (&r)[K::kWhole], T b, T* line) {
  constexpr int V = K::kChunk;
  WF_UNROLL
  for (int first = 0; first < Wide; first += V) {
    T w[V];
    WF_UNROLL
    for (int q = 0; q < V; ++q) w[q] = r[first + q];
    store16(line + first, packed(w));
  }
  if constexpr (K::kCarried) line[K::kLong] = b;
}

// The pivot's row to a line, and to place k; the row that was there by way of another line to the pivot's place. Barrier
// within. Returns the pivot's line.
template <typename K, int From, typename T>
WF_DEVICE const T* lu_exchange(rows<K, T>& h, const places<T>& s, int j, int k, int p, int g) {
  constexpr int V = K::kChunk, kOwner = From / K::kG, kWide = K::kWhole - From;
  T* const line = s.lines + k % 2 * 2 * K::kLine;
  T* const other = line + K::kLine;
  WF_UNROLL
  for (int m = kOwner; m < K::kRows; ++m)
    if (p == m * K::kG + g) lu_write<K, kWide>(h.r[m], h.b[m], line);
  if (p != k && g == k % K::kG) lu_write<K, kWide>(h.r[kOwner], h.b[kOwner], other);
  if (g == 0) {
    s.pivots[k] = p;
    if constexpr (K::kR > 1) {
      const int from = s.order[k];
      s.order[k] = s.order[p];
      s.order[p] = from;
    }
  }
  __syncwarp();
  WF_UNROLL
  for (int first = 0; first < kWide; first += K::kG * V) {
    const int c = first + g * V;
    if (j + c < K::kWhole) store16(s.a + K::at(k, j + c), load16(line + c));
  }
  if (p == k) return line;
  WF_UNROLL
  for (int m = kOwner; m < K::kRows; ++m)
    if (p == m * K::kG + g) {
      WF_UNROLL
      for (int first = 0; first < kWide; first += V) {
        T w[V];
        unpack(load16(other + first), w);
        WF_UNROLL
        for (int q = 0; q < V; ++q) h.r[m][first + q] = w[q];
      }
      if constexpr (K::kCarried) h.b[m] = other[K::kLong];
    }
  WF_UNROLL_N(1)
  for (int c = g * V; c < j; c += K::kG * V) {
    const vec16 up = load16(s.a + K::at(k, c)), low = load16(s.a + K::at(p, c));
    store16(s.a + K::at(k, c), low);
    store16(s.a + K::at(p, c), up);
  }
  return line;
}

// Column k = j + Q of the block that begins with column j.
template <typename K, int From, int Q, typename T>
WF_DEVICE void lu_step(rows<K, T>& h, const places<T>& s, int j, int g) {
  constexpr int V = K::kChunk, kOwner = From / K::kG, kWide = K::kWhole - From;
  const int k = j + Q, p = lu_search<K, kOwner, Q>(h, k, g);
  const T* const line = lu_exchange<K, From>(h, s, j, k, p, g);
  T w[V], size, v, l[K::kRows];
  unpack(load16(line), w);
  reciprocal(w[Q], size, v, h.doubts);
  const T sign = w[Q] < T(0) ? T(-1) : T(1);
  const bool under = g > k % K::kG;
  if (g == k % K::kG) s.inverse[k] = v;
  WF_UNROLL
  for (int m = kOwner; m < K::kRows; ++m) {
    l[m] = mul(over(m > kOwner || under ? h.r[m][Q] : T(0), size, v, h.doubts), sign);
    h.r[m][Q] = l[m];
  }
  if constexpr (K::kCarried) {
    const T y = line[K::kLong];
    WF_UNROLL
    for (int m = kOwner; m < K::kRows; ++m)
      if (m > kOwner || under) h.b[m] = sub(h.b[m], mul(l[m], y));
      else if (g == k % K::kG) h.b[m] = y;
  }
  WF_UNROLL
  for (int q = Q + 1; q < V; ++q)
    WF_UNROLL
    for (int m = kOwner; m < K::kRows; ++m) h.r[m][q] = sub(h.r[m][q], mul(l[m], w[q]));
  constexpr bool kShift = Q == V - 1;
  if constexpr (kShift) {
    WF_UNROLL
    for (int m = kOwner; m < K::kRows; ++m) {
      T done[V];
      WF_UNROLL
      for (int q = 0; q < V; ++q) done[q] = h.r[m][q];
      const bool inside = K::kN % K::kG == 0 || m * K::kG + g < K::kN;
      if ((m > kOwner || under) && inside) store16(s.a + K::at(m * K::kG + g, j), packed(done));
    }
  }
  WF_UNROLL
  for (int first = V; first < kWide; first += V) {
    unpack(load16(line + first), w);
    WF_UNROLL
    for (int q = 0; q < V; ++q)
      WF_UNROLL
      for (int m = kOwner; m < K::kRows; ++m)
        h.r[m][kShift ? first + q - V : first + q] = sub(h.r[m][first + q], mul(l[m], w[q]));
  }
}

template <typename K, int From, int Q, typename T>
WF_DEVICE void lu_steps(rows<K, T>& h, const places<T>& s, int j, int g) {
  if constexpr (Q < K::kChunk) {
    if (K::kAligned || j + Q < K::kN) lu_step<K, From, Q>(h, s, j, g);
    lu_steps<K, From, Q + 1>(h, s, j, g);
  }
}

template <typename K, int From, typename T>
WF_DEVICE void lu_factor(rows<K, T>& h, const places<T>& s, int g) {
  constexpr int kTo = From + K::kStage < K::kN ? From + K::kStage : K::kN;
  WF_UNROLL_N(1)
  for (int j = From; j < kTo; j += K::kChunk) lu_steps<K, From, 0>(h, s, j, g);
  if constexpr (From + K::kStage < K::kN) lu_factor<K, From + K::kStage>(h, s, g);
}

}  // namespace wf

// As cholesky_packed. `pivots` [batch, N]: row k was exchanged with row pivots[k], both from 0.
template <typename T, int N, int R, int G, int P, int S, bool Vec, int Blocks, int Stage>
__global__ void __launch_bounds__(32, Blocks)
    lu_packed(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ factor, T* __restrict__ solution,
              int* __restrict__ pivots, int* __restrict__ status, long long batch) {
  using namespace wf;
  typedef tile<T, N, R, G, P, S, Stage> K;
  static_assert(!K::kSwizzled, "the sweeps go from row to row by the pitch");
  constexpr int kAll = K::kSystems;
  __shared__ __align__(16) T matrix[K::kMatrices];
  __shared__ __align__(16) T line[kAll * K::lines(4)];
  __shared__ __align__(16) T right[K::kRights];
  __shared__ T inverses[kAll * K::kInverses], factors[kAll];
  __shared__ int rows_of[kAll * N], orders[R > 1 ? kAll * K::kInverses : 1];
  const i64 first = static_cast<i64>(blockIdx.x) * kAll;
  if (first >= batch) return;
  const int present = static_cast<int>(min_of<i64>(kAll, batch - first));
  const int lane = static_cast<int>(threadIdx.x), g = lane % G, system = lane / G;
  const places<T> s = {matrix + system * S, right + system * K::kRight, inverses + system * K::kInverses,
                       line + system * K::lines(4), rows_of + system * N, orders + (R > 1 ? system * K::kInverses : 0)};
  load_matrices<K, Vec>(matrix, a + first * (N * N), present);
  load_right<K, Vec>(right, b + first * (N * R), present);
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();
  rows<K, T> h;
  int code = lu_input<K>(h, s, g);
  __syncwarp();
  lu_factor<K, 0>(h, s, g);
  __syncwarp();
  if constexpr (K::kCarried) lu_finish<K>(h, s, g);
  if constexpr (K::kExtra > 0) lu_sweeps<K>(h, s, g);
  const bool here = system < present && code == kOk;
  if (__any_sync(kFullMask, here && !is_sure(h.doubts))) {
    __syncwarp();
    plain_load<K>(a + (first + system) * (N * N), b + (first + system) * (N * R), here, s.a, s.right, g, h.scale, T(0));
    const int failed = plain_lu<K>(s.a, s.right, s.pivots, g);
    bool good = plain_solve<K, false>(s.a, s.right, g, h.scale);
    good = plain_finite<K>(s.a, g, h.inverse) && good;
    const int verdict = failed != kOk ? failed : good ? kOk : kNonFiniteIntermediate;
    code = code == kOk ? verdict : code;
  }
  __syncwarp();
  if (code != kOk) {
    clear_system<K>(s.a, s.right, g);
    WF_UNROLL_N(1)
    for (int k = g; k < N; k += G) s.pivots[k] = -1;
  }
  if (g == 0) factors[system] = h.inverse;
  __syncwarp();
  store_matrices<K, Vec, false>(factor + first * (N * N), matrix, factors, present);
  store_right<K, Vec>(solution + first * (N * R), right, present);
  WF_UNROLL_N(1)
  for (int e = lane; e < present * N; e += kWarp) pivots[first * N + e] = rows_of[e];
  if (g == 0 && system < present) status[first + system] = code;
}
