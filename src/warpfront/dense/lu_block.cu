// One block column of a dense LU with partial pivoting in one cooperative launch, and the row interchanges beside it.
//
// lu_block factors columns first .. first + wide of a column-major matrix, rows first .. n, in panels of W columns.
// Panel: block 0, thread t owns rows c0 + t, c0 + t + 512, ... (R of them) and keeps their W entries in registers; a
// column costs one search over the block, whose warps also put up their candidate's row, one barrier, the exchange of two
// rows and one rank-one update.
// Rest of the block column: block b owns whole columns c0 + W + b, ...; it applies the panel's interchanges, solves with
// the panel's unit triangle and subtracts the product, thread t again owning rows.
//
// Shared layout (dynamic): order[n - first], which row of the block column as it came stands where; panel_order, the same
// for the current panel; then in static memory, twice for columns in turn, each warp's largest entry with its row and the
// row that stands on top; and the top entries of the column a block works on.
//
// Barriers. Panel, per column: one, between the warps' candidates and their reads; the two buffers make it enough: a
// buffer is written again two columns later, after a barrier that every reader has passed. A grid barrier after the panel
// (its L, interchanges and pivots, written by block 0, are then read by all) and one after the rest (columns written by
// other blocks become the next panel). Rest: block barriers between gathering and scattering the interchanged entries,
// and around the column's top entries.
//
// lu_order turns all interchanges into one order of rows. lu_exchange applies a whole block column's interchanges to the columns outside it: a block owns columns and gathers all
// moved entries of one before it scatters them.
//
// Literature: Dongarra, Eijkhout, Luszczek, Recursive approach in sparse matrix LU factorization (2001) for the blocking;
// the block-resident panel is this file's own.
#include "signal.cuh"
#include "types.cuh"
#include "warp.cuh"

