// Sparse matrix times vector or block of vectors: compressed rows and ELLPACK. Every sum has a fixed order.
//
// csr_rows: Lanes consecutive threads own one row; thread l adds entries l, l + Lanes, ... and the partial sums meet in a
// fixed tree of shuffles. Rows longer than `longest` are left to csr_segments: one block owns one segment of such a row
// and writes its sum, and csr_finish, one thread per long row, adds a row's segments in order.
// ell_rows: one thread owns one row; slot k of neighbouring rows is contiguous. csr_block: thread (i, j) owns entry (i, j)
// of the result; the 32 threads of a warp share a row and read neighbouring columns of X.
//
// Shared memory: only the reduction scratch of csr_segments; its barriers are those of block_sum.
// All lanes of a warp take part in the shuffles: a row that is out of range or long is an empty one there.
// Literature: Bell and Garland, Implementing sparse matrix-vector multiplication (SC 2009), for both layouts.
#include "block.cuh"
#include "complex.cuh"
#include "types.cuh"

namespace wf {

constexpr int kProductThreads = 256;

template <typename T>
WF_DEVICE T shuffle_xor(T v, int distance) { return __shfl_xor_sync(kFullMask, v, distance); }

template <typename T>
WF_DEVICE complex<T> shuffle_xor(complex<T> v, int distance) {
  return {__shfl_xor_sync(kFullMask, v.re, distance), __shfl_xor_sync(kFullMask, v.im, distance)};
}

template <typename T> struct zero_of { WF_DEVICE static T make() { return T(0); } };
template <typename T> struct zero_of<complex<T>> { WF_DEVICE static complex<T> make() { return {T(0), T(0)}; } };

template <typename T>
WF_DEVICE T sum_of_block(T v, T* scratch) { return block_sum(v, scratch); }

template <typename T>
WF_DEVICE complex<T> sum_of_block(complex<T> v, complex<T>* scratch) {
  T* words = reinterpret_cast<T*>(scratch);
  const T re = block_sum(v.re, words);
  const T im = block_sum(v.im, words);
  return {re, im};
}

}  // namespace wf

template <typename T, int Lanes>
__global__ void csr_rows(const wf::i64* ptr, const wf::i32* ind, const T* values, const T* x, T* y, wf::i32 rows, wf::i64 longest) {
  const wf::i64 at = static_cast<wf::i64>(blockIdx.x) * wf::kProductThreads + threadIdx.x;
  const wf::i64 row = at / Lanes;
  const int lane = static_cast<int>(at % Lanes);
  wf::i64 begin = 0, end = 0;
  if (row < rows) {
    begin = ptr[row];
    end = ptr[row + 1];
  }
  const bool mine = row < rows && end - begin <= longest;
  if (!mine) end = begin;
  T sum = wf::zero_of<T>::make();
  for (wf::i64 e = begin + lane; e < end; e += Lanes) sum = sum + values[e] * x[ind[e]];
  WF_UNROLL
  for (int d = Lanes / 2; d > 0; d /= 2) sum = sum + wf::shuffle_xor(sum, d);
  if (mine && lane == 0) y[row] = sum;
}

// segments: [count][2], entry ranges. partial: [count], written.
template <typename T>
__global__ void csr_segments(const wf::i64* segments, const wf::i32* ind, const T* values, const T* x, T* partial) {
  __shared__ T scratch[wf::kMaxWarps];
  const wf::i64 begin = segments[2 * static_cast<wf::i64>(blockIdx.x)], end = segments[2 * static_cast<wf::i64>(blockIdx.x) + 1];
  T sum = wf::zero_of<T>::make();
  for (wf::i64 e = begin + threadIdx.x; e < end; e += wf::kProductThreads) sum = sum + values[e] * x[ind[e]];
  sum = wf::sum_of_block(sum, scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// long_rows: [count], row numbers. first: [count + 1], each row's segments.
template <typename T>
__global__ void csr_finish(const wf::i64* long_rows, const wf::i64* first, const T* partial, T* y, wf::i32 count) {
  const int r = static_cast<int>(blockIdx.x) * wf::kProductThreads + static_cast<int>(threadIdx.x);
  if (r >= count) return;
  T sum = wf::zero_of<T>::make();
  for (wf::i64 s = first[r]; s < first[r + 1]; ++s) sum = sum + partial[s];
  y[long_rows[r]] = sum;
}

template <typename T>
__global__ void ell_rows(const wf::i32* ind, const T* values, const T* x, T* y, wf::i32 rows, wf::i32 width) {
  const wf::i64 row = static_cast<wf::i64>(blockIdx.x) * wf::kProductThreads + threadIdx.x;
  if (row >= rows) return;
  T sum = wf::zero_of<T>::make();
  for (wf::i32 k = 0; k < width; ++k) {
    const wf::i64 e = static_cast<wf::i64>(k) * rows + row;
    const wf::i32 column = ind[e];
    if (column >= 0) sum = sum + values[e] * x[column];
  }
  y[row] = sum;
}

template <typename T>
__global__ void csr_block(const wf::i64* ptr, const wf::i32* ind, const T* values, const T* x, T* y, wf::i32 rows, wf::i32 k) {
  const wf::i64 row = static_cast<wf::i64>(blockIdx.x) * (wf::kProductThreads / 32) + threadIdx.x / 32;
  const wf::i32 j = static_cast<wf::i32>(blockIdx.y) * 32 + static_cast<wf::i32>(threadIdx.x % 32);
  if (row >= rows || j >= k) return;
  T sum = wf::zero_of<T>::make();
  for (wf::i64 e = ptr[row]; e < ptr[row + 1]; ++e) sum = sum + values[e] * x[static_cast<wf::i64>(ind[e]) * k + j];
  y[row * k + j] = sum;
}
