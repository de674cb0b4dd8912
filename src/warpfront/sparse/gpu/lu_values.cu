// Values and scaling of a general matrix: does the matching's scaling still fit, equilibration where not, scaled values.
//
// Scales are powers of two, kept as exponents. `quality` (int32): kWeak matched entries below a share of their column's
// largest, kStale whether rows and columns are equilibrated anew, kWeakAnew as kWeak with those scales. What decides is
// the values and the analysis only, so old values give old bits again. The rules are those of numeric/factorize_lu.py and
// analysis/_scaling_kernels.py. Maxima and counts by integer atomics: the same in any order.
#include "lu_front.cuh"

using namespace wf;

enum : int { kVectorThreads = 256, kColumnLanes = 8 };
enum : int { kWeak, kStale, kWeakAnew };
enum : int { kLargest, kNorm };
enum : int { kAbsent = -32000, kLeast = -16000 };  // exponent of zero; below every sum of exponents that are there

WF_DEVICE i32 exponent_of(double v) {
  const i64 bits = __double_as_longlong(v) & 0x7fffffffffffffffll;
  const i32 field = static_cast<i32>(bits >> 52);
  if (bits == 0) return kAbsent;
  if (field > 0) return field - 1022;
  return -1010 - __clzll(bits);  // subnormal: position of its leading bit
}

WF_DEVICE double power_of_two(i32 e) { return __longlong_as_double(static_cast<i64>(e + 1023) << 52); }

// Clears what a factorisation accumulates; `stale` from the start where rows and columns are always equilibrated.
__global__ void __launch_bounds__(32)
    lu_start(u32* flags, i32* summary, double* scalars, double* scalars_t, i32* quality, int always) {
  const int k = threadIdx.x;
  if (k == 0) flags[0] += 1;
  if (k < kStats) summary[k] = k == kFailed ? 0x7fffffff : 0;
  if (k < 2) scalars[k] = scalars_t[k] = 0.0;
  if (k < 3) quality[k] = k == kStale ? always : 0;
}

// Eight lanes a column: its largest scaled entry, and whether the matched one is weak beside it. Round 0 judges the
// matching's scales, round 1 the new ones where there are any.
template <typename T>
__global__ void __launch_bounds__(kVectorThreads)
    lu_judge_matching(const i64* ptr, const i32* row, const i64* matched, const T* values, const i32* row_exponents,
                      const i32* col_exponents, i32* quality, i64 n, int round, double share, double range) {
  if (round == 1 && quality[kStale] == 0) return;
  const i64 j = (static_cast<i64>(blockIdx.x) * kVectorThreads + threadIdx.x) / kColumnLanes;
  double top = 0.0;
  if (j < n)
    for (i64 k = ptr[j] + threadIdx.x % kColumnLanes; k < ptr[j + 1]; k += kColumnLanes)
      top = nan_max(top, abs_value(static_cast<double>(values[k])) * power_of_two(row_exponents[row[k]]));
  for (int d = kColumnLanes / 2; d > 0; d /= 2) top = nan_max(top, __shfl_xor_sync(kFullMask, top, d));
  if (j >= n || threadIdx.x % kColumnLanes != 0 || top == 0.0) return;
  const double scaled = top * power_of_two(col_exponents[j]);
  if (round == 0 && !(scaled * range >= 1.0 && scaled <= range)) atomicMax(quality + kStale, 1);
  const i64 at = matched[j];
  if (at < 0) return;
  if (abs_value(static_cast<double>(values[at])) * power_of_two(row_exponents[row[at]]) < share * top) {
    atomicAdd(quality + (round == 0 ? kWeak : kWeakAnew), 1);
    if (round == 0) atomicMax(quality + kStale, 1);
  }
}

// One sweep over rows or columns (`ptr`, `ind`; a null `slot` means that entries lie in this order): each line gives half of
// its largest exponent to its scale. The last sweep raises lines that are still small to the bound and writes the matching's
// scales where these fit.
template <typename T>
__global__ void __launch_bounds__(kVectorThreads)
    lu_sweep(const i64* ptr, const i32* ind, const i64* slot, const T* values, const i32* mine, const i32* theirs, i32* to,
             const i32* matched, const i32* quality, i64 n, int last) {
  const i64 i = static_cast<i64>(blockIdx.x) * kVectorThreads + threadIdx.x;
  if (i >= n) return;
  if (quality[kStale] == 0) {
    if (last != 0) to[i] = matched[i];
    return;
  }
  i32 top = kAbsent;
  for (i64 k = ptr[i]; k < ptr[i + 1]; ++k)
    top = max_of(top, exponent_of(static_cast<double>(values[slot == nullptr ? k : slot[k]])) + theirs[ind[k]] + mine[i]);
  i32 e = mine[i];
  if (top > kLeast) e -= last == 0 ? top >> 1 : min_of(top, 0);
  to[i] = last == 0 ? e : max_of(-1000, min_of(1000, e));
}

// values = R A C and its largest size; null exponents mean no scaling.
template <typename T>
__global__ void __launch_bounds__(kVectorThreads)
    lu_scale(const i32* row, const i32* col, const i32* row_exponents, const i32* col_exponents, const T* original,
             T* values, double* scalars, i64 count) {
  __shared__ double scratch[kMaxWarps];
  const i64 k = static_cast<i64>(blockIdx.x) * kVectorThreads + threadIdx.x;
  double size = 0.0;
  if (k < count) {
    double v = static_cast<double>(original[k]);
    if (row_exponents != nullptr) v = v * power_of_two(row_exponents[row[k]]) * power_of_two(col_exponents[col[k]]);
    values[k] = static_cast<T>(v);
    size = abs_value(v);
  }
  size = block_max(size, scratch);
  if (threadIdx.x == 0)
    atomicMax(reinterpret_cast<unsigned long long*>(scalars + kLargest), static_cast<unsigned long long>(__double_as_longlong(size)));
}

// Tolerances made absolute; values that are not finite are counted, whether a pivot meets them or not.
template <typename T>
__global__ void __launch_bounds__(32)
    lu_set_rule(const double* scalars, T* rule, i32* summary, double threshold, double share, double zero, double doubt,
                double epsilon) {
  if (threadIdx.x != 0) return;
  const double largest = scalars[kLargest];
  rule[kThreshold] = static_cast<T>(threshold), rule[kShare] = static_cast<T>(share);
  rule[kZero] = static_cast<T>(zero * largest), rule[kDoubt] = static_cast<T>(doubt * largest);
  rule[kEpsilon] = static_cast<T>(epsilon * largest);
  if (!(largest - largest == 0.0)) summary[kNonFinite] = 1;
}
