// Dense LU with partial pivoting: a panel of W columns in the registers of a few blocks, and what its pivots do to the
// columns beside it.
//
// lu_panel: `ranks` blocks (gridDim.x; a cluster, or one, or resident ones) factor columns c0 .. c0 + wide of matrix
// blockIdx.y. A thread owns R whole rows for good: rows do not move, a thread keeps the place its row has come to and
// writes it there at the end. The W entries of a row turn by one register a column, so that the loop over columns has
// one body: entry 0 is the current column, the factor goes in at the other end, and after W columns all stand where
// they began. A column costs a search in each warp, whose candidate brings its row along, one exchange, and W - 1
// products a row.
// lu_rows: a warp owns Cols columns outside the panel. It gathers the moved entries of a column, solves with the panel's
// unit triangle in registers (lane i holds row i of it) where the column is right of the panel, and scatters.
// lu_triangle: the same with a triangle of finished factors and columns of another matrix, for inverses of a batch.
// lu_order: all interchanges as one order of rows; one block a matrix, thread 0 follows them in shared memory.
// lu_place: the columns of an inverse where they belong, by rows.
//
// Shared layout of lu_panel: `own`, the candidates of the block's warps (a row, its size and place), twice, for columns in
// turn; `near`, in a cluster the same of its blocks, of which each sends its best (warp k to block k); `arrived`, an mbarrier
// for each half of that.
// Barriers: per column __syncthreads between the warps' candidates and their reads, and in a cluster the arrival of all
// blocks' ones. That is enough for two halves: a warp writes its candidate for column j + 2, into the half of j, after the
// __syncthreads of j + 1, when all warps have sent and read those of j; a block sends for j + 1 after the same barrier, when
// all its warps have read the others' of j, and nobody sends for j + 2 before all of j + 1 have come. At the start one
// barrier of all blocks: nobody sends to a block that does not run yet, and at the end nobody writes over rows that another
// has yet to read. lu_rows: __syncwarp between gathering and scattering a column.
//
// Literature: LAPACK's getf2 for the pivot rule (the first of the largest); Toledo, Locality of reference in LU
// decomposition with partial pivoting (SIAM J. Matrix Anal. Appl. 18, 1997) for blocking. Fixed rows, turning registers
// and the exchange are this file's own.
#include "cluster.cuh"
#include "lu_search.cuh"
#include "types.cuh"
#include "warp.cuh"

