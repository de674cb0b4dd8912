// What every kernel of the factorisation shares: the plan's records, teams, FP64 products, extend-add by pull.
//
// A front has `rows` rows, its first `width` columns are eliminated. Its factor is L D L^T with a unit lower L and
// D of 1x1 and 2x2 blocks, for every rule: a positive definite matrix has D > 0 and no interchange.
//   panel    rows x width, column-major, leading dimension ld (a multiple of 4). Below the diagonal L; the 32 x 32
//            blocks on the diagonal hold, transposed above it, the inverse of that unit lower block.
//   block    contribution block of the rows below, lower triangle packed by columns, in memory of its own.
//   diagonal two values a pivot: D[k][k], and D[k+1][k] at the first column of a 2x2 block (0 elsewhere).
//   pivots   two integers a pivot: which of the front's columns it was, and its kind (1, 2 and 3 for the two
//            columns of a 2x2 block, 0 for a zero pivot).
// Extend-add is a pull: the parent adds its children's blocks in ascending child order, each element by one thread
// at a time, so sums do not depend on timing.
#pragma once
#include "async_copy.cuh"
#include "block.cuh"
#include "dmma.cuh"
#include "signal.cuh"
#include "types.cuh"
#include "warp.cuh"

namespace wf {

struct Front {
  i64 panel, block, first;   // places: panel, contribution block, first pivot
  i64 entry0, entry1, work;  // entries of A; published diagonal blocks of a wide front
  i64 map;                   // its rows below: their places in the parent's front, their indices, their updates
  i32 rows, width, ld, child0, child1, flag, stat, unused;
};

struct Child {
  i64 block, map, range;  // range[b]: first of the child's rows at or behind the parent's row 32 b
  i32 below, front;
};

struct Entry {
  i64 slot;
  i32 row, col;
};

// Work of one block. fronts: front..last. strips: rows row..last of columns col..end, e0 panels, strip `index`. Tiles:
// row, col, columns before end; e0..e1 entries of A (assembly) or columns multiplied (update).
struct Item {
  i32 front, last, row, col, end, e0, e1, index;
};

// Where a front's rows find their children's contributions: rows rounded up to 32 side by side, `depth` words a row.
struct RowList {
  i64 at;
  i32 depth, unused;
};

// Tolerances of the pivot rule, absolute. Layout of the array `rule`.
enum : int { kThreshold, kZero, kDoubt, kEpsilon, kRuleSize = 8 };
// Layout of a front's statistics (of a panel's, in wide fronts); kFailed holds a pivot's position or -1.
enum : int { kOnes, kTwos, kPerturbed, kZeros, kPositive, kNegative, kDoubtful, kFailed, kNonFinite, kStats };

constexpr int kPanel = 32;       // columns of a block of pivots
constexpr int kPitch = 36;       // leading dimension of 32-row tiles in shared memory: 4 mod 8, no bank conflicts

WF_DEVICE i32 packed_at(i32 below, i32 col) { return col * below - col * (col + 1) / 2; }

// A team is the whole block, or one warp of it.
template <int Threads>
WF_DEVICE void team_sync() {
  if (Threads == kWarp) __syncwarp();
  else __syncthreads();
}
template <int Threads>
WF_DEVICE int team_rank() { return static_cast<int>(threadIdx.x) % Threads; }

template <typename T>
WF_DEVICE T abs_value(T a) { return a < T(0) ? -a : a; }

// 1 / d to the last place or next to it: hardware estimate and one cubic Newton step. d is a normal number.
WF_DEVICE double reciprocal(double d) {
#ifdef WARPFRONT_SIMT
  return 1.0 / d;
#else
  double x;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(x) : "d"(d));
  const double e = fma(-d, x, 1.0);
  return fma(x, fma(e, e, e), x);
#endif
}
WF_DEVICE float reciprocal(float d) { return 1.0f / d; }

// C += A B for one warp, 16 x 8 x 16; fragment layout of m16n8k16 (dmma.cuh) for both types.
WF_DEVICE void product(double (&c)[4], const double (&a)[8], const double (&b)[4]) {
#if WF_ARCH >= 900
  dmma_m16n8k16(c, a, b);
#else
  double top[2] = {c[0], c[1]}, low[2] = {c[2], c[3]};
  WF_UNROLL
  for (int j = 0; j < 4; ++j) {
    dmma_m8n8k4(top, a[2 * j], b[j]);
    dmma_m8n8k4(low, a[2 * j + 1], b[j]);
  }
  c[0] = top[0], c[1] = top[1], c[2] = low[0], c[3] = low[1];
#endif
}
WF_DEVICE void product(float (&c)[4], const float (&a)[8], const float (&b)[4]) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  WF_UNROLL
  for (int j = 0; j < 4; ++j)
    WF_UNROLL_N(1)
    for (int k = 0; k < 4; ++k) {
      float x[2], y[2];
      for (int i = 0; i < 2; ++i) x[i] = __shfl_sync(kFullMask, a[2 * j + i], 4 * g + k);
      for (int h = 0; h < 2; ++h) y[h] = __shfl_sync(kFullMask, b[j], 4 * (2 * t + h) + k);
      for (int i = 0; i < 2; ++i)
        for (int h = 0; h < 2; ++h) c[2 * i + h] = fmaf(x[i], y[h], c[2 * i + h]);
    }
}

