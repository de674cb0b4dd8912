// Triangular solves over the tree, R right-hand sides at once; contributions are pulled in child order. In sweeps through small
// fronts blockIdx.y is a group of R right-hand sides; wide fronts of a symmetric factor are wide_sweeps.cu's.
//
//   x   permuted right-hand side, overwritten by the permuted solution; n values a right-hand side.
//   z   the same in pivot order inside each front: L^-1 x after the forward sweep, then the solution.
//   upd what a front passes to its parent, one value a row below, in memory of its own (sizes[1] a right-hand side).
// sizes = {n, rows below of all fronts}. `active` (may be null): the sweep does nothing unless it holds a non-zero.
// A diagonal block is applied through its inverse, which lies transposed above the diagonal of the panel.
//
// Small fronts: one team a subtree or a front. Barriers: own rows read | each child added | pivot order taken |
// each block: its values | rows below updated.
// Wide fronts: a block of 128 threads owns 32 rows (forward) or 32 columns (backward) and waits for the strips before
// (behind) it through flags, which hold the solve's epoch; blocks start in the order in which they are waited for.
// The order of additions is fixed by the panel and the block shape, so bits repeat, and do not depend on R.
#include "front.cuh"

using namespace wf;

enum : int { kMostRows = 160, kChunk = 16, kTogether = 4, kSweepThreads = 128, kSweepWarps = kSweepThreads / kWarp };

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
  __shared__ T t[R][kMostRows], y[R][kMostRows];
  if (active != nullptr && *active == 0) return;
  const Item item = items[blockIdx.x];
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
  __shared__ T t[R][kMostRows], y[R][kMostRows];
  if (active != nullptr && *active == 0) return;
  const Item item = items[blockIdx.x];
  const i64 group = static_cast<i64>(blockIdx.y) * R;
  x += group * sizes[0], z += group * sizes[0];
  for (int s = item.last; s >= item.front; --s)
    backward_front<Threads, R>(fronts[s], below_ind, panels, diagonal, pivots, x, z, sizes, t, y);
}