namespace wf {

[[maybe_unused]] constexpr int kPanelWarps = 16;  // of a block at most
[[maybe_unused]] constexpr int kPanelShare = 8;  // warps of a block, and blocks, that share a panel, at most
[[maybe_unused]] constexpr int kList = 128;  // integers of one list of moves: 4 of the widest panel's columns
[[maybe_unused]] constexpr int kRowsThreads = 128;
[[maybe_unused]] constexpr int kRowsColumns = 4;

// Candidates of one column, twice: a warp's or a block's row, and a pair of its largest entry and that entry's place (-1: none).
template <typename T, int W, int Slots>
struct alignas(16) candidates {
  T row[2][Slots][W];
  pack<T> key[2][Slots];
};

template <typename T, int W>
WF_DEVICE void write_row(T* to, const T (&from)[W]) {
  constexpr int Each = 16 / static_cast<int>(sizeof(T));
  WF_UNROLL
  for (int k = 0; k < W / Each; ++k) {
    pack<T> held;
    WF_UNROLL
    for (int e = 0; e < Each; ++e) held.v[e] = from[k * Each + e];
    reinterpret_cast<pack<T>*>(to)[k] = held;
  }
}

// The place of the winner among `count` candidates, and its slot.
template <typename T, int W, int Slots>
WF_DEVICE i32 winner(const candidates<T, W, Slots>& mail, int half, int count, int& slot) {
  const int lane = lane_id();
  indexed<T> own = {T(-1), kNone};
  int mine = lane;
  WF_UNROLL
  for (int at = 0; at < Slots; at += kWarp)
    if (lane + at < count) {
      const pack<T> key = mail.key[half][lane + at];
      const indexed<T> other = {key.v[0], key.v[1] < T(0) ? kNone : static_cast<i32>(key.v[1])};
      if (at == 0 || beats(other, own)) {
        own = other;
        mine = lane + at;
      }
    }
  const int who = end_search(begin_search(own));
  slot = __shfl_sync(kFullMask, mine, who);
  return __shfl_sync(kFullMask, own.index, who);
}

// A warp's candidate: its row in `to`, 0 where columns are finished, and its key, which all lanes get.
template <typename T, int R, int W>
WF_DEVICE pack<T> offer(const T (&v)[R][W], const i32 (&place)[R], const search<T>& found, T* to, int j) {
  const int lane = lane_id(), who = end_search(found);
  if (lane == who) {
    WF_UNROLL
    for (int r = 0; r < R; ++r)
      if (place[r] == found.own.index) write_row<T, W>(to, v[r]);
  }
  __syncwarp();  // the row, before other lanes clear its end
  const i32 index = __shfl_sync(kFullMask, found.own.index, who);
  if (lane < W && lane >= W - j) to[lane] = T(0);
  pack<T> key;
  WF_UNROLL
  for (int e = 0; e < static_cast<int>(16 / sizeof(T)); ++e) key.v[e] = T(0);
  key.v[0] = __shfl_sync(kFullMask, found.own.value, who);
  key.v[1] = index == kNone ? T(-1) : static_cast<T>(index);
  return key;
}

// The block's candidate, which is warp `best`'s, to slot `rank` of block `to`; all lanes of a warp. Without clusters to the
// one mailbox of all.
template <bool Cluster, typename T, int W, int Slots>
WF_DEVICE void send(candidates<T, W, kPanelShare>& mail, const candidates<T, W, Slots>& own, int best, int half, int rank, int to, u64* arrived) {
  constexpr int Packs = W * static_cast<int>(sizeof(T)) / 16;
  const int lane = lane_id();
  if (lane > Packs) return;
  pack<T>* const there = lane == Packs ? &mail.key[half][rank] : reinterpret_cast<pack<T>*>(mail.row[half][rank]) + lane;
  const pack<T> what = lane == Packs ? own.key[half][best] : reinterpret_cast<const pack<T>*>(own.row[half][best])[lane];
  if (Cluster)
    send16(there, static_cast<u32>(to), arrived, what);
  else
    *there = what;
}

// One column: the row at `row` becomes the pivot's; every row below loses its multiple and all turn by one entry. The
// search in the next column begins as soon as that column is known.
template <typename T, int R, int W>
WF_DEVICE search<T> eliminate(T (&v)[R][W], i32 (&place)[R], const T* pivot_row, i32 row, int j) {
  constexpr int Each = 16 / static_cast<int>(sizeof(T));
  const pack<T>* const packs = reinterpret_cast<const pack<T>*>(pivot_row);
  const pack<T> head = packs[0];
  const T pivot = head.v[0], size = magnitude(pivot);
  const bool divide = near_the_ends(size);  // the same for all
  const T inverse = divide ? T(0) : reciprocal(pivot);
  T factor[R], last[R];
  WF_UNROLL
  for (int r = 0; r < R; ++r) {
    const i32 at = place[r];
    place[r] = at == row ? j : at == j ? row : at;
    const bool below = place[r] > j && pivot != T(0);
    T l = v[r][0] * inverse;
    if (divide) l = v[r][0] / pivot;
    factor[r] = below ? l : T(0);
    last[r] = below ? l : v[r][0];
    v[r][0] = v[r][1] - factor[r] * head.v[1];
  }
  const search<T> next = begin_search(largest<T, R, W>(v, place, j + 1));
  WF_UNROLL
  for (int k = 0; k < W / Each; ++k) {
    const pack<T> held = k == 0 ? head : packs[k];
    WF_UNROLL
    for (int w = k == 0 ? 2 : k * Each; w < (k + 1) * Each; ++w) {
      WF_UNROLL
      for (int r = 0; r < R; ++r) v[r][w - 1] = v[r][w] - factor[r] * held.v[w % Each];
    }
  }
  WF_UNROLL
  for (int r = 0; r < R; ++r) v[r][W - 1] = last[r];
  return next;
}

// Past the last column of a narrow panel rows only turn.
template <typename T, int R, int W>
WF_DEVICE void turn(T (&v)[R][W]) {
  WF_UNROLL
  for (int r = 0; r < R; ++r) {
    const T last = v[r][0];
    WF_UNROLL
    for (int w = 1; w < W; ++w) v[r][w - 1] = v[r][w];
    v[r][W - 1] = last;
  }
}

}  // namespace wf

