// Sweeps through wide fronts with 8 N right-hand sides at once, as products of FP64 tiles: one kernel for one and for many.
//
// A block of four warps owns a strip of 32 rows (forward) or of 32 of the front's own columns (backward) for a group of 8 N
// right-hand sides; a strip's groups are neighbours, so that its part of L is read from memory once. `span` panels of 32 columns have a common inverse (invert.cu; span = 1: the one the
// elimination left), so a front of w columns is a chain of w / (32 span) steps of two signals each:
//   forward   t = P (x + children) - sum over the panels before the span of L y;  y = inv t over the span's strips up to this one
//   backward  t = D^-1 z - sum over the rows behind the span of L^T x;            x = inv^T t over the span's strips from this one on
// Forward t lies in x and y in z; backward t lies in z and the solution in x, in the front's order: what a strip publishes is
// never overwritten while another one may read it.
// Warps share the panels of either sum; the four parts are added in order. A value's sum does not depend on the number of
// right-hand sides: each column of a product is made alike, whatever stands in the others, and missing ones are zero.
// Flags (one a panel and direction, one set a group) hold 2 * epoch once t is there, 2 * epoch + 1 once the result is; strips
// start in the order in which they are waited for.
// Launches begin early (signal.cuh): what a strip is and its first tile are read while the level before is on its way.
// Shared: part[warp][column][row], t[column][row]. Barriers: parts and t written | t published, before it is announced |
// parts of the second sum written | result written, before it is announced.
#include "wide_tiles.cuh"

using namespace wf;

enum : int { kWideThreads = 128, kWideWarps = kWideThreads / kWarp };

template <int N, typename T>
WF_DEVICE void store_part(T (*part)[kPitch], T (&acc)[2][N][4]) {
  WF_UNROLL
  for (int m = 0; m < 2; ++m)
    WF_UNROLL
    for (int n = 0; n < N; ++n)
      WF_UNROLL
      for (int e = 0; e < 4; ++e) part[8 * n + tile_col(e)][16 * m + tile_row(e)] = acc[m][n][e], acc[m][n][e] = T(0);
}

// Products of the tiles first, first + step, ..: of `count`; `loaded`: the first lies in `a`. (With the next tile loaded ahead it
// was no faster, and in crowds of strips slower.)
template <typename T, typename Load, typename Use>
WF_DEVICE void run_tiles(Tile<T>& a, bool loaded, int first, int count, int step, const Load& load, const Use& use) {
  for (int p = first; p < count; p += step) {
    if (!loaded) load(a, p);
    loaded = false;
    use(a, p);
  }
}

// One lane waits; the others follow.
WF_DEVICE void warp_wait(const u32* flag, u32 value) {
  if (lane_id() == 0) signal_wait(flag, value);
  __syncwarp();
}

