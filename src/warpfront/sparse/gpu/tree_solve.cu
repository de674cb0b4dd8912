// A whole solve with its refinement in one launch, for trees whose fronts are all small: forward and backward sweeps,
// residual, and the decision whether to go on, as a flow of tickets.
//
// Blocks of 128 threads take tickets in order. A round's tickets are: forward items (children before parents), backward
// items (parents before children), parts of the residual. A ticket holds one front of more than 32 rows for the whole block,
// or up to four items (a front, or a subtree of small ones) for a warp each. A ticket waits for tickets with smaller numbers
// only, and those have been taken by blocks that run: no block has to be resident for another one's sake.
// While a ticket waits, its panel is on the way to shared memory, and the lists of what it will read to registers.
//
//   up[item]    children finished, counted over the rounds      down[item]  round of the backward sweep that is finished
//   root cells  round of the forward sweep that is finished     kDown, kMeasured: tickets of a kind that are finished
//   kJudged     rounds that have been judged; kActive says whether there is another one
// Cells start at zero in each solve (start_tree). Signals are released by one thread behind a barrier of the item's team;
// whoever waits acquires before one. A value travels from item to item along such signals only.
// The whole team's barriers: panel landed and rows gathered | pivot order taken | each block: its values | rows below.
// Sums are ordered by lists and panels, so bits depend neither on timing nor on the number of right-hand sides.
// blockIdx.y is a group of R right-hand sides: cells and state of its own, and its own decision to go on.
// Definitions of errors: solve/_residual_kernels.py. Dynamic shared memory: four panels of 32 x 32, or one of a block's front.
#include "tree_sweeps.cuh"

using namespace wf;

enum : int { kResidualLanes = 8, kResidualRows = kTreeThreads / kResidualLanes };

template <typename T>
struct Refinement {
  const i64* row_ptr;
  const i32* row_col;
  const i64* row_slot;
  const T *values, *b;
  const double *sums, *scalars;
  T *best, *candidate, *residual;
  double* state;
};

// residual = b - A x for a part of the rows, eight lanes a row, and the maxima of the backward error.
template <int R, typename T>
WF_DEVICE void measure_part(const Refinement<T>& m, int part, int parts, int round, i64 n, double* scratch) {
  const int sub = threadIdx.x % kResidualLanes;
  for (int r = 0; r < R; ++r) {
    const double* state = m.state + r * kStateSize;
    const T* x = (round > 0 && state[kWhich] == 0.0 ? m.candidate : m.best) + r * n;
    double error = 0.0, largest_gap = 0.0, largest_rhs = 0.0;
    const double size_x = state[kX];
    for (i64 i0 = static_cast<i64>(part) * kResidualRows; i0 < n; i0 += static_cast<i64>(parts) * kResidualRows) {
      const i64 i = i0 + static_cast<int>(threadIdx.x) / kResidualLanes;
      double sum = 0.0, size = 0.0;
      if (i < n)
        for (i64 e = m.row_ptr[i] + sub; e < m.row_ptr[i + 1]; e += kResidualLanes) {
          const double product = static_cast<double>(m.values[m.row_slot[e]]) * static_cast<double>(x[m.row_col[e]]);
          sum += product, size += abs_value(product);
        }
      for (int d = kResidualLanes / 2; d > 0; d /= 2) {
        sum += __shfl_xor_sync(kFullMask, sum, d);
        size += __shfl_xor_sync(kFullMask, size, d);
      }
      if (i >= n || sub != 0) continue;
      const double rhs = static_cast<double>(m.b[r * n + i]), gap = abs_value(rhs - sum);
      m.residual[r * n + i] = static_cast<T>(rhs - sum);
      const double whole_row = m.sums[i] * size_x, rounding = 1000.0 * n * 2.220446049250313e-16;
      double scale = size + abs_value(rhs);
      if (scale <= rounding * (whole_row + abs_value(rhs))) scale += whole_row - abs_value(rhs);
      if (!(gap - gap == 0.0) || !(scale - scale == 0.0)) error = infinity();
      else if (gap > 0.0) error = nan_max(error, gap / scale);
      largest_gap = nan_max(largest_gap, gap), largest_rhs = nan_max(largest_rhs, abs_value(rhs));
    }
    raise_block(m.state + r * kStateSize + kComponent, error, scratch);
    raise_block(m.state + r * kStateSize + kR, largest_gap, scratch);
    raise_block(m.state + r * kStateSize + kB, largest_rhs, scratch);
  }
}

// Decides on the round's iterate and clears the maxima; one thread. Up to `steps` corrections are made until the
// componentwise error is at `target`, further ones while it is above `limit`; none where a step gained less than half.
template <int R>
WF_DEVICE bool judge_round(double* state, const double* scalars, int round, int steps, int rounds, double target, double limit) {
  bool any = false;
  for (int r = 0; r < R; ++r) {
    double* s = state + r * kStateSize;
    const double component = s[kComponent], whole = scalars[kNorm] * s[kX] + s[kB];
    const double normwise = !(component < infinity()) ? infinity() : s[kR] > 0.0 ? s[kR] / whole : 0.0;
    const double goal = round < steps ? target : limit;
    bool go_on = false;
    if (round == 0) {
      s[kBest] = component, s[kBestNormwise] = normwise, s[kSteps] = 0.0, s[kWhich] = 0.0;
      go_on = !(component <= goal);
    } else if (s[kGoOn] != 0.0) {
      s[kSteps] = round;
      go_on = component < 0.5 * s[kLast] && !(component <= goal);
      if (component < s[kBest]) s[kBest] = component, s[kBestNormwise] = normwise, s[kWhich] = 1.0 - s[kWhich];
    }
    s[kLast] = component, s[kGoOn] = go_on ? 1.0 : 0.0;
    s[kX] = s[kR] = s[kB] = s[kComponent] = 0.0;
    any = any || go_on;
  }
  return any && round < rounds;
}

