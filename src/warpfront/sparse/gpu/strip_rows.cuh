// A strip's rows of the panels before its own diagonal block (strips.cu): received blocks, rows formed, columns behind updated.
#pragma once
#include "strip_block.cuh"

namespace wf {

constexpr int kStripThreads = 256, kBlockSize = kPanel * kPitch, kNeighbours = 4;
static_assert(sizeof(BlockedScratch<double>) + kPublished * sizeof(double) <= kNeighbours * kBlockSize * sizeof(double),
              "they lie where the neighbours' rows did");

template <typename T>
struct Strip {
  Item item;
  Front f;
  T *s, *m, *near, *panel, *published;
  Tagged* tagged;
  u32 *block_done, *rows_done, base;
  int columns, written;  // columns of the chunk; rows of L end here (those that pad the front are written too)
};

// Rows of L for panel p: S_p M, 16 rows x 8 columns a warp; to S and to the panel.
template <typename T>
WF_DEVICE void form_rows(const Strip<T>& x, int p) {
  const int warp = threadIdx.x / kWarp, i0 = warp % 2 * 16, n0 = warp / 2 * 8;
  T* rows = x.s + p * kBlockSize;
  T acc[1][4] = {};
  multiply(acc, rows + i0, kPitch, x.m + n0, kPitch, kPanel);
  __syncthreads();
  WF_UNROLL
  for (int e = 0; e < 4; ++e) {
    const int i = i0 + tile_row(e), n = n0 + tile_col(e), col = p * kPanel + n, row = x.item.row + i;
    rows[n * kPitch + i] = acc[0][e];
    if (row < x.written && col < x.columns) x.panel[static_cast<i64>(x.item.col + col) * x.f.ld + row] = acc[0][e];
  }
}

// Columns q0..q0+count of blocks of 32 behind panel p: S_q -= (L D) L_q^T.
template <bool Paired, typename T>
WF_DEVICE void update_columns(const Strip<T>& x, int p, int q0, int count, const Diagonal<T>& d) {
  constexpr int kPer = 16 / static_cast<int>(sizeof(T)), kPieces32 = kPanel / kPer;
  const int thread = threadIdx.x, warp = thread / kWarp;
  if (count > 1 || q0 != x.item.index) {
    if (thread < count && q0 + thread != x.item.index) signal_wait(x.rows_done + q0 + thread, x.base + p + 1);
    __syncthreads();
    for (int c = thread; c < count * kPanel * kPieces32; c += kStripThreads) {
      const int b = c / (kPanel * kPieces32), k = c / kPieces32 % kPanel, n = c % kPieces32 * kPer;
      if (q0 + b == x.item.index) continue;
      const int row = x.item.col + (q0 + b) * kPanel + n, left = x.item.end - row;
      const bool inside = left > 0 && p * kPanel + k < x.columns;
      const T* from = x.panel + (inside ? static_cast<i64>(x.item.col + p * kPanel + k) * x.f.ld + row : 0);
      T* to = x.near + b * kBlockSize + k * kPitch + n;
      if (inside && left < kPer) {  // the row behind is another strip's, and may not be there yet
        for (int q = 0; q < kPer; ++q) to[q] = q < left ? from[q] : T(0);
      } else {
        cp_async16(to, from, inside ? 16u : 0u);
      }
    }
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
  }
  const int q = q0 + warp / 2, i0 = warp % 2 * 16;
  if (warp / 2 < count) {
    const T* mine = x.s + p * kBlockSize;
    T acc[1][4][4] = {};
    multiply_tiles<Paired>(acc, mine + i0, kPitch, q == x.item.index ? mine : x.near + (q - q0) * kBlockSize, kPitch, kPanel, d);
    T* target = x.s + q * kBlockSize;
    WF_UNROLL
    for (int n = 0; n < 4; ++n)
      for (int e = 0; e < 4; ++e) target[(8 * n + tile_col(e)) * kPitch + i0 + tile_row(e)] -= acc[0][n][e];
  }
  __syncthreads();
}

// Rows of a neighbour, strip q, of panel p, to `to`; lands behind cp_async_wait and a barrier.
template <typename T>
WF_DEVICE void load_neighbour(const Strip<T>& x, int p, int q, T* to) {
  constexpr int kPer = 16 / static_cast<int>(sizeof(T)), kPieces32 = kPanel / kPer;
  for (int c = threadIdx.x; c < kPanel * kPieces32; c += kStripThreads) {
    const int k = c / kPieces32, n = c % kPieces32 * kPer;
    const int row = x.item.col + q * kPanel + n, left = x.item.end - row;
    const bool inside = left > 0 && p * kPanel + k < x.columns;
    const T* from = x.panel + (inside ? static_cast<i64>(x.item.col + p * kPanel + k) * x.f.ld + row : 0);
    T* at = to + k * kPitch + n;
    if (inside && left < kPer) {  // the row behind is another strip's, and may not be there yet
      for (int e = 0; e < kPer; ++e) at[e] = e < left ? from[e] : T(0);
    } else {
      cp_async16(at, from, inside ? 16u : 0u);
    }
  }
}

// L D of 16 of the strip's rows, as the products have them.
template <bool Paired, typename T>
WF_DEVICE void scale_rows(T (&a)[kPanel / 16][8], const T* rows, const Diagonal<T>& d) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  WF_UNROLL
  for (int k = 0; k < kPanel / 16; ++k)
    WF_UNROLL
    for (int e = 0; e < 8; ++e) {
      const int p = 16 * k + t + 4 * (e / 2);
      const T* from = rows + p * kPitch + g + 8 * (e % 2);
      a[k][e] = from[0] * d.own[kLead + p];
      if (Paired) a[k][e] = fma(from[0], d.own[kLead + p], from[d.step[kLead + p] * kPitch] * d.other[kLead + p]);
    }
}