// a: [batch][n][n] column-major, `stride` entries a matrix. pivots: [batch][n], counted from 1, written for c0 .. c0 + wide.
// moves: [batch][kList], written: pairs of a row and what it receives; 0 .. W - 1 the pivots' rows, then those they
// displaced, or -1. box: mailboxes of way_grid, else unused. counter: [batch], 0; for way_grid.
template <typename T, int R, int W, int Way>
__global__ void __launch_bounds__(Way == wf::kAlone ? 512 : 256)
    lu_panel(T* a, wf::i64 stride, wf::i32 n, wf::i32 c0, wf::i32 wide, wf::i32* pivots, wf::i32* moves, void* box, wf::u32* counter) {
  constexpr bool Cluster = Way == wf::kCluster && wf::kHasClusters, Alone = Way == wf::kAlone;
  typedef wf::candidates<T, W, wf::kPanelShare> mailbox;
  __shared__ wf::candidates<T, W, Alone ? wf::kPanelWarps : wf::kPanelShare> own;
  __shared__ wf::candidates<T, W, Cluster ? wf::kPanelShare : 1> near;
  __shared__ wf::u64 arrived[2];
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x), warp = t / wf::kWarp;
  const int ranks = static_cast<int>(gridDim.x), rank = static_cast<int>(blockIdx.x), warps = threads / wf::kWarp;
  const wf::i64 matrix = blockIdx.y;
  mailbox& mail = Cluster ? *reinterpret_cast<mailbox*>(&near) : static_cast<mailbox*>(box)[matrix];
  T* const corner = a + matrix * stride + c0 * (static_cast<wf::i64>(n) + 1);
  wf::u32 round = 0;
  const wf::i32 rows = n - c0, first = rank * threads + t, step = ranks * threads;
  const wf::u32 bytes = static_cast<wf::u32>(ranks) * static_cast<wf::u32>(W * sizeof(T) + 16);
  T v[R][W];
  wf::i32 place[R];
  WF_UNROLL
  for (int r = 0; r < R; ++r) {
    const wf::i32 i = first + r * step;
    place[r] = i < rows ? i : -1;
    WF_UNROLL
    for (int w = 0; w < W; ++w) v[r][w] = i < rows && w < wide ? corner[i + w * static_cast<wf::i64>(n)] : T(0);
  }
  if (!Alone && wf::lane_id() < W) own.row[0][warp][wf::lane_id()] = own.row[1][warp][wf::lane_id()] = T(0);  // warps without rows
  if (Cluster && t == 0)
    for (int half = 0; half < 2; ++half) {
      wf::messages_init(&arrived[half]);
      if (half < wide) wf::messages_expect(&arrived[half], bytes);
    }
  if (Cluster)
    wf::cluster_barrier();
  else if (!Alone)
    wf::panel_barrier(counter + matrix, ++round, static_cast<wf::u32>(ranks));
  wf::search<T> found = wf::begin_search(wf::largest<T, R, W>(v, place, 0));
  WF_UNROLL_N(1)
  for (int j = 0; j < wide; ++j) {
    const int half = j & 1;
    const wf::pack<T> key = wf::offer<T, R, W>(v, place, found, own.row[half][warp], j);
    if (wf::lane_id() == 0) own.key[half][warp] = key;
    __syncthreads();
    int best = 0;
    wf::i32 row = wf::winner(own, half, warps, best);
    const T* pivot_row = own.row[half][best];
    if (!Alone) {
      for (int to = warp; to < (Cluster ? ranks : 1); to += warps) wf::send<Cluster>(mail, own, best, half, rank, to, &arrived[half]);
      if (Cluster) {
        wf::messages_wait(&arrived[half], static_cast<wf::u32>(j / 2 & 1));
        if (t == 0 && j + 2 < wide) wf::messages_expect(&arrived[half], bytes);
      } else {
        wf::panel_barrier(counter + matrix, ++round, static_cast<wf::u32>(ranks));
      }
      row = wf::winner(mail, half, ranks, best);
      pivot_row = mail.row[half][best];
    }
    found = wf::eliminate<T, R, W>(v, place, pivot_row, row, j);
    if (rank == 0 && t == 0) pivots[matrix * n + c0 + j] = c0 + row + 1;
  }
  WF_UNROLL_N(1)
  for (int j = wide; j < W; ++j) wf::turn<T, R, W>(v);
  wf::i32* const moved = moves + matrix * wf::kList;
  if (rank == 0 && t < W - wide) moved[2 * (wide + t)] = moved[2 * (wide + t) + 1] = moved[2 * (W + wide + t)] = moved[2 * (W + wide + t) + 1] = -1;
  WF_UNROLL
  for (int r = 0; r < R; ++r) {
    const wf::i32 i = first + r * step, at = place[r];
    if (at >= 0 && at < wide) {
      moved[2 * at] = c0 + at;
      moved[2 * at + 1] = c0 + i;
    }
    if (i < wide) {
      moved[2 * (W + i)] = at < wide ? -1 : c0 + at;
      moved[2 * (W + i) + 1] = c0 + i;
    }
    WF_UNROLL
    for (int w = 0; w < W; ++w)
      if (at >= 0 && w < wide) corner[at + w * static_cast<wf::i64>(n)] = v[r][w];
  }
}

