// Sparse matrix times vector or block of vectors: compressed rows and ELLPACK. Every sum has a fixed order.
//
// csr_rows, for rows of much the same length: Lanes consecutive threads own a row, thread l adds entries l, l + Lanes, ...;
// the partial sums meet in a fixed tree of shuffles.
// csr_balanced, for rows of any length: a block owns kChunk entries and a thread kEach of them, side by side, wherever rows
// end; a bit an entry says which are the last of their row. A thread adds up to each end; what it has after its last end is
// carried to the next end by a segmented scan over the warp (a fixed tree) and over the warps in order. What a block has left
// it publishes at once; the block where a row ends waits for those since the row's first, which have been begun before it
// (blocks are begun in their order), and adds them, 32 apart, by a fixed tree. It takes each flag back for the next launch.
// csr_block: thread (i, j) owns entry (i, j) of the result; the 32 threads of a warp share a row and read neighbouring
// columns of X. Parts of long rows again come first: a block's warps add entries 8 apart, which meet in shared memory in
// the order of the warps; csr_finish then adds the parts. ell_rows: one thread owns one row; slot k of neighbouring rows is
// contiguous.
//
// Shared memory: csr_balanced's carry and number of ends by warp, one barrier before they are read, and what comes from other
// blocks, with one barrier more; csr_block's sums of the warps, with one barrier before they are added.
// All lanes of a warp take part in the shuffles: a row that is out of range is an empty one there.
// Literature: Bell and Garland, Implementing sparse matrix-vector multiplication (SC 2009), for both layouts; Merrill
// and Garland, Merge-based parallel sparse matrix-vector multiplication (SC 2016), for equal shares of entries.
#include "complex.cuh"
#include "signal.cuh"
#include "types.cuh"
#include "vec16.cuh"

namespace wf {

constexpr int kProductThreads = 256;
[[maybe_unused]] constexpr int kChunk = 2048;
[[maybe_unused]] constexpr int kEach = kChunk / kProductThreads;

template <typename T>
WF_DEVICE T shuffle_xor(T v, int distance) { return __shfl_xor_sync(kFullMask, v, distance); }

template <typename T>
WF_DEVICE complex<T> shuffle_xor(complex<T> v, int distance) {
  return {__shfl_xor_sync(kFullMask, v.re, distance), __shfl_xor_sync(kFullMask, v.im, distance)};
}

template <typename T>
WF_DEVICE T shuffle_up(T v, int distance) { return __shfl_up_sync(kFullMask, v, distance); }

template <typename T>
WF_DEVICE complex<T> shuffle_up(complex<T> v, int distance) {
  return {__shfl_up_sync(kFullMask, v.re, distance), __shfl_up_sync(kFullMask, v.im, distance)};
}

// A thread's entries of a block: sixteen bytes of the first, of every thread side by side, then sixteen of the next ones.
template <typename T>
WF_DEVICE void read_entries(const T* block, int t, T (&to)[kEach]) {
  constexpr int Width = 16 / static_cast<int>(sizeof(T));
  WF_UNROLL
  for (int k = 0; k < kEach; k += Width) {
    const vec16 held = load16_stream(block + k * kProductThreads + t * Width);  // L1 is for x
    WF_UNROLL
    for (int e = 0; e < Width; ++e) to[k + e] = reinterpret_cast<const T*>(&held)[e];
  }
}

template <typename T> struct zero_of { WF_DEVICE static T make() { return T(0); } };
template <typename T> struct zero_of<complex<T>> { WF_DEVICE static complex<T> make() { return {T(0), T(0)}; } };

}  // namespace wf

template <typename T, int Lanes>
__global__ void csr_rows(const wf::i64* ptr, const wf::i32* ind, const T* values, const T* x, T* y, wf::i32 rows) {
  const wf::i64 at = static_cast<wf::i64>(blockIdx.x) * wf::kProductThreads + threadIdx.x, row = at / Lanes;
  const int lane = static_cast<int>(at % Lanes);
  const bool mine = row < rows;
  const wf::i64 begin = mine ? ptr[row] : 0, end = mine ? ptr[row + 1] : 0;
  T sum = wf::zero_of<T>::make();
  for (wf::i64 e = begin + lane; e < end; e += Lanes) sum = sum + values[e] * x[ind[e]];
  WF_UNROLL
  for (int d = Lanes / 2; d > 0; d /= 2) sum = sum + wf::shuffle_xor(sum, d);
  if (mine && lane == 0) y[row] = sum;
}

