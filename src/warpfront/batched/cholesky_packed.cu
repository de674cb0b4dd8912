// Cholesky solve of many tiny systems, A = L L^T, L y = b, L^T x = y: one warp to a block, 32 / G systems to a warp.
//
// A lane owns rows g, g + G, ... of one system in registers and updates them column by column (right-looking), so the
// products reach an element in increasing k. A column of L goes to the other lanes of its system through shared memory and
// is read back as 16-byte broadcasts: one broadcast serves N / G rows of every system, which is why few lanes to a
// system take few instructions. Four columns of L (two in float64) go to their place in one 16-byte store. The
// column in work is register 0 of every row, so a loop over columns has constant registers. Right-hand sides pass through the
// factorisation: a single one as one more column, several as rows of their own, one to a lane, which makes the
// forward sweep free of loads; the backward sweep reads rows of L.
//
// Shared layout: `matrix` as in packed.cuh; `right` N x R; `line` a column of L, two buffers; `inverses` 1 / diagonal (a
// single right-hand side, in registers meanwhile, leaves them its place).
//
// Barriers (of the warp), each after the writes it publishes: copies -> check; check (reads across rows) -> factor;
// column -> its use (with two lines this also separates a column's last read from the write two columns later); factor
// -> backward sweep; reciprocals read (by lanes that repeat the last row) -> solutions in their place; right-hand sides
// read (twice where R is no multiple of G) -> solutions; sweep -> the plain way or zeros for a failed system -> write-out.
// In the plain way: copies -> pivot; pivot read -> column; column -> update -> next.
//
// Literature: Golub and Van Loan, Matrix Computations, 4th ed., algorithm 4.2.2 (outer products); Markstein, "Computation
// of elementary functions on the IBM RISC System/6000" (1990), for quotients corrected by their remainder; Haidar et al.,
// "A guide for achieving high performance with very small matrices on GPU" (2018), for rows in registers.
#include "packed.cuh"
#include "plain.cuh"

namespace wf {

template <typename K, typename T>
struct held {
  T r[K::kRows][K::kN];
  T b[K::kRows];
  T e[K::kExtra > 0 ? K::kExtra : 1][K::kN];
  doubt<T> doubts;
};

template <typename K, typename T>
WF_DEVICE int cholesky_input(held<K, T>& h, const T* a, const T* b, int g, T shift, T rtol, T atol) {
  constexpr int V = K::kChunk;
  T poison = T(0), largest = T(0), apart = T(0);
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    const int i = min_of(m * K::kG + g, K::kN - 1);
    WF_UNROLL
    for (int first = 0; first < K::columns(m); first += V) {
      T w[V];
      if constexpr (K::kAligned) unpack(load16(a + K::at(i, first)), w);
      WF_UNROLL
      for (int q = 0; q < V; ++q) {
        const int c = first + q;
        if (c >= K::columns(m)) continue;
        const T x = K::kAligned ? w[q] : a[K::at(i, c)];
        const T mirror = a[K::kN % K::kG == 0 ? K::across(c, m, g) : K::at(c, i)];
        largest = nan_larger(nan_larger(largest, size_of(x)), size_of(mirror));
        apart = larger(apart, size_of(sub(x, mirror)));
        h.r[m][c] = x;
      }
    }
    h.b[m] = K::kCarried ? b[i] : T(0);
    poison = poisoned(poison, h.b[m]);
  }
  WF_UNROLL
  for (int x = 0; x < K::kExtra; ++x) {
    const int c = min_of(x * K::kG + g, K::kR - 1);
    WF_UNROLL
    for (int k = 0; k < K::kN; ++k) {
      h.e[x][k] = b[k * K::kR + c];
      poison = poisoned(poison, h.e[x][k]);
    }
  }
  largest = group_nan_max<K::kG>(poison == T(0) ? largest : infinity_of(T(0)));
  apart = group_max<K::kG>(apart);
  if (shift != T(0)) {
    WF_UNROLL
    for (int m = 0; m < K::kRows; ++m) {
      WF_UNROLL
      for (int c = 0; c < K::kN; ++c)
        if (c < K::columns(m)) h.r[m][c] = m * K::kG + g == c ? add(h.r[m][c], shift) : h.r[m][c];
    }
  }
  h.doubts = no_doubt<T>();
  h.doubts.odd = !is_moderate(largest);
  return !is_finite(largest) ? kNonFiniteInput : apart <= add(atol, mul(rtol, largest)) ? kOk : kNotSymmetric;
}

// Wide: columns that may still be at work after this step.
template <typename K, int Owner, int Wide, typename T>
WF_DEVICE void cholesky_update(held<K, T>& h, const T (&l)[K::kRows], const T (&y)[K::kExtra > 0 ? K::kExtra : 1],
                               const T* column) {
  constexpr int V = K::kChunk;
  WF_UNROLL
  for (int first = 0; first < Wide; first += V) {
    T w[V];
    unpack(load16(column + first), w);
    WF_UNROLL
    for (int q = 0; q < V; ++q) {
      const int c = first + q;
      if (c >= Wide) continue;
      WF_UNROLL
      for (int m = Owner; m < K::kRows; ++m)
        if (c < K::columns(m) - (K::kN - Wide)) h.r[m][c] = sub(h.r[m][c + 1], mul(l[m], w[q]));
      WF_UNROLL
      for (int x = 0; x < K::kExtra; ++x) h.e[x][c] = sub(h.e[x][c + 1], mul(y[x], w[q]));
    }
  }
}

