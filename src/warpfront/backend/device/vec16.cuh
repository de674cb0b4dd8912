// Sixteen bytes moved at once. Addresses are multiples of 16.
//
// Device: one LDG.128 / STG.128 / LDS.128 / STS.128. Host twin: one 16-byte access to an aligned type, so that the
// runner sees each word and reports an address that the device would refuse.
#pragma once
#include "types.cuh"

namespace wf {

struct alignas(16) vec16 {
  u32 w[4];
};

#if WF_ARCH >= 800 && !defined(WARPFRONT_SIMT)
// L2 is to give up first what is accessed by this policy.
WF_DEVICE u64 policy_first() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
#endif

// Read data that is used once: not kept in L1.
WF_DEVICE vec16 load16_stream(const void* p) {
#ifdef WARPFRONT_SIMT
  return simt::load_aligned<vec16>(p);
#else
  vec16 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p) : "memory");
  return v;
#endif
}

// The same, and first out of L2, which then keeps what is being written.
WF_DEVICE vec16 load16_first(const void* p) {
#if WF_ARCH >= 800 && !defined(WARPFRONT_SIMT)
  vec16 v;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p), "l"(policy_first()) : "memory");
  return v;
#else
  return load16_stream(p);
#endif
}

WF_DEVICE vec16 load16(const void* p) {
#ifdef WARPFRONT_SIMT
  return simt::load_aligned<vec16>(p);
#else
  vec16 v;
  const uint4 t = *static_cast<const uint4*>(p);
  v.w[0] = t.x, v.w[1] = t.y, v.w[2] = t.z, v.w[3] = t.w;
  return v;
#endif
}

WF_DEVICE void store16(void* p, vec16 v) {
#ifdef WARPFRONT_SIMT
  simt::store_aligned(p, v);
#else
  *static_cast<uint4*>(p) = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
#endif
}

WF_DEVICE void store16_first(void* p, vec16 v) {
#if WF_ARCH >= 800 && !defined(WARPFRONT_SIMT)
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;"
               : : "l"(p), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3]), "l"(policy_first()) : "memory");
#else
  store16(p, v);
#endif
}

// Write data that nobody reads soon: first out of L2.
WF_DEVICE void store16_stream(void* p, vec16 v) {
#ifdef WARPFRONT_SIMT
  store16(p, v);
#else
  __stcs(static_cast<uint4*>(p), make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]));
#endif
}

}  // namespace wf
