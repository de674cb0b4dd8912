// Edges of the generators: the same numbers as _generate_kernels.py, a thread to an edge.
//
// No shared memory, no barriers. SplitMix64's finaliser: G. Steele, D. Lea, C. Flood, OOPSLA 2014; the Kronecker
// initiator: graph500.org, specification.
#include "types.cuh"

namespace wf {

WF_DEVICE u64 mix(u64 x) {
  x ^= x >> 30, x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27, x *= 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

WF_DEVICE u64 draw(u64 seed, u64 counter) { return mix(seed + (counter + 1) * 0x9E3779B97F4A7C15ull); }

WF_DEVICE u64 scramble(u64 x, u32 scale, u64 seed) {
  const u64 mask = (u64(1) << scale) - 1;
  for (u32 r = 0; r < 3; ++r) {
    const u64 k = mix(seed + r + 0x5851F42D4C957F2Dull);
    x = (x * (k | 1) + (k >> 32)) & mask;
    x ^= x >> ((scale + 1) / 2);
  }
  return x;
}

}  // namespace wf

template <int Threads>
__global__ void __launch_bounds__(Threads)
    kronecker_edges(int* tail, int* head, long long count, long long scale_, unsigned long long seed) {
  using namespace wf;
  const u32 scale = static_cast<u32>(scale_);
  const i64 e = static_cast<i64>(blockIdx.x) * Threads + threadIdx.x;
  if (e >= count) return;
  u64 u = 0, v = 0, word = 0;
  for (u32 level = 0; level < scale; ++level) {
    if (level % 2 == 0) word = draw(seed, static_cast<u64>(e) * 16 + level / 2);
    const u32 r = static_cast<u32>(word);
    word >>= 32;
    const u64 down = r >= 3264175145u, right = r >= 2448131359u;
    u = u << 1 | down;
    v = v << 1 | (!down || r >= 4080218931u ? right : 0);
  }
  tail[e] = static_cast<int>(scramble(u, scale, seed)), head[e] = static_cast<int>(scramble(v, scale, seed));
}

template <int Threads>
__global__ void __launch_bounds__(Threads)
    uniform_edges(int* tail, int* head, long long count, long long n, unsigned long long seed) {
  using namespace wf;
  const i64 e = static_cast<i64>(blockIdx.x) * Threads + threadIdx.x;
  if (e >= count) return;
  const u64 word = draw(seed, static_cast<u64>(e));
  tail[e] = static_cast<int>((word & 0xffffffffu) * static_cast<u64>(n) >> 32);
  head[e] = static_cast<int>((word >> 32) * static_cast<u64>(n) >> 32);
}

template <int Threads>
__global__ void __launch_bounds__(Threads)
    grid_keep(unsigned char* kept, long long count, long long threshold, unsigned long long seed) {
  using namespace wf;
  const i64 e = static_cast<i64>(blockIdx.x) * Threads + threadIdx.x;
  if (e < count) kept[e] = (draw(seed, static_cast<u64>(e)) >> 32) < static_cast<u64>(threshold);
}
