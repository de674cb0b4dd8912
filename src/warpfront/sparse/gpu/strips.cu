// Elimination of a chunk of columns of the wide fronts of one level: dataflow between strips of 32 rows.
//
// One block of 256 threads owns 32 rows (item.row..) of columns col..end of a front, all of them in shared memory:
// S, column-major, pitch 36. Strip `index` < e0 also owns the diagonal block of panel `index` of the chunk.
// Where the fully summed columns are one chunk (item.e1), the strip assembles its rows itself; otherwise assemble.cu has.
// For each panel p before its own diagonal block, a strip waits for the published block, forms its rows
//   L = S_p M,   M = P inv(L_pp)^T inv(D_p)   (P: the interchanges inside the diagonal block),
// writes them to the panel, announces them, and updates its columns behind p with the rows of the strips there.
// Then it eliminates its diagonal block, publishes M and D, and announces that. So a strip waits only for strips with
// a smaller block index: blocks start in that order, and no wait can last for ever.
// Pivots are sought inside the diagonal block only (pivot_search = "panel").
// Flags: one word a diagonal block and one a strip, holding 64 * epoch + panels done; never cleared. Writers release
// after a barrier, one reader acquires before one.
// Barriers of a panel: published block and D landed | rows formed, before S_p is overwritten | rows stored, before they
// are announced and read | neighbours' rows landed | multiplied, before the next load overwrites them |
// own block updated.
#include "strip_block.cuh"

using namespace wf;

constexpr int kStripThreads = 256, kBlockSize = kPanel * kPitch, kNeighbours = 4;
static_assert(sizeof(BlockedScratch<double>) <= kNeighbours * kBlockSize * sizeof(double), "it lies where the neighbours' rows did");

template <typename T>
struct Strip {
  Item item;
  Front f;
  T *s, *m, *near, *panel, *published;
  u32 *block_done, *rows_done, base;
  int columns, written;  // columns of the chunk; rows of L end here (those that pad the front are written too)
};

// Where a strip's rows come from when it is assembled here.
template <typename T>
struct StripSources {
  const Child* children;
  const Entry* entries;
  const i32* maps;
  const T *values, *blocks;
};

// Describes the parts of up to kPieces children from `first` on that fall on a strip, a thread each.
template <typename T>
WF_DEVICE void list_strip_pieces(const Strip<T>& x, const StripSources<T>& from, Piece* pieces, int first) {
  const int c = first + static_cast<int>(threadIdx.x), bin = x.item.row / kPanel;
  if (threadIdx.x >= kPieces || c >= x.f.child1) return;
  const Child child = from.children[c];
  const i32* range = from.maps + child.range;
  const int end = range[bin + 1];
  pieces[threadIdx.x] = {child.block, child.map, child.below, range[bin], end, 0,
                         min_of(end, range[(x.columns + kPanel - 1) / kPanel]), 0};
}

// A strip's rows of all fully summed columns: entries of A, then the children in ascending order.
// Barriers: zeroed and listed | entries entered | each child added | the next list written.
template <typename T>
WF_DEVICE void assemble_strip(const Strip<T>& x, const StripSources<T>& from, Piece* pieces, int words) {
  constexpr int kGroups = kStripThreads / kWarp, kBatch = 16;
  const int thread = threadIdx.x, lane = thread % kWarp, group = thread / kWarp, rows = x.item.last - x.item.row;
  list_strip_pieces(x, from, pieces, x.f.child0);
  for (int e = thread; e < words; e += kStripThreads) x.s[e] = T(0);
  __syncthreads();
  for (i64 e = x.f.entry0 + thread; e < x.f.entry1; e += kStripThreads) {
    const Entry entry = from.entries[e];
    const int row = entry.row - x.item.row;
    if (row >= 0 && row < rows) x.s[entry.col * kPitch + row] = from.values[entry.slot];
  }
  __syncthreads();
  for (int c = x.f.child0; c < x.f.child1; ++c) {
    const int at = (c - x.f.child0) % kPieces;
    if (at == 0 && c != x.f.child0) {
      __syncthreads();
      list_strip_pieces(x, from, pieces, c);
      __syncthreads();
    }
    const Piece piece = pieces[at];
    if (piece.ra == piece.rb || piece.cb == 0) continue;
    const i32* map = from.maps + piece.map;
    const T* block = from.blocks + piece.block;
    const int i = piece.ra + lane, row = i < piece.rb ? map[i] - x.item.row : -1;
    const bool live = row >= 0 && row < rows;
    for (int base = group; base < piece.cb; base += kGroups * kBatch) {
      T v[kBatch];
      int into[kBatch];
      WF_UNROLL
      for (int q = 0; q < kBatch; ++q) {
        const int j = base + q * kGroups;
        const bool inside = live && j < piece.cb && i >= j;
        into[q] = inside ? map[j] : x.columns;
        v[q] = inside ? block[packed_at(piece.below, j) + i] : T(0);
      }
      WF_UNROLL
      for (int q = 0; q < kBatch; ++q)
        if (into[q] < x.columns) x.s[into[q] * kPitch + row] += v[q];
    }
    __syncthreads();
  }
}

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

