// Sixteen bytes moved at once. Addresses are multiples of 16.
//
// Device: one LDG.128 / STG.128 / LDS.128 / STS.128. Host twin: four 4-byte accesses, so that shadow memory
// sees each word.
#pragma once
#include "types.cuh"

namespace wf {

struct alignas(16) vec16 {
  u32 w[4];
};

// Read data that is used once: not kept in L1.
WF_DEVICE vec16 load16_stream(const void* p) {
  vec16 v;
#ifdef WARPFRONT_SIMT
  const u32* q = static_cast<const u32*>(p);
  for (int i = 0; i < 4; ++i) v.w[i] = q[i];
#else
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p) : "memory");
#endif
  return v;
}

WF_DEVICE vec16 load16(const void* p) {
  vec16 v;
#ifdef WARPFRONT_SIMT
  const u32* q = static_cast<const u32*>(p);
  for (int i = 0; i < 4; ++i) v.w[i] = q[i];
#else
  const uint4 t = *static_cast<const uint4*>(p);
  v.w[0] = t.x, v.w[1] = t.y, v.w[2] = t.z, v.w[3] = t.w;
#endif
  return v;
}

WF_DEVICE void store16(void* p, vec16 v) {
#ifdef WARPFRONT_SIMT
  u32* q = static_cast<u32*>(p);
  for (int i = 0; i < 4; ++i) q[i] = v.w[i];
#else
  *static_cast<uint4*>(p) = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
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
