// One item of a sweep over the tree: forward and backward through a front, or through a subtree of small ones, by a team.
//
// A panel is read from shared memory where it fits (kTreePitch words a column of at most 32 rows for a warp; see panel_pitch),
// from global memory otherwise. Diagonal blocks are applied through their inverses, which lie transposed above the diagonal.
#pragma once
#include "front.cuh"
#include "refine_state.cuh"
#include "tree_tiles.cuh"

namespace wf {

enum : int { kTreeThreads = 128, kTreeRows = 160, kTreePitch = 34, kTreeWords = 32 * 162, kFinishers = 32 };
enum : int { kTicket, kDown, kMeasured, kJudged, kActive, kCells = 8 };  // cells; those of the items follow

// Work of a team. Item (front.cuh): fronts front..last, row = children, col = its cell `up`, end = the cell its forward sweep
// signals, e0 = the cell its backward sweep waits for, e1 = its cell `down`, index = 1 for a root.
// A part of a tree (tree_forest.cu) has no `perm`: `source` is in the order of the factor, and so is the solution, x alone; its
// roots do not wait for what lies above.
template <typename T>
struct Tree {
  const Front* fronts;
  const RowList* lists;
  const i32 *list_sources, *below_ind;
  const T *panels, *diagonal;
  const i32 *pivots, *perm, *exponents, *summary;
  const T* source;
  T *best, *candidate, *x, *z, *upd;
  double* state;
  u32* cells;
  i64 n, below;
  u32 epoch;
};

template <typename T>
struct Panel {
  const T* at;
  int pitch;
};

// Starts a panel's way to shared memory, a column a warp; rows before a column's diagonal block are not stored and not read.
template <int Threads, typename T>
WF_DEVICE Panel<T> fetch_panel(const T* panels, const Front& f, T* to) {
  constexpr int kPer = 16 / static_cast<int>(sizeof(T)), kWords = Threads == kWarp ? kPanel * kTreePitch : kTreeWords;
  const T* from = panels + f.panel;
  const int pitch = (f.rows + 3) / 4 * 4 + 2;
  if (sizeof(T) != 8 || pitch * f.width > kWords) return {from, f.ld};
  const int lane = lane_id();
  for (int c = team_rank<Threads>() / kWarp; c < f.width; c += Threads / kWarp)
    for (int row = c / kPanel * kPanel + kPer * lane; row < f.rows; row += kPer * kWarp)
      cp_async16(to + c * pitch + row, from + static_cast<i64>(c) * f.ld + row, static_cast<u32>(min_of(kPer, f.rows - row) * sizeof(T)));
  cp_async_commit();
  return {to, pitch};
}

template <int Threads>
WF_DEVICE void team_wait(const u32* cell, u32 value) {
  if (team_rank<Threads>() == 0) signal_wait(cell, value);
  team_sync<Threads>();
}

// z and t: the solved columns; t: the rows below, less what the columns take from them.
template <int Threads, int R, int Pitch, typename T>
WF_DEVICE void forward_columns(const Tree<T>& tree, const Front& f, const Panel<T>& panel, T (*t)[Pitch], T (*y)[Pitch]) {
  const int rank = team_rank<Threads>();
  for (int k0 = 0; k0 < f.width; k0 += kPanel) {
    const int size = min_of(kPanel, f.width - k0);
    if (rank < size) {
      T v[R];
      for (int r = 0; r < R; ++r) v[r] = y[r][k0 + rank];
      const T* inverse = panel.at + static_cast<i64>(k0 + rank) * panel.pitch + k0;
      WF_UNROLL_N(R == 1 ? 8 : 2)
      for (int c = 0; c < rank; ++c) {
        const T l = inverse[c];
        for (int r = 0; r < R; ++r) v[r] = fma(l, y[r][k0 + c], v[r]);
      }
      for (int r = 0; r < R; ++r) tree.z[r * tree.n + f.first + k0 + rank] = t[r][k0 + rank] = v[r];
    }
    team_sync<Threads>();
    // t holds the solved block; the rows behind it live in y (own rows) and t (rows below).
    for (int i = k0 + size + rank; i < f.rows; i += Threads) {
      T sum[R] = {};
      const T* row = panel.at + static_cast<i64>(k0) * panel.pitch + i;
      WF_UNROLL_N(R == 1 ? 8 : 2)
      for (int c = 0; c < size; ++c) {
        const T l = row[static_cast<i64>(c) * panel.pitch];
        for (int r = 0; r < R; ++r) sum[r] = fma(l, t[r][k0 + c], sum[r]);
      }
      for (int r = 0; r < R; ++r) {
        if (i < f.width) y[r][i] -= sum[r];
        else t[r][i] -= sum[r];
      }
    }
    team_sync<Threads>();
  }
}

template <int Threads, int R, bool Tiles, typename T>
WF_DEVICE void forward_item(const Tree<T>& tree, const Item& item, T* shared_panel, T* work) {
  constexpr int kEach = Threads == kWarp ? 1 : 2, kAhead = R == 8 ? 2 : 8, kPitchT = Threads == kWarp ? kPitch : kTreeRows + 4;
  T(*t)[kPitchT] = reinterpret_cast<T(*)[kPitchT]>(work);
  T(*y)[kPitchT] = t + R;
  const int rank = team_rank<Threads>();
  for (int s = item.front; s <= item.last; ++s) {
    const Front f = tree.fronts[s];
    const RowList list = tree.lists[s];
    const Panel<T> panel = fetch_panel<Threads>(tree.panels, f, shared_panel);
    const int lanes = (f.rows + kWarp - 1) / kWarp * kWarp, from0 = rank < f.width ? tree.pivots[2 * (f.first + rank)] : 0;
    T sum[kEach][R];
    i32 ahead[kEach][kAhead];
    WF_UNROLL
    for (int h = 0; h < kEach; ++h) {
      const int i = rank + h * Threads;
      const bool own = i < f.width;
      const i64 at = !own ? 0 : tree.perm != nullptr ? tree.perm[f.first + i] : f.first + i;
      const T scale = own && tree.exponents != nullptr ? static_cast<T>(power_of_two(tree.exponents[at])) : T(1);
      for (int r = 0; r < R; ++r) sum[h][r] = own ? tree.source[r * tree.n + at] * scale : T(0);
      WF_UNROLL
      for (int q = 0; q < kAhead; ++q) ahead[h][q] = i < f.rows && q < list.depth ? tree.list_sources[list.at + q * lanes + i] : -1;
    }
    if (s == item.last && item.row > 0) team_wait<Threads>(tree.cells + item.col, tree.epoch * static_cast<u32>(item.row));
    WF_UNROLL
    for (int h = 0; h < kEach; ++h) {
      const int i = rank + h * Threads;
      for (int q0 = 0; q0 < list.depth; q0 += kAhead) {
        T v[kAhead][R];
        WF_UNROLL
        for (int q = 0; q < kAhead; ++q)
          for (int r = 0; r < R; ++r) v[q][r] = ahead[h][q] >= 0 ? tree.upd[r * tree.below + ahead[h][q]] : T(0);
        WF_UNROLL
        for (int q = 0; q < kAhead; ++q) {
          for (int r = 0; r < R; ++r) sum[h][r] += v[q][r];
          ahead[h][q] = i < f.rows && q0 + kAhead + q < list.depth ? tree.list_sources[list.at + (q0 + kAhead + q) * lanes + i] : -1;
        }
      }
      if (i < f.rows)
        for (int r = 0; r < R; ++r) t[r][i] = sum[h][r];
    }
    cp_async_wait<0>();
    team_sync<Threads>();
    for (int k = rank; k < f.width; k += Threads) {
      const int from = k == rank ? from0 : tree.pivots[2 * (f.first + k)];
      for (int r = 0; r < R; ++r) y[r][k] = t[r][from];
    }
    team_sync<Threads>();
    if constexpr (Tiles)
      forward_tiles<Threads, R, kPitchT>(f, panel.at, panel.pitch, t, y, [&](int k0, int size) {
        if (rank < size)
          for (int r = 0; r < R; ++r) tree.z[r * tree.n + f.first + k0 + rank] = t[r][k0 + rank];
      });
    else
      forward_columns<Threads, R, kPitchT>(tree, f, panel, t, y);
    for (int i = f.width + rank; i < f.rows; i += Threads)
      for (int r = 0; r < R; ++r) tree.upd[r * tree.below + f.map + i - f.width] = t[r][i];
    team_sync<Threads>();
  }
  if (rank != 0) return;
  if (item.index != 0) signal_set(tree.cells + item.end, tree.epoch);
  else add_acq_rel(tree.cells + item.end, 1u);
}

// Entries k and its partner's of D^-1, and where the partner is.
template <typename T>
struct Inverse {
  T own, other;
  int partner;
};
template <typename T>
WF_DEVICE Inverse<T> inverse_of_d(const T* diagonal, const i32* pivots, i64 k) {
  const int kind = pivots[2 * k + 1];
  const T d = diagonal[2 * k];
  if (kind == 1) return {T(1) / d, T(0), 0};
  if (kind == 0) return {T(0), T(0), 0};
  const int partner = kind == 2 ? 1 : -1;
  const T off = diagonal[2 * (kind == 2 ? k : k - 1) + 1], mine = d / off, theirs = diagonal[2 * (k + partner)] / off;
  const T scale = T(1) / ((mine * theirs - T(1)) * off);
  return {theirs * scale, -scale, partner};
}

// The solution in the caller's order: an iterate and its correction; NaN where the factorisation failed.
template <int R, typename T>
WF_DEVICE void write_solution(const Tree<T>& tree, i32 at, const T (&v)[R], double (&largest)[R]) {
  const T scale = tree.exponents != nullptr ? static_cast<T>(power_of_two(tree.exponents[at])) : T(1);
  const bool failed = tree.summary != nullptr && tree.summary[kFailed] != 0x7fffffff;
  for (int r = 0; r < R; ++r) {
    T out = v[r] * scale;
    T* to = tree.best;
    if (tree.epoch > 1) {
      const bool swapped = tree.state[r * kStateSize + kWhich] != 0.0;
      out += (swapped ? tree.candidate : tree.best)[r * tree.n + at];
      to = swapped ? tree.best : tree.candidate;
    }
    if (failed) out = static_cast<T>(infinity() - infinity());
    to[r * tree.n + at] = out;
    const double size = abs_value(static_cast<double>(out));
    largest[r] = nan_max(largest[r], size);
  }
}

// Column sums by warps over the rows below (a warp alone: a column a lane), then the diagonal block's inverse.
template <int Threads, int R, int Pitch, typename T>
WF_DEVICE void backward_columns(const Tree<T>& tree, const Front& f, const Panel<T>& panel, T (*t)[Pitch], T (*y)[Pitch],
                                double (&largest)[R]) {
  const int rank = team_rank<Threads>(), lane = rank % kWarp, warp = rank / kWarp;
  for (int k0 = (f.width - 1) / kPanel * kPanel; k0 >= 0; k0 -= kPanel) {
    const int size = min_of(kPanel, f.width - k0);
    for (int c = Threads == kWarp ? lane : warp; c < size; c += Threads == kWarp ? kWarp : Threads / kWarp) {
      const T* column = panel.at + static_cast<i64>(k0 + c) * panel.pitch;
      constexpr int kStep = Threads == kWarp ? 1 : kWarp;
      T sum[R] = {};
      WF_UNROLL_N(R == 1 ? 4 : 1)
      for (int i = k0 + size + (Threads == kWarp ? 0 : lane); i < f.rows; i += kStep) {
        const T l = column[i];
        for (int r = 0; r < R; ++r) sum[r] = fma(l, t[r][i], sum[r]);
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
      const i64 to = f.first + tree.pivots[2 * (f.first + k0 + rank)];
      const i32 at = tree.perm != nullptr ? tree.perm[to] : 0;
      const T* row = panel.at + static_cast<i64>(k0) * panel.pitch + k0 + rank;
      WF_UNROLL_N(R == 1 ? 8 : 2)
      for (int c = rank + 1; c < size; ++c) {
        const T l = row[static_cast<i64>(c) * panel.pitch];
        for (int r = 0; r < R; ++r) v[r] = fma(l, y[r][c], v[r]);
      }
      for (int r = 0; r < R; ++r) t[r][k0 + rank] = v[r], tree.x[r * tree.n + to] = v[r];
      if (tree.perm != nullptr) write_solution(tree, at, v, largest);
    }
    team_sync<Threads>();
  }
}

template <int Threads, int R, bool Tiles, typename T>
WF_DEVICE void backward_item(const Tree<T>& tree, const Item& item, T* shared_panel, T* work) {
  constexpr int kEach = Threads == kWarp ? 1 : 2, kPitchT = Threads == kWarp ? kPitch : kTreeRows + 4;
  T(*t)[kPitchT] = reinterpret_cast<T(*)[kPitchT]>(work);
  T(*y)[kPitchT] = t + R;
  const int rank = team_rank<Threads>();
  double size[R] = {};
  for (int s = item.last; s >= item.front; --s) {
    const Front f = tree.fronts[s];
    const Panel<T> panel = fetch_panel<Threads>(tree.panels, f, shared_panel);
    i32 index[kEach];
    Inverse<T> inverse[kEach];
    WF_UNROLL
    for (int h = 0; h < kEach; ++h) {
      const int i = rank + h * Threads;
      inverse[h] = i < f.width ? inverse_of_d(tree.diagonal, tree.pivots, f.first + i) : Inverse<T>{T(0), T(0), 0};
      index[h] = i >= f.width && i < f.rows ? tree.below_ind[f.map + i - f.width] : 0;
    }
    if (s == item.last && (tree.perm != nullptr || item.index == 0)) team_wait<Threads>(tree.cells + item.e0, tree.epoch);
    WF_UNROLL
    for (int h = 0; h < kEach; ++h) {
      const int i = rank + h * Threads;
      if (i >= f.rows) continue;
      const T* z = tree.z + f.first + i;
      for (int r = 0; r < R; ++r)
        t[r][i] = i < f.width ? z[r * tree.n] * inverse[h].own + z[r * tree.n + inverse[h].partner] * inverse[h].other
                              : tree.x[r * tree.n + index[h]];
    }
    cp_async_wait<0>();
    team_sync<Threads>();
    if constexpr (Tiles)
      backward_tiles<Threads, R, kPitchT>(f, panel.at, panel.pitch, t, y, [&](int k0, int columns) {
        if (rank < columns) {
          const i64 to = f.first + tree.pivots[2 * (f.first + k0 + rank)];
          T v[R];
          for (int r = 0; r < R; ++r) tree.x[r * tree.n + to] = v[r] = t[r][k0 + rank];
          if (tree.perm != nullptr) write_solution(tree, tree.perm[to], v, size);
        }
      });
    else
      backward_columns<Threads, R, kPitchT>(tree, f, panel, t, y, size);
  }
  if (tree.state != nullptr)
    for (int r = 0; r < R; ++r) {
      const double largest = warp_max(size[r]);
      if (lane_id() == 0) raise_to(tree.state + r * kStateSize + kX, largest);
    }
  team_sync<Threads>();
  if (rank == 0) signal_set(tree.cells + item.e1, tree.epoch);
}

}  // namespace wf
