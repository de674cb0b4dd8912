// LU of a chunk of columns of the wide fronts of one level: dataflow between strips of 32 rows of either half.
//
// A half is what lu_front.cuh calls so: side 0 the lower triangle, side 1 the upper one transposed; an item's `e1`
// is its side, and 2 where the strip assembles its rows itself (fronts of one chunk). What strips.cu says about chunks and blocks holds for either side.
// One block of 256 threads owns 32 rows of one side and all columns of a chunk in shared memory. The lower strip of a panel
// also owns its diagonal block, eliminated in place by four warps (lu_direct.cuh); where a pivot is refused, one warp searches and
// inverts L, and a second one inverts U a row behind.
// For each panel before it a strip waits for the published block, forms
//   side 0: L D = S V,          V: the diagonal block's unit U, inverted; L is what goes to the panel
//   side 1: (D U)^T = S P^T W,  W: L of the diagonal block, inverted and transposed; P its interchanges
// announces its rows, and updates its columns behind with the rows of the other side's strips there. Rows of one side wait for
// rows of the other with a smaller index, and the diagonal block's strip for its own other side, which comes just before it:
// blocks start in the order in which they are waited for. Pivots are sought in the 32 rows of the diagonal block.
// The chain goes from a diagonal block to the next one's lower strip, which needs its other side's rows of the last panel. It
// forms those itself, from what the other side held before that panel and published in time: one hand-over less.
// Flags of a front: a word a diagonal block, a word a strip of side 0, a word a strip of side 1, a word for what a strip of side 1
// published; epochs as in strips.cu.
// Barriers of a panel: published block landed | rows formed, before S_p is overwritten | rows stored, before they are
// announced and read | neighbours' rows landed | multiplied, before the next load overwrites them. Of a diagonal block:
// loaded | each row of U, between its writer and the two warps that read it | inverses published, before they are announced.
#include "lu_direct.cuh"
#include "lu_strip.cuh"

using namespace wf;

constexpr int kHalf = kPanel * kPanel, kHeld = 2 * kHalf + kPanel, kPublished = kHeld + kHalf;
// published: V, P^T W, both transposed; reciprocals of D; what the block's other side held before the last panel

template <typename T>
struct alignas(16) LuBlock {
  T upper[kPanel * kPitch];  // rows of U, each from its diagonal on
  T reciprocal[kPanel];
  i32 order[kPanel];
};

// Rows of a panel: S_p M, 16 rows x 8 columns a warp; as they are to S, divided by the pivots to the panel. Both: the other
// side's as well, of `near`, by its M behind that; divided to `near`.
template <typename T>
WF_DEVICE void form_rows(const Strip<T>& x, int p, const T* reciprocals, bool both) {
  const int warp = threadIdx.x / kWarp, i0 = warp % 2 * 16, n0 = warp / 2 * 8;
  T* rows = x.s + p * kBlockSize;
  T acc[1][4] = {};
  multiply_plain(acc, rows + i0, x.m + n0, kPitch);
  T other[1][4] = {};
  if (both) multiply_plain(other, x.near + i0, x.near + kBlockSize + n0, kPitch);
  __syncthreads();
  WF_UNROLL
  for (int e = 0; e < 4; ++e) {
    const int i = i0 + tile_row(e), n = n0 + tile_col(e), col = p * kPanel + n, row = x.item.row + i;
    rows[n * kPitch + i] = acc[0][e];
    if (both) x.near[n * kPitch + i] = other[0][e] * reciprocals[n];
    if (row < x.written && col < x.columns)
      x.panel[static_cast<i64>(x.item.col + col) * x.f.ld + row] = acc[0][e] * reciprocals[n];
  }
}

// Columns q0..q0+count of blocks of 32 behind panel p: S_q -= S_p (rows q of the other side)^T.
template <typename T>
WF_DEVICE void update_columns(const Strip<T>& x, int p, int q0, int count) {
  constexpr int kPer = 16 / static_cast<int>(sizeof(T)), kPieces32 = kPanel / kPer;
  const int thread = threadIdx.x, warp = thread / kWarp;
  if (thread < count) signal_wait(x.others_done + q0 + thread, x.base + p + 1);
  __syncthreads();
  for (int c = thread; c < count * kPanel * kPieces32; c += kStripThreads) {
    const int b = c / (kPanel * kPieces32), k = c / kPieces32 % kPanel, n = c % kPieces32 * kPer;
    const int row = x.item.col + (q0 + b) * kPanel + n, left = x.item.end - row;
    const bool inside = left > 0 && p * kPanel + k < x.columns;
    const T* from = x.others + (inside ? static_cast<i64>(x.item.col + p * kPanel + k) * x.f.ld + row : 0);
    cp_async16(x.near + b * kBlockSize + k * kPitch + n, from, inside ? static_cast<u32>(min_of(kPer, left) * sizeof(T)) : 0u);
  }
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  const int b = warp / 2, i0 = warp % 2 * 16;
  if (b < count) {
    T acc[4][4] = {};
    multiply_plain(acc, x.s + p * kBlockSize + i0, x.near + b * kBlockSize, kPitch);
    T* target = x.s + (q0 + b) * kBlockSize;
    WF_UNROLL
    for (int n = 0; n < 4; ++n)
      for (int e = 0; e < 4; ++e) target[(8 * n + tile_col(e)) * kPitch + i0 + tile_row(e)] -= acc[n][e];
  }
  __syncthreads();
}

