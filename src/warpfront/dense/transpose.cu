// Transpose: portable tile kernel, in-place square kernel, and a kernel for narrow and tiny matrices.
//
// A block owns one tile of TR x TC elements of one matrix of the batch; it reads TR rows of the input and
// writes TC rows of the output. The in-place kernel's block owns a pair of tiles that mirror each other
// across the diagonal (or one tile on it).
//
// Shared layout: word[TR / P][kWidth], P elements of a column to a word (transpose.cuh). The width is 1 modulo 8, so
// that the words of a column fall into different banks and reading down a column is as fast as along a row. Lanes that
// write neighbouring chunks of 1- or 2-byte elements are 16 or 8 words apart: after each 32 columns 4 words are left
// out, which spreads their banks, too.
//
// Barriers: one, between the block's writes of the tile by rows and its reads by columns. In place, the same
// barrier also separates the last read of either tile from device memory from the first write over it; no
// other block touches the pair.
//
// Accesses are 16 bytes. Where a side's base or pitch is no multiple of 16, each row is still read and written in
// the 16-byte chunks of device memory that it lies in, and its bytes are shifted in registers: VecIn = false reads
// the two chunks that hold the 16 bytes wanted; transpose_shift writes whole chunks only, each by one block. Edges
// of the matrix, 16-byte elements at odd multiples of 8, and unaligned squares in place go element by element.
// Pitches and batch strides are in bytes. Literature: G. Ruetsch, P. Micikevicius, Optimizing matrix transpose in
// CUDA (2009), for the tile, the padding and the diagonal order.
#include "transpose.cuh"

#ifndef WF_LOAD16
#define WF_LOAD16 wf::load16
#endif
#ifndef WF_STORE16
#define WF_STORE16 wf::store16
#endif
// Blocks an SM should hold, which bounds the registers. Where all accesses are 16 bytes, 1-byte elements do best when
// the SM is full; elsewhere, and in code for older targets, that would spill.
#ifdef WF_LEAST_BLOCKS
#define WF_TILE_BLOCKS WF_LEAST_BLOCKS
#define WF_SHIFT_BLOCKS WF_LEAST_BLOCKS
#else
#define WF_TILE_BLOCKS (WF_ARCH / 100 == 9 && B == 1 && VecIn && VecOut ? 2048 / Threads : 1)
#define WF_SHIFT_BLOCKS 1
#endif

