// Two pixels in a 32-bit word: 16-bit whole-number lanes, and half-precision lanes that hold whole numbers.
//
// A half represents every whole number up to 2048, and no value of the Sobel step is larger, so its sums are exact
// and their order is free. Host twins below `#ifdef WARPFRONT_SIMT` compute the same numbers.
#pragma once
#include "types.cuh"

namespace wf {

// c + a.lo * b[0] + a.hi * b[1], a two unsigned 16-bit lanes, b four bytes; dot_high takes b[2] and b[3].
WF_DEVICE u32 dot_low(u32 a, u32 b, u32 c) {
#ifdef WARPFRONT_SIMT
  return c + (a & 0xffff) * (b & 0xff) + (a >> 16) * (b >> 8 & 0xff);
#else
  u32 d;
  asm("dp2a.lo.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
#endif
}

WF_DEVICE u32 dot_high(u32 a, u32 b, u32 c) {
#ifdef WARPFRONT_SIMT
  return c + (a & 0xffff) * (b >> 16 & 0xff) + (a >> 16) * (b >> 24);
#else
  u32 d;
  asm("dp2a.hi.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
#endif
}

#ifdef WARPFRONT_SIMT
// One half as a float, and back; only zeros and normal numbers occur.
inline float half_value(u32 bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const float size = exponent ? ldexpf(1024.0f + static_cast<float>(bits & 1023), exponent - 25) : 0.0f;
  return bits & 0x8000 ? -size : size;
}

inline u32 half_bits(float v) {
  const float size = fabsf(v);
  if (size == 0.0f) return 0;
  int exponent;
  frexpf(size, &exponent);
  u32 fraction = static_cast<u32>(nearbyintf(ldexpf(size, 11 - exponent)));
  if (fraction == 2048) fraction = 1024, ++exponent;
  return (v < 0 ? 0x8000u : 0u) | static_cast<u32>(exponent + 14) << 10 | (fraction & 1023);
}
#endif

// Half of a lane, as a float.
WF_DEVICE float lane_value(u32 lanes, int high) {
  const u32 bits = high ? lanes >> 16 : lanes & 0xffff;
#ifdef WARPFRONT_SIMT
  return half_value(bits);
#else
  float v;
  asm("{ .reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(v) : "r"(bits));
  return v;
#endif
}

#ifdef WARPFRONT_SIMT
#define WF_LANEWISE(expression)                                    \
  u32 result = 0;                                                  \
  for (int high = 0; high < 2; ++high) {                           \
    const float x = lane_value(a, high), y = lane_value(b, high);  \
    result |= half_bits(expression) << (16 * high);                \
  }                                                                \
  return result
#endif

WF_DEVICE u32 half_add(u32 a, u32 b) {
#ifdef WARPFRONT_SIMT
  WF_LANEWISE(x + y);
#else
  u32 d;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
#endif
}

WF_DEVICE u32 half_sub(u32 a, u32 b) {
#ifdef WARPFRONT_SIMT
  WF_LANEWISE(x - y);
#else
  u32 d;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
#endif
}

// 2 a + b in both lanes.
WF_DEVICE u32 half_twice_plus(u32 a, u32 b) {
#ifdef WARPFRONT_SIMT
  WF_LANEWISE(2.0f * x + y);
#else
  u32 d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(0x40004000u), "r"(b));
  return d;
#endif
}

// |a| + |b| in both lanes.
WF_DEVICE u32 half_add_sizes(u32 a, u32 b) {
#ifdef WARPFRONT_SIMT
  WF_LANEWISE(fabsf(x) + fabsf(y));
#else
  u32 d;
  asm("{ .reg .b32 p, q; abs.f16x2 p, %1; abs.f16x2 q, %2; add.rn.f16x2 %0, p, q; }" : "=r"(d) : "r"(a), "r"(b));
  return d;
#endif
}

// 0xffff in every lane where a > b, else 0.
WF_DEVICE u32 half_greater(u32 a, u32 b) {
#ifdef WARPFRONT_SIMT
  u32 result = 0;
  for (int high = 0; high < 2; ++high)
    if (lane_value(a, high) > lane_value(b, high)) result |= 0xffffu << (16 * high);
  return result;
#else
  u32 d;
  asm("set.gt.u32.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
#endif
}

constexpr u32 kHalfMinus3072 = 0xea00ea00u;   // -3072 in both lanes

}  // namespace wf
