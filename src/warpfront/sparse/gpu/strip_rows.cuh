// A strip's rows of the panels before its own diagonal block (strips.cu): received blocks, rows formed, columns behind updated.
#pragma once
#include "strip_block.cuh"

namespace wf {

constexpr int kBlockSize = kPanel * kPitch, kNeighbours = 4;
static_assert(sizeof(BlockedScratch<double>) <= kNeighbours * kBlockSize * sizeof(double), "it lies where the neighbours' rows did");

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

// What a thread loads of a neighbour's rows of one panel: pieces of 16 bytes.
template <typename T>
struct NearPieces {
  static constexpr int kPer = 16 / static_cast<int>(sizeof(T)), kInColumn = kPanel / kPer, kColumns = kStripThreads / kInColumn;
  const T* from;  // for strip 0 of the chunk
  i64 stride;     // to the next piece
  int to, left;   // where it goes; rows to the chunk's end, from strip 0 on

  WF_DEVICE NearPieces(const Strip<T>& x, int p) {
    const int k = static_cast<int>(threadIdx.x) / kInColumn, n = static_cast<int>(threadIdx.x) % kInColumn * kPer;
    from = x.panel + static_cast<i64>(x.item.col + p * kPanel + k) * x.f.ld + x.item.col + n;
    stride = static_cast<i64>(kColumns) * x.f.ld, to = k * kPitch + n, left = x.item.end - x.item.col - n;
  }

  // Rows of strip q to `buffer`; they land behind cp_async_wait and a barrier.
  WF_DEVICE void load(int q, T* buffer) const {
    const int rest = left - q * kPanel;
    const T* source = from + (rest > 0 ? q * kPanel : 0);
    T* at = buffer + to;
    WF_UNROLL
    for (int u = 0; u < kPanel / kColumns; ++u, source += stride, at += kColumns * kPitch) {
      if (rest > 0 && rest < kPer) {  // the row behind is another strip's, and may not be there yet
        for (int e = 0; e < kPer; ++e) at[e] = e < rest ? source[e] : T(0);
      } else {
        cp_async16(at, source, rest > 0 ? 16u : 0u);
      }
    }
  }
};

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

// target -= A B^T, 16 x 8, of rows b of `Count` neighbours side by side.
template <int Count, typename T>
WF_DEVICE void subtract_neighbours(const T (&a)[kPanel / 16][8], const T* b, T* target) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  T acc[Count][4] = {}, y[Count][4];
  WF_UNROLL
  for (int k = 0; k < kPanel / 16; ++k) {
    WF_UNROLL
    for (int u = 0; u < Count; ++u)
      WF_UNROLL
      for (int j = 0; j < 4; ++j) y[u][j] = b[u * kBlockSize + (16 * k + t + 4 * j) * kPitch + g];
    WF_UNROLL
    for (int u = 0; u < Count; ++u) product(acc[u], a[k], y[u]);
  }
  WF_UNROLL
  for (int u = 0; u < Count; ++u)
    WF_UNROLL
    for (int e = 0; e < 4; ++e) target[u * kBlockSize + tile_col(e) * kPitch + tile_row(e)] -= acc[u][e];
}