namespace wf {

template <int B, int TR, int TC>
struct padded_tile {
  typedef typename word_of<element<B>::kWordBytes>::type word_type;
  static constexpr int kRows = TR / element<B>::kPacked, kSkew = B < 4 ? 4 : 0;
  static constexpr int kWidth = (TC + kSkew * ((TC - 1) / 32) + 7) / 8 * 8 + 1;
  word_type words[kRows][kWidth];
  WF_DEVICE word_type& at(int q, int c) { return words[q][c + c / 32 * kSkew]; }
  WF_DEVICE const word_type& at(int q, int c) const { return words[q][c + c / 32 * kSkew]; }
};

// Chunk of up to V elements; what lies outside the matrix reads as zero.
template <int B>
WF_DEVICE vec16 load_chunk(const u8* p, i64 inside) {
  constexpr int V = element<B>::kChunk;
  if (inside >= V) return WF_LOAD16(p);
  vec16 v = {{0, 0, 0, 0}};
  WF_UNROLL
  for (int e = 0; e < V; ++e)
    if (e < inside) set_element<B>(v, e, load_element<B>(p + e * B));
  return v;
}

template <int B>
WF_DEVICE void store_chunk(u8* p, i64 inside, const vec16& v) {
  constexpr int V = element<B>::kChunk;
  if (inside >= V) {
    WF_STORE16(p, v);
    return;
  }
  WF_UNROLL
  for (int e = 0; e < V; ++e)
    if (e < inside) store_element<B>(p + e * B, get_element<B>(v, e));
}

// Input tile with `rows` x `columns` elements inside the matrix -> shared memory. Lanes run along a row:
// eight chunks (128 bytes) of it, then the next row group.
template <int B, int TR, int TC, int Threads, bool Vec>
WF_DEVICE void fill_tile(padded_tile<B, TR, TC>& s, const u8* src, i64 pitch, i64 rows, i64 columns) {
  typedef element<B> E;
  typedef typename padded_tile<B, TR, TC>::word_type W;
  constexpr int P = E::kPacked, V = E::kChunk;
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (Vec) {
    constexpr int kAcross = TC / V < 8 ? TC / V : 8;
    constexpr int kItems = (TR / P) * (TC / V), kEach = kItems / Threads;
    static_assert(kItems % Threads == 0 && TC % (V * kAcross) == 0, "tile does not divide among the threads");
    vec16 raw[kEach][P];
    WF_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int item = thread + i * Threads;
      const int q = item / kAcross % (TR / P), k = item % kAcross + item / (kAcross * (TR / P)) * kAcross;
      WF_UNROLL
      for (int p = 0; p < P; ++p) {
        const i64 inside = q * P + p < rows ? columns - k * V : 0;
        raw[i][p] = load_chunk<B>(src + (q * P + p) * pitch + k * 16, inside);
      }
    }
    WF_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int item = thread + i * Threads;
      const int q = item / kAcross % (TR / P), k = item % kAcross + item / (kAcross * (TR / P)) * kAcross;
      W out[V];
      rows_to_words<B>(raw[i], out);
      WF_UNROLL
      for (int e = 0; e < V; ++e) s.at(q, k * V + e) = out[e];
    }
  } else {
    constexpr int kEach = TR / P * TC / Threads;
    static_assert(TR / P * TC % Threads == 0 && Threads % TC == 0, "a thread keeps its column");
    const int c = thread % TC;
    WF_UNROLL_N(P == 4 ? 2 : 4)
    for (int i = 0; i < kEach; ++i) {
      const int q = thread / TC + i * (Threads / TC);
      vec16 packed = {{0, 0, 0, 0}};
      WF_UNROLL
      for (int p = 0; p < P; ++p)
        if (q * P + p < rows && c < columns) set_element<B>(packed, p, load_element<B>(src + (q * P + p) * pitch + c * B));
      s.at(q, c) = get_element<E::kWordBytes>(packed, 0);
    }
  }
}

// The 16 bytes at p, of which `after` to the end of the row (what lies beyond reads as zero) and `before` from its
// beginning may be touched: from the two chunks they lie in, or at the row's ends one by one.
template <int B>
WF_DEVICE vec16 load_unaligned(const u8* p, i64 before, i64 after) {
  const u32 shift = offset_in_chunk(p);
  if (before >= shift && after >= 32 - static_cast<i64>(shift)) {
    return shifted_bytes<B>(load16(p - shift), load16(p - shift + 16), shift);
  }
  vec16 v = {{0, 0, 0, 0}};
  WF_UNROLL
  for (int e = 0; e < element<B>::kChunk; ++e)
    if (e * B < after) set_element<B>(v, e, load_element<B>(p + e * B));
  return v;
}

