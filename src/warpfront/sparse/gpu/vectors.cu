// Everything that is a vector: values and scaling on the way in, permutations, residual and the refinement's decisions,
// and what a factorisation reports. Maxima of non-negative numbers are taken with integer atomics on their bits, sums of
// counts with integer atomics: both give the same result in any order, and a NaN, whose bits are largest, wins.
#include "refine_state.cuh"

using namespace wf;

enum : int { kVectorThreads = 256, kRowLanes = 8 };
// Clears what a factorisation accumulates.
__global__ void __launch_bounds__(32) start_factor(u32* flags, i32* summary, double* scalars) {
  const int k = threadIdx.x;
  if (k == 0) flags[0] += 1;
  if (k < kStats) summary[k] = k == kFailed ? 0x7fffffff : 0;
  if (k < 2) scalars[k] = 0.0;
}

// values[slot] = sum of the caller's entries ind[ptr[slot]..ptr[slot+1]], in this order.
template <typename T>
__global__ void __launch_bounds__(kVectorThreads)
    gather_values(const i64* ptr, const i64* ind, const T* source, T* values, i64 count) {
  const i64 k = static_cast<i64>(blockIdx.x) * kVectorThreads + threadIdx.x;
  if (k >= count) return;
  T sum = T(0);
  for (i64 e = ptr[k]; e < ptr[k + 1]; ++e) sum += source[ind[e]];
  values[k] = sum;
}

WF_DEVICE i32 exponent_of(double v) {
  const i64 bits = __double_as_longlong(v) & 0x7fffffffffffffffll;
  const i32 field = static_cast<i32>(bits >> 52);
  if (bits == 0) return -32000;
  if (field > 0) return field - 1022;
  return -1010 - (__clzll(bits) - 0);  // subnormal: position of its leading bit
}

// One sweep of symmetric equilibration on binary exponents, eight lanes a row: half of each row's largest scaled exponent goes.
template <typename T>
__global__ void __launch_bounds__(kVectorThreads)
    sweep_exponents(const i64* row_ptr, const i32* row_col, const i64* row_slot, const T* values, const i32* from,
                    i32* to, i64 n) {
  const i64 i = (static_cast<i64>(blockIdx.x) * kVectorThreads + threadIdx.x) / kRowLanes;
  const int sub = threadIdx.x % kRowLanes;
  const i32 mine = i < n ? from[i] : 0;
  i32 top = -32000;
  if (i < n)
    for (i64 e = row_ptr[i] + sub; e < row_ptr[i + 1]; e += kRowLanes)
      top = max_of(top, exponent_of(static_cast<double>(values[row_slot[e]])) + from[row_col[e]] + mine);
  for (int d = kRowLanes / 2; d > 0; d /= 2) top = max_of(top, __shfl_xor_sync(kFullMask, top, d));
  if (i < n && sub == 0) to[i] = top > -16000 ? max_of(-1000, min_of(1000, mine - (top >> 1))) : mine;
}

// scaled = S A S entry by entry and its largest size; a null `exponents` means no scaling.
template <typename T>
__global__ void __launch_bounds__(kVectorThreads)
    scale_values(const i32* row, const i32* col, const i32* exponents, const T* values, T* scaled, double* scalars,
                 i64 count) {
  __shared__ double scratch[kMaxWarps];
  const i64 k = static_cast<i64>(blockIdx.x) * kVectorThreads + threadIdx.x;
  double size = 0.0;
  if (k < count) {
    double v = static_cast<double>(values[k]);
    if (exponents != nullptr) v = v * power_of_two(exponents[col[k]]) * power_of_two(exponents[row[k]]);
    scaled[k] = static_cast<T>(v);
    size = abs_value(v);
  }
  raise_block(scalars + kLargest, size, scratch);
}

// Tolerances made absolute: they are given relative to the largest scaled entry.
template <typename T>
__global__ void __launch_bounds__(32) set_rule(const double* scalars, T* rule, double threshold, double zero, double doubt,
                                             double epsilon) {
  if (threadIdx.x != 0) return;
  const double largest = scalars[kLargest];
  rule[kThreshold] = static_cast<T>(threshold), rule[kZero] = static_cast<T>(zero * largest);
  rule[kDoubt] = static_cast<T>(doubt * largest), rule[kEpsilon] = static_cast<T>(epsilon * largest);
}