// A strip that has been assembled by a launch before, or updated by the chunks before this one.
template <typename T>
WF_DEVICE void load_strip(const Strip<T>& x, int owned) {
  const int lane = threadIdx.x % kWarp;
  for (int c = static_cast<int>(threadIdx.x) / kWarp; c < (owned + 1) * kPanel; c += kStripThreads / kWarp) {
    const int row = x.item.row + lane, col = x.item.col + c;
    const bool inside = row < x.item.last && c < x.columns && row >= col;
    x.s[c * kPitch + lane] = inside ? x.panel[static_cast<i64>(col) * x.f.ld + row] : T(0);
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

// Panels before the strip's own: its rows of each are formed and announced, its columns behind updated. The last one's
// columns are the strip's own block: all warps update it , one eliminates it, and another
// announces the rows, since that waits for their stores.
template <bool Paired, bool Piped, typename T>
WF_DEVICE void follow_strips(const Strip<T>& x, Diagonal<T>& d, int blocks, int owned) {
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp, index = x.item.index;
  if (index == 0) __syncthreads();
  for (int p = 0; p < index && p < blocks; ++p) {
    if (thread == 0) signal_wait(x.block_done + p, x.base + 1);
    __syncthreads();
    const T* from = x.published + static_cast<i64>(p) * kPublished;
    WF_UNROLL
    for (int k = 0; k < kPanel; k += kStripThreads / kWarp)
      x.m[(k + warp) * kPitch + lane] = from[(k + warp) * kPanel + lane];
    if (warp == 0) {
      from += kPanel * kPanel;
      set_diagonal(d, lane, from[lane], from[kPanel + lane], static_cast<int>(from[2 * kPanel + lane]));
    }
    __syncthreads();
    form_rows(x, p);
    __syncthreads();
    const bool last = index < blocks && p + 1 == index;
    if (last) {
      update_own<Paired, 1>(x, p, d, warp % 2 * 16, warp / 2 * 8);
      __syncthreads();
    }
    if (index < blocks && thread == kStripThreads - kWarp) signal_set(x.rows_done + index, x.base + p + 1);
    if (!last && Piped) {
      update_behind<Paired>(x, p, owned, d);
    } else if (!last) {
      for (int q = p + 1; q <= owned; q += kNeighbours) update_columns<Paired>(x, p, q, min_of(kNeighbours, owned - q + 1), d);
    }
  }
}

// Way: 0 diagonal blocks two columns at a time; 1 eight (eliminate_blocked); 2 and neighbours' rows loaded ahead.
template <typename T, bool Pivoting, int Way>
__global__ void __launch_bounds__(kStripThreads, 1)
    eliminate_strips(const Item* items, const Front* fronts, const Child* children, const Entry* entries, const i32* maps,
                     const T* values, const T* blocks_of_children, const T* rule, T* panels, T* diagonal, i32* pivots,
                     T* published, u32* flags, i32* stats) {
  WF_DYNAMIC_SHARED(memory);
  __shared__ Diagonal<T> d;
  __shared__ Piece pieces[kPieces];
  const int thread = threadIdx.x, lane = thread % kWarp, warp = thread / kWarp;
  Strip<T> x;
  x.item = items[blockIdx.x], x.f = fronts[x.item.front];
  const int blocks = x.item.e0, index = x.item.index, owned = min_of(index, blocks - 1), first = x.item.col / kPanel;
  x.m = reinterpret_cast<T*>(memory), x.near = x.m + kBlockSize, x.s = x.near + kNeighbours * kBlockSize;
  x.panel = panels + x.f.panel, x.published = published + x.f.work + static_cast<i64>(first) * kPublished;
  x.block_done = flags + x.f.flag + 2 * first, x.rows_done = x.block_done + blocks;
  x.base = 64 * flags[0], x.columns = x.item.end - x.item.col;
  x.written = x.item.last == x.f.rows ? x.f.ld : x.item.last;
  if (x.item.e1 != 0) {
    const StripSources<T> from = {children, entries, maps, values, blocks_of_children};
    assemble_strip(x, from, pieces, (owned + 1) * kBlockSize);
  } else {
    load_strip(x, owned);
  }
  for (int k = thread; k < kLead; k += kStripThreads) d.own[k] = d.other[k] = T(0), d.step[k] = 0;
  follow_strips<Pivoting, (Way > 1)>(x, d, blocks, owned);
  // The diagonal block, by one warp; columns behind the chunk are zero and stay out.
  if (index >= blocks || warp != 0) return;
  __shared__ typename ScratchOf<Pivoting, T>::type scratch;
  __shared__ i32 order[kPanel];
  const int size = min_of(kPanel, x.columns - index * kPanel), k0 = x.item.col + index * kPanel;
  T* block = x.s + index * kBlockSize;
  const BlockOutput<T> to = {diagonal + 2 * (x.f.first + k0), pivots + 2 * (x.f.first + k0), stats + kStats * (x.f.stat + first + index),
                             x.published + static_cast<i64>(index) * kPublished, x.block_done + index, x.base + 1};
  eliminate_block<(Way > 0)>(block, size, rule, *reinterpret_cast<BlockedScratch<T>*>(x.near), scratch, order, to);
  __syncwarp();
  for (int k = 0; k < size; ++k)
    if (lane < size) x.panel[static_cast<i64>(k0 + k) * x.f.ld + k0 + lane] = lane == k ? T(1) : block[k * kPitch + lane];
  if (lane < size) to.pivots[2 * lane] += k0;
  if (lane == kFailed && to.stats[lane] >= 0) to.stats[lane] += static_cast<i32>(x.f.first) + k0;
}
