// Triangular solves over the tree, R right-hand sides at once; contributions are pulled in child order. In sweeps through small
// fronts blockIdx.y is a group of R right-hand sides; wide fronts are wide_sweeps.cu's.
//
//   x   permuted right-hand side, overwritten by the permuted solution; n values a right-hand side.
//   z   the same in pivot order inside each front: L^-1 x after the forward sweep, then the solution.
//   upd what a front passes to its parent, one value a row below, in memory of its own (sizes[1] a right-hand side).
// sizes = {n, rows below of all fronts}. `active` (may be null): the sweep does nothing unless it holds a non-zero.
// A diagonal block is applied through its inverse, which lies transposed above the diagonal of the panel.
//
// Small fronts: one team a subtree or a front. Barriers: own rows read | each child added | pivot order taken |
// each block: its values | rows below updated.
// The order of additions is fixed by the panel and the block shape, so bits repeat, and do not depend on R.
#include "front.cuh"

using namespace wf;

enum : int { kMostRows = 160, kChunk = 16, kTogether = 4 };

template <int Threads, int R, typename T>
WF_DEVICE void forward_front(const Front& f, const Child* children, const i32* maps, const T* panels,
                             const i32* pivots, const T* x, T* z, T* upd, const i64* sizes, T (*t)[kMostRows],
                             T (*y)[kMostRows]) {
  const int rank = team_rank<Threads>();
  const T* panel = panels + f.panel;
  for (int i = rank; i < f.rows; i += Threads)
    for (int r = 0; r < R; ++r) t[r][i] = i < f.width ? x[r * sizes[0] + f.first + i] : T(0);
  team_sync<Threads>();
  // Four children at a time are loaded before any is added; each is added behind a barrier, in order.
  for (int c0 = f.child0; c0 < f.child1; c0 += kTogether) {
    constexpr int kEach = (kMostRows + Threads - 1) / Threads;
    constexpr int kRows = Threads == kWarp ? 1 : kEach;
    int to[kTogether][kRows];
    T add[kTogether][kRows][R];
    WF_UNROLL
    for (int q = 0; q < kTogether; ++q) {
      const Child child = c0 + q < f.child1 ? children[c0 + q] : Child{};
      WF_UNROLL
      for (int h = 0; h < kRows; ++h) {
        const int i = rank + h * Threads;
        to[q][h] = i < child.below ? maps[child.map + i] : -1;
        for (int r = 0; r < R; ++r) add[q][h][r] = i < child.below ? upd[r * sizes[1] + child.map + i] : T(0);
      }
    }
    WF_UNROLL
    for (int q = 0; q < kTogether; ++q) {
      if (c0 + q >= f.child1) continue;
      WF_UNROLL
      for (int h = 0; h < kRows; ++h)
        if (to[q][h] >= 0)
          for (int r = 0; r < R; ++r) t[r][to[q][h]] += add[q][h][r];
      team_sync<Threads>();
    }
  }
  for (int k = rank; k < f.width; k += Threads) {
    const int from = pivots[2 * (f.first + k)];
    for (int r = 0; r < R; ++r) y[r][k] = t[r][from];
  }
  team_sync<Threads>();
  for (int k0 = 0; k0 < f.width; k0 += kPanel) {
    const int size = min_of(kPanel, f.width - k0);
    if (rank < size) {
      T v[R];
      for (int r = 0; r < R; ++r) v[r] = y[r][k0 + rank];
      const T* inverse = panel + static_cast<i64>(k0 + rank) * f.ld + k0;
      for (int c = 0; c < rank; c += kChunk) {
        T l[kChunk];
        WF_UNROLL
        for (int k = 0; k < kChunk; ++k) l[k] = c + k < rank ? inverse[c + k] : T(0);
        WF_UNROLL
        for (int k = 0; k < kChunk; ++k)
          if (c + k < rank)
            for (int r = 0; r < R; ++r) v[r] = fma(l[k], y[r][k0 + c + k], v[r]);
      }
      for (int r = 0; r < R; ++r) z[r * sizes[0] + f.first + k0 + rank] = t[r][k0 + rank] = v[r];
    }
    team_sync<Threads>();
    // t holds the solved block; the rows behind it live in y (own rows) and t (rows below).
    for (int i = k0 + size + rank; i < f.rows; i += Threads) {
      T sum[R] = {};
      for (int c = 0; c < size; c += kChunk) {
        T l[kChunk];
        WF_UNROLL
        for (int k = 0; k < kChunk; ++k) l[k] = c + k < size ? panel[static_cast<i64>(k0 + c + k) * f.ld + i] : T(0);
        WF_UNROLL
        for (int k = 0; k < kChunk; ++k)
          if (c + k < size)
            for (int r = 0; r < R; ++r) sum[r] = fma(l[k], t[r][k0 + c + k], sum[r]);
      }
      for (int r = 0; r < R; ++r) {
        if (i < f.width) y[r][i] -= sum[r];
        else t[r][i] -= sum[r];
      }
    }
    team_sync<Threads>();
  }
  for (int i = f.width + rank; i < f.rows; i += Threads)
    for (int r = 0; r < R; ++r) upd[r * sizes[1] + f.map + i - f.width] = t[r][i];
  team_sync<Threads>();
}