// Strip `index` of a wide front: rows row..row+32. Warps share the panels before it, warp 0 adds the parts in order.
// Contributions by lists where there are any (front.cuh), child by child otherwise: the sums are the same.
template <typename T, int R>
__global__ void __launch_bounds__(kSweepThreads)
    forward_wide(const Item* items, const Front* fronts, const Child* children, const i32* maps, const RowList* lists,
                 const i32* list_sources, const T* panels, const i32* pivots, const T* x, T* z, T* upd, u32* flags,
                 const i32* active, const i64* sizes) {
  constexpr int kAhead = R == 1 ? 16 : 4;
  __shared__ T part[kSweepWarps][R][kWarp], t[R][kWarp];
  if (active != nullptr && *active == 0) return;
  const Item item = items[blockIdx.x];
  const Front f = fronts[item.front];
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp, index = item.index;
  const int blocks = (f.width + kPanel - 1) / kPanel, row = item.row + lane;
  const bool live = row < f.rows;
  const T* panel = panels + f.panel;
  u32* done = flags + f.flag;
  const u32 epoch = flags[0];
  // What the last warp to finish needs is loaded before anything is waited for.
  const int size = index < blocks ? min_of(kPanel, f.width - item.row) : 0;
  const int from = warp == 0 && lane < size ? pivots[2 * (f.first + row)] - item.row : lane;
  T inverse[kPanel];
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k)
    inverse[k] = warp == 0 && k < lane && lane < size ? panel[static_cast<i64>(row) * f.ld + item.row + k] : T(0);
  T acc[R] = {};
  for (int p = warp; p < min_of(index, blocks); p += kSweepWarps) {
    const int count = min_of(kPanel, f.width - p * kPanel);
    T l[kPanel];
    WF_UNROLL
    for (int k = 0; k < kPanel; ++k) l[k] = live && k < count ? panel[static_cast<i64>(p * kPanel + k) * f.ld + row] : T(0);
    if (lane == 0) signal_wait(done + p, epoch);
    __syncwarp();
    T v[R];
    for (int r = 0; r < R; ++r) v[r] = lane < count ? z[r * sizes[0] + f.first + p * kPanel + lane] : T(0);
    WF_UNROLL
    for (int k = 0; k < kPanel; ++k)
      for (int r = 0; r < R; ++r) acc[r] = fma(l[k], __shfl_sync(kFullMask, v[r], k), acc[r]);
  }
  for (int r = 0; r < R; ++r) part[warp][r][lane] = acc[r];
  if (warp == 0) {
    for (int r = 0; r < R; ++r) t[r][lane] = row < f.width ? x[r * sizes[0] + f.first + row] : T(0);
    __syncwarp();
    if (lists != nullptr) {
      const RowList list = lists[item.front];
      const int lanes = (f.rows + kWarp - 1) / kWarp * kWarp;
      T sum[R];
      for (int r = 0; r < R; ++r) sum[r] = t[r][lane];
      for (int q0 = 0; q0 < list.depth; q0 += kAhead) {
        i32 at[kAhead];
        WF_UNROLL
        for (int q = 0; q < kAhead; ++q) at[q] = live && q0 + q < list.depth ? list_sources[list.at + (q0 + q) * lanes + row] : -1;
        T add[kAhead][R];
        WF_UNROLL
        for (int q = 0; q < kAhead; ++q)
          for (int r = 0; r < R; ++r) add[q][r] = at[q] >= 0 ? upd[r * sizes[1] + at[q]] : T(0);
        WF_UNROLL
        for (int q = 0; q < kAhead; ++q)
          for (int r = 0; r < R; ++r) sum[r] += add[q][r];
      }
      for (int r = 0; r < R; ++r) t[r][lane] = sum[r];
      __syncwarp();
    }
    for (int c0 = lists != nullptr ? f.child1 : f.child0; c0 < f.child1; c0 += kTogether) {
      int to[kTogether];
      T add[kTogether][R];
      WF_UNROLL
      for (int q = 0; q < kTogether; ++q) {
        to[q] = -1;
        if (c0 + q >= f.child1) continue;
        const Child child = children[c0 + q];
        const int i = maps[child.range + index] + lane;
        if (i < maps[child.range + index + 1]) {
          to[q] = maps[child.map + i] - item.row;
          for (int r = 0; r < R; ++r) add[q][r] = upd[r * sizes[1] + child.map + i];
        }
      }
      WF_UNROLL
      for (int q = 0; q < kTogether; ++q) {
        if (to[q] >= 0)
          for (int r = 0; r < R; ++r) t[r][to[q]] += add[q][r];
        __syncwarp();
      }
    }
  }
  __syncthreads();
  if (warp != 0) return;
  T v[R];
  for (int r = 0; r < R; ++r) {
    v[r] = t[r][from];
    for (int w = 0; w < kSweepWarps; ++w) v[r] -= part[w][r][lane];
  }
  __syncwarp();
  if (size > 0) {
    for (int r = 0; r < R; ++r) {
      const T mine = v[r];
      WF_UNROLL
      for (int k = 0; k < kPanel; ++k) {
        const T other = __shfl_sync(kFullMask, mine, k);
        if (k < lane && lane < size) v[r] = fma(inverse[k], other, v[r]);
      }
      if (lane < size) z[r * sizes[0] + f.first + row] = v[r];
    }
    __syncwarp();
    if (lane == 0) signal_set(done + index, epoch);
    T sum[R] = {};
    for (int k = 0; k < size; ++k) {
      const T l = live && lane >= size ? panel[static_cast<i64>(item.row + k) * f.ld + row] : T(0);
      for (int r = 0; r < R; ++r) sum[r] = fma(l, __shfl_sync(kFullMask, v[r], k), sum[r]);
    }
    if (lane >= size)
      for (int r = 0; r < R; ++r) v[r] -= sum[r];
  }
  if (live && row >= f.width)
    for (int r = 0; r < R; ++r) upd[r * sizes[1] + f.map + row - f.width] = v[r];
}

