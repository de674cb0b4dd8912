// Device arithmetic. Everything here is the correctly rounded operation of the same name; approximate intrinsics are
// left out on purpose (a kernel that needs one has to say what its twin computes).
#pragma once

#define SIMT_F SIMT_INLINE float
#define SIMT_D SIMT_INLINE double
SIMT_F __fadd_rn(float a, float b) { return a + b; }
SIMT_F __fsub_rn(float a, float b) { return a - b; }
SIMT_F __fmul_rn(float a, float b) { return a * b; }
SIMT_F __fdiv_rn(float a, float b) { return a / b; }
SIMT_F __frcp_rn(float a) { return 1.0f / a; }
SIMT_F __fsqrt_rn(float a) { return sqrtf(a); }
SIMT_F __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
SIMT_D __dadd_rn(double a, double b) { return a + b; }
SIMT_D __dsub_rn(double a, double b) { return a - b; }
SIMT_D __dmul_rn(double a, double b) { return a * b; }
SIMT_D __ddiv_rn(double a, double b) { return a / b; }
SIMT_D __drcp_rn(double a) { return 1.0 / a; }
SIMT_D __dsqrt_rn(double a) { return sqrt(a); }
SIMT_D __fma_rn(double a, double b, double c) { return fma(a, b, c); }
SIMT_F rsqrtf(float a) { return 1.0f / sqrtf(a); }
SIMT_D rsqrt(double a) { return 1.0 / sqrt(a); }
SIMT_F sinpif(float a) { return static_cast<float>(sin(M_PI * static_cast<double>(a))); }
SIMT_F cospif(float a) { return static_cast<float>(cos(M_PI * static_cast<double>(a))); }
SIMT_INLINE void sincospif(float a, float *s, float *c) { *s = sinpif(a); *c = cospif(a); }
SIMT_F __saturatef(float a) { return a > 1.0f ? 1.0f : (a > 0.0f ? a : 0.0f); }

SIMT_INLINE int __float2int_rn(float a) { return static_cast<int>(nearbyintf(a)); }
SIMT_INLINE int __float2int_rz(float a) { return static_cast<int>(a); }
SIMT_INLINE int __double2int_rn(double a) { return static_cast<int>(nearbyint(a)); }
SIMT_F __int2float_rn(int a) { return static_cast<float>(a); }
SIMT_F __uint2float_rn(unsigned a) { return static_cast<float>(a); }
SIMT_F __double2float_rn(double a) { return static_cast<float>(a); }
SIMT_INLINE int __float_as_int(float a) { return __builtin_bit_cast(int, a); }
SIMT_INLINE unsigned __float_as_uint(float a) { return __builtin_bit_cast(unsigned, a); }
SIMT_F __int_as_float(int a) { return __builtin_bit_cast(float, a); }
SIMT_F __uint_as_float(unsigned a) { return __builtin_bit_cast(float, a); }
SIMT_INLINE long long __double_as_longlong(double a) { return __builtin_bit_cast(long long, a); }
SIMT_D __longlong_as_double(long long a) { return __builtin_bit_cast(double, a); }
SIMT_INLINE int __double2hiint(double a) { return static_cast<int>(__builtin_bit_cast(std::uint64_t, a) >> 32); }
SIMT_INLINE int __double2loint(double a) { return static_cast<int>(__builtin_bit_cast(std::uint64_t, a)); }
SIMT_D __hiloint2double(int hi, int lo) {
  return __builtin_bit_cast(double, (static_cast<std::uint64_t>(static_cast<unsigned>(hi)) << 32) | static_cast<unsigned>(lo));
}

SIMT_INLINE int __popc(unsigned a) { return __builtin_popcount(a); }
SIMT_INLINE int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
SIMT_INLINE int __clz(int a) { return a ? __builtin_clz(static_cast<unsigned>(a)) : 32; }
SIMT_INLINE int __clzll(long long a) { return a ? __builtin_clzll(static_cast<unsigned long long>(a)) : 64; }
SIMT_INLINE int __ffs(int a) { return __builtin_ffs(a); }
SIMT_INLINE int __ffsll(long long a) { return __builtin_ffsll(a); }
SIMT_INLINE unsigned __brev(unsigned a) {
  unsigned r = 0;
  for (int k = 0; k < 32; ++k) r |= ((a >> k) & 1u) << (31 - k);
  return r;
}
SIMT_INLINE unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}
SIMT_INLINE int __mulhi(int a, int b) { return static_cast<int>((static_cast<std::int64_t>(a) * b) >> 32); }
SIMT_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
SIMT_INLINE unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) {
  return static_cast<unsigned>((((static_cast<std::uint64_t>(hi) << 32) | lo) << (s & 31)) >> 32);
}
SIMT_INLINE unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) {
  return static_cast<unsigned>(((static_cast<std::uint64_t>(hi) << 32) | lo) >> (s & 31));
}
SIMT_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const std::uint64_t v = (static_cast<std::uint64_t>(b) << 32) | a;
  unsigned r = 0;
  for (int k = 0; k < 4; ++k) r |= static_cast<unsigned>((v >> (8 * ((s >> (4 * k)) & 7))) & 255u) << (8 * k);
  return r;
}

// CUDA's min and max take mixed integers; for floating point they are fmin and fmax (a NaN loses).
#define SIMT_MINMAX(T)                                    \
  SIMT_INLINE T min(T a, T b) { return b < a ? b : a; }   \
  SIMT_INLINE T max(T a, T b) { return a < b ? b : a; }
SIMT_MINMAX(int)
SIMT_MINMAX(unsigned)
SIMT_MINMAX(long)
SIMT_MINMAX(unsigned long)
SIMT_MINMAX(long long)
SIMT_MINMAX(unsigned long long)
#undef SIMT_MINMAX
SIMT_F min(float a, float b) { return fminf(a, b); }
SIMT_F max(float a, float b) { return fmaxf(a, b); }
SIMT_D min(double a, double b) { return fmin(a, b); }
SIMT_D max(double a, double b) { return fmax(a, b); }
using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

// Cache hints change no value. The read-only path (`__ldg`) is a plain read here: a racing write is still a race.
template <typename T> SIMT_INLINE T __ldg(const T *p) { return *p; }
template <typename T> SIMT_INLINE T __ldcg(const T *p) { return *p; }
template <typename T> SIMT_INLINE T __ldcs(const T *p) { return *p; }
template <typename T> SIMT_INLINE T __ldca(const T *p) { return *p; }
template <typename T> SIMT_INLINE void __stcg(T *p, T v) { *p = v; }
template <typename T> SIMT_INLINE void __stcs(T *p, T v) { *p = v; }
template <typename T> SIMT_INLINE void __stwb(T *p, T v) { *p = v; }

SIMT_INLINE void __nanosleep(unsigned) { simt_yield(); }
SIMT_INLINE void __trap() { simt_trap("__trap"); }
SIMT_INLINE long long clock64() { return simt_clock(); }
SIMT_INLINE int clock() { return static_cast<int>(simt_clock()); }
SIMT_INLINE std::size_t __cvta_generic_to_shared(const void *p) { return reinterpret_cast<std::size_t>(p); }
#undef SIMT_F
#undef SIMT_D
#define assert(condition) ((condition) ? (void)0 : simt_trap("assert(" #condition ")"))