template <typename T, int Threads, int R>
__global__ void __launch_bounds__(Threads)
    forward_fronts(const Item* items, const Front* fronts, const Child* children, const i32* maps, const T* panels,
                   const i32* pivots, const T* x, T* z, T* upd, const i32* active, const i64* sizes) {
  grid_release();
  const Item item = items[blockIdx.x];
  grid_wait();
  __shared__ T t[R][kMostRows], y[R][kMostRows];
  if (active != nullptr && *active == 0) return;
  const i64 group = static_cast<i64>(blockIdx.y) * R;
  x += group * sizes[0], z += group * sizes[0], upd += group * sizes[1];
  for (int s = item.front; s <= item.last; ++s)
    forward_front<Threads, R>(fronts[s], children, maps, panels, pivots, x, z, upd, sizes, t, y);
}

// D^-1 applied to entry k of z; both columns of a 2x2 pivot are computed from both entries. Zero pivots give zero.
template <typename T>
WF_DEVICE T divide(const T* z, const T* diagonal, const i32* pivots, i64 k) {
  const int kind = pivots[2 * k + 1];
  if (kind == 1) return z[k] / diagonal[2 * k];
  if (kind == 0) return T(0);
  const i64 partner = kind == 2 ? k + 1 : k - 1;
  const T off = diagonal[2 * (kind == 2 ? k : partner) + 1], mine = diagonal[2 * k] / off;
  const T theirs = diagonal[2 * partner] / off;
  return (theirs * z[k] - z[partner]) / ((mine * theirs - T(1)) * off);
}

template <int Threads, int R, typename T>
WF_DEVICE void backward_front(const Front& f, const i32* below_ind, const T* panels, const T* diagonal,
                              const i32* pivots, T* x, const T* z, const i64* sizes, T (*t)[kMostRows],
                              T (*y)[kMostRows]) {
  const int rank = team_rank<Threads>(), lane = rank % kWarp, warp = rank / kWarp;
  const T* panel = panels + f.panel;
  for (int i = rank; i < f.rows; i += Threads)
    for (int r = 0; r < R; ++r)
      t[r][i] = i < f.width ? divide(z + r * sizes[0], diagonal, pivots, f.first + i)
                            : x[r * sizes[0] + below_ind[f.map + i - f.width]];
  team_sync<Threads>();
  for (int k0 = (f.width - 1) / kPanel * kPanel; k0 >= 0; k0 -= kPanel) {
    const int size = min_of(kPanel, f.width - k0);
    for (int c = Threads == kWarp ? lane : warp; c < size; c += Threads == kWarp ? kWarp : Threads / kWarp) {
      const T* column = panel + static_cast<i64>(k0 + c) * f.ld;
      constexpr int kStep = Threads == kWarp ? 1 : kWarp, kLoads = Threads == kWarp ? kChunk : 5;
      T sum[R] = {};
      for (int i0 = k0 + size + (Threads == kWarp ? 0 : lane); i0 < f.rows; i0 += kStep * kLoads) {
        T l[kLoads];
        WF_UNROLL
        for (int q = 0; q < kLoads; ++q) l[q] = i0 + q * kStep < f.rows ? column[i0 + q * kStep] : T(0);
        WF_UNROLL
        for (int q = 0; q < kLoads; ++q)
          if (i0 + q * kStep < f.rows)
            for (int r = 0; r < R; ++r) sum[r] = fma(l[q], t[r][i0 + q * kStep], sum[r]);
      }
      for (int r = 0; r < R; ++r) {
        if (Threads != kWarp) sum[r] = warp_sum(sum[r]);
        if (Threads == kWarp || lane == 0) y[r][c] = t[r][k0 + c] - sum[r];
      }
    }
    team_sync<Threads>();
    if (rank < size) {
      T v[R];
      for (int r = 0; r < R; ++r) v[r] = y[r][rank];
      for (int c = 1; c < size; c += kChunk) {
        T l[kChunk];
        WF_UNROLL
        for (int k = 0; k < kChunk; ++k)
          l[k] = c + k > rank && c + k < size ? panel[static_cast<i64>(k0 + c + k) * f.ld + k0 + rank] : T(0);
        WF_UNROLL
        for (int k = 0; k < kChunk; ++k)
          if (c + k > rank && c + k < size)
            for (int r = 0; r < R; ++r) v[r] = fma(l[k], y[r][c + k], v[r]);
      }
      const int to = pivots[2 * (f.first + k0 + rank)];
      for (int r = 0; r < R; ++r) t[r][k0 + rank] = v[r], x[r * sizes[0] + f.first + to] = v[r];
    }
    team_sync<Threads>();
  }
}

// Subtrees are walked from the root down.
template <typename T, int Threads, int R>
__global__ void __launch_bounds__(Threads)
    backward_fronts(const Item* items, const Front* fronts, const i32* below_ind, const T* panels, const T* diagonal,
                    const i32* pivots, T* x, const T* z, const i32* active, const i64* sizes) {
  grid_release();
  const Item item = items[blockIdx.x];
  grid_wait();
  __shared__ T t[R][kMostRows], y[R][kMostRows];
  if (active != nullptr && *active == 0) return;
  const i64 group = static_cast<i64>(blockIdx.y) * R;
  x += group * sizes[0], z += group * sizes[0];
  for (int s = item.last; s >= item.front; --s)
    backward_front<Threads, R>(fronts[s], below_ind, panels, diagonal, pivots, x, z, sizes, t, y);
}