// Strip `index`: columns row..row+32, eight a warp, lanes along the rows: those below the front's own columns first, then
// the strips behind this one, the last first.
template <typename T, int R>
__global__ void __launch_bounds__(kSweepThreads)
    backward_wide(const Item* items, const Front* fronts, const i32* below_ind, const T* panels, const T* diagonal,
                  const i32* pivots, T* x, T* z, u32* flags, const i32* active, const i64* sizes) {
  constexpr int kEach = kPanel / kSweepWarps;
  __shared__ T s[R][kWarp];
  if (active != nullptr && *active == 0) return;
  const Item item = items[blockIdx.x];
  const Front f = fronts[item.front];
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp, index = item.index;
  const int blocks = (f.width + kPanel - 1) / kPanel, size = min_of(kPanel, f.width - item.row);
  const T* panel = panels + f.panel;
  const T* columns = panel + static_cast<i64>(item.row + warp * kEach) * f.ld;
  u32* done = flags + f.flag + blocks;
  const u32 epoch = flags[0];
  T acc[kEach][R] = {}, d[R];
  for (int r = 0; r < R; ++r)
    d[r] = warp == 0 && lane < size ? divide(z + r * sizes[0], diagonal, pivots, f.first + item.row + lane) : T(0);
  const int to = warp == 0 && lane < size ? pivots[2 * (f.first + item.row + lane)] : 0;
  T inverse[kPanel];
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k)
    inverse[k] = warp == 0 && k > lane && k < size ? panel[static_cast<i64>(item.row + k) * f.ld + item.row + lane] : T(0);
  auto add = [&](const T (&l)[kEach], const T (&v)[R]) {
    WF_UNROLL
    for (int c = 0; c < kEach; ++c)
      for (int r = 0; r < R; ++r) acc[c][r] = fma(l[c], v[r], acc[c][r]);
  };
  auto load = [&](T (&l)[kEach], int row, bool inside) {
    WF_UNROLL
    for (int c = 0; c < kEach; ++c)
      l[c] = inside && warp * kEach + c < size ? columns[static_cast<i64>(c) * f.ld + row] : T(0);
  };
  for (int row = f.width + lane; row - lane < f.rows; row += kWarp) {
    T l[kEach], v[R];
    const bool inside = row < f.rows;
    load(l, row, inside);
    for (int r = 0; r < R; ++r) v[r] = inside ? x[r * sizes[0] + below_ind[f.map + row - f.width]] : T(0);
    add(l, v);
  }
  for (int j = blocks - 1; j > index; --j) {
    T l[kEach], v[R];
    const int row = j * kPanel + lane;
    const bool inside = row < f.width;
    load(l, row, inside);
    if (lane == 0) signal_wait(done + j, epoch);
    __syncwarp();
    for (int r = 0; r < R; ++r) v[r] = inside ? z[r * sizes[0] + f.first + row] : T(0);
    add(l, v);
  }
  WF_UNROLL
  for (int c = 0; c < kEach; ++c)
    for (int r = 0; r < R; ++r) {
      const T sum = warp_sum(acc[c][r]);
      if (lane == 0) s[r][warp * kEach + c] = sum;
    }
  __syncthreads();
  if (warp != 0) return;
  for (int r = 0; r < R; ++r) {
    const T mine = lane < size ? d[r] - s[r][lane] : T(0);
    T v = mine;
    WF_UNROLL
    for (int k = 0; k < kPanel; ++k) {
      const T other = __shfl_sync(kFullMask, mine, k);
      if (k > lane && k < size) v = fma(inverse[k], other, v);
    }
    if (lane < size) {
      z[r * sizes[0] + f.first + item.row + lane] = v;
      x[r * sizes[0] + f.first + to] = v;
    }
  }
  __syncwarp();
  if (lane == 0) signal_set(done + index, epoch);
}
