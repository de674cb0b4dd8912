// Values that say themselves when they are there: each of a value's two 32-bit halves lies beside a tag, in one 64-bit word
// that is written and read whole. Who waits reads the values until their tags are the ones it waits for: no fence, and no
// flag to be read before the values. The memory is zero at first, tags are not, and each time has a tag of its own.
#pragma once
#include "types.cuh"
#include "signal.cuh"

namespace wf {

struct alignas(16) Tagged {
  u32 low, low_tag, high, high_tag;
};

WF_DEVICE u64 bits_of(double v) { return static_cast<u64>(__double_as_longlong(v)); }
WF_DEVICE u64 bits_of(float v) { return static_cast<u32>(__float_as_int(v)); }
WF_DEVICE void from_bits(u64 bits, double& v) { v = __longlong_as_double(static_cast<long long>(bits)); }
WF_DEVICE void from_bits(u64 bits, float& v) { v = __int_as_float(static_cast<int>(bits)); }

template <typename T>
WF_DEVICE void tagged_store(Tagged* p, T v, u32 tag) {
  const u64 bits = bits_of(v);
  const u32 low = static_cast<u32>(bits), high = static_cast<u32>(bits >> 32);
#ifdef WARPFRONT_SIMT
  simt::relaxed_store(&p->low, low);
  simt::relaxed_store(&p->high, high);
  simt::release_store(&p->low_tag, tag);
  simt::release_store(&p->high_tag, tag);
#else
  asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};"
               : : "l"(p), "l"(static_cast<u64>(tag) << 32 | low), "l"(static_cast<u64>(tag) << 32 | high) : "memory");
#endif
}

// Whether a value with this tag is there; `v` is it then.
template <typename T>
WF_DEVICE bool tagged_load(const Tagged* p, u32 tag, T& v) {
#ifdef WARPFRONT_SIMT
  const bool there = simt::acquire_load(&p->low_tag) == tag && simt::acquire_load(&p->high_tag) == tag;
  const u64 low = simt::relaxed_load(&p->low), high = simt::relaxed_load(&p->high);
#else
  u64 a, b;
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(p) : "memory");
  const bool there = static_cast<u32>(a >> 32) == tag && static_cast<u32>(b >> 32) == tag;
  const u64 low = static_cast<u32>(a), high = static_cast<u32>(b);
#endif
  from_bits(high << 32 | low, v);
  return there;
}

// Whether values first..end of `Count`, `stride` apart, are there; the others are 0.
template <int Count, typename T>
WF_DEVICE bool tagged_try(const Tagged* p, int stride, int first, u32 tag, T (&v)[Count], int end = Count) {
  bool there = true;
  WF_UNROLL
  for (int k = 0; k < Count; ++k) {
    v[k] = T(0);
    if (k >= first && k < end) there &= tagged_load(p + k * stride, tag, v[k]);
  }
  return there;
}

template <int Count, typename T>
WF_DEVICE void tagged_wait(const Tagged* p, int stride, int first, u32 tag, T (&v)[Count], int end = Count) {
  while (!tagged_try(p, stride, first, tag, v, end)) spin();
}

}  // namespace wf