// D of up to 32 pivots, laid out for the product L D: (L D)[:, k] = L[:, k] own[k] + L[:, k + step[k]] other[k].
// Entries before kLead and behind the last pivot are zero, so that a product may start and end at a multiple of 16.
constexpr int kLead = 16;
template <typename T>
struct Diagonal {
  T own[kLead + kPanel], other[kLead + kPanel];
  i32 step[kLead + kPanel];
};

// One lane a pivot.
template <typename T>
WF_DEVICE void set_diagonal(Diagonal<T>& d, int k, T own, T other, int step) {
  d.own[kLead + k] = own, d.other[kLead + k] = other, d.step[kLead + k] = step;
}

template <typename T>
WF_DEVICE void load_diagonal(Diagonal<T>& d, const T* diagonal, const i32* pivots, int count, int lane) {
  T own = T(0), other = T(0);
  int step = 0;
  if (lane < count) {
    const int kind = pivots[2 * lane + 1];
    own = diagonal[2 * lane];
    if (kind == 2) other = diagonal[2 * lane + 1], step = 1;
    if (kind == 3) other = diagonal[2 * lane - 1], step = -1;
  }
  set_diagonal(d, lane, own, other, step);
}

// acc[n] += A B^T for a 16 x (8 * N) tile: A and B column-major in shared memory, `depth` a multiple of 16.
template <int N, typename T>
WF_DEVICE void multiply(T (&acc)[N][4], const T* a, int lda, const T* b, int ldb, int depth) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  for (int k = 0; k < depth; k += 16) {
    T x[8];
    WF_UNROLL
    for (int j = 0; j < 4; ++j) {
      const T* column = a + (k + t + 4 * j) * lda + g;
      x[2 * j] = column[0], x[2 * j + 1] = column[8];
    }
    WF_UNROLL
    for (int n = 0; n < N; ++n) {
      T y[4];
      WF_UNROLL
      for (int j = 0; j < 4; ++j) y[j] = b[(k + t + 4 * j) * ldb + 8 * n + g];
      product(acc[n], x, y);
    }
  }
}

// acc[n] += (A D) B^T. Column p of A and B belongs to pivot p - lead of d. Masked: columns outside the `count`
// pivots are not read (another warp may be writing them); otherwise D is zero there.
template <int N, bool Masked, typename T>
WF_DEVICE void multiply_scaled(T (&acc)[N][4], const T* a, int lda, const T* b, int ldb, int depth,
                               const Diagonal<T>& d, int lead = 0, int count = kPanel) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  for (int k = 0; k < depth; k += 16) {
    T x[8];
    bool used[4];
    WF_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int p = k + t + 4 * j, q = p - lead;
      used[j] = !Masked || (q >= 0 && q < count);
      const T own = d.own[kLead + q], other = d.other[kLead + q];
      const T* column = a + p * lda + g;
      const T* partner = column + d.step[kLead + q] * lda;
      x[2 * j] = used[j] ? column[0] * own + partner[0] * other : T(0);
      x[2 * j + 1] = used[j] ? column[8] * own + partner[8] * other : T(0);
    }
    WF_UNROLL
    for (int n = 0; n < N; ++n) {
      T y[4];
      WF_UNROLL
      for (int j = 0; j < 4; ++j) y[j] = used[j] ? b[(k + t + 4 * j) * ldb + 8 * n + g] : T(0);
      product(acc[n], x, y);
    }
  }
}

