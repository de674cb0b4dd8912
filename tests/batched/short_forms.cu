// The short forms of packed.cuh against IEEE's operations: for `count` bit patterns from `first` on, `step` apart, taken
// as pivots and divisors, with a numerator made from each.
#include "packed.cuh"

namespace wf {

WF_DEVICE bool same(float a, float b) { return __float_as_uint(a) == __float_as_uint(b); }
WF_DEVICE bool same(double a, double b) { return __double_as_longlong(a) == __double_as_longlong(b); }

template <typename T>
WF_DEVICE void try_one(T p, T t, unsigned long long* counts) {
  doubt<T> doubts = no_doubt<T>();
  T d, v, size, w;
  root_and_reciprocal(p, d, v, doubts);
  const T q = over(t, d, v, doubts);
  doubt<T> others = no_doubt<T>();
  reciprocal(p, size, w, others);
  const bool sure = is_sure(doubts) && is_moderate(size_of(t)), also = is_sure(others);
  const bool wrong = !same(d, root(p)) || !same(v, quotient(T(1), d)) || !same(q, quotient(t, d));
  if (sure) atomicAdd(counts, 1ull);
  if (also) atomicAdd(counts + 1, 1ull);
  if ((sure && wrong) || (also && !same(w, quotient(T(1), size)))) atomicAdd(counts + 2, 1ull);
}

}  // namespace wf

// counts: pivots that were sure, divisors that were sure, of those the wrong ones.
__global__ void short_forms(unsigned first, unsigned step, long long count, unsigned long long* counts) {
  using namespace wf;
  for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += static_cast<i64>(gridDim.x) * blockDim.x) {
    const u32 u = first + step * static_cast<u32>(i);
    try_one(__uint_as_float(u), __uint_as_float(u * 2654435761u ^ u >> 7), counts);
  }
}

// As many as float64 allows: hashed exponents near 0, hashed mantissas with runs of ones and zeros.
__global__ void short_forms_double(unsigned first, unsigned step, long long count, unsigned long long* counts) {
  using namespace wf;
  for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += static_cast<i64>(gridDim.x) * blockDim.x) {
    u64 u = (first + static_cast<u64>(step) * static_cast<u64>(i)) * 0x9e3779b97f4a7c15ull;
    u = (u ^ u >> 29) * 0xbf58476d1ce4e5b9ull;
    const u64 t = (u ^ u >> 32) * 0x94d049bb133111ebull, kind = u % 4;
    u64 mantissa = u >> 12;
    if (kind == 1) mantissa |= 0xffffffffff000ull;
    if (kind == 2) mantissa &= 0xfffffull;
    if (kind == 3) mantissa = 0xfffffffffffffull - mantissa % 64;
    const u64 p = (823 + t % 401) << 52 | mantissa, n = (t >> 12) | (723 + u % 601) << 52 | (t & 1) << 63;
    try_one(__longlong_as_double(static_cast<i64>(p)), __longlong_as_double(static_cast<i64>(n)), counts);
  }
}