// best = candidate where that was the better one, a part of it.
template <int R, typename T>
WF_DEVICE void keep_part(const Refinement<T>& m, int part, int parts, i64 n) {
  for (int r = 0; r < R; ++r)
    if (m.state[r * kStateSize + kWhich] != 0.0)
      for (i64 i = static_cast<i64>(part) * kTreeThreads + threadIdx.x; i < n; i += static_cast<i64>(parts) * kTreeThreads)
        m.best[r * n + i] = m.candidate[r * n + i];
}

// Clears the cells and the refinement's state.
__global__ void __launch_bounds__(256) start_tree(u32* cells, double* state, i64 count, i64 words) {
  grid_release();
  grid_wait();
  const i64 k = static_cast<i64>(blockIdx.x) * 256 + threadIdx.x;
  if (k < count) cells[k] = 0;
  if (k < words) state[k] = 0.0;
}

// counts: tickets forward, backward, residual parts (0: none is computed).
template <typename T, int R, bool Tiles>
__global__ void __launch_bounds__(kTreeThreads)
    solve_tree(const Item* tickets, const Item* items, const Front* fronts, const RowList* lists, const i32* list_sources,
               const i32* below_ind, const T* panels, const T* diagonal, const i32* pivots, const i32* perm,
               const i32* exponents, const i32* summary, const i64* row_ptr, const i32* row_col, const i64* row_slot,
               const T* values, const double* sums, const double* scalars, const T* b, T* best, T* candidate, T* residual,
               T* x, T* z, T* upd, double* state, u32* cells, const i64* sizes, i32 up, i32 down, i32 parts, i32 steps,
               i32 rounds, i32 cell_words, double target, double limit) {
  WF_DYNAMIC_SHARED(memory);
  __shared__ T work[2 * R * (kTreeRows + 4)];
  __shared__ double scratch[kMaxWarps];
  __shared__ i32 shared_ticket;
  const i64 n = sizes[0];
  const int thread = threadIdx.x, warp = thread / kWarp;
  const i64 group = static_cast<i64>(blockIdx.y) * R;
  b += group * n, best += group * n, candidate += group * n, residual += group * n, x += group * n, z += group * n;
  upd += group * sizes[1], state += group * kStateSize, cells += static_cast<i64>(blockIdx.y) * cell_words;
  const Refinement<T> m = {row_ptr, row_col, row_slot, values, b, sums, scalars, best, candidate, residual, state};
  Tree<T> tree = {fronts, lists, list_sources, below_ind, panels, diagonal, pivots, perm, exponents, summary, b, best,
                  candidate, x, z, upd, parts > 0 ? state : nullptr, cells, n, sizes[1], 0};
  const int all = up + down + parts;
  for (;;) {
    if (thread == 0) shared_ticket = static_cast<i32>(add_acq_rel(cells + kTicket, 1u));
    __syncthreads();
    const int ticket = shared_ticket, round = ticket / all, part = ticket % all;
    bool finished = round > rounds;
    if (parts > 0 && round > 0) {
      if (thread == 0) signal_wait(cells + kJudged, static_cast<u32>(min_of(round, rounds + 1)));
      __syncthreads();
      finished = finished || cells[kActive] < static_cast<u32>(round);
    }
    if (finished) {
      const int finishers = min_of(static_cast<int>(kFinishers), all);
      if (parts == 0 || part >= finishers || round > rounds + 1) return;
      keep_part<R>(m, part, finishers, n);
      __syncthreads();
      continue;
    }
    tree.epoch = static_cast<u32>(round + 1), tree.source = round > 0 ? residual : b;
    if (part < up + down) {
      const Item t = tickets[part];
      const bool forward = part < up;
      if (t.last == 0) {
        T* panel = reinterpret_cast<T*>(memory);
        if (forward) forward_item<kTreeThreads, R, Tiles>(tree, items[t.front], panel, work);
        else backward_item<kTreeThreads, R, Tiles>(tree, items[t.front], panel, work);
      } else if (warp < t.last) {
        T* panel = reinterpret_cast<T*>(memory) + warp * kPanel * kTreePitch;
        T* own = work + warp * 2 * R * kPitch;
        if (forward) forward_item<kWarp, R, Tiles>(tree, items[t.front + warp], panel, own);
        else backward_item<kWarp, R, Tiles>(tree, items[t.front + warp], panel, own);
      }
      __syncthreads();
      if (!forward && parts > 0 && thread == 0) add_acq_rel(cells + kDown, 1u);
    } else {
      if (thread == 0) signal_wait(cells + kDown, tree.epoch * static_cast<u32>(down));
      __syncthreads();
      measure_part<R>(m, part - up - down, parts, round, n, scratch);
      __syncthreads();
      if (thread == 0 && add_acq_rel(cells + kMeasured, 1u) + 1 == tree.epoch * static_cast<u32>(parts)) {
        const bool go_on = judge_round<R>(state, scalars, round, steps, rounds, target, limit);
        if (go_on) relaxed_store(cells + kActive, tree.epoch);
        signal_set(cells + kJudged, go_on ? tree.epoch : static_cast<u32>(rounds + 1));
      }
      __syncthreads();
    }
  }
}