// Apply `lists` lists of moved rows, one after another, to the columns from .. to without c0 .. c0 + hole, the panel's and
// those that others bring up to date; to those right of a single panel (triangle != 0) also the inverse of its unit triangle. moves: [lists][batch][kList].
template <typename T, int W>
__global__ void __launch_bounds__(128) lu_rows(T* a, wf::i64 stride, wf::i32 n, wf::i32 c0, wf::i32 wide, wf::i32 hole, wf::i32 from, wf::i32 to,
                                               const wf::i32* moves, wf::i32 lists, wf::i32 triangle) {
  constexpr int Slots = 2 * W / wf::kWarp, Cols = wf::kRowsColumns;
  const int lane = wf::lane_id();
  const wf::i32 warp = static_cast<wf::i32>(blockIdx.x) * (wf::kRowsThreads / wf::kWarp) + static_cast<wf::i32>(threadIdx.x) / wf::kWarp;
  T* const matrix = a + static_cast<wf::i64>(blockIdx.y) * stride;
  const wf::i32 columns = to - from - hole;
  if (warp * Cols >= columns) return;  // the whole warp
  T* column[Cols];
  bool right[Cols], have[Cols];
  WF_UNROLL
  for (int k = 0; k < Cols; ++k) {
    const wf::i32 q = from + warp * Cols + k, c = q < c0 ? q : q + hole;
    have[k] = warp * Cols + k < columns;
    right[k] = have[k] && triangle != 0 && c >= c0 + wide;
    column[k] = matrix + (have[k] ? c : 0) * static_cast<wf::i64>(n);
  }
  T held[Slots][Cols];
  wf::i32 to_row[Slots], from_row[Slots];
  for (wf::i32 l = 0; l < lists; ++l) {
    const wf::i32* const list = moves + (static_cast<wf::i64>(l) * gridDim.y + blockIdx.y) * wf::kList;
    WF_UNROLL
    for (int s = 0; s < Slots; ++s) {
      to_row[s] = list[2 * (lane + s * wf::kWarp)];
      from_row[s] = list[2 * (lane + s * wf::kWarp) + 1];
    }
    WF_UNROLL
    for (int s = 0; s < Slots; ++s) {
      WF_UNROLL
      for (int k = 0; k < Cols; ++k) held[s][k] = to_row[s] >= 0 && have[k] ? column[k][from_row[s]] : T(0);
    }
    __syncwarp();  // all of a column's entries are read before the first is overwritten
    if (triangle != 0) break;  // a single list: written below, once solved
    WF_UNROLL
    for (int s = 0; s < Slots; ++s) {
      WF_UNROLL
      for (int k = 0; k < Cols; ++k)
        if (to_row[s] >= 0 && have[k]) column[k][to_row[s]] = held[s][k];
    }
    __syncwarp();
  }
  if (triangle == 0) return;
  WF_UNROLL
  for (int w = 0; w < W; ++w) {
    const T l = lane > w && lane < wide ? matrix[c0 + lane + (c0 + w) * static_cast<wf::i64>(n)] : T(0);
    WF_UNROLL
    for (int k = 0; k < Cols; ++k) {
      const T done = __shfl_sync(wf::kFullMask, held[0][k], w);
      if (right[k]) held[0][k] = held[0][k] - l * done;
    }
  }
  WF_UNROLL
  for (int s = 0; s < Slots; ++s) {
    WF_UNROLL
    for (int k = 0; k < Cols; ++k)
      if (to_row[s] >= 0 && have[k]) column[k][to_row[s]] = held[s][k];
  }
}