// The strip's own diagonal block behind panel p, whose rows of the other side are in `near`; 16 rows x 8 columns a warp.
template <typename T>
WF_DEVICE void update_block(const Strip<T>& x, int p) {
  const int warp = threadIdx.x / kWarp, i0 = warp % 2 * 16, n0 = warp / 2 * 8;
  T* target = x.s + x.item.index * kBlockSize;
  T acc[1][4] = {};
  multiply_plain(acc, x.s + p * kBlockSize + i0, x.near + n0, kPitch);
  WF_UNROLL
  for (int e = 0; e < 4; ++e) target[(n0 + tile_col(e)) * kPitch + i0 + tile_row(e)] -= acc[0][e];
}

// Copies a block of 32 x 32 that lies closely packed in global memory to shared memory.
template <typename T>
WF_DEVICE void fetch_block(T* to, const T* from, bool transposed) {
  const int lane = lane_id(), warp = threadIdx.x / kWarp;
  WF_UNROLL
  for (int k = warp; k < kPanel; k += kStripThreads / kWarp)
    to[transposed ? lane * kPitch + k : k * kPitch + lane] = from[k * kPanel + lane];
}

// The last panel before a diagonal block: the other side publishes what it holds of it, the block's own strip fetches that.
// Barriers: held | stored, before it is announced; announced | read.
template <typename T>
WF_DEVICE void share_held(const Strip<T>& x, int p, int side, T* held, u32* held_done) {
  const int lane = lane_id(), warp = threadIdx.x / kWarp;
  if (side == 0 && threadIdx.x == 0) signal_wait(held_done, x.base + 1);
  __syncthreads();
  if (side == 0) {
    fetch_block(x.near, held, false);
    return;
  }
  for (int k = warp; k < kPanel; k += kStripThreads / kWarp)
    held[k * kPanel + lane] = x.s[p * kBlockSize + k * kPitch + lane];
  __syncthreads();
  if (threadIdx.x == 0) signal_set(held_done, x.base + 1);
}

// One row of U further in the inverse of U transposed and scaled, one warp; lane c holds what is left of column c in y, and what is
// found behind that.
template <typename T>
WF_DEVICE void follow_row(T (&y)[kPanel], int k, int size, const T* upper) {
  const LuPair<T>* row = reinterpret_cast<const LuPair<T>*>(upper + k * kPitch);
  const T v = y[0], pivot = row[0].a, scaled = pivot == T(0) ? T(0) : v * reciprocal(pivot);
  WF_UNROLL
  for (int j = 0; j < kPanel / 2; ++j) {
    const LuPair<T> u = row[j];
    if (j > 0) y[2 * j - 1] = fma(k + 2 * j < size ? -u.a : T(0), scaled, y[2 * j]);
    y[2 * j] = fma(k + 2 * j + 1 < size ? -u.b : T(0), scaled, y[2 * j + 1]);
  }
  y[kPanel - 1] = v;
}

