// One diagonal block of a strip, eliminated and published, and how many clock cycles that took: for
// tools/device/sparse_gpu_block.py.
#include "../../src/warpfront/sparse/gpu/strip_block.cuh"

using namespace wf;

__device__ __forceinline__ long long now() {
#ifdef WARPFRONT_SIMT
  return 0;
#else
  return clock64();
#endif
}

// Way: 0 direct_block, 1 the same by eliminate_ahead, 2 eliminate_blocked. times: begun, eliminated (and published, in Way 2),
// announced: for each of `repeats`, the first of them with nothing in the instruction caches.
template <typename T, int Way, bool Indefinite>
__global__ void __launch_bounds__(256, 1)
    time_block(const T* blocks, i32 size, T least, i32 repeats, T* out, T* diagonal, i32* pivots, i32* stats, T* published, u32* flags,
               i64* times, i32* verdicts) {
  __shared__ __align__(16) T block[kPanel * kPitch];
  __shared__ DirectScratch<T> direct;
  __shared__ BlockedScratch<T> blocked;
  const int lane = lane_id(), thread = threadIdx.x;
  const BlockOutput<T> to = {diagonal + 2 * kPanel * blockIdx.x, pivots + 2 * kPanel * blockIdx.x, stats + kStats * blockIdx.x,
                             published + kPublished * blockIdx.x, flags + blockIdx.x, 1u};
  for (int r = 0; r < repeats; ++r) {
    for (int e = thread; e < kPanel * kPanel; e += 256)
      block[e / kPanel * kPitch + e % kPanel] = blocks[blockIdx.x * kPanel * kPanel + e];
    __syncthreads();
    if (thread < kWarp) {
      int verdict;
      i64* at = times + (static_cast<i64>(blockIdx.x) * repeats + r) * 3;
      const long long begun = now();
      long long eliminated = begun, announced;
      if constexpr (Way == 2) {
        publish_zeros(size, to.published);
        const auto put = [&](int n, const Eight<T>& e) { publish_eight(e, n, size, to.published); };
        verdict = eliminate_blocked<Indefinite>(block, kPitch, size, least, blocked, put);
        eliminated = now();
        to.announce();
        announced = now();
        if (verdict == kTaken) settle_blocked(block, size, blocked, to);
      } else {
        verdict = direct_block<Indefinite, Indefinite, Way == 1>(block, kPitch, 0, size, least, direct);
        __syncwarp();
        eliminated = now();
        if (!Indefinite || verdict < 0) publish_direct(size, direct, to.published);
        to.announce();
        announced = now();
        if (Indefinite && verdict < 0) settle_block(block, kPitch, 0, size, direct);
        if (!Indefinite || verdict < 0) write_direct(direct, 0, size, to.diagonal, to.pivots);
      }
      if (lane == 0) at[0] = eliminated - begun, at[1] = announced - begun, at[2] = begun, verdicts[blockIdx.x] = verdict;
    }
    __syncthreads();
  }
  for (int e = thread; e < kPanel * kPanel; e += 256)
    out[blockIdx.x * kPanel * kPanel + e] = block[e / kPanel * kPitch + e % kPanel];
}
