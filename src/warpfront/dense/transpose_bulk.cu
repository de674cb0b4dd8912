// Transpose for compute capability 9.0 and newer: rows of a tile arrive by bulk copies, several tiles ahead.
//
// A block is persistent: it takes tiles blockIdx.x, blockIdx.x + gridDim.x, … The first warp also asks for
// the rows of later tiles, one bulk copy to a row, each lane TR / 32 rows. Bases, pitches and n * B are
// multiples of 16, TR >= 32.
//
// Shared layout (dynamic): Stages buffers of TR rows of TC * B + 16 bytes, then Stages mbarriers. The extra
// 16 bytes move each row on by one group of four banks. A warp reads down the columns in steps of V rows (V
// elements to 16 bytes); lane group j begins its V rows at a different one, so that eight groups fall into
// different banks, and turns them back in registers.
//
// Barriers: a stage's mbarrier completes when its rows have landed, and orders them before the reads; the
// block barrier at the end of a tile separates the block's reads of a buffer from the copies that refill it.
#include "async_copy.cuh"
#include "transpose.cuh"

#if WF_ARCH >= 900

namespace wf {

// x[i] = y[(i + V - turn) % V], turn < V, by conditional moves: log2(V) steps of V.
template <int V, typename W>
WF_DEVICE void turn_back(W (&x)[V], int turn) {
  WF_UNROLL
  for (int step = 1; step < V; step *= 2) {
    const bool move = (turn & step) != 0;
    W y[V];
    WF_UNROLL
    for (int i = 0; i < V; ++i) y[i] = x[i];
    WF_UNROLL
    for (int i = 0; i < V; ++i) x[i] = move ? y[(i + V - step) % V] : y[i];
  }
}

template <int B, int TR, int TC, int Threads>
WF_DEVICE void write_rows(const u8* buffer, u8* dst, i64 pitch, i64 rows, i64 columns) {
  typedef element<B> E;
  typedef typename word_of<E::kWordBytes>::type W;
  constexpr int V = E::kChunk, P = E::kPacked, kStride = TC * B + 16;
  constexpr int kAcross = TR / V < 8 ? TR / V : 8, kWide = TC / P;
  constexpr int kItems = (TR / V) * kWide, kEach = kItems / Threads;
  static_assert(kItems % Threads == 0 && TR % (V * kAcross) == 0, "tile does not divide among the threads");
  WF_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const int item = static_cast<int>(threadIdx.x) + i * Threads;
    const int w = item / kAcross % kWide, j = item % kAcross + item / (kAcross * kWide) * kAcross;
    const int turn = (V >= 8 ? j : j * V / 8) % V;
    W x[V];
    WF_UNROLL
    for (int e = 0; e < V; ++e) {
      const int r = j * V + (e + turn) % V;
      x[e] = W{};
      if (r >= rows || w * P >= columns) continue;  // nothing was copied there
      const u8* place = buffer + r * kStride + w * E::kWordBytes;
      if constexpr (B == 16) x[e] = load16(place);
      else x[e] = *reinterpret_cast<const W*>(place);
    }
    if constexpr (V > 1) turn_back<V>(x, turn);
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

// As transpose_async.
template <int B, int TR, int TC, int Threads, int Stages>
__global__ void __launch_bounds__(Threads)
    transpose_bulk(unsigned char* dst, const unsigned char* src, long long m, long long n, long long dst_pitch,
                   long long src_pitch, long long dst_batch, long long src_batch, long long tiles_m, long long tiles_n,
                   long long group, long long count) {
  using namespace wf;
  WF_DYNAMIC_SHARED(buffers);
  static_assert(TR % kWarp == 0, "each lane of the first warp asks for TR / 32 rows");
  constexpr int kStride = TC * B + 16, kBytes = TR * kStride;
  u64* const landed = reinterpret_cast<u64*>(buffers + Stages * kBytes);
  if (threadIdx.x == 0) {
    for (int s = 0; s < Stages; ++s) mbar_init(landed + s, kWarp);
  }
  __syncthreads();
  i64 ahead = blockIdx.x;  // the next tile to ask for
  int fill = 0;
  const auto ask = [&] {
    if (threadIdx.x < kWarp && ahead < count) {
      const tile t = tile_at(ahead, tiles_m, tiles_n, group);
      const i64 row = t.row * TR, column = t.column * TC;
      const u8* from = src + t.batch * src_batch + row * src_pitch + column * B;
      const i64 rows = min_of<i64>(TR, m - row);
      const u32 bytes = static_cast<u32>(min_of<i64>(TC, n - column) * B);
      const int lane = static_cast<int>(threadIdx.x);
      const i64 mine = lane < rows ? (rows - lane + kWarp - 1) / kWarp : 0;
      mbar_expect(landed + fill, static_cast<u32>(mine) * bytes);
      for (int r = lane; r < rows; r += kWarp)
        bulk_load(buffers + fill * kBytes + r * kStride, from + r * src_pitch, bytes, landed + fill);
    }
    ahead += gridDim.x;
    fill = fill + 1 == Stages ? 0 : fill + 1;
  };
  for (int s = 0; s < Stages - 1; ++s) ask();
  int use = 0;
  u32 parity = 0;
  for (i64 k = blockIdx.x; k < count; k += gridDim.x) {
    ask();
    mbar_wait(landed + use, parity);
    const tile t = tile_at(k, tiles_m, tiles_n, group);
    const i64 row = t.row * TR, column = t.column * TC;
    unsigned char* to = dst + t.batch * dst_batch + column * dst_pitch + row * B;
    if (row + TR <= m && column + TC <= n) {
      write_rows<B, TR, TC, Threads>(buffers + use * kBytes, to, dst_pitch, TR, TC);
    } else {
      write_rows<B, TR, TC, Threads>(buffers + use * kBytes, to, dst_pitch, m - row, n - column);
    }
    __syncthreads();
    use = use + 1 == Stages ? 0 : use + 1;
    parity ^= use == 0 ? 1u : 0u;
  }
}

#endif  // WF_ARCH >= 900
