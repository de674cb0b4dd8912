// Search for a pivot in a warp, and what a column is multiplied by: for `lu_panel.cu`.
#pragma once
#include "types.cuh"
#include "warp.cuh"

namespace wf {

template <typename T>
WF_DEVICE T magnitude(T a) { return a < T(0) ? -a : a; }

// This lane's largest entry of the column that stands in entry 0, among places from j on.
template <typename T, int R, int W>
WF_DEVICE indexed<T> largest(const T (&v)[R][W], const i32 (&place)[R], int j) {
  indexed<T> best = {T(-1), kNone};
  WF_UNROLL
  for (int r = 0; r < R; ++r) {
    const indexed<T> own = {magnitude(v[r][0]), place[r]};
    if (place[r] >= j && beats(own, best)) best = own;
  }
  return best;
}

// A search over a warp in two steps, so that other work fits between: the bits of an absolute value order as it does, NaN
// above all. own: this lane's largest entry and its place, kNone without one.
template <typename T>
struct search {
  indexed<T> own;
  u32 high, low, top;
};

WF_DEVICE u32 high_bits(float a) { return __float_as_uint(a) & 0x7fffffffu; }
WF_DEVICE u32 high_bits(double a) { return static_cast<u32>(__double2hiint(a)) & 0x7fffffffu; }
WF_DEVICE u32 low_bits(float) { return 0u; }
WF_DEVICE u32 low_bits(double a) { return static_cast<u32>(__double2loint(a)); }

WF_DEVICE u32 warp_max_bits(u32 v) {
#if defined(WARPFRONT_SIMT) || WF_ARCH >= 800
  return __reduce_max_sync(kFullMask, v);
#else
  for (int d = kWarp / 2; d > 0; d >>= 1) v = max_of(v, __shfl_xor_sync(kFullMask, v, d));
  return v;
#endif
}

template <typename T>
WF_DEVICE search<T> begin_search(indexed<T> own) {
  search<T> s;
  s.own = own;
  s.high = own.index == kNone ? 0u : high_bits(own.value);
  s.low = low_bits(own.value);
  s.top = warp_max_bits(s.high);
  return s;
}

// The lane that holds the largest, the first place among equals; one without a place where no lane has any.
template <typename T>
WF_DEVICE int end_search(const search<T>& s) {
  u32 who = __ballot_sync(kFullMask, s.high == s.top && s.own.index != kNone);
  if ((who & (who - 1)) != 0) {  // the same for all lanes
    const bool level = s.high == s.top && s.own.index != kNone;
    const u32 low = warp_max_bits(level ? s.low : 0u);
    const bool equal = level && s.low == low;
    const u32 first = ~warp_max_bits(equal ? ~static_cast<u32>(s.own.index) : 0u);
    who = __ballot_sync(kFullMask, equal && static_cast<u32>(s.own.index) == first);
  }
  return who == 0 ? 0 : __ffs(static_cast<int>(who)) - 1;
}

// About 1 / a, to the last bit or so; a is not near the ends of its range.
WF_DEVICE float reciprocal(float a) {
#ifdef WARPFRONT_SIMT
  return 1.0f / a;
#else
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return fmaf(r, fmaf(-a, r, 1.0f), r);
#endif
}

WF_DEVICE double reciprocal(double a) {
#ifdef WARPFRONT_SIMT
  return 1.0 / a;
#else
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(a));
  r = fma(r, fma(-a, r, 1.0), r);
  r = fma(r, fma(-a, r, 1.0), r);
  return fma(r, fma(-a, r, 1.0), r);
#endif
}

WF_DEVICE bool near_the_ends(float a) { return !(a > 1e-36f && a < 1e36f); }
WF_DEVICE bool near_the_ends(double a) { return !(a > 1e-300 && a < 1e300); }

}  // namespace wf
