// Transpose for compute capability 8.0 and newer: tiles arrive by cp.async while the previous one is written.
//
// A block is persistent: it takes tiles blockIdx.x, blockIdx.x + gridDim.x, … Each tile of TR x TC elements
// is in device memory's own layout in shared memory, in chunks of 16 bytes; both sides' bases and pitches are
// multiples of 16.
//
// Shared layout (dynamic): Stages buffers of chunk[TR][TC * B / 16]; chunk k of row r lies at k ^ ((r / V) %
// 8), V elements to a chunk. A warp's reads go down the columns in steps of V rows, and this puts eight such
// steps into the eight groups of four banks. (cp.async needs 16-byte aligned places, which a padding column
// would break.)
//
// Barriers, two to a tile: the first, after the wait for this tile's copies, makes every thread's copies
// visible to the block; the second separates the block's reads of a buffer from the copies that refill it.
#include "async_copy.cuh"
#include "transpose.cuh"

#ifndef WF_LEAST_BLOCKS
#define WF_LEAST_BLOCKS 1
#endif

#if WF_ARCH >= 800

namespace wf {

template <int B, int TR, int TC>
WF_DEVICE int chunk_place(int r, int k) {
  constexpr int kRow = TC * B / 16;
  static_assert(kRow % 8 == 0, "a tile row is a multiple of 128 bytes");
  return r * kRow + (k ^ (r / element<B>::kChunk % 8));
}

template <int B, int TR, int TC, int Threads>
WF_DEVICE void fetch_tile(u8* buffer, const u8* src, i64 pitch, i64 rows, i64 columns) {
  constexpr int kRow = TC * B / 16, kEach = TR * kRow / Threads;
  static_assert(TR * kRow % Threads == 0, "tile does not divide among the threads");
  WF_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const int item = static_cast<int>(threadIdx.x) + i * Threads;
    const int r = item / kRow, k = item % kRow;
    const i64 left = r < rows ? columns * B - k * 16 : 0;
    const u32 valid = static_cast<u32>(left <= 0 ? 0 : min_of<i64>(left, 16));
    // With nothing to read, the address is still one inside the matrix.
    cp_async16(buffer + 16 * chunk_place<B, TR, TC>(r, k), valid ? src + r * pitch + k * 16 : src, valid);
  }
}

template <int B, int TR, int TC, int Threads>
WF_DEVICE void write_tile(const u8* buffer, u8* dst, i64 pitch, i64 rows, i64 columns) {
  typedef element<B> E;
  typedef typename word_of<E::kWordBytes>::type W;
  constexpr int V = E::kChunk, P = E::kPacked, N = E::kWordsPerChunk;
  constexpr int kAcross = TR / V < 8 ? TR / V : 8, kWide = TC / P;
  constexpr int kItems = (TR / V) * kWide, kEach = kItems / Threads;
  static_assert(kItems % Threads == 0 && TR % (V * kAcross) == 0, "tile does not divide among the threads");
  WF_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const int item = static_cast<int>(threadIdx.x) + i * Threads;
    const int w = item / kAcross % kWide, j = item % kAcross + item / (kAcross * kWide) * kAcross;
    W x[V];
    WF_UNROLL
    for (int e = 0; e < V; ++e) {
      const u8* place = buffer + 16 * chunk_place<B, TR, TC>(j * V + e, w / N) + w % N * E::kWordBytes;
      if constexpr (B == 16) x[e] = load16(place);
      else x[e] = *reinterpret_cast<const W*>(place);
    }
    vec16 out[P];
    words_to_columns<B>(x, out);
    const i64 left = rows - j * V;
    WF_UNROLL
    for (int p = 0; p < P; ++p) {
      const int c = w * P + p;
      u8* to = dst + c * pitch + j * 16;
      if (c >= columns || left <= 0) continue;
      if (left >= V) {
        store16(to, out[p]);
      } else {
        WF_UNROLL
        for (int e = 0; e < V; ++e)
          if (e < left) store_element<B>(to + e * B, get_element<B>(out[p], e));
      }
    }
  }
}

}  // namespace wf

// As transpose_tile; `count` = batch * tiles_m * tiles_n tiles are shared out among the blocks.
template <int B, int TR, int TC, int Threads, int Stages>
__global__ void __launch_bounds__(Threads, WF_LEAST_BLOCKS)
    transpose_async(unsigned char* dst, const unsigned char* src, long long m, long long n, long long dst_pitch,
                    long long src_pitch, long long dst_batch, long long src_batch, long long tiles_m, long long tiles_n,
                    long long group, long long count) {
  using namespace wf;
  WF_DYNAMIC_SHARED(buffers);
  constexpr int kBytes = TR * TC * B;
  i64 ahead = blockIdx.x;  // the next tile to ask for
  int fill = 0;
  const auto ask = [&] {
    if (ahead < count) {
      const tile t = tile_at(ahead, tiles_m, tiles_n, group);
      const i64 row = t.row * TR, column = t.column * TC;
      fetch_tile<B, TR, TC, Threads>(buffers + fill * kBytes, src + t.batch * src_batch + row * src_pitch + column * B, src_pitch,
                                     m - row, n - column);
    }
    cp_async_commit();  // also when empty: the wait counts groups
    ahead += gridDim.x;
    fill = fill + 1 == Stages ? 0 : fill + 1;
  };
  WF_UNROLL
  for (int s = 0; s < Stages - 1; ++s) ask();
  int use = 0;
  for (i64 k = blockIdx.x; k < count; k += gridDim.x) {
    ask();
    cp_async_wait<Stages - 1>();
    __syncthreads();
    const tile t = tile_at(k, tiles_m, tiles_n, group);
    const i64 row = t.row * TR, column = t.column * TC;
    unsigned char* to = dst + t.batch * dst_batch + column * dst_pitch + row * B;
    if (row + TR <= m && column + TC <= n) {
      write_tile<B, TR, TC, Threads>(buffers + use * kBytes, to, dst_pitch, TR, TC);
    } else {
      write_tile<B, TR, TC, Threads>(buffers + use * kBytes, to, dst_pitch, m - row, n - column);
    }
    __syncthreads();
    use = use + 1 == Stages ? 0 : use + 1;
  }
}

#endif  // WF_ARCH >= 800