template <typename K, int From, int Q, typename T>
WF_DEVICE void cholesky_step(held<K, T>& h, T (&low)[K::kRows][K::kChunk], T* b, T* inverse, T* lines, int j, int g) {
  constexpr int kOwner = From / K::kG;
  constexpr int E = K::kExtra > 0 ? K::kExtra : 1;
  T* const column = lines + j % 2 * K::kLine;
  T* const slot = column + (g - j - 1);
  const T p = share<K::kG>(h.r[kOwner][0], j % K::kG);
  T d, v, q[K::kRows], l[K::kRows], y[E];
  root_and_reciprocal(p, d, v, h.doubts);
  const bool under = g > j % K::kG, mine = g == j % K::kG;
  WF_UNROLL
  for (int m = kOwner; m < K::kRows; ++m)
    q[m] = over(m > kOwner || under ? h.r[m][0] : K::kCarried ? h.b[m] : T(1), d, v, h.doubts);
  WF_UNROLL
  for (int x = 0; x < K::kExtra; ++x) y[x] = over(h.e[x][0], d, v, h.doubts);
  WF_UNROLL
  for (int m = kOwner; m < K::kRows; ++m) {
    const bool below = m > kOwner || under;
    l[m] = below ? q[m] : T(0);
    if (below) slot[m * K::kG] = q[m];
    low[m][Q] = m > kOwner ? q[m] : mine ? d : l[m];
  }
  if (mine) {
    inverse[j] = v;
    if constexpr (K::kCarried) column[K::kLong] = h.b[kOwner] = q[kOwner];
  }
  WF_UNROLL
  for (int x = 0; x < K::kExtra; ++x)
    if (x * K::kG + g < K::kR) b[j * K::kR + x * K::kG + g] = y[x];
  __syncwarp();
  if constexpr (K::kCarried) {
    const T z = column[K::kLong];
    WF_UNROLL
    for (int m = kOwner; m < K::kRows; ++m)
      if (m > kOwner || under) h.b[m] = sub(h.b[m], mul(l[m], z));
  }
  cholesky_update<K, kOwner, K::kN - From - Q - 1>(h, l, y, column);
}

template <typename K, int From, int Q, typename T>
WF_DEVICE void cholesky_steps(held<K, T>& h, T (&low)[K::kRows][K::kChunk], T* b, T* inverse, T* lines, int j, int g) {
  if constexpr (Q < K::kChunk && From + Q < K::kN) {
    if (K::kN % K::kStage == 0 || j + Q < K::kN) cholesky_step<K, From, Q>(h, low, b, inverse, lines, j + Q, g);
    cholesky_steps<K, From, Q + 1>(h, low, b, inverse, lines, j, g);
  }
}

template <typename K, int From, typename T>
WF_DEVICE void cholesky_factor(held<K, T>& h, T* a, T* b, T* inverse, T* lines, int g) {
  constexpr int kTo = From + K::kStage < K::kN ? From + K::kStage : K::kN;
  WF_UNROLL_N(1)
  for (int j = From; j < kTo; j += K::kChunk) {
    T low[K::kRows][K::kChunk];
    WF_UNROLL
    for (int m = 0; m < K::kRows; ++m)
      WF_UNROLL
      for (int q = 0; q < K::kChunk; ++q) low[m][q] = T(0);
    cholesky_steps<K, From, 0>(h, low, b, inverse, lines, j, g);
    WF_UNROLL
    for (int m = From / K::kG; m < K::kRows; ++m)
      if (K::kN % K::kG == 0 || m * K::kG + g < K::kN) store16(a + K::at(m * K::kG + g, j), packed(low[m]));
  }
  if constexpr (From + K::kStage < K::kN) cholesky_factor<K, From + K::kStage>(h, a, b, inverse, lines, g);
}

// One right-hand side.
template <typename K, typename T>
WF_DEVICE void cholesky_back(held<K, T>& h, const T* a, const T* inverse, T* b, int g) {
  T(&x)[K::kRows] = h.b;
  T d[K::kRows], v[K::kRows];
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    const int i = min_of(m * K::kG + g, K::kN - 1);
    d[m] = a[K::at(i, i)];
    v[m] = inverse[i];
  }
  if constexpr (K::kN % K::kG != 0) __syncwarp();
  WF_UNROLL
  for (int block = 0; block < K::kRows; ++block) {
    const int mk = K::kRows - 1 - block, steps = K::columns(mk) - mk * K::kG;
    WF_UNROLL_N(8)
    for (int step = 0; step < steps; ++step) {
      const int sk = steps - 1 - step, k = mk * K::kG + sk;
      const T own = over(x[mk], d[mk], v[mk], h.doubts);
      const T t = share<K::kG>(own, sk);
      x[mk] = g == sk ? own : x[mk];
      WF_UNROLL
      for (int m = 0; m < K::kRows; ++m)
        if (m < mk || (m == mk && g < sk)) x[m] = sub(x[m], mul(a[K::across(k, m, g)], t));
    }
  }
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    if (m * K::kG + g >= K::kN) continue;
    h.doubts.poison = poisoned(h.doubts.poison, x[m]);
    b[m * K::kG + g] = x[m];
  }
}