// As fill_tile with Vec, for rows at any address; `before` bytes of each row lie before the tile.
template <int B, int TR, int TC, int Threads>
WF_DEVICE void fill_unaligned(padded_tile<B, TR, TC>& s, const u8* src, i64 pitch, i64 before, i64 rows, i64 columns) {
  typedef element<B> E;
  constexpr int P = E::kPacked, V = E::kChunk, kAcross = TC / V < 8 ? TC / V : 8;
  constexpr int kItems = (TR / P) * (TC / V), kEach = kItems / Threads;
  static_assert(kItems % Threads == 0 && TC % (V * kAcross) == 0, "tile does not divide among the threads");
  const int thread = static_cast<int>(threadIdx.x);
  // Every chunk is inside its row: no tests are left between the loads.
  const bool inside = rows >= TR && before >= 16 && columns >= TC + V;
  vec16 raw[kEach][P];
  if (inside) {
    vec16 next[kEach][P];
    WF_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int item = thread + i * Threads;
      const int q = item / kAcross % (TR / P), k = item % kAcross + item / (kAcross * (TR / P)) * kAcross;
      WF_UNROLL
      for (int p = 0; p < P; ++p) {
        const u8* at = src + (q * P + p) * pitch + k * 16;
        at -= offset_in_chunk(at);
        raw[i][p] = load16(at), next[i][p] = load16(at + 16);
      }
    }
    WF_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int q = (thread + i * Threads) / kAcross % (TR / P);
      WF_UNROLL
      for (int p = 0; p < P; ++p)
        raw[i][p] = shifted_bytes<B>(raw[i][p], next[i][p], offset_in_chunk(src + (q * P + p) * pitch));
    }
  } else {
    WF_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int item = thread + i * Threads;
      const int q = item / kAcross % (TR / P), k = item % kAcross + item / (kAcross * (TR / P)) * kAcross;
      WF_UNROLL
      for (int p = 0; p < P; ++p)
        raw[i][p] = load_unaligned<B>(src + (q * P + p) * pitch + k * 16, before + k * 16,
                                      q * P + p < rows ? columns * B - k * 16 : 0);
    }
  }
  WF_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const int item = thread + i * Threads;
    const int q = item / kAcross % (TR / P), k = item % kAcross + item / (kAcross * (TR / P)) * kAcross;
    typename padded_tile<B, TR, TC>::word_type out[V];
    rows_to_words<B>(raw[i], out);
    WF_UNROLL
    for (int e = 0; e < V; ++e) s.at(q, k * V + e) = out[e];
  }
}

// Shared memory -> output rows at any address. The tile's own rows are its first TR - V: it writes the chunks of
// device memory that begin in them, whose last bytes are of the V rows beyond, and as the first of its column
// (`head`) also what lies before the first chunk.
template <int B, int TR, int TC, int Threads>
WF_DEVICE void drain_unaligned(const padded_tile<B, TR, TC>& s, u8* dst, i64 pitch, i64 rows, i64 columns, bool head) {
  typedef element<B> E;
  constexpr int P = E::kPacked, V = E::kChunk, N = E::kWordsPerChunk, kSlots = (TR - V) / V;
  for (int item = static_cast<int>(threadIdx.x); item < kSlots * TC; item += Threads) {
    const int c = item / kSlots, j = item % kSlots;
    if (c >= columns) break;
    u8* const row = dst + c * pitch;
    const int skipped = static_cast<int>(16 - offset_in_chunk(row)) % 16 / B, r = skipped + j * V;
    vec16 v = {{0, 0, 0, 0}};
    WF_UNROLL
    for (int w = 0; w < N; ++w) {
      if constexpr (P == 1) {
        set_element<E::kWordBytes>(v, w, s.at(r + w, c));
      } else {
        const u64 pair = s.at(r / P + w, c) | static_cast<u64>(s.at(r / P + w + 1, c)) << 32;
        v.w[w] = static_cast<u32>(pair >> (r % P * 8 * B));
      }
    }
    store_chunk<B>(row + r * B, rows - r, v);
    if (head && j == 0) {
      for (int e = 0; e < skipped && e < rows; ++e) {
        vec16 one = {{0, 0, 0, 0}};
        set_element<E::kWordBytes>(one, 0, s.at(e / P, c));
        if constexpr (P > 1) one.w[0] >>= e % P * 8 * B;
        store_element<B>(row + e * B, get_element<B>(one, 0));
      }
    }
  }
}