namespace wf {

[[maybe_unused]] constexpr int kPanelThreads = 512;
[[maybe_unused]] constexpr int kExchangeThreads = 256;

template <typename T>
WF_DEVICE T magnitude(T a) { return a < T(0) ? -a : a; }

// Largest value of a warp, its first index among equals, NaN above all: what warp_arg_max finds, by fewer steps where the
// processor reduces integers (a non-negative float orders as its bits do).
WF_DEVICE indexed<float> first_largest(indexed<float> own) {
#if defined(WARPFRONT_SIMT) || WF_ARCH < 800
  return warp_arg_max(own);
#else
  const u32 key = own.index == kNone ? 0u : __float_as_uint(own.value) & 0x7fffffffu;
  const u32 top = __reduce_max_sync(kFullMask, key);
  const u32 index = __reduce_min_sync(kFullMask, key == top ? static_cast<u32>(own.index) : static_cast<u32>(kNone));
  return {__uint_as_float(top), static_cast<i32>(index)};
#endif
}

// Entry t of the list of moved rows: the rows top .. top + count that were interchanged, then their partners; a partner
// that is among the first, or named before, is left out (-1).
WF_DEVICE i32 moved_row(const i32* pivots, i32 top, i32 count, int t) {
  if (t < count) return top + t;
  const i32 row = pivots[top + t - count] - 1;
  if (row < top + count) return -1;
  for (int s = 0; s < t - count; ++s)
    if (pivots[top + s] - 1 == row) return -1;
  return row;
}

// What a panel's search leaves in shared memory, for two columns in turn.
template <typename T, int W>
struct panel_room {
  T candidate[2][kPanelThreads / kWarp][W], top_row[2][W];
  indexed<T> found[2][kPanelThreads / kWarp];
};

template <typename T>
struct block_column {
  T* a;
  i64 lda;
  i32 n, first, wide;
  i32 *pivots, *moves, *zero, *order, *panel_order;
};

// Factor columns c0 .. last of the block column; all threads of block 0. W columns of R rows a thread are in registers.
template <typename T, int R, int W>
WF_DEVICE void factor_panel(const block_column<T>& f, panel_room<T, W>& room, i32 c0, i32 last) {
  T* const a = f.a;
  const i64 lda = f.lda;
  const i32 n = f.n, first = f.first;
  i32 *const pivots = f.pivots, *const moves = f.moves, *const zero = f.zero;
  i32 *const order = f.order, *const panel_order = f.panel_order;
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (i32 i = first + t; i < n; i += threads) panel_order[i - first] = i;
  __syncthreads();  // both orders, before the thread that keeps them changes them
  T v[R][W];
  T* const mine = a + (c0 + t) + c0 * lda;
  const i32 step = static_cast<i32>(lda);  // W columns lie within 2^31 entries
  WF_UNROLL
  for (int w = 0; w < W; ++w) {
    WF_UNROLL
    for (int r = 0; r < R; ++r)
      v[r][w] = c0 + t + r * threads < n && c0 + w < last ? mine[w * step + r * threads] : T(0);
  }
  WF_UNROLL
  for (int j = 0; j < W; ++j) {
    if (c0 + j < last) {
      const int buffer = j & 1, warp = t / kWarp;
      indexed<T> best = {T(-1), kNone};
      WF_UNROLL
      for (int r = 0; r < R; ++r) {
        const i32 i = c0 + t + r * threads;
        const indexed<T> own = {magnitude(v[r][j]), i};
        if (i >= c0 + j && i < n && beats(own, best)) best = own;
      }
      best = first_largest(best);
      if (lane_id() == 0) room.found[buffer][warp] = best;
      WF_UNROLL
      for (int r = 0; r < R; ++r) {
        const i32 i = c0 + t + r * threads;
        if (i == best.index) {
          WF_UNROLL
          for (int w = 0; w < W; ++w) room.candidate[buffer][warp][w] = v[r][w];
        }
        if (i == c0 + j) {
          WF_UNROLL
          for (int w = 0; w < W; ++w) room.top_row[buffer][w] = v[r][w];
        }
      }
      __syncthreads();
      const indexed<T> none = {T(-1), kNone};
      best = first_largest(lane_id() < threads / kWarp ? room.found[buffer][lane_id()] : none);
      const i32 row = best.index;
      const T* pivot_row = room.candidate[buffer][((row - c0) % threads) / kWarp];
      const T pivot = pivot_row[j];
      if (t == threads - 1) {
        pivots[c0 + j] = row + 1;
        const i32 held = order[row - first], here = panel_order[row - first];
        order[row - first] = order[c0 + j - first];
        order[c0 + j - first] = held;
        panel_order[row - first] = panel_order[c0 + j - first];
        panel_order[c0 + j - first] = here;
        if (pivot == T(0) && *zero == -1) *zero = c0 + j;
      }
      WF_UNROLL
      for (int r = 0; r < R; ++r) {
        const i32 i = c0 + t + r * threads;
        if (row != c0 + j && i == row) {
          WF_UNROLL
          for (int w = 0; w < W; ++w) v[r][w] = room.top_row[buffer][w];
        }
        if (row != c0 + j && i == c0 + j) {
          WF_UNROLL
          for (int w = 0; w < W; ++w) v[r][w] = pivot_row[w];
        }
        if (i > c0 + j && pivot != T(0)) {
          const T l = v[r][j] / pivot;
          v[r][j] = l;
          WF_UNROLL
          for (int w = j + 1; w < W; ++w) v[r][w] = v[r][w] - l * pivot_row[w];
        }
      }
    }
  }
  WF_UNROLL
  for (int w = 0; w < W; ++w) {
    WF_UNROLL
    for (int r = 0; r < R; ++r)
      if (c0 + t + r * threads < n && c0 + w < last) mine[w * step + r * threads] = v[r][w];
  }
  __syncthreads();  // pivots and orders of the thread that keeps them, before every thread reads them
  for (int s = t; s < 2 * W; s += threads) {
    const i32 dst = s < 2 * (last - c0) ? moved_row(pivots, c0, last - c0, s) : -1;
    moves[2 * s] = dst;
    moves[2 * s + 1] = dst < 0 ? -1 : panel_order[dst - first];
  }
}

// Apply the panel c0 .. last to the block column's other columns, those left of it by the interchanges alone; every block.
template <typename T, int W>
WF_DEVICE void update_columns(const block_column<T>& f, T* above, i32 c0, i32 last) {
  T* const a = f.a;
  const i64 lda = f.lda;
  const i32 n = f.n, first = f.first, wide = f.wide;
  const i32* const moves = f.moves;
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  // Columns of the block left of the panel take part in the interchanges only.
  const i32 others = wide - (last - c0);
  for (i32 q = static_cast<i32>(blockIdx.x); q < others; q += static_cast<i32>(gridDim.x)) {
    const i32 c = first + q < c0 ? first + q : first + q + (last - c0);
    T* column = a + c * lda;
    T held = T(0);
    i32 dst = -1;
    if (t < 2 * W) {
      dst = moves[2 * t];
      if (dst >= 0) held = column[moves[2 * t + 1]];
    }
    __syncthreads();
    if (dst >= 0) column[dst] = held;
    __syncthreads();
    if (c < c0) continue;  // the same for the whole block
    if (t < kWarp) {
      T u = t < last - c0 ? column[c0 + t] : T(0);
      WF_UNROLL_N(4)
      for (int w = 0; w < W; ++w) {
        const T done = __shfl_sync(kFullMask, u, w);
        if (t > w && t < last - c0 && w < last - c0) u = u - a[c0 + t + (c0 + w) * lda] * done;
      }
      if (t < W) above[t] = u;
      if (t < last - c0) column[c0 + t] = u;
    }
    __syncthreads();
    for (i32 i = last + t; i < n; i += threads) {
      T x = column[i];
      WF_UNROLL
      for (int w = 0; w < W; ++w)
        if (c0 + w < last) x = x - a[i + (c0 + w) * lda] * above[w];
      column[i] = x;
    }
    __syncthreads();  // `above`, before the next column's
  }
}

}  // namespace wf