// Row sums of |A|, eight lanes a row, and the largest of them; any grid covers all rows.
template <typename T>
__global__ void __launch_bounds__(kVectorThreads)
    row_sums(const i64* row_ptr, const i64* row_slot, const T* values, double* sums, double* scalars, i64 n) {
  __shared__ double scratch[kMaxWarps];
  constexpr int kRows = kVectorThreads / kRowLanes;
  const int sub = threadIdx.x % kRowLanes;
  double largest = 0.0;
  for (i64 i0 = static_cast<i64>(blockIdx.x) * kRows; i0 < n; i0 += static_cast<i64>(gridDim.x) * kRows) {
    const i64 i = i0 + threadIdx.x / kRowLanes;
    double sum = 0.0;
    if (i < n)
      for (i64 e = row_ptr[i] + sub; e < row_ptr[i + 1]; e += kRowLanes) sum += abs_value(static_cast<double>(values[row_slot[e]]));
    for (int d = kRowLanes / 2; d > 0; d /= 2) sum += __shfl_xor_sync(kFullMask, sum, d);
    if (i < n && sub == 0) sums[i] = sum;
    largest = nan_max(largest, sum);
  }
  raise_block(scalars + kNorm, largest, scratch);
}

// Statistics of all fronts into the summary; kFailed is the first failing pivot's position.
__global__ void __launch_bounds__(kVectorThreads) collect(const i32* stats, i32* summary, i64 rows) {
  __shared__ i32 total[kStats];
  const int thread = threadIdx.x;
  if (thread < kStats) total[thread] = thread == kFailed ? 0x7fffffff : 0;
  __syncthreads();
  const i64 at = static_cast<i64>(blockIdx.x) * kVectorThreads + thread;
  if (at < rows) {
    for (int k = 0; k < kStats; ++k) {
      const i32 v = stats[at * kStats + k];
      if (k == kFailed) {
        if (v >= 0) atomicMin(total + k, v);
      } else if (v != 0) {
        atomicAdd(total + k, v);
      }
    }
  }
  __syncthreads();
  if (thread < kStats) {
    if (thread == kFailed) atomicMin(summary + thread, total[thread]);
    else if (total[thread] != 0) atomicAdd(summary + thread, total[thread]);
  }
}

// Here and below blockIdx.y is a group of R right-hand sides.
// x = P^T S b for R right-hand sides; b has `rows` apart along a column and `columns` from one to the next.
// The first block starts the solve's epoch. `active` as in solve.cu.
template <typename T, int R>
__global__ void __launch_bounds__(kVectorThreads)
    permute_in(const i32* perm, const i32* exponents, const T* b, T* x, u32* flags, const i32* active, i64 n, i64 rows,
               i64 columns) {
  grid_release();
  grid_wait();
  if (active != nullptr && *active == 0) return;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) flags[0] += 1;
  b += static_cast<i64>(blockIdx.y) * R * columns, x += static_cast<i64>(blockIdx.y) * R * n;
  const i64 k = static_cast<i64>(blockIdx.x) * kVectorThreads + threadIdx.x;
  if (k >= n) return;
  const i32 i = perm[k];
  const T scale = exponents == nullptr ? T(1) : static_cast<T>(power_of_two(exponents[i]));
  for (int r = 0; r < R; ++r) x[r * n + k] = b[i * rows + r * columns] * scale;
}

// out = base + S P y, and the largest |out| of each right-hand side; a null base is zero. With a summary, a failed
// factorisation gives NaN.
template <typename T, int R>
__global__ void __launch_bounds__(kVectorThreads)
    permute_out(const i32* perm, const i32* exponents, const T* y, const T* base, T* out, double* state,
                const i32* active, const i32* summary, i64 n) {
  grid_release();
  grid_wait();
  __shared__ double scratch[kMaxWarps];
  if (active != nullptr && *active == 0) return;
  const i64 k = static_cast<i64>(blockIdx.x) * kVectorThreads + threadIdx.x, group = static_cast<i64>(blockIdx.y) * R;
  y += group * n, out += group * n, state += group * kStateSize;
  if (base != nullptr) base += group * n;
  for (int r = 0; r < R; ++r) {
    double size = 0.0;
    if (k < n) {
      const i32 i = perm[k];
      T v = exponents == nullptr ? y[r * n + k] : y[r * n + k] * static_cast<T>(power_of_two(exponents[i]));
      if (base != nullptr) v += base[r * n + i];
      if (summary != nullptr && summary[kFailed] != 0x7fffffff) v = static_cast<T>(infinity() - infinity());
      out[r * n + i] = v;
      size = abs_value(static_cast<double>(v));
    }
    raise_block(state + r * kStateSize + kX, size, scratch);
  }
}