// target -= A B^T, 16 x 8, of rows b of a neighbour.
template <typename T>
WF_DEVICE void subtract_neighbour(const T (&a)[kPanel / 16][8], const T* b, T* target) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  T acc[4] = {}, y[4];
  WF_UNROLL
  for (int k = 0; k < kPanel / 16; ++k) {
    WF_UNROLL
    for (int j = 0; j < 4; ++j) y[j] = b[(16 * k + t + 4 * j) * kPitch + g];
    product(acc, a[k], y);
  }
  WF_UNROLL
  for (int e = 0; e < 4; ++e) target[tile_col(e) * kPitch + tile_row(e)] -= acc[e];
}

// update_columns for all blocks of 32 columns behind panel p: the neighbours' rows come one strip after the other, three on the
// way while one is multiplied; a warp keeps its part of L D, 16 rows, in registers and takes 8 columns of each block.
// Barriers: all neighbours have announced their rows | for each: landed, and the one before it multiplied by all.
template <bool Paired, typename T>
WF_DEVICE void update_behind(const Strip<T>& x, int p, int owned, const Diagonal<T>& d) {
  const int warp = threadIdx.x / kWarp, i0 = warp % 2 * 16, n0 = warp / 2 * 8, index = x.item.index;
  const int first = p + 1, end = min_of(owned + 1, index);
  const T* mine = x.s + p * kBlockSize;
  for (int q = first + static_cast<int>(threadIdx.x); q < end; q += kStripThreads) signal_wait(x.rows_done + q, x.base + p + 1);
  __syncthreads();
  for (int q = first; q < first + kNeighbours - 1; ++q) {
    if (q < end) load_neighbour(x, p, q, x.near + (q - first) * kBlockSize);
    cp_async_commit();
  }
  T a[kPanel / 16][8];
  scale_rows<Paired>(a, mine + i0, d);
  if (owned == index) subtract_neighbour(a, mine + n0, x.s + index * kBlockSize + n0 * kPitch + i0);
  for (int q = first; q < end; ++q) {
    cp_async_wait<kNeighbours - 2>();
    __syncthreads();
    const int next = q + kNeighbours - 1;
    if (next < end) load_neighbour(x, p, next, x.near + (next - first) % kNeighbours * kBlockSize);
    cp_async_commit();
    subtract_neighbour(a, x.near + (q - first) % kNeighbours * kBlockSize + n0, x.s + q * kBlockSize + n0 * kPitch + i0);
  }
}

