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

// Way: 0 direct_block, 1 eliminate_blocked, published as values with tags (as they come, if definite).
// times: begun, eliminated (a definite block by way 1: and published), published: for each of `repeats`, the first of them with nothing in the instruction caches; behind
// them the verdict.
template <typename T, int Way, bool Indefinite>
__global__ void __launch_bounds__(256, 1)
    time_block(const T* blocks, i32 size, T least, i32 repeats, T* out, T* diagonal, i32* pivots, i32* stats, T* published,
               u32* tagged, u32* flags, i64* times) {
  __shared__ __align__(16) T block[kPanel * kPitch];
  __shared__ DirectScratch<T> direct;
  __shared__ BlockedScratch<T> blocked;
  constexpr bool kNow = Way == 1 && !Indefinite;
  const int lane = lane_id(), thread = threadIdx.x;
  const BlockOutput<T> to = {diagonal, pivots, stats, published, flags, 1u, Way == 1 ? reinterpret_cast<Tagged*>(tagged) : nullptr};
  for (int r = 0; r < repeats; ++r) {
    for (int e = thread; e < kPanel * kPanel; e += 256) block[e / kPanel * kPitch + e % kPanel] = blocks[e];
    __syncthreads();
    if (Way == 1 || thread < kWarp) {
      int verdict;
      const int role = thread / kWarp;
      const long long begun = now();
      long long eliminated = begun, announced;
      if constexpr (Way == 1) {
        if (kNow && role == 2) publish_zeros(size, to);
        verdict = eliminate_blocked<Indefinite>(role, block, kPitch, size, least, blocked, [&](int n, int part, int of) {
          if (kNow) publish_eight(n, part, of, size, blocked, to);
        });
        eliminated = now();
        const bool taken = !Indefinite || verdict < 0;
        if (!kNow && taken) publish_blocked(role, kStripThreads / kWarp, size, blocked, to);
        __syncthreads();
        announced = now();
        if (role == 0 && taken) settle_blocked(block, size, verdict, blocked, to);
      } else {
        verdict = direct_block<Indefinite, Indefinite>(block, kPitch, 0, size, least, direct);
        __syncwarp();
        eliminated = now();
        const bool taken = !Indefinite || verdict < 0;
        if (taken) publish_direct(size, direct, to.published);
        to.announce();
        announced = now();
        if (Indefinite && taken) settle_block(block, kPitch, 0, size, direct);
        if (taken) write_direct(direct, 0, size, to.diagonal, to.pivots);
      }
      if (thread == 0) times[3 * r] = eliminated - begun, times[3 * r + 1] = announced - begun, times[3 * r + 2] = begun, times[3 * repeats] = verdict;
    }
    __syncthreads();
  }
  for (int e = thread; e < kPanel * kPanel; e += 256) out[e] = block[e / kPanel * kPitch + e % kPanel];
}