// Several: a lane has whole columns. Row k of x is done; the rows above take its products.
template <typename K, int Row, typename T>
WF_DEVICE void cholesky_back_rows(T (&x)[K::kN], doubt<T>& doubts, const T* a, const T* inverse) {
  constexpr int V = K::kChunk, kLast = Row / V * V;
  T w[V];
  unpack(load16(a + K::at(Row, kLast)), w);
  x[Row] = over(x[Row], w[Row % V], inverse[Row], doubts);
  doubts.poison = poisoned(doubts.poison, x[Row]);
  WF_UNROLL
  for (int first = kLast; first >= 0; first -= V) {
    if (first < kLast) unpack(load16(a + K::at(Row, first)), w);
    WF_UNROLL
    for (int q = 0; q < V; ++q)
      if (first + q < Row) x[first + q] = sub(x[first + q], mul(w[q], x[Row]));
  }
  if constexpr (Row > 0) cholesky_back_rows<K, Row - 1>(x, doubts, a, inverse);
}
template <typename K, typename T>
WF_DEVICE void cholesky_back(doubt<T>& doubts, const T* a, const T* inverse, T* b, int g) {
  WF_UNROLL_N(1)
  for (int e = 0; e < K::kExtra; ++e) {
    const int c = min_of(e * K::kG + g, K::kR - 1);
    T x[K::kN];
    WF_UNROLL
    for (int k = 0; k < K::kN; ++k) x[k] = b[k * K::kR + c];
    __syncwarp();
    cholesky_back_rows<K, K::kN - 1>(x, doubts, a, inverse);
    WF_UNROLL
    for (int k = 0; k < K::kN; ++k)
      if (e * K::kG + g < K::kR) b[k * K::kR + c] = x[k];
  }
}

}  // namespace wf

template <typename T, int N, int R, int G, int P, int S, bool Vec, int Blocks, int Stage>
__global__ void __launch_bounds__(32, Blocks)
    cholesky_packed(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ factor, T* __restrict__ solution,
                  int* __restrict__ status, long long batch, T shift, T rtol, T atol) {
  using namespace wf;
  typedef tile<T, N, R, G, P, S, Stage> K;
  constexpr int kAll = K::kSystems;
  __shared__ __align__(16) T matrix[K::kMatrices];
  __shared__ __align__(16) T line[kAll * K::lines(2)];
  __shared__ T inverses[K::kCarried ? 1 : kAll * K::kInverses];
  __shared__ __align__(16) T right[K::kRights];
  const i64 first = static_cast<i64>(blockIdx.x) * kAll;
  if (first >= batch) return;
  const int present = static_cast<int>(min_of<i64>(kAll, batch - first));
  const int lane = static_cast<int>(threadIdx.x), g = lane % G, system = lane / G;
  T* const mine = matrix + system * S;
  T* const mine_right = right + system * K::kRight;
  T* const lines = line + system * K::lines(2);
  T* const inverse = K::kCarried ? mine_right : inverses + system * K::kInverses;
  load_matrices<K, Vec>(matrix, a + first * (N * N), present);
  load_right<K, Vec>(right, b + first * (N * R), present);
  WF_UNROLL_N(1)
  for (int e = g * K::kChunk; e < 2 * K::kLine; e += G * K::kChunk) store16(lines + e, zero16());
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();
  held<K, T> h;
  int code = cholesky_input<K>(h, mine, mine_right, g, shift, rtol, atol);
  __syncwarp();
  cholesky_factor<K, 0>(h, mine, mine_right, inverse, lines, g);
  __syncwarp();
  if constexpr (K::kCarried) cholesky_back<K>(h, mine, inverse, mine_right, g);
  if constexpr (K::kExtra > 0) cholesky_back<K>(h.doubts, mine, inverse, mine_right, g);
  if (__any_sync(kFullMask, system < present && code == kOk && !is_sure(h.doubts))) {
    __syncwarp();
    plain_load<K>(a + (first + system) * (N * N), b + (first + system) * (N * R), system < present, mine, mine_right, g,
                  T(1), shift);
    const int failed = plain_cholesky<K>(mine, g);
    const bool good = plain_solve<K, true>(mine, mine_right, g, T(1));
    const int verdict = failed != kOk ? failed : good ? kOk : kNonFiniteIntermediate;
    code = code == kOk ? verdict : code;
  }
  __syncwarp();
  if (code != kOk) clear_system<K>(mine, mine_right, g);
  __syncwarp();
  store_matrices<K, Vec, true, T>(factor + first * (N * N), matrix, nullptr, present);
  store_right<K, Vec>(solution + first * (N * R), right, present);
  if (g == 0 && system < present) status[first + system] = code;
}