// The diagonal block where its diagonal entries do: eliminated in place, published, announced. False: to be searched.
template <typename T>
WF_DEVICE bool take_block(const Strip<T>& x, const LuRule<T>& rule, T* published, T* upper, T* diagonal, i32* pivots, i32* stats) {
  const int lane = lane_id(), warp = threadIdx.x / kWarp, index = x.item.index;
  const int size = min_of(kPanel, x.columns - index * kPanel), k0 = x.item.col + index * kPanel;
  const i64 at = k0 * static_cast<i64>(x.f.ld) + k0;
  static_assert(sizeof(LuDirect<T>) <= kNeighbours * kBlockSize * sizeof(T), "the lines lie where the neighbours' rows did");
  LuDirect<T>& s = *reinterpret_cast<LuDirect<T>*>(x.near);
  const T sure = lu_shape(size, size, size, k0 + size == x.f.rows, rule).sure;
  LuTaken<T> taken;
  if (!lu_direct_block(x.s + index * kBlockSize, kPitch, size, sure, rule.share, s, taken)) return false;
  if (warp == 2 || warp == 3)
    lu_each(taken, size, [&](int k, T v) { published[(warp - 2) * kHalf + k * kPanel + lane] = v; });
  if (warp == 0) published[2 * kHalf + lane] = s.reciprocal[lane];
  for (int k = size + warp; k < kPanel; k += kStripThreads / kWarp)
    published[k * kPanel + lane] = published[kHalf + k * kPanel + lane] = T(0);
  __syncthreads();
  if (threadIdx.x == 0) signal_set(x.block_done + index, x.base + 1);
  lu_place_block(taken, size, x.panel + at, upper + at, x.f.ld);
  if (warp == 0 && lane < size) diagonal[2 * lane] = taken.d, diagonal[2 * lane + 1] = T(0);
  if (warp == 4 && lane < size) {
    i32* columns = pivots + 2 * order_of(x.f);
    pivots[2 * lane] = columns[2 * lane] = k0 + lane, pivots[2 * lane + 1] = columns[2 * lane + 1] = 1;
  }
  if (warp == 5 && lane < kStats) stats[lane] = lane == kOnes ? size : lane == kFailed ? -1 : 0;
  return true;
}

// The diagonal block with interchanges: eliminated and L inverted by one warp, U inverted by a second one right behind it;
// published, announced, stored. r: the first warp's rows, the second one's columns.
template <typename T>
WF_DEVICE void search_block(const Strip<T>& x, const LuRule<T>& rule, LuBlock<T>& s, T* published, T* upper, T* diagonal,
                            i32* pivots, i32* stats) {
  const int lane = lane_id(), warp = threadIdx.x / kWarp, index = x.item.index;
  const int size = min_of(kPanel, x.columns - index * kPanel), k0 = x.item.col + index * kPanel;
  const i64 ld = x.f.ld;
  T *block = x.s + index * kBlockSize, *panel = x.panel + k0 * ld + k0, *above = upper + k0 * ld + k0;
  T r[kPanel];
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k)
    r[k] = lane >= size || k >= size ? T(0) : warp == 0 ? block[k * kPitch + lane] : T(k == lane);
  LuWarp<T> w = lu_warp(lu_shape(size, size, size, k0 + size == x.f.rows, rule), rule, block, kPitch, s.upper);
  __syncthreads();
  for (int k = 0; k < size; ++k) {
    if (warp == 0) lu_take<true>(w, r, k);
    __syncthreads();
    if (warp == 0) lu_apply(w, r, k);
    else if (warp == 1) follow_row(r, k, size, s.upper);
  }
  const int place = w.place;
  const T d = w.d;
  const LuCounts& c = w.counts;
  if (warp == 0) {
    s.order[lane < size ? place : lane] = lane;
    published[2 * kHalf + lane] = s.reciprocal[lane] = lane < size && d != T(0) ? reciprocal(d) : T(0);
    __syncwarp();
    WF_UNROLL
    for (int j = 0; j < kPanel; ++j) {
      const int m = j - (kPanel - size);  // column of the inverse of L
      if (m >= 0) published[kHalf + place * kPanel + s.order[m]] = lane < size && m <= place ? r[j] : T(0);
      else published[kHalf + place * kPanel + size + j] = T(0);
    }
  } else if (warp == 1) {
    WF_UNROLL
    for (int j = 0; j < kPanel; ++j) {
      const int k = j - (kPanel - size);
      published[(k >= 0 ? k : kPanel + k) * kPanel + lane] = k >= 0 ? r[j] : T(0);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) signal_set(x.block_done + index, x.base + 1);
  if (warp == 0) {
    WF_UNROLL
    for (int j = 0; j < kPanel; ++j) {
      const int m = j - (kPanel - size);
      if (lane < size && m >= 0 && m < place) panel[place * ld + m] = r[j];
      if (lane < size && j < place) panel[j * ld + place] = block[j * kPitch + lane];
    }
    if (lane < size) {
      i32* columns = pivots + 2 * order_of(x.f);
      panel[lane * ld + lane] = T(1);
      diagonal[2 * lane] = d, diagonal[2 * lane + 1] = T(0);
      pivots[2 * lane] = k0 + s.order[lane], columns[2 * lane] = k0 + lane;
      pivots[2 * lane + 1] = columns[2 * lane + 1] = d == T(0) ? 0 : 1;
    }
    if (lane < kStats)
      stats[lane] = lane == kOnes ? c.pivots : lane == kPerturbed ? c.perturbed : lane == kZeros ? c.zeros
                  : lane == kDoubtful ? c.doubtful : lane == kNonFinite ? c.nonfinite
                  : lane == kFailed ? (c.failed < 0 ? -1 : static_cast<i32>(x.f.first) + k0 + c.failed) : 0;
  } else if (warp == 1) {
    WF_UNROLL
    for (int j = 0; j < kPanel; ++j) {
      const int k = j - (kPanel - size);
      if (lane < k) above[k * ld + lane] = r[j];
    }
    for (int k = 0; k < size; ++k)
      if (lane >= k && lane < size)
        above[k * ld + lane] = lane == k ? T(1) : s.upper[k * kPitch + lane - k] * s.reciprocal[k];
  }
}