// Shared memory -> output tile of `columns` rows of `rows` elements. Lanes run along an output row, that is
// down a column.
template <int B, int TR, int TC, int Threads, bool Vec>
WF_DEVICE void drain_tile(const padded_tile<B, TR, TC>& s, u8* dst, i64 pitch, i64 rows, i64 columns) {
  typedef element<B> E;
  constexpr int P = E::kPacked, V = E::kChunk, N = E::kWordsPerChunk;
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (Vec) {
    constexpr int kAcross = TR / V < 8 ? TR / V : 8;
    constexpr int kItems = (TR / V) * TC, kEach = kItems / Threads;
    static_assert(kItems % Threads == 0 && TR % (V * kAcross) == 0, "tile does not divide among the threads");
    WF_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int item = thread + i * Threads;
      const int c = item / kAcross % TC, j = item % kAcross + item / (kAcross * TC) * kAcross;
      vec16 v = {{0, 0, 0, 0}};
      WF_UNROLL
      for (int w = 0; w < N; ++w) set_element<E::kWordBytes>(v, w, s.at(j * N + w, c));
      store_chunk<B>(dst + c * pitch + j * 16, c < columns ? rows - j * V : 0, v);
    }
  } else {
    constexpr int kEach = TR * TC / Threads;
    static_assert(TR * TC % Threads == 0 && Threads % TR == 0, "a thread keeps its row");
    const int r = thread % TR;
    WF_UNROLL_N(4)
    for (int i = 0; i < kEach; ++i) {
      const int c = thread / TR + i * (Threads / TR);
      if (r < rows && c < columns) {
        vec16 v = {{0, 0, 0, 0}};
        set_element<E::kWordBytes>(v, 0, s.at(r / P, c));
        if constexpr (P == 1) {
          store_element<B>(dst + c * pitch + r * B, get_element<B>(v, 0));
        } else {
          const u32 shift = static_cast<u32>(r % P) * 8 * B;
          store_element<B>(dst + c * pitch + r * B, static_cast<typename word_of<B>::type>(v.w[0] >> shift));
        }
      }
    }
  }
}

}  // namespace wf

// dst[batch][c][r] = src[batch][r][c], m x n -> n x m. One block to a tile, blocks numbered by tile_at.
template <int B, int TR, int TC, int Threads, bool VecIn, bool VecOut>
__global__ void __launch_bounds__(Threads, WF_TILE_BLOCKS)
    transpose_tile(unsigned char* dst, const unsigned char* src, long long m, long long n, long long dst_pitch,
                   long long src_pitch, long long dst_batch, long long src_batch, long long tiles_m, long long tiles_n,
                   long long group) {
  using namespace wf;
  __shared__ padded_tile<B, TR, TC> s;
  const tile t = tile_at(blockIdx.x, tiles_m, tiles_n, group);
  const i64 row = t.row * TR, column = t.column * TC;
  src += t.batch * src_batch + row * src_pitch + column * B;
  dst += t.batch * dst_batch + column * dst_pitch + row * B;
  // Sizes known at compile time leave no edge tests in the inner loops.
  const bool whole = row + TR <= m && column + TC <= n;
  if constexpr (!VecIn && B < 16) {
    fill_unaligned<B, TR, TC, Threads>(s, src, src_pitch, column * B, m - row, n - column);
  } else if (whole) {
    fill_tile<B, TR, TC, Threads, VecIn>(s, src, src_pitch, TR, TC);
  } else {
    fill_tile<B, TR, TC, Threads, VecIn>(s, src, src_pitch, m - row, n - column);
  }
  __syncthreads();
  if (whole) {
    drain_tile<B, TR, TC, Threads, VecOut>(s, dst, dst_pitch, TR, TC);
  } else {
    drain_tile<B, TR, TC, Threads, VecOut>(s, dst, dst_pitch, m - row, n - column);
  }
}