// acc[m][n] += (A D) B^T for a (16 M) x (8 N) tile, `depth` a multiple of 16; B's fragments are loaded once for all rows.
// Not Paired: every pivot is 1x1, as in a positive definite matrix; the sums are the same.
template <bool Paired, int M, int N, typename T>
WF_DEVICE void multiply_tiles(T (&acc)[M][N][4], const T* a, int lda, const T* b, int ldb, int depth, const Diagonal<T>& d) {
  const int g = lane_id() / 4, t = lane_id() % 4;
  for (int k = 0; k < depth; k += 16) {
    T x[M][8];
    WF_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int p = k + t + 4 * j;
      const T own = d.own[kLead + p];
      const T* column = a + p * lda + g;
      WF_UNROLL
      for (int m = 0; m < M; ++m) x[m][2 * j] = column[16 * m] * own, x[m][2 * j + 1] = column[16 * m + 8] * own;
      if (Paired) {
        const T other = d.other[kLead + p];
        const T* partner = column + d.step[kLead + p] * lda;
        WF_UNROLL
        for (int m = 0; m < M; ++m) {
          x[m][2 * j] = fma(column[16 * m], own, partner[16 * m] * other);
          x[m][2 * j + 1] = fma(column[16 * m + 8], own, partner[16 * m + 8] * other);
        }
      }
    }
    WF_UNROLL
    for (int n = 0; n < N; ++n) {
      T y[4];
      WF_UNROLL
      for (int j = 0; j < 4; ++j) y[j] = b[(k + t + 4 * j) * ldb + 8 * n + g];
      WF_UNROLL
      for (int m = 0; m < M; ++m) product(acc[m][n], x[m], y);
    }
  }
}

// Row and column of element e of a lane's four in a 16 x 8 result.
WF_DEVICE int tile_row(int e) { return lane_id() / 4 + 8 * (e / 2); }
WF_DEVICE int tile_col(int e) { return 2 * (lane_id() % 4) + e % 2; }

// The part of a child that falls on a tile: its rows ra..rb and columns ca..cb.
struct Piece {
  i64 block, map;
  i32 below, ra, rb, ca, cb, unused;
};
constexpr int kPieces = 16;

// Where the upper half of a general front's contribution block begins; `side` 1 means that one (lu_front.cuh).
WF_DEVICE i64 upper_block(i64 block, i32 below) { return block + (static_cast<i64>(below) * (below + 1) / 2 + 3) / 4 * 4; }

// Describes up to kPieces children from `first` on, a thread each; the caller's barrier follows.
template <int Rows, int Cols>
WF_DEVICE void list_pieces(Piece* pieces, int first, const Front& f, int row0, int col0, const Child* children,
                           const i32* maps, int side = 0) {
  const int c = first + static_cast<int>(threadIdx.x), bins = (f.rows + 31) / 32;
  if (threadIdx.x >= kPieces || c >= f.child1) return;
  const Child child = children[c];
  const i32* range = maps + child.range;
  pieces[threadIdx.x] = {side == 0 ? child.block : upper_block(child.block, child.below), child.map, child.below,
                         range[row0 / 32], range[min_of(row0 / 32 + Rows / 32, bins)],
                         range[col0 / 32], range[min_of(col0 / 32 + Cols / 32, bins)], 0};
}

// Adds the children's parts that fall on rows row0.., columns col0.. of a front to a tile in shared memory
// (Rows x Cols, column-major, pitch); row0 and col0 are multiples of 32, columns before `least` are left out. The first
// pieces are listed, and a barrier lies behind that. A barrier after each child orders two children's additions to one
// element, and one separates the last use of a list from the next one.
template <int Rows, int Cols, int Threads, typename T>
WF_DEVICE void pull_tile(T* tile, int pitch, Piece* pieces, const Front& f, int row0, int col0, int least,
                         const Child* children, const i32* maps, const T* blocks, int side = 0) {
  constexpr int kGroups = Threads / Rows, kBatch = 16;
  const int thread = threadIdx.x, lane = thread % Rows, group = thread / Rows;
  for (int c = f.child0; c < f.child1; ++c) {
    const int at = (c - f.child0) % kPieces;
    if (at == 0 && c != f.child0) {
      __syncthreads();
      list_pieces<Rows, Cols>(pieces, c, f, row0, col0, children, maps, side);
      __syncthreads();
    }
    const Piece piece = pieces[at];
    if (piece.ra == piece.rb || piece.ca == piece.cb) continue;
    const i32* map = maps + piece.map;
    const T* block = blocks + piece.block;
    const int i = piece.ra + lane, row = i < piece.rb ? map[i] - row0 : 0;
    for (int base = piece.ca + group; base < piece.cb; base += kGroups * kBatch) {
      T v[kBatch];
      int into[kBatch];
      WF_UNROLL
      for (int q = 0; q < kBatch; ++q) {
        const int j = base + q * kGroups;
        const bool inside = j < piece.cb && i < piece.rb && i >= j;
        into[q] = inside ? map[j] : -1;
        v[q] = inside ? block[packed_at(piece.below, j) + i] : T(0);
      }
      WF_UNROLL
      for (int q = 0; q < kBatch; ++q)
        if (into[q] >= least) tile[(into[q] - col0) * pitch + row] += v[q];
    }
    __syncthreads();
  }
}

}  // namespace wf