// t[c][lane] += the children's contributions to a row, in their order. Columns warp, warp + 4, ..
template <int N, typename T>
WF_DEVICE void gather_rows(T (*t)[kPitch], const Item& item, const Front& f, const Child* children, const i32* maps,
                           const RowList* lists, const i32* list_sources, const T* upd, i64 below, int live) {
  constexpr int kEach = 2 * N, kAhead = N == 1 ? 8 : N == 2 ? 4 : 2;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, row = item.row + lane;
  const bool inside = row < item.end;
  if (lists != nullptr) {
    const RowList list = lists[item.front];
    const int lanes = (f.rows + kWarp - 1) / kWarp * kWarp;
    if (warp >= live) return;
    T sum[kEach];
    WF_UNROLL
    for (int q = 0; q < kEach; ++q) sum[q] = t[warp + kWideWarps * q][lane];
    for (int d0 = 0; d0 < list.depth; d0 += kAhead) {
      i32 at[kAhead];
      T add[kAhead][kEach];
      WF_UNROLL
      for (int d = 0; d < kAhead; ++d)
        at[d] = inside && d0 + d < list.depth ? list_sources[list.at + static_cast<i64>(d0 + d) * lanes + row] : -1;
      WF_UNROLL
      for (int d = 0; d < kAhead; ++d)
        WF_UNROLL
        for (int q = 0; q < kEach; ++q) {
          const int c = warp + kWideWarps * q;
          add[d][q] = at[d] >= 0 && c < live ? upd[c * below + at[d]] : T(0);
        }
      WF_UNROLL
      for (int d = 0; d < kAhead; ++d)
        WF_UNROLL
        for (int q = 0; q < kEach; ++q) sum[q] += add[d][q];
    }
    WF_UNROLL
    for (int q = 0; q < kEach; ++q) t[warp + kWideWarps * q][lane] = sum[q];
    return;
  }
  const int bin = item.row / kPanel;
  for (int k = f.child0; k < f.child1; ++k) {
    const Child child = children[k];
    const int i = maps[child.range + bin] + lane;
    const int to = i < maps[child.range + bin + 1] ? maps[child.map + i] - item.row : -1;
    if (to >= 0 && to < item.end - item.row)
      for (int c = warp; c < live; c += kWideWarps) t[c][to] += upd[c * below + child.map + i];
    __syncwarp();
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kWideThreads)
    forward_strips(const Item* items, const Front* fronts, const Child* children, const i32* maps, const RowList* lists,
                   const i32* list_sources, const T* panels, const i32* pivots, T* x, T* z, T* upd, u32* flags,
                   const i32* active, const i64* sizes, i32 span, i32 columns, i32 flag_words) {
  constexpr int kColumns = 8 * N;
  __shared__ T part[kWideWarps][kColumns][kPitch], t[kColumns][kPitch];
  grid_release();
  const int groups = (columns + kColumns - 1) / kColumns, group = static_cast<int>(blockIdx.x) % groups;
  const Item item = items[static_cast<int>(blockIdx.x) / groups];
  const Front f = fronts[item.front];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, index = item.index, row = item.row + lane;
  const int t4 = lane % 4, blocks = (f.width + kPanel - 1) / kPanel, live = min_of(kColumns, columns - group * kColumns);
  const bool own = index < blocks, inside = row < item.end;
  const int first = own ? index / span * span : blocks, rows = item.end - item.row;
  const i64 n = sizes[0], below = sizes[1];
  x += group * kColumns * n + f.first, z += group * kColumns * n + f.first, upd += group * kColumns * below;
  const T* panel = panels + f.panel;
  u32* done = flags + group * static_cast<i64>(flag_words) + f.flag;
  const int from = own && inside ? pivots[2 * (f.first + row)] - item.row : lane;
  const auto load_before = [&](Tile<T>& a, int p) {
    load_tile<kFull>(a, panel + static_cast<i64>(p) * kPanel * f.ld + item.row, 1, f.ld, rows, f.width - p * kPanel);
  };
  Tile<T> tile;
  const bool early = warp < first;
  if (early) load_before(tile, warp);
  grid_wait();
  if (active != nullptr && *active == 0) return;
  const u32 epoch = flags[0];
  for (int c = warp; c < kColumns; c += kWideWarps) t[c][lane] = c < live && own && inside ? x[c * n + row] : T(0);
  __syncwarp();
  gather_rows<N>(t, item, f, children, maps, lists, list_sources, upd, below, live);
  T acc[2][N][4] = {};
  run_tiles<T>(
      tile, early, warp, first, kWideWarps, load_before,
      [&](const Tile<T>& a, int p) {
        warp_wait(done + p, 2 * epoch + 1);
        multiply_tile<N>(acc, a, [&](int s, int c) {
          const int k = p * kPanel + 4 * s + t4;
          return c < live && k < f.width ? z[c * n + k] : T(0);
        });
      });
  store_part<N>(part[warp], acc);
  __syncthreads();
  for (int c = warp; c < kColumns; c += kWideWarps) {
    T v = t[c][from];
    WF_UNROLL
    for (int w = 0; w < kWideWarps; ++w) v -= part[w][c][lane];
    __syncwarp();
    t[c][lane] = v;
    if (c < live && inside) (own ? x[c * n + row] : upd[c * below + f.map + row - f.width]) = v;
  }
  if (!own) return;
  __syncthreads();
  if (threadIdx.x == 0) signal_set(done + index, 2 * epoch);
  run_tiles<T>(
      tile, false, first + warp, index + 1, kWideWarps,
      [&](Tile<T>& a, int p) {
        const T* at = panel + static_cast<i64>(item.row) * f.ld + p * kPanel;
        if (p == index) load_tile<kUnitLower>(a, at, f.ld, 1, rows, rows);
        else load_tile<kFull>(a, at, f.ld, 1, rows, kPanel);
      },
      [&](const Tile<T>& a, int p) {
        if (p == index) {
          multiply_tile<N>(acc, a, [&](int s, int c) { return t[c][4 * s + t4]; });
        } else {
          warp_wait(done + p, 2 * epoch);
          multiply_tile<N>(acc, a, [&](int s, int c) { return c < live ? x[c * n + p * kPanel + 4 * s + t4] : T(0); });
        }
      });
  store_part<N>(part[warp], acc);
  __syncthreads();
  for (int c = warp; c < live; c += kWideWarps) {
    T v = part[0][c][lane];
    WF_UNROLL
    for (int w = 1; w < kWideWarps; ++w) v += part[w][c][lane];
    if (inside) z[c * n + row] = v;
  }
  __syncthreads();
  if (threadIdx.x == 0) signal_set(done + index, 2 * epoch + 1);
}

// D^-1 applied to entry k of z; both columns of a 2x2 pivot are computed from both entries. Zero pivots give zero.
template <typename T>
WF_DEVICE T divided(const T* z, const T* diagonal, const i32* pivots, i64 k) {
  const int kind = pivots[2 * k + 1];
  if (kind == 1) return z[k] / diagonal[2 * k];
  if (kind == 0) return T(0);
  const i64 partner = kind == 2 ? k + 1 : k - 1;
  const T off = diagonal[2 * (kind == 2 ? k : partner) + 1], mine = diagonal[2 * k] / off;
  const T theirs = diagonal[2 * partner] / off;
  return (theirs * z[k] - z[partner]) / ((mine * theirs - T(1)) * off);
}

template <typename T, int N>
__global__ void __launch_bounds__(kWideThreads)
    backward_strips(const Item* items, const Front* fronts, const i32* below_ind, const T* panels, const T* diagonal,
                    const i32* pivots, T* x, T* z, u32* flags, const i32* active, const i64* sizes, i32 span, i32 columns,
                    i32 flag_words) {
  constexpr int kColumns = 8 * N;
  __shared__ T part[kWideWarps][kColumns][kPitch], t[kColumns][kPitch];
  grid_release();
  const int groups = (columns + kColumns - 1) / kColumns, group = static_cast<int>(blockIdx.x) % groups;
  const Item item = items[static_cast<int>(blockIdx.x) / groups];
  const Front f = fronts[item.front];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, index = item.index, row = item.row + lane;
  const int t4 = lane % 4, blocks = (f.width + kPanel - 1) / kPanel, live = min_of(kColumns, columns - group * kColumns);
  const int last = min_of(index / span * span + span, blocks), size = item.end - item.row;
  const bool inside = row < item.end;
  const i64 n = sizes[0];
  x += group * kColumns * n, z += group * kColumns * n;
  const T* panel = panels + f.panel;
  const T* mine = panel + static_cast<i64>(item.row) * f.ld;
  const i32* order = pivots + 2 * f.first;
  u32* done = flags + group * static_cast<i64>(flag_words) + f.flag + blocks;
  const int behind = f.rows - f.width;
  const auto load_behind = [&](Tile<T>& a, int p) {
    load_tile<kFull>(a, mine + f.width + p * kPanel, f.ld, 1, size, behind - p * kPanel);
  };
  const i32 to = inside ? order[2 * row] : 0;
  Tile<T> tile;
  const bool early = warp * kPanel < behind;
  if (early) load_behind(tile, warp);
  grid_wait();
  if (active != nullptr && *active == 0) return;
  const u32 epoch = flags[0];
  for (int c = warp; c < kColumns; c += kWideWarps)
    t[c][lane] = c < live && inside ? divided(z + c * n, diagonal, pivots, f.first + row) : T(0);
  T acc[2][N][4] = {};
  run_tiles<T>(
      tile, early, warp, (behind + kPanel - 1) / kPanel, kWideWarps, load_behind,
      [&](const Tile<T>& a, int p) {
        i32 at[8];
        WF_UNROLL
        for (int s = 0; s < 8; ++s) {
          const int i = p * kPanel + 4 * s + t4;
          at[s] = i < behind ? below_ind[f.map + i] : -1;
        }
        multiply_tile<N>(acc, a, [&](int s, int c) { return c < live && at[s] >= 0 ? x[c * n + at[s]] : T(0); });
      });
  run_tiles<T>(
      tile, false, warp, blocks - last, kWideWarps,
      [&](Tile<T>& a, int q) {
        const int p = blocks - 1 - q;
        load_tile<kFull>(a, mine + p * kPanel, f.ld, 1, size, f.width - p * kPanel);
      },
      [&](const Tile<T>& a, int q) {
        const int p = blocks - 1 - q;
        i32 at[8];
        WF_UNROLL
        for (int s = 0; s < 8; ++s) {
          const int i = p * kPanel + 4 * s + t4;
          at[s] = i < f.width ? order[2 * i] : -1;
        }
        warp_wait(done + p, 2 * epoch + 1);
        multiply_tile<N>(acc, a, [&](int s, int c) { return c < live && at[s] >= 0 ? x[c * n + f.first + at[s]] : T(0); });
      });
  store_part<N>(part[warp], acc);
  __syncthreads();
  for (int c = warp; c < kColumns; c += kWideWarps) {
    T v = t[c][lane];
    WF_UNROLL
    for (int w = 0; w < kWideWarps; ++w) v -= part[w][c][lane];
    t[c][lane] = v;
    if (c < live && inside) z[c * n + f.first + row] = v;
  }
  __syncthreads();
  if (threadIdx.x == 0) signal_set(done + index, 2 * epoch);
  run_tiles<T>(
      tile, false, warp, last - index, kWideWarps,
      [&](Tile<T>& a, int q) {
        const int p = index + q;
        const T* at = panel + static_cast<i64>(p) * kPanel * f.ld + item.row;
        if (q == 0) load_tile<kUnitUpper>(a, at, 1, f.ld, size, size);
        else load_tile<kFull>(a, at, 1, f.ld, size, f.width - p * kPanel);
      },
      [&](const Tile<T>& a, int q) {
        const int p = index + q;
        if (q == 0) {
          multiply_tile<N>(acc, a, [&](int s, int c) { return t[c][4 * s + t4]; });
        } else {
          warp_wait(done + p, 2 * epoch);
          multiply_tile<N>(acc, a, [&](int s, int c) {
            const int k = p * kPanel + 4 * s + t4;
            return c < live && k < f.width ? z[c * n + f.first + k] : T(0);
          });
        }
      });
  store_part<N>(part[warp], acc);
  __syncthreads();
  for (int c = warp; c < live; c += kWideWarps) {
    T v = part[0][c][lane];
    WF_UNROLL
    for (int w = 1; w < kWideWarps; ++w) v += part[w][c][lane];
    if (inside) x[c * n + f.first + to] = v;
  }
  __syncthreads();
  if (threadIdx.x == 0) signal_set(done + index, 2 * epoch + 1);
}
