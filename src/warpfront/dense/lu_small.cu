// LU with partial pivoting and the solve with it for matrices of order 1 to 64, one matrix per block, in shared memory.
//
// A block of 64 threads owns one matrix; thread i owns row i. Shared layout: column-major matrix with pitch n | 1 (odd: the
// entries of a row fall into different banks for 4- and 8-byte types), then two entries of reduction scratch.
//
// Every product is rounded before it is subtracted (the file is compiled without contraction), pivots are the first largest
// entry of their column, and the order of the eliminations is that of the CPU's lu_unblocked: real types give the same bits,
// and an exactly singular matrix such as [[4, 4], [12, 12]] is found singular.
//
// Barriers of lu_small, per column: after the load / the previous update, before the search reads the column (inside
// block_arg_max); after the interchange, before the multipliers divide by the pivot; after the multipliers, before the
// update reads the pivot row and other threads' multipliers never (thread i uses its own). lu_small_solve: one barrier
// after each broadcast entry of x.
//
// Literature: Golub and Van Loan, Matrix Computations (2013), algorithm 3.4.1.
#include "block.cuh"
#include "complex.cuh"
#include "types.cuh"

namespace wf {

[[maybe_unused]] constexpr int kSmallThreads = 64;  // not by every kernel that is compiled alone

WF_DEVICE float size_of(float a) { return abs_of(a); }
WF_DEVICE double size_of(double a) { return abs_of(a); }
// Scaled, so that it neither overflows nor underflows; used for comparisons only.
template <typename T>
WF_DEVICE T size_of(complex<T> a) {
  const T re = abs_of(a.re), im = abs_of(a.im), big = max_of(re, im), little = min_of(re, im);
  if (big == T(0)) return T(0);
  const T r = little / big;
  return big * sqrt(T(1) + r * r);
}

template <typename T> struct real_of { typedef T type; };
template <typename T> struct real_of<complex<T>> { typedef T type; };

template <typename T>
WF_DEVICE bool is_zero(T a) { return size_of(a) == decltype(size_of(a))(0); }

template <typename T> struct entry_of { WF_DEVICE static T make(double re, double) { return static_cast<T>(re); } };
template <typename T> struct entry_of<complex<T>> {
  WF_DEVICE static complex<T> make(double re, double im) { return {static_cast<T>(re), static_cast<T>(im)}; }
};

[[maybe_unused]] constexpr int kSummaryThreads = 256, kReport = 8;

// Part of a product of pivots: mantissa * 2^power in absolute value, (re, im) of absolute value 1; the first zero's place.
struct product_part {
  double mantissa, re, im;
  i64 power;
  i32 zero;
};

template <typename T>
WF_DEVICE double real_part(T a) { return static_cast<double>(a); }
template <typename T>
WF_DEVICE double real_part(complex<T> a) { return static_cast<double>(a.re); }
template <typename T>
WF_DEVICE double imaginary_part(T) { return 0.0; }
template <typename T>
WF_DEVICE double imaginary_part(complex<T> a) { return static_cast<double>(a.im); }

template <typename T>
WF_DEVICE product_part as_part(T pivot, bool exchanged, i32 k, i32 n) {
  const complex<double> p = {real_part(pivot), imaginary_part(pivot)};
  const double size = p.im == 0.0 ? abs_of(p.re) : size_of(p), turn = exchanged ? -1.0 : 1.0;
  if (!(size > 0.0)) return {1.0, turn, 0.0, 0, size == 0.0 ? k : n};
  int power = 0;
  const double mantissa = frexp(size, &power);
  return {mantissa, turn * (p.re / size), turn * (p.im / size), power, n};
}

WF_DEVICE void include(product_part& to, const product_part& from) {
  int shift = 0;
  to.mantissa = frexp(to.mantissa * from.mantissa, &shift);
  to.power += from.power + shift;
  const double re = to.re * from.re - to.im * from.im;
  to.im = to.re * from.im + to.im * from.re;
  to.re = re;
  to.zero = min_of(to.zero, from.zero);
}

}  // namespace wf