// Rows c0 .. c0 + wide of X become those of T^-1 X, columns from .. to; T is the unit lower or (Upper) the upper triangle
// that stands there in the factors. A warp owns Cols columns, lane i row c0 + i. lu, x: [batch][n][n] column-major.
template <typename T, bool Upper>
__global__ void __launch_bounds__(128)
    lu_triangle(const T* lu, T* x, wf::i32 n, wf::i32 c0, wf::i32 wide, wf::i32 from, wf::i32 to) {
  constexpr int Cols = wf::kRowsColumns;
  const int lane = wf::lane_id();
  const wf::i32 warp = static_cast<wf::i32>(blockIdx.x) * (wf::kRowsThreads / wf::kWarp) + static_cast<wf::i32>(threadIdx.x) / wf::kWarp;
  const wf::i32 first = from + warp * Cols;
  if (first >= to) return;  // the whole warp
  const wf::i64 matrix = static_cast<wf::i64>(blockIdx.y) * n * n, own = c0 + lane;
  const bool have = lane < wide;
  T held[Cols];
  WF_UNROLL
  for (int k = 0; k < Cols; ++k)
    held[k] = have && first + k < to ? x[matrix + own + (first + k) * static_cast<wf::i64>(n)] : T(0);
  const T pivot = Upper && have ? lu[matrix + own * (n + 1)] : T(1);
  for (int step = 0; step < wide; ++step) {
    const int w = Upper ? wide - 1 - step : step;
    const bool touched = have && (Upper ? lane < w : lane > w);
    const T l = touched ? lu[matrix + own + (c0 + w) * static_cast<wf::i64>(n)] : T(0);
    WF_UNROLL
    for (int k = 0; k < Cols; ++k) {
      if (Upper && lane == w) held[k] = held[k] / pivot;
      const T done = __shfl_sync(wf::kFullMask, held[k], w);
      if (touched) held[k] = held[k] - l * done;
    }
  }
  WF_UNROLL
  for (int k = 0; k < Cols; ++k)
    if (have && first + k < to) x[matrix + own + (first + k) * static_cast<wf::i64>(n)] = held[k];
}

// Order of rows that all interchanges together make: row order[i] of the matrix stands at i, and row i at place[i]. A block
// owns a matrix; its thread 0 follows the interchanges in shared memory, one after another as they were made.
__global__ void lu_order(const wf::i32* pivots, wf::i32* order, wf::i32* place, wf::i32 n) {
  WF_DYNAMIC_SHARED(raw);
  wf::i32* stand = reinterpret_cast<wf::i32*>(raw);
  wf::i32* partner = stand + n;
  pivots += static_cast<wf::i64>(blockIdx.x) * n;
  order += static_cast<wf::i64>(blockIdx.x) * n;
  place += static_cast<wf::i64>(blockIdx.x) * n;
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
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
    order[i] = stand[i];
    place[stand[i]] = i;
  }
}

// An inverse, by rows, from the solution for the unit vectors, by columns, whose column place[c] belongs at c. A block of 256
// threads owns a tile of 32 x 32: it reads along columns and writes along rows, through shared memory with a padding column;
// one barrier between.
template <typename T>
__global__ void lu_place(const T* solution, const wf::i32* place, T* inverse, wf::i32 n) {
  constexpr int Side = 32, Step = 8;
  __shared__ T tile[Side][Side + 1];
  const int x = static_cast<int>(threadIdx.x) % Side, y = static_cast<int>(threadIdx.x) / Side;
  const wf::i32 c0 = static_cast<wf::i32>(blockIdx.x) * Side, i0 = static_cast<wf::i32>(blockIdx.y) * Side;
  WF_UNROLL
  for (int k = 0; k < Side; k += Step) {
    const wf::i32 c = c0 + y + k, i = i0 + x;
    if (c < n && i < n) tile[y + k][x] = solution[static_cast<wf::i64>(place[c]) * n + i];
  }
  __syncthreads();
  WF_UNROLL
  for (int k = 0; k < Side; k += Step) {
    const wf::i32 c = c0 + x, i = i0 + y + k;
    if (c < n && i < n) inverse[static_cast<wf::i64>(i) * n + c] = tile[x][y + k];
  }
}
