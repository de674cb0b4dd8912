// The short forms of packed.cuh against IEEE's operations: for `count` bit patterns from `first` on, `step` apart, taken
// as pivots, with a numerator made from each. counts[0]: how many were sure; counts[1]: of those, how many were wrong.
#include "packed.cuh"

__global__ void short_forms(unsigned first, unsigned step, long long count, unsigned long long* counts) {
  using namespace wf;
  for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += static_cast<i64>(gridDim.x) * blockDim.x) {
    const u32 u = first + step * static_cast<u32>(i);
    const float p = __uint_as_float(u), t = __uint_as_float(u * 2654435761u ^ u >> 7);
    doubt<float> doubts = no_doubt<float>();
    float d, v;
    root_and_reciprocal(p, d, v, doubts);
    const float q = over(t, d, v, doubts);
    const bool moderate = is_sure(doubts) && fabsf(t) < 1.2089258e+24f;
    const bool wrong = __float_as_uint(d) != __float_as_uint(root(p)) || __float_as_uint(v) != __float_as_uint(quotient(1.0f, d)) ||
                       __float_as_uint(q) != __float_as_uint(quotient(t, d));
    if (moderate) atomicAdd(counts, 1ull);
    if (moderate && wrong) atomicAdd(counts + 1, 1ull);
  }
}