template <typename T>
WF_DEVICE void load_strip(const Strip<T>& x) {
  const int lane = lane_id(), warp = threadIdx.x / kWarp;
  for (int c = warp; c < (x.owned + 1) * kPanel; c += kStripThreads / kWarp) {
    const int row = x.item.row + lane, col = x.item.col + c;
    T v = T(0);
    if (row < x.item.last && c < x.columns)
      v = row >= col ? x.panel[static_cast<i64>(col) * x.f.ld + row] : x.others[static_cast<i64>(row) * x.f.ld + col];
    x.s[c / kPanel * kBlockSize + c % kPanel * kPitch + lane] = v;
  }
}

template <typename T>
__global__ void __launch_bounds__(kStripThreads, 1)
    lu_eliminate_strips(const Item* items, const Front* fronts, const Child* children, const Entry* entries, const i32* maps,
                        const T* values, const T* blocks_of_children, const T* rule, T* panels, T* diagonal, i32* pivots,
                        T* published, u32* flags, i32* stats) {
  WF_DYNAMIC_SHARED(memory);
  __shared__ LuBlock<T> scratch;
  __shared__ T reciprocals[kPanel];
  __shared__ Piece pieces[kPieces];
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp;
  Strip<T> x;
  x.item = items[blockIdx.x], x.f = fronts[x.item.front];
  const int blocks = x.item.e0, index = x.item.index, side = x.item.e1 % 2, first = x.item.col / kPanel;
  const int all = (x.f.width + kPanel - 1) / kPanel;
  x.m = reinterpret_cast<T*>(memory), x.near = x.m + kBlockSize, x.s = x.near + kNeighbours * kBlockSize;
  x.panel = panels + side_panel(x.f, side), x.others = panels + side_panel(x.f, 1 - side);
  T* work = published + x.f.work + static_cast<i64>(first) * kPublished;
  x.block_done = flags + x.f.flag + first;
  x.mine_done = flags + x.f.flag + (1 + side) * all + first, x.others_done = flags + x.f.flag + (2 - side) * all + first;
  x.base = 64 * flags[0], x.columns = x.item.end - x.item.col;
  x.owned = side == 0 ? min_of(index, blocks - 1) : min_of(index, blocks) - 1;
  x.written = x.item.last == x.f.rows ? x.f.ld : x.item.last;
  if (x.item.e1 >= 2) assemble_strip<T>(x, {children, entries, maps, values, blocks_of_children}, pieces, side, side == 0 && index < blocks);
  else load_strip(x);
  for (int p = 0; p < index && p < blocks; ++p) {
    const bool last = index < blocks && p + 1 == index, both = last && side == 0;
    if (last)
      share_held(x, p, side, work + static_cast<i64>(index) * kPublished + kHeld, flags + x.f.flag + 3 * all + first + index);
    if (thread == 0) signal_wait(x.block_done + p, x.base + 1);
    __syncthreads();
    const T* from = work + static_cast<i64>(p) * kPublished;
    fetch_block(x.m, from + side * kHalf, true);
    if (both) fetch_block(x.near + kBlockSize, from + kHalf, true);
    if (warp == 0) reciprocals[lane] = from[2 * kHalf + lane];
    __syncthreads();
    form_rows(x, p, reciprocals, both);
    __syncthreads();
    if (index < blocks && !both && thread == 0) signal_set(x.mine_done + index, x.base + p + 1);
    if (both) update_block(x, p);
    else
      for (int q = p + 1; q <= x.owned; q += kNeighbours) update_columns(x, p, q, min_of(kNeighbours, x.owned - q + 1));
  }
  __syncthreads();
  if (side == 1 || index >= blocks) return;
  if (index > 0 && thread == kStripThreads - kWarp) signal_set(x.mine_done + index, x.base + index);
  const i64 at = x.f.first + x.item.col + index * kPanel;
  const LuRule<T> tolerances = lu_rule(rule);
  T *to = work + static_cast<i64>(index) * kPublished, *upper = panels + upper_panel(x.f);
  i32 *block_pivots = pivots + 2 * at, *block_stats = stats + kStats * (x.f.stat + first + index);
  if (!take_block(x, tolerances, to, upper, diagonal + 2 * at, block_pivots, block_stats))
    search_block(x, tolerances, scratch, to, upper, diagonal + 2 * at, block_pivots, block_stats);
}
