// One block column of a dense LU with partial pivoting in one cooperative launch, and the row interchanges beside it.
//
// lu_block factors columns first .. first + wide of a column-major matrix, rows first .. n, in panels of W columns.
// Panel: block 0, thread t owns rows c0 + t, c0 + t + 512, ... (R of them) and keeps their W entries in registers; a
// column costs one search over the block, one exchange of two rows through shared memory and one rank-one update.
// Rest of the block column: block b owns whole columns c0 + W + b, ...; it applies the panel's interchanges, solves with
// the panel's unit triangle and subtracts the product, thread t again owning rows.
//
// Shared layout (dynamic): order[n - first], which row of the block column as it came stands where; panel_order, the same
// for the current panel; then in static memory the two rows of an exchange, reduction scratch, the column's top entries.
//
// Barriers. Panel, per column: two inside block_arg_max (separate the update of the column before from this search, and
// the search from the exchange's writes), one between those writes and their reads. A grid barrier after the panel
// (its L, interchanges and pivots, written by block 0, are then read by all) and one after the rest (columns written by
// other blocks become the next panel). Rest: block barriers between gathering and scattering the interchanged entries,
// and around the column's top entries.
//
// lu_order turns all interchanges into one order of rows. lu_exchange applies a whole block column's interchanges to the columns outside it: a block owns columns and gathers all
// moved entries of one before it scatters them.
//
// Literature: Dongarra, Eijkhout, Luszczek, Recursive approach in sparse matrix LU factorization (2001) for the blocking;
// the block-resident panel is this file's own.
#include "block.cuh"
#include "signal.cuh"
#include "types.cuh"

namespace wf {

[[maybe_unused]] constexpr int kPanelThreads = 512;
[[maybe_unused]] constexpr int kExchangeThreads = 256;

template <typename T>
WF_DEVICE T magnitude(T a) { return a < T(0) ? -a : a; }

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
  __shared__ T pivot_row[W], top_row[W], above[W];
  __shared__ wf::indexed<T> scratch[wf::kMaxWarps];
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  wf::u32 round = 0;
  if (blockIdx.x == 0)
    for (wf::i32 i = first + t; i < n; i += threads) order[i - first] = i;
  for (wf::i32 c0 = first; c0 < first + wide; c0 += W) {
    const wf::i32 last = wf::min_of(c0 + W, first + wide);
    if (blockIdx.x == 0) {
      for (wf::i32 i = first + t; i < n; i += threads) panel_order[i - first] = i;
      T v[R][W];
      T* const mine = a + (c0 + t) + c0 * lda;
      const wf::i32 step = static_cast<wf::i32>(lda);  // W columns lie within 2^31 entries
      WF_UNROLL
      for (int w = 0; w < W; ++w) {
        WF_UNROLL
        for (int r = 0; r < R; ++r)
          v[r][w] = c0 + t + r * threads < n && c0 + w < last ? mine[w * step + r * threads] : T(0);
      }
      WF_UNROLL
      for (int j = 0; j < W; ++j) {
        if (c0 + j < last) {
          wf::indexed<T> best = {T(-1), wf::kNone};
          WF_UNROLL
          for (int r = 0; r < R; ++r) {
            const wf::i32 i = c0 + t + r * threads;
            const wf::indexed<T> own = {wf::magnitude(v[r][j]), i};
            if (i >= c0 + j && i < n && wf::beats(own, best)) best = own;
          }
          best = wf::block_arg_max(best, scratch);
          const wf::i32 row = best.index;
          WF_UNROLL
          for (int r = 0; r < R; ++r) {
            const wf::i32 i = c0 + t + r * threads;
            if (i == row) {
              WF_UNROLL
              for (int w = 0; w < W; ++w) pivot_row[w] = v[r][w];
            }
            if (i == c0 + j) {
              WF_UNROLL
              for (int w = 0; w < W; ++w) top_row[w] = v[r][w];
            }
          }
          if (t == 0) {
            pivots[c0 + j] = row + 1;
            const wf::i32 held = order[row - first], here = panel_order[row - first];
            order[row - first] = order[c0 + j - first];
            order[c0 + j - first] = held;
            panel_order[row - first] = panel_order[c0 + j - first];
            panel_order[c0 + j - first] = here;
          }
          __syncthreads();
          const T pivot = pivot_row[j];
          if (t == 0 && pivot == T(0) && *zero == -1) *zero = c0 + j;
          WF_UNROLL
          for (int r = 0; r < R; ++r) {
            const wf::i32 i = c0 + t + r * threads;
            if (row != c0 + j && i == row) {
              WF_UNROLL
              for (int w = 0; w < W; ++w) v[r][w] = top_row[w];
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
      __syncthreads();  // pivots of thread 0, before every thread reads them
      for (int s = t; s < 2 * W; s += threads) {
        const wf::i32 dst = s < 2 * (last - c0) ? wf::moved_row(pivots, c0, last - c0, s) : -1;
        moves[2 * s] = dst;
        moves[2 * s + 1] = dst < 0 ? -1 : panel_order[dst - first];
      }
    }
    wf::grid_barrier(counter, ++round);
    // Columns of the block left of the panel take part in the interchanges only.
    const wf::i32 others = wide - (last - c0);
    for (wf::i32 q = static_cast<wf::i32>(blockIdx.x); q < others; q += static_cast<wf::i32>(gridDim.x)) {
      const wf::i32 c = first + q < c0 ? first + q : first + q + (last - c0);
      T* column = a + c * lda;
      T held = T(0);
      wf::i32 dst = -1;
      if (t < 2 * W) {
        dst = moves[2 * t];
        if (dst >= 0) held = column[moves[2 * t + 1]];
      }
      __syncthreads();
      if (dst >= 0) column[dst] = held;
      __syncthreads();
      if (c < c0) continue;  // the same for the whole block
      if (t < wf::kWarp) {
        T u = t < last - c0 ? column[c0 + t] : T(0);
        WF_UNROLL_N(4)
        for (int w = 0; w < W; ++w) {
          const T done = __shfl_sync(wf::kFullMask, u, w);
          if (t > w && t < last - c0 && w < last - c0) u = u - a[c0 + t + (c0 + w) * lda] * done;
        }
        if (t < W) above[t] = u;
        if (t < last - c0) column[c0 + t] = u;
      }
      __syncthreads();
      for (wf::i32 i = last + t; i < n; i += threads) {
        T x = column[i];
        WF_UNROLL
        for (int w = 0; w < W; ++w)
          if (c0 + w < last) x = x - a[i + (c0 + w) * lda] * above[w];
        column[i] = x;
      }
      __syncthreads();  // `above`, before the next column's
    }
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