// a: [n][lda] column-major. pivots: [n], counted from 1, written for first .. first + wide. moves: [4 * W], written: the
// panel's moved rows and what they receive, both or -1. outer: [4 * wide], the same for the whole block column. zero:
// first zero pivot or -1, kept. counter: 0 on entry.
template <typename T, int R, int W>
__global__ void __launch_bounds__(512) lu_block(T* a, wf::i64 lda, wf::i32 n, wf::i32 first, wf::i32 wide, wf::i32* pivots,
                                                 wf::i32* moves, wf::i32* outer, wf::i32* zero, wf::u32* counter) {
  WF_DYNAMIC_SHARED(raw);
  wf::i32* order = reinterpret_cast<wf::i32*>(raw);
  wf::i32* panel_order = order + (n - first);
  __shared__ wf::panel_room<T, W> room;
  __shared__ T above[W];
  const wf::block_column<T> f = {a, lda, n, first, wide, pivots, moves, zero, order, panel_order};
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  wf::u32 round = 0;
  if (blockIdx.x == 0)
    for (wf::i32 i = first + t; i < n; i += threads) order[i - first] = i;
  for (wf::i32 c0 = first; c0 < first + wide; c0 += W) {
    const wf::i32 last = wf::min_of(c0 + W, first + wide);
    if (blockIdx.x == 0) wf::factor_panel<T, R, W>(f, room, c0, last);
    wf::grid_barrier(counter, ++round);
    wf::update_columns<T, W>(f, above, c0, last);
    if (last < first + wide) wf::grid_barrier(counter, ++round);
  }
  if (blockIdx.x == 0)
    for (int s = t; s < 2 * wide; s += threads) {
      const wf::i32 dst = wf::moved_row(pivots, first, wide, s);
      outer[2 * s] = dst;
      outer[2 * s + 1] = dst < 0 ? -1 : order[dst - first];
    }
}

// Interchanges of a block column in all other columns. outer: as lu_block wrote it, `count` pairs.
template <typename T>
__global__ void lu_exchange(T* a, wf::i64 lda, wf::i32 n, wf::i32 first, wf::i32 wide, const wf::i32* outer, wf::i32 count) {
  WF_DYNAMIC_SHARED(raw);
  T* stage = reinterpret_cast<T*>(raw);
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (wf::i32 q = static_cast<wf::i32>(blockIdx.x); q < n - wide; q += static_cast<wf::i32>(gridDim.x)) {
    T* column = a + (q < first ? q : q + wide) * lda;
    for (wf::i32 s = t; s < count; s += threads)
      if (outer[2 * s] >= 0) stage[s] = column[outer[2 * s + 1]];
    __syncthreads();
    for (wf::i32 s = t; s < count; s += threads)
      if (outer[2 * s] >= 0) column[outer[2 * s]] = stage[s];
    __syncthreads();  // the scatter's reads of `stage`, before the next column's gather
  }
}

// Order of rows that all interchanges together make: row order[i] of the matrix stands at i. One block; thread 0 follows
// the interchanges in shared memory, one after another as they were made.
__global__ void lu_order(const wf::i32* pivots, wf::i32* order, wf::i32 n) {
  WF_DYNAMIC_SHARED(raw);
  wf::i32* stand = reinterpret_cast<wf::i32*>(raw);
  wf::i32* partner = stand + n;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
    stand[i] = i;
    partner[i] = pivots[i] - 1;
  }
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 0; i < n; ++i) {
      const wf::i32 other = partner[i], held = stand[i];
      stand[i] = stand[other];
      stand[other] = held;
    }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) order[i] = stand[i];
}