// a: row-major [batch][n][n], read. lu: column-major [batch][n][n], written. pivots: [batch][n], counted from 1.
// zero: [batch], column of the first zero pivot or -1; -2 where the matrix holds NaN or infinity.
// range: [batch][2], smallest and largest absolute pivot.
template <typename T>
__global__ void lu_small(const T* a, T* lu, wf::i32* pivots, wf::i32* zero, double* range, wf::i32 n) {
  typedef typename wf::real_of<T>::type R;
  WF_DYNAMIC_SHARED(raw);
  T* s = reinterpret_cast<T*>(raw);
  __shared__ wf::indexed<R> scratch[wf::kMaxWarps];
  __shared__ R finite_scratch[wf::kMaxWarps];
  const int i = static_cast<int>(threadIdx.x), pitch = n | 1;
  const wf::i64 first = static_cast<wf::i64>(blockIdx.x) * n * n;
  R nothing = R(0);
  for (int e = i; e < n * n; e += wf::kSmallThreads) {
    const T value = a[first + e];
    s[e / n + (e % n) * pitch] = value;
    nothing = nothing + wf::size_of(value) * R(0);  // NaN or infinity times zero is NaN
  }
  const bool bad = wf::block_sum(nothing, finite_scratch) != R(0);
  wf::i32 failed = bad ? -2 : -1;
  for (int k = 0; k < n; ++k) {
    wf::indexed<R> best = {R(-1), wf::kNone};
    __syncthreads();  // the load or the update of column k by other threads
    if (i >= k && i < n) best = {wf::size_of(s[i + k * pitch]), i};
    best = wf::block_arg_max(best, scratch);
    const int row = best.index;
    if (i == 0) pivots[static_cast<wf::i64>(blockIdx.x) * n + k] = row + 1;
    if (row != k && i < n) {  // thread i exchanges the entries of column i
      const T held = s[k + i * pitch];
      s[k + i * pitch] = s[row + i * pitch];
      s[row + i * pitch] = held;
    }
    __syncthreads();
    const T pivot = s[k + k * pitch];
    if (wf::is_zero(pivot)) {
      if (failed == -1) failed = k;
      continue;  // the same for all threads
    }
    if (i > k && i < n) {
      const T l = s[i + k * pitch] / pivot;
      s[i + k * pitch] = l;
      for (int j = k + 1; j < n; ++j) s[i + j * pitch] = s[i + j * pitch] - l * s[k + j * pitch];
    }
  }
  __syncthreads();
  for (int e = i; e < n * n; e += wf::kSmallThreads) lu[first + e] = s[e % n + (e / n) * pitch];
  const R own = wf::size_of(s[wf::min_of(i, n - 1) * (pitch + 1)]);
  const R least = wf::block_min(own, finite_scratch), most = wf::block_max(own, finite_scratch);
  if (i == 0) {
    zero[blockIdx.x] = failed;
    range[2 * static_cast<wf::i64>(blockIdx.x)] = static_cast<double>(least);
    range[2 * static_cast<wf::i64>(blockIdx.x) + 1] = static_cast<double>(most);
  }
}

// What is to be known of a finished factorisation of any order. lu: column-major [batch][n][n]; blockIdx.x is the matrix.
// report: [batch][kReport], zeros on entry: 0 is set to 1, by any number of blocks, where an entry of the factors is NaN or
// infinite (every such entry of the matrix makes one). The rest is written by the blocks with blockIdx.y == 0: 1 the first
// zero pivot or -1; 2, 3 smallest and largest absolute pivot; 4 log |det|; 5 |det| in T. value, sign: [batch], the
// determinant and its sign, 0 for a zero pivot. Thread t multiplies pivots t, t + 256, ..., as mantissa and exponent; a tree
// in shared memory joins them, a barrier a level.
template <typename T>
__global__ void lu_summary(const T* lu, const wf::i32* pivots, double* report, T* value, T* sign, wf::i32 n) {
  typedef typename wf::real_of<T>::type R;
  __shared__ R scratch[wf::kMaxWarps];
  __shared__ wf::product_part parts[wf::kSummaryThreads];
  const wf::i64 b = blockIdx.x, matrix = b * n * n, entries = static_cast<wf::i64>(n) * n;
  const int t = static_cast<int>(threadIdx.x);
  R nothing = R(0);
  for (wf::i64 e = static_cast<wf::i64>(blockIdx.y) * blockDim.x + t; e < entries; e += static_cast<wf::i64>(gridDim.y) * blockDim.x)
    nothing = nothing + wf::size_of(lu[matrix + e]) * R(0);
  const bool found = wf::block_sum(nothing, scratch) != R(0);
  if (found && t == 0) report[wf::kReport * b] = 1.0;
  if (blockIdx.y != 0) return;
  R least = wf::size_of(lu[matrix]), most = least;
  wf::product_part part = {1.0, 1.0, 0.0, 0, n};
  for (wf::i32 k = t; k < n; k += wf::kSummaryThreads) {
    const T pivot = lu[matrix + k * (static_cast<wf::i64>(n) + 1)];
    const R own = wf::size_of(pivot);
    least = wf::min_of(least, own);
    most = wf::max_of(most, own);
    wf::include(part, wf::as_part(pivot, pivots[b * n + k] != k + 1, k, n));
  }
  parts[t] = part;
  for (int d = wf::kSummaryThreads / 2; d > 0; d /= 2) {
    __syncthreads();
    if (t < d) wf::include(parts[t], parts[t + d]);
  }
  least = wf::block_min(least, scratch);
  most = wf::block_max(most, scratch);
  if (t == 0) {
    part = parts[0];
    const bool zero = part.zero < n;
    const double norm = sqrt(part.re * part.re + part.im * part.im), keep = zero ? 0.0 : 1.0 / norm;
    const wf::i64 power = wf::max_of<wf::i64>(-1000000, wf::min_of<wf::i64>(1000000, part.power));
    const double size = zero ? 0.0 : ldexp(part.mantissa, static_cast<int>(power));
    sign[b] = wf::entry_of<T>::make(part.re * keep, part.im * keep);
    const T whole = wf::entry_of<T>::make(part.re * keep * size, part.im * keep * size);
    value[b] = whole;
    double* const mine = report + wf::kReport * b;
    mine[1] = zero ? part.zero : -1;
    mine[2] = static_cast<double>(least);
    mine[3] = static_cast<double>(most);
    mine[4] = zero ? log(0.0) : log(part.mantissa) + static_cast<double>(part.power) * 0.693147180559945309417;
    mine[5] = static_cast<double>(wf::size_of(whole));
  }
}