// ind, values: padded to a multiple of kChunk, aligned to 16 bytes, in the order of read_entries. ends: a bit an entry, kEach a byte, set for the last of a
// row. starts: [blocks], twice the number, among rows that are not empty, of the row of a block's first entry, and 1 more
// where that row has begun before, in block origin. names: the rows that are not empty, or null where none is empty.
// carried, flags: [blocks], of this launch alone; flags are 0 before and after it.
template <typename T>
__global__ void csr_balanced(const wf::i32* ind, const T* values, const T* x, T* y, const wf::u8* ends, const wf::i64* starts,
                             const wf::i64* names, const wf::i32* origin, T* carried, wf::u32* flags) {
  constexpr int Warps = wf::kProductThreads / wf::kWarp;
  __shared__ T left[Warps];
  __shared__ int counts[Warps];
  __shared__ T others;
  const int t = static_cast<int>(threadIdx.x), warp = t / wf::kWarp, lane = t % wf::kWarp;
  const wf::i64 block = blockIdx.x, at = block * wf::kChunk;
  wf::i32 column[wf::kEach];
  T sum[wf::kEach];
  wf::read_entries(ind + at, t, column);
  wf::read_entries(values + at, t, sum);
  const wf::u32 bits = ends[block * wf::kProductThreads + t];
  WF_UNROLL
  for (int k = 0; k < wf::kEach; ++k) sum[k] = sum[k] * x[column[k]];
  T carry = sum[0];  // since the last end
  WF_UNROLL
  for (int k = 1; k < wf::kEach; ++k) {
    carry = (bits >> (k - 1) & 1u) != 0 ? sum[k] : carry + sum[k];
    sum[k] = carry;
  }
  if ((bits >> (wf::kEach - 1) & 1u) != 0) carry = wf::zero_of<T>::make();
  const int own = __popc(bits);
  int upto = own;  // ends up to this lane
  WF_UNROLL
  for (int d = 1; d < wf::kWarp; d *= 2) {
    const int other = __shfl_up_sync(wf::kFullMask, upto, d);
    if (lane >= d) upto += other;
  }
  const wf::u32 having = __ballot_sync(wf::kFullMask, bits != 0);
  // Lanes back to the last one with an end; it counts with what it has left.
  const wf::u32 lower = having & ((2u << lane) - 1u);
  const int reach = lower != 0 ? lane - (31 - __clz(static_cast<int>(lower))) : lane;
  WF_UNROLL
  for (int d = 1; d < wf::kWarp; d *= 2) {
    const T other = wf::shuffle_up(carry, d);
    if (reach >= d) carry = other + carry;
  }
  const T before = wf::shuffle_up(carry, 1);
  if (lane == wf::kWarp - 1) {
    left[warp] = carry;
    counts[warp] = upto;
  }
  __syncthreads();
  T into = wf::zero_of<T>::make(), after = into;  // what comes to this warp, and what leaves the block
  wf::i64 rank = 0;
  bool any = false, first_warp = true;
  WF_UNROLL
  for (int w = 0; w < Warps; ++w) {
    if (w == warp) {
      into = after;
      first_warp = !any;
    }
    after = counts[w] != 0 ? left[w] : after + left[w];
    rank += w < warp ? counts[w] : 0;
    any = any || counts[w] != 0;
  }
  const wf::i64 start = starts[block];
  const bool begun = (start & 1) != 0;
  if (t == 0) {
    carried[block] = after;
    wf::release_store(flags + block, 1u);
  }
  if (begun && any) {  // the same for the whole block
    if (warp == 0) {
      T total = wf::zero_of<T>::make();
      for (wf::i64 b = origin[block] + lane; b < block; b += wf::kWarp) {
        while (wf::acquire_load(flags + b) == 0u) wf::spin();
        total = total + carried[b];
        wf::relaxed_store(flags + b, 0u);
      }
      __syncwarp();
      WF_UNROLL
      for (int d = wf::kWarp / 2; d > 0; d /= 2) total = total + wf::shuffle_xor(total, d);
      if (lane == 0) others = total;
    }
    __syncthreads();
  }
  if (bits == 0) return;
  const wf::u32 earlier = having & ((1u << lane) - 1u);
  if (earlier == 0) into = lane == 0 ? into : into + before;
  else into = before;
  rank += start / 2 + upto - own;
  bool first = true;
  WF_UNROLL
  for (int k = 0; k < wf::kEach; ++k)
    if ((bits >> k & 1u) != 0) {
      T whole = first ? into + sum[k] : sum[k];
      if (first && first_warp && earlier == 0 && begun) whole = others + whole;
      y[names == nullptr ? rank : names[rank]] = whole;
      first = false;
      ++rank;
    }
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
