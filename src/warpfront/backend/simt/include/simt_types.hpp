// CUDA's built-in vector types with CUDA's alignment (Programming Guide, "Built-in Vector Types").
#pragma once

#define SIMT_VECTOR(name, type, a1, a2, a3, a4)                                                    \
  struct name##1 { type x; };                                                                      \
  struct alignas(a2) name##2 { type x, y; };                                                       \
  struct name##3 { type x, y, z; };                                                                \
  struct alignas(a4) name##4 { type x, y, z, w; };                                                 \
  SIMT_INLINE name##1 make_##name##1(type x) { return {x}; }                                       \
  SIMT_INLINE name##2 make_##name##2(type x, type y) { return {x, y}; }                            \
  SIMT_INLINE name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                 \
  SIMT_INLINE name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
#define uint3 simt_hidden_uint3  // already declared: threadIdx needs it first
SIMT_VECTOR(char, signed char, 1, 2, 1, 4)
SIMT_VECTOR(uchar, unsigned char, 1, 2, 1, 4)
SIMT_VECTOR(short, short, 2, 4, 2, 8)
SIMT_VECTOR(ushort, unsigned short, 2, 4, 2, 8)
SIMT_VECTOR(int, int, 4, 8, 4, 16)
SIMT_VECTOR(float, float, 4, 8, 4, 16)
SIMT_VECTOR(longlong, long long, 8, 16, 8, 16)
SIMT_VECTOR(ulonglong, unsigned long long, 8, 16, 8, 16)
SIMT_VECTOR(double, double, 8, 16, 8, 16)
#undef uint3
#undef SIMT_VECTOR
struct uint1 { unsigned x; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
SIMT_INLINE uint1 make_uint1(unsigned x) { return {x}; }
SIMT_INLINE uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
SIMT_INLINE uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
SIMT_INLINE uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace simt {
// One access of 16 bytes, which the runner checks for its alignment, as the device does. The host must not fault on
// it before that is reported, so its own type asks for less.
typedef unsigned quad __attribute__((vector_size(16), may_alias, aligned(4)));
template <typename V>
SIMT_INLINE V load_aligned(const void *p) {
  static_assert(sizeof(V) == sizeof(quad), "16 bytes");
  const quad q = *static_cast<const quad *>(p);
  V v;
  __builtin_memcpy(&v, &q, sizeof v);
  return v;
}
template <typename V>
SIMT_INLINE void store_aligned(void *p, const V &v) {
  static_assert(sizeof(V) == sizeof(quad), "16 bytes");
  quad q;
  __builtin_memcpy(&q, &v, sizeof q);
  *static_cast<quad *>(p) = q;
}
}  // namespace simt