// residual = b - A x, eight lanes a row, and the maxima of the backward error (definitions: solve/_residual_kernels.py).
template <typename T, int R>
__global__ void __launch_bounds__(kVectorThreads)
    measure(const i64* row_ptr, const i32* row_col, const i64* row_slot, const T* values, const double* sums, const T* b,
            const T* x, T* residual, double* state, const i32* active, const i64* shape) {
  grid_release();
  grid_wait();
  __shared__ double scratch[kMaxWarps];
  if (active != nullptr && *active == 0) return;
  const i64 n = shape[0], group = static_cast<i64>(blockIdx.y) * R;
  b += group * shape[2], x += group * n, residual += group * n, state += group * kStateSize;
  const i64 i = (static_cast<i64>(blockIdx.x) * kVectorThreads + threadIdx.x) / kRowLanes;
  const int sub = threadIdx.x % kRowLanes;
  for (int r = 0; r < R; ++r) {
    double sum = 0.0, size = 0.0, rhs = 0.0, error = 0.0;
    if (i < n) {
      for (i64 e = row_ptr[i] + sub; e < row_ptr[i + 1]; e += kRowLanes) {
        const double product = static_cast<double>(values[row_slot[e]]) * static_cast<double>(x[r * n + row_col[e]]);
        sum += product, size += abs_value(product);
      }
      rhs = static_cast<double>(b[i * shape[1] + r * shape[2]]);
    }
    for (int d = kRowLanes / 2; d > 0; d /= 2) {
      sum += __shfl_xor_sync(kFullMask, sum, d);
      size += __shfl_xor_sync(kFullMask, size, d);
    }
    const double gap = abs_value(rhs - sum);
    if (i < n && sub == 0) {
      residual[r * n + i] = static_cast<T>(rhs - sum);
      const double whole_row = sums[i] * state[r * kStateSize + kX], rounding = 1000.0 * n * 2.220446049250313e-16;
      double scale = size + abs_value(rhs);
      if (scale <= rounding * (whole_row + abs_value(rhs))) scale += whole_row - abs_value(rhs);
      if (!(gap - gap == 0.0) || !(scale - scale == 0.0)) error = infinity();
      else if (gap > 0.0) error = gap / scale;
    }
    raise_block(state + r * kStateSize + kComponent, error, scratch);
    raise_block(state + r * kStateSize + kR, i < n ? gap : 0.0, scratch);
    raise_block(state + r * kStateSize + kB, abs_value(rhs), scratch);
  }
}

// Decides, for each right-hand side, whether the new iterate is kept and whether to go on; a lane each. Round 0 judges
// the unrefined solution. Stops at `target`, or when a step gains less than half. Clears the maxima.
__global__ void __launch_bounds__(32)
    judge(const double* scalars, double* state, i32* active, int count, int round, double target) {
  grid_release();
  grid_wait();
  if (round > 0 && *active == 0) return;
  __syncwarp();
  bool any = false;
  for (int r = threadIdx.x; r < count; r += kWarp) {
    bool go_on = false;
    double* s = state + r * kStateSize;
    const double component = s[kComponent], whole = scalars[kNorm] * s[kX] + s[kB];
    const double normwise = !(component < infinity()) ? infinity() : s[kR] > 0.0 ? s[kR] / whole : 0.0;
    if (round == 0) {
      s[kBest] = component, s[kBestNormwise] = normwise, s[kSteps] = 0.0, s[kImproved] = 0.0;
      go_on = !(component <= target);
    } else if (s[kGoOn] != 0.0) {
      const bool better = component < s[kBest];
      s[kImproved] = better ? 1.0 : 0.0, s[kSteps] = round;
      if (better) s[kBest] = component, s[kBestNormwise] = normwise;
      go_on = component < 0.5 * s[kLast] && !(component <= target);
    } else {
      s[kImproved] = 0.0;
    }
    s[kLast] = component, s[kGoOn] = go_on ? 1.0 : 0.0;
    s[kX] = s[kR] = s[kB] = s[kComponent] = 0.0;
    any = any || go_on;
  }
  any = __any_sync(kFullMask, any);
  if (threadIdx.x == 0) *active = any ? 1 : 0;
}

// best = candidate where the last judgement found it better.
template <typename T, int R>
__global__ void __launch_bounds__(kVectorThreads) keep_better(const double* state, const T* candidate, T* best, i64 n) {
  grid_release();
  grid_wait();
  const i64 k = static_cast<i64>(blockIdx.x) * kVectorThreads + threadIdx.x;
  if (k >= n) return;
  const i64 group = static_cast<i64>(blockIdx.y) * R;
  state += group * kStateSize, candidate += group * n, best += group * n;
  for (int r = 0; r < R; ++r)
    if (state[r * kStateSize + kImproved] != 0.0) best[r * n + k] = candidate[r * n + k];
}

// Before a solve: state and maxima cleared.
__global__ void __launch_bounds__(128) start_solve(double* state, i32* active, int count) {
  grid_release();
  grid_wait();
  for (int k = threadIdx.x; k < count * kStateSize; k += 128) state[k] = 0.0;
  if (threadIdx.x == 0) *active = 1;
}