// Whether each of a batch's results (or right-hand sides) is finite. x: [batch][entries], reals; a complex entry is two.
// blockIdx.x is the matrix. report: as of lu_summary; the number `field` is set to 1, by any number of blocks, where an
// entry is NaN or infinite.
template <typename R>
__global__ void lu_finite(const R* x, wf::i64 entries, double* report, wf::i32 field) {
  __shared__ R scratch[wf::kMaxWarps];
  const wf::i64 b = blockIdx.x, step = static_cast<wf::i64>(gridDim.y) * blockDim.x;
  R nothing = R(0);
  for (wf::i64 e = static_cast<wf::i64>(blockIdx.y) * blockDim.x + threadIdx.x; e < entries; e += step)
    nothing = nothing + x[b * entries + e] * R(0);  // NaN or infinity times zero is NaN
  const bool found = wf::block_sum(nothing, scratch) != R(0);
  if (found && threadIdx.x == 0) report[wf::kReport * b + field] = 1.0;
}

// Solve with a factor of lu_small. x: column-major [batch][count][n], overwritten. A matrix with zero[b] != -1 gets NaN.
template <typename T>
__global__ void lu_small_solve(const T* lu, const wf::i32* pivots, const wf::i32* zero, T* x, wf::i32 n, wf::i32 count) {
  typedef typename wf::real_of<T>::type R;
  WF_DYNAMIC_SHARED(raw);
  T* s = reinterpret_cast<T*>(raw);
  const int i = static_cast<int>(threadIdx.x), pitch = n | 1;
  T* held = s + pitch * n;
  const wf::i64 b = blockIdx.x;
  for (int e = i; e < n * n; e += wf::kSmallThreads) s[e % n + (e / n) * pitch] = lu[b * n * n + e];
  const bool refused = zero[b] != -1;
  for (int c = 0; c < count; ++c) {
    T* column = x + (b * count + c) * n;
    __syncthreads();  // the factor, and the last reads of the column before
    if (i < n) held[i] = column[i];
    __syncthreads();
    if (i == 0)
      for (int k = 0; k < n; ++k) {
        const int row = pivots[b * n + k] - 1;
        const T other = held[row];
        held[row] = held[k];
        held[k] = other;
      }
    for (int k = 0; k < n; ++k) {
      __syncthreads();  // held[k] is final
      if (i > k && i < n) held[i] = held[i] - s[i + k * pitch] * held[k];
    }
    for (int k = n - 1; k >= 0; --k) {
      __syncthreads();
      if (i == k && !refused) held[k] = held[k] / s[k + k * pitch];
      __syncthreads();
      if (i < k) held[i] = held[i] - s[i + k * pitch] * held[k];
    }
    __syncthreads();
    if (i < n) {
      if (refused) {
        const R nan = R(0) / (R(0) * R(n - n));
        held[i] = T{nan};
      }
      column[i] = held[i];
    }
  }
}