// The strip's own block behind panel p: 16 rows x 8 N columns a warp.
template <bool Paired, int N, typename T>
WF_DEVICE void update_own(const Strip<T>& x, int p, const Diagonal<T>& d, int i0, int n0) {
  const T* mine = x.s + p * kBlockSize;
  T* target = x.s + x.item.index * kBlockSize;
  T acc[1][N][4] = {};
  multiply_tiles<Paired>(acc, mine + i0, kPitch, mine + n0, kPitch, kPanel, d);
  WF_UNROLL
  for (int n = 0; n < N; ++n)
    for (int e = 0; e < 4; ++e) target[(n0 + 8 * n + tile_col(e)) * kPitch + i0 + tile_row(e)] -= acc[0][n][e];
}

// A published block and its D, to shared memory. Tagged ones of definite blocks are upper triangular by parts of eight.
template <bool Paired, bool Streamed, typename T>
WF_DEVICE void receive_block(const Strip<T>& x, int p, Diagonal<T>& d) {
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp;
  const u32 epoch = x.base + 1;
  if (!Streamed) {
    if (thread == 0) signal_wait(x.block_done + p, epoch);
    __syncthreads();
    const T* from = x.published + static_cast<i64>(p) * kPublished;
    WF_UNROLL
    for (int k = 0; k < kPanel; k += kStripThreads / kWarp)
      x.m[(k + warp) * kPitch + lane] = from[(k + warp) * kPanel + lane];
    if (warp == 0) {
      from += kPanel * kPanel;
      set_diagonal(d, lane, from[lane], from[kPanel + lane], static_cast<int>(from[2 * kPanel + lane]));
    }
  } else {
    const Tagged* from = x.tagged + static_cast<i64>(p) * kPublished;
    const int k = thread / kSub, c = thread % kSub;
    T m[kPanel / kSub], own[1], pair[2] = {};
    if (thread == 0) tagged_wait(from + kPanel * kPanel + kPanel - 1, 0, 0, epoch, own);  // the last one
    __syncthreads();
    tagged_wait(from + k * kPanel + c, kSub, Paired ? 0 : k / kSub, epoch, m);
    WF_UNROLL
    for (int n = 0; n < kPanel / kSub; ++n) x.m[k * kPitch + kSub * n + c] = m[n];
    if (warp == 0) {
      from += kPanel * kPanel + lane;
      tagged_wait(from, 0, 0, epoch, own);
      if (Paired) tagged_wait(from + kPanel, kPanel, 0, epoch, pair);
      set_diagonal(d, lane, own[0], pair[0], static_cast<int>(pair[1]));
    }
  }
  __syncthreads();
}

// The strip's rows of eight columns n of the panel before its own diagonal block: 8 x 8 a warp, to `formed` and to the panel.
template <typename T>
WF_DEVICE void form_eight(const Strip<T>& x, int p, int n, T* formed) {
  const int warp = threadIdx.x / kWarp, g = lane_id() / 4, t = lane_id() % 4;
  const T *a = x.s + p * kBlockSize + t * kPitch + kSub * warp + g, *b = x.m + t * kPitch + kSub * n + g;
  T even[2] = {}, odd[2] = {};
  WF_UNROLL_N(1)
  for (int k = 0; k < kSub * (n + 1); k += kSub) {
    product_eight(even, a[k * kPitch], b[k * kPitch]);
    product_eight(odd, a[(k + 4) * kPitch], b[(k + 4) * kPitch]);
    __syncwarp();
  }
  const int row = x.item.row + kSub * warp + g;
  WF_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int at = kSub * n + 2 * t + h, col = p * kPanel + at;
    const T l = even[h] + odd[h];
    formed[at * kPitch + kSub * warp + g] = l;
    if (row < x.written && col < x.columns) x.panel[static_cast<i64>(x.item.col + col) * x.f.ld + row] = l;
  }
}

