// Sparse matrix times vector or block of vectors: compressed rows and ELLPACK. Every sum has a fixed order.
//
// csr_rows, three kinds of blocks in one launch, the longest work first. The first `parts` blocks own one part of a long
// row each: every thread adds entries 256 apart, the block adds its threads' sums by a fixed tree, and csr_finish, a thread
// a long row, adds a row's parts in order. The next own a listed row of middle length in each warp. The rest own short
// rows: Lanes consecutive threads a row, thread l adds entries l, l + Lanes, ...; the partial sums meet in a fixed tree of
// shuffles. Without the lists a long row would hold up the rows that share its warp.
// csr_block: thread (i, j) owns entry (i, j) of the result; the 32 threads of a warp share a row and read neighbouring
// columns of X. Parts of long rows again come first: a block's warps add entries 8 apart, which meet in shared memory in
// the order of the warps; csr_finish then adds the parts. ell_rows: one thread owns one row; slot k of neighbouring rows is
// contiguous.
//
// Shared memory: the reduction scratch of a part, whose barriers are those of block_sum; csr_block's sums of the warps,
// with one barrier before they are added.
// All lanes of a warp take part in the shuffles: a row that is out of range, or listed elsewhere, is an empty one there.
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

// parts: entry ranges, [part_count][2]; partial: [part_count], written. middle: [middle_count], row numbers. Rows with more
// than `longest` entries are in one of the lists, all others are short.
template <typename T, int Lanes>
__global__ void csr_rows(const wf::i64* ptr, const wf::i32* ind, const T* values, const T* x, T* y, wf::i32 rows, wf::i64 longest,
                         const wf::i64* parts, wf::i32 part_count, const wf::i64* middle, wf::i32 middle_count, T* partial) {
  __shared__ T scratch[wf::kMaxWarps];
  constexpr int Warps = wf::kProductThreads / wf::kWarp;
  wf::i64 block = blockIdx.x;
  const int t = static_cast<int>(threadIdx.x);
  if (block < part_count) {
    const wf::i64 begin = parts[2 * block], end = parts[2 * block + 1];
    T sum = wf::zero_of<T>::make();
    for (wf::i64 e = begin + t; e < end; e += wf::kProductThreads) sum = sum + values[e] * x[ind[e]];
    sum = wf::sum_of_block(sum, scratch);
    if (t == 0) partial[block] = sum;
    return;
  }
  block -= part_count;
  const wf::i64 middle_blocks = (middle_count + Warps - 1) / Warps;
  const bool listed = block < middle_blocks;
  const wf::i64 at = (listed ? block : block - middle_blocks) * wf::kProductThreads + t;
  const int lanes = listed ? wf::kWarp : Lanes, lane = t % lanes;
  wf::i64 row = at / lanes, begin = 0, end = 0;
  bool mine = row < (listed ? middle_count : rows);
  if (mine) {
    if (listed) row = middle[row];
    begin = ptr[row];
    end = ptr[row + 1];
    mine = listed || end - begin <= longest;
  }
  if (!mine) end = begin;
  T sum = wf::zero_of<T>::make();
  for (wf::i64 e = begin + lane; e < end; e += lanes) sum = sum + values[e] * x[ind[e]];
  WF_UNROLL
  for (int d = wf::kWarp / 2; d > 0; d /= 2)
    if (d < lanes) sum = sum + wf::shuffle_xor(sum, d);  // the same for all lanes
  if (mine && lane == 0) y[row] = sum;
}

// long_rows: [count], row numbers. first: [count + 1], each row's parts. partial: [parts][k]; y: [rows][k].
template <typename T>
__global__ void csr_finish(const wf::i64* long_rows, const wf::i64* first, const T* partial, T* y, wf::i32 count, wf::i32 k) {
  const wf::i64 at = static_cast<wf::i64>(blockIdx.x) * wf::kProductThreads + threadIdx.x, r = at / k, j = at % k;
  if (r >= count) return;
  T sum = wf::zero_of<T>::make();
  for (wf::i64 s = first[r]; s < first[r + 1]; ++s) sum = sum + partial[s * k + j];
  y[long_rows[r] * k + j] = sum;
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
__global__ void csr_block(const wf::i64* ptr, const wf::i32* ind, const T* values, const T* x, T* y, wf::i32 rows, wf::i32 k,
                          wf::i64 longest, const wf::i64* parts, wf::i32 part_count, T* partial) {
  constexpr int Warps = wf::kProductThreads / wf::kWarp;
  __shared__ T sums[Warps][wf::kWarp];
  const int warp = static_cast<int>(threadIdx.x) / wf::kWarp, lane = static_cast<int>(threadIdx.x) % wf::kWarp;
  const wf::i32 j = static_cast<wf::i32>(blockIdx.y) * wf::kWarp + lane;
  const wf::i64 part = blockIdx.x, row = (part - part_count) * Warps + warp;
  const bool split = part < part_count, inside = j < k && (split || row < rows);
  wf::i64 begin = 0, end = 0;
  if (inside) {
    begin = split ? parts[2 * part] : ptr[row];
    end = split ? parts[2 * part + 1] : ptr[row + 1];
  }
  const bool mine = inside && (split || end - begin <= longest);
  if (!mine) end = begin;
  T sum = wf::zero_of<T>::make();
  for (wf::i64 e = begin + (split ? warp : 0); e < end; e += split ? Warps : 1)
    sum = sum + values[e] * x[static_cast<wf::i64>(ind[e]) * k + j];
  if (!split) {  // the same for the whole block
    if (mine) y[row * k + j] = sum;
    return;
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp == 0 && j < k) {
    for (int w = 1; w < Warps; ++w) sum = sum + sums[w][lane];
    partial[part * k + j] = sum;
  }
}