// update_columns for all blocks of 32 columns behind panel p: the neighbours' rows come two strips after the other two, which are
// multiplied meanwhile; a warp keeps its part of L D, 16 rows, in registers and takes 8 columns of each block.
// Barriers: all neighbours have announced their rows | for each two: landed, and the two before multiplied by all.
template <bool Paired, typename T>
WF_DEVICE void update_behind(const Strip<T>& x, int p, int owned, const Diagonal<T>& d) {
  const int warp = threadIdx.x / kWarp, i0 = warp % 2 * 16, n0 = warp / 2 * 8, index = x.item.index;
  const int first = p + 1, end = min_of(owned + 1, index), own = n0 * kPitch + i0;
  const T* mine = x.s + p * kBlockSize;
  const NearPieces<T> pieces(x, p);
  for (int q = first + static_cast<int>(threadIdx.x); q < end; q += kStripThreads) signal_wait(x.rows_done + q, x.base + p + 1);
  __syncthreads();
  for (int q = first; q < min_of(first + 2, end); ++q) pieces.load(q, x.near + (q - first) * kBlockSize);
  cp_async_commit();
  T a[kPanel / 16][8];
  scale_rows<Paired>(a, mine + i0, d);
  if (owned == index) subtract_neighbours<1>(a, mine + n0, x.s + index * kBlockSize + own);
  for (int q = first; q < end; q += 2) {
    const T* here = x.near + (q - first) % kNeighbours * kBlockSize + n0;
    cp_async_wait<0>();
    __syncthreads();
    for (int next = q + 2; next < min_of(q + 4, end); ++next) pieces.load(next, x.near + (next - first) % kNeighbours * kBlockSize);
    cp_async_commit();
    if (q + 1 < end) subtract_neighbours<2>(a, here, x.s + q * kBlockSize + own);
    else subtract_neighbours<1>(a, here, x.s + q * kBlockSize + own);
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
template <bool Paired, bool Tags, typename T>
WF_DEVICE void receive_block(const Strip<T>& x, int p, Diagonal<T>& d) {
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp;
  const u32 epoch = x.base + 1;
  if (!Tags) {
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
    const int k = thread / kSub, c = thread % kSub, least = Paired ? 0 : k / kSub;
    T m[kPanel / kSub], own[1], pair[2] = {};
    __syncthreads();
    if (!tagged_try(from + k * kPanel + c, kSub, least, epoch, m)) {  // the last of them is asked for until it is there, then all
      tagged_wait(from + k * kPanel + c + kPanel - kSub, 0, 0, epoch, own);
      tagged_wait(from + k * kPanel + c, kSub, least, epoch, m);
    }
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

// The panel before the strip's own diagonal block, a definite one: eight columns after the other as they are published, each
// formed and subtracted from the block. Four warps wait for the columns of M and form 8 x 8 of L each, the values straight to where
// the product has them; of the block's lower triangle each warp holds one or two tiles of 8 x 8.
// Barriers: eight columns formed; and own block updated.
template <typename T>
WF_DEVICE void follow_closely(const Strip<T>& x, int p) {
  constexpr int kParts = kPanel / kSub, kSteps = kPanel / 4;
  const int warp = threadIdx.x / kWarp, g = lane_id() / 4, t = lane_id() % 4;
  const u32 epoch = x.base + 1;
  const Tagged* from = x.tagged + static_cast<i64>(p) * kPublished;
  T *own = x.s + x.item.index * kBlockSize, *formed = x.near;
  const int tiles = warp < 6 ? 1 : 2;  // 10 of them: 4 x 4's lower triangle
  int row[2], col[2];
  T acc[2][2], a[kSteps];
  WF_UNROLL
  for (int u = 0; u < 2; ++u) {
    int b = 0, c = u == 0 ? warp : 8 + warp % 2;
    while (c > b) c -= ++b;
    row[u] = kSub * b + g, col[u] = kSub * c;
    for (int h = 0; h < 2; ++h) acc[u][h] = own[(col[u] + 2 * t + h) * kPitch + row[u]];
  }
  WF_UNROLL
  for (int k = 0; k < kSteps; ++k) a[k] = x.s[p * kBlockSize + (4 * k + t) * kPitch + kSub * (warp % kParts) + g];
  WF_UNROLL_N(1)
  for (int n = 0; n < kParts; ++n) {
    T l[2] = {};
    if (warp < kParts) {
      T m[kSteps];
      tagged_wait(from + t * kPanel + kSub * n + g, 4 * kPanel, 0, epoch, m, 2 * (n + 1));
      __syncwarp();
      T sums[4][2] = {};
      WF_UNROLL
      for (int k = 0; k < kSteps; ++k) product_eight(sums[k % 4], a[k], m[k]);
      WF_UNROLL
      for (int h = 0; h < 2; ++h) {
        l[h] = (sums[0][h] + sums[1][h]) + (sums[2][h] + sums[3][h]);
        formed[(kSub * n + 2 * t + h) * kPitch + kSub * warp + g] = l[h];
      }
    }
    T d[2];
    tagged_wait(from + kPanel * kPanel + kSub * n + t, 4, 0, epoch, d, 2);
    __syncthreads();
    WF_UNROLL
    for (int u = 0; u < 2; ++u) {
      if (u >= tiles) break;
      WF_UNROLL
      for (int half = 0; half < 2; ++half) {
        const T* at = formed + (kSub * n + 4 * half + t) * kPitch;
        product_eight(acc[u], -at[row[u]] * d[half], at[col[u] + g]);
      }
    }
    const int to = x.item.row + kSub * warp + g;
    WF_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int at = p * kPanel + kSub * n + 2 * t + h;
      if (warp < kParts && to < x.written && at < x.columns) x.panel[static_cast<i64>(x.item.col + at) * x.f.ld + to] = l[h];
    }
  }
  WF_UNROLL
  for (int u = 0; u < 2; ++u)
    if (u < tiles)
      for (int h = 0; h < 2; ++h) own[(col[u] + 2 * t + h) * kPitch + row[u]] = acc[u][h];
  __syncthreads();
}

// Panels before the strip's own: its rows of each are formed and announced, its columns behind updated. The last one's
// columns are the strip's own block: all warps update it, one eliminates it, and another
// announces the rows, since that waits for their stores.
template <bool Paired, bool Tags, typename T>
WF_DEVICE void follow_strips(const Strip<T>& x, Diagonal<T>& d, int blocks, int owned) {
  const int thread = threadIdx.x, warp = thread / kWarp, index = x.item.index;
  if (index == 0) __syncthreads();
  for (int p = 0; p < index && p < blocks; ++p) {
    const bool last = index < blocks && p + 1 == index;
    if (last && Tags && !Paired) {
      __syncthreads();
      follow_closely(x, p);
    } else {
      receive_block<Paired, Tags>(x, p, d);
      form_rows(x, p);
      __syncthreads();
      if (last) {
        update_own<Paired, 1>(x, p, d, warp % 2 * 16, warp / 2 * 8);
        __syncthreads();
      }
    }
    if (index < blocks && thread == kStripThreads - kWarp) signal_set(x.rows_done + index, x.base + p + 1);
    if (!last && Tags) {
      update_behind<Paired>(x, p, owned, d);
    } else if (!last) {
      for (int q = p + 1; q <= owned; q += kNeighbours) update_columns<Paired>(x, p, q, min_of(kNeighbours, owned - q + 1), d);
    }
  }
}

}  // namespace wf