// The panel before the strip's own diagonal block, a definite one: eight columns after the other as they are published, each
// formed and subtracted from the block. Of the block's lower triangle a warp holds one or two tiles of 8 x 8.
// Barriers: eight columns of M landed | formed; and own block updated.
template <typename T>
WF_DEVICE void follow_closely(const Strip<T>& x, int p, Diagonal<T>& d) {
  const int thread = threadIdx.x, warp = thread / kWarp, g = lane_id() / 4, t = lane_id() % 4;
  const u32 epoch = x.base + 1;
  const Tagged* from = x.tagged + static_cast<i64>(p) * kPublished;
  T *own = x.s + x.item.index * kBlockSize, *formed = x.near;
  int row[2], col[2];
  T acc[2][2];
  WF_UNROLL
  for (int u = 0; u < 2; ++u) {
    const int tile = warp + kStripThreads / kWarp * u;  // 10 of them: 4 x 4's lower triangle
    int b = 0, c = tile;
    while (c > b) c -= ++b;
    row[u] = kSub * min_of(b, 3) + g, col[u] = kSub * min_of(c, 3);
    for (int h = 0; h < 2; ++h) acc[u][h] = own[(col[u] + 2 * t + h) * kPitch + row[u]];
  }
  WF_UNROLL_N(1)
  for (int n = 0; n < kPanel / kSub; ++n) {
    const int k = thread / kSub, c = kSub * n + thread % kSub;
    T m[1];
    if (k < kSub * (n + 1)) {
      tagged_wait(from + k * kPanel + c, 0, 0, epoch, m);
      x.m[k * kPitch + c] = m[0];
    }
    if (thread < kSub) {
      tagged_wait(from + kPanel * kPanel + c, 0, 0, epoch, m);
      d.own[kLead + c] = m[0];
    }
    __syncthreads();
    if (warp < kPanel / kSub) form_eight(x, p, n, formed);
    __syncthreads();
    WF_UNROLL
    for (int u = 0; u < 2; ++u) {
      if (warp + kStripThreads / kWarp * u >= 10) break;
      WF_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int e = kSub * n + 4 * half + t;
        product_eight(acc[u], -formed[e * kPitch + row[u]] * d.own[kLead + e], formed[e * kPitch + col[u] + g]);
      }
    }
  }
  WF_UNROLL
  for (int u = 0; u < 2; ++u)
    if (warp + kStripThreads / kWarp * u < 10)
      for (int h = 0; h < 2; ++h) own[(col[u] + 2 * t + h) * kPitch + row[u]] = acc[u][h];
  __syncthreads();
}

// Panels before the strip's own: its rows of each are formed and announced, its columns behind updated. The last one's
// columns are the strip's own block: all warps update it, one eliminates it, and another
// announces the rows, since that waits for their stores.
template <bool Paired, int Way, typename T>
WF_DEVICE void follow_strips(const Strip<T>& x, Diagonal<T>& d, int blocks, int owned) {
  const int thread = threadIdx.x, warp = thread / kWarp, index = x.item.index;
  if (index == 0) __syncthreads();
  for (int p = 0; p < index && p < blocks; ++p) {
    const bool last = index < blocks && p + 1 == index;
    if (last && Way > 2 && !Paired) {
      __syncthreads();
      follow_closely(x, p, d);
    } else {
      receive_block<Paired, (Way > 2)>(x, p, d);
      form_rows(x, p);
      __syncthreads();
      if (last) {
        update_own<Paired, 1>(x, p, d, warp % 2 * 16, warp / 2 * 8);
        __syncthreads();
      }
    }
    if (index < blocks && thread == kStripThreads - kWarp) signal_set(x.rows_done + index, x.base + p + 1);
    if (!last && Way > 1) {
      update_behind<Paired>(x, p, owned, d);
    } else if (!last) {
      for (int q = p + 1; q <= owned; q += kNeighbours) update_columns<Paired>(x, p, q, min_of(kNeighbours, owned - q + 1), d);
    }
  }
}

}  // namespace wf