// As transpose_tile, for output rows at any address: tiles lie TR - 16 / B rows apart and overlap by the rest.
template <int B, int TR, int TC, int Threads, bool VecIn>
__global__ void __launch_bounds__(Threads, WF_SHIFT_BLOCKS)
    transpose_shift(unsigned char* dst, const unsigned char* src, long long m, long long n, long long dst_pitch,
                    long long src_pitch, long long dst_batch, long long src_batch, long long tiles_m, long long tiles_n,
                    long long group) {
  using namespace wf;
  __shared__ padded_tile<B, TR, TC> s;
  const tile t = tile_at(blockIdx.x, tiles_m, tiles_n, group);
  const i64 row = t.row * (TR - element<B>::kChunk), column = t.column * TC;
  src += t.batch * src_batch + row * src_pitch + column * B;
  dst += t.batch * dst_batch + column * dst_pitch + row * B;
  if constexpr (VecIn) {
    fill_tile<B, TR, TC, Threads, true>(s, src, src_pitch, m - row, n - column);
  } else {
    fill_unaligned<B, TR, TC, Threads>(s, src, src_pitch, column * B, m - row, n - column);
  }
  __syncthreads();
  drain_unaligned<B, TR, TC, Threads>(s, dst, dst_pitch, m - row, n - column, t.row == 0);
}

// a[batch] = a[batch]^T for square n x n. Block number k -> pair (i, j), i <= j, of `tiles` tiles a side, by
// folding the triangle into a rectangle of pairs.
template <int B, int T, int Threads, bool Vec>
__global__ void __launch_bounds__(Threads)
    transpose_in_place(unsigned char* a, long long n, long long pitch, long long batch_stride, long long tiles) {
  using namespace wf;
  __shared__ padded_tile<B, T, T> upper, lower;
  const i64 width = tiles % 2 ? tiles : tiles + 1, pairs = tiles * (tiles + 1) / 2;
  const i64 batch = blockIdx.x / pairs, k = blockIdx.x - batch * pairs, r = k / width, c = k - r * width;
  const bool above = tiles % 2 ? c >= r : c > r;
  const i64 i = above ? r : (tiles % 2 ? tiles - r : tiles - 1 - r);
  const i64 j = above ? (tiles % 2 ? c : c - 1) : tiles - 1 - c;
  a += batch * batch_stride;
  unsigned char* const at_ij = a + i * T * pitch + j * T * B;
  unsigned char* const at_ji = a + j * T * pitch + i * T * B;
  const i64 size_i = min_of<i64>(n - i * T, T), size_j = min_of<i64>(n - j * T, T);
  fill_tile<B, T, T, Threads, Vec>(upper, at_ij, pitch, size_i, size_j);
  if (i != j) fill_tile<B, T, T, Threads, Vec>(lower, at_ji, pitch, size_j, size_i);
  __syncthreads();
  drain_tile<B, T, T, Threads, Vec>(upper, at_ji, pitch, size_i, size_j);
  if (i != j) drain_tile<B, T, T, Threads, Vec>(lower, at_ij, pitch, size_j, size_i);
}

// Narrow or tiny matrices: thread per output element, Each of them a block width apart; writes are coalesced
// and the reads of one warp fall into few cache lines, which stay in L1. `count` = batch * n * m.
template <int B, int Threads, int Each>
__global__ void __launch_bounds__(Threads)
    transpose_flat(unsigned char* dst, const unsigned char* src, long long m, long long n, long long dst_pitch,
                   long long src_pitch, long long dst_batch, long long src_batch, long long count) {
  using namespace wf;
  const i64 first = static_cast<i64>(blockIdx.x) * (Threads * Each) + threadIdx.x;
  WF_UNROLL
  for (int e = 0; e < Each; ++e) {
    const i64 k = first + e * Threads;
    if (k >= count) return;
    i64 batch, c, r;
    if (count <= 0x7fffffff) {  // 32-bit division is several times faster
      const u32 line = static_cast<u32>(k) / static_cast<u32>(m);
      r = static_cast<u32>(k) - line * static_cast<u32>(m);
      batch = line / static_cast<u32>(n);
      c = line - static_cast<u32>(batch) * static_cast<u32>(n);
    } else {
      const i64 line = k / m;
      r = k - line * m;
      batch = line / n;
      c = line - batch * n;
    }
    store_element<B>(dst + batch * dst_batch + c * dst_pitch + r * B,
                     load_element<B>(src + batch * src_batch + r * src_pitch + c * B));
  }
}
