// Warp reductions with a defined result: every lane gets the same value, and the value equals the serial
// reference.
//
// All 32 lanes call together. A lane without data passes the identity (0 for sums, -inf or kNone for maxima).
// Maxima and minima propagate NaN: if any lane holds NaN, the result is NaN. arg_max takes the greater value,
// or of equal values the smaller index; NaN beats every number and the first NaN wins: what a serial scan
// with a strict `>` finds.
#pragma once
#include "types.cuh"

namespace wf {

WF_DEVICE int lane_id() {
#ifdef WARPFRONT_SIMT
  return static_cast<int>(simt::lane());
#else
  u32 lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return static_cast<int>(lane);
#endif
}

// Shared with block.cuh: a value and where it was found. An empty lane holds index kNone.
constexpr i32 kNone = 0x7fffffff;

template <typename T>
struct indexed {
  T value;
  i32 index;
};

// True when b beats a: NaN first, then the greater value, then the smaller index. An empty entry beats
// nothing.
template <typename T>
WF_DEVICE bool beats(indexed<T> b, indexed<T> a) {
  if (b.index == kNone) return false;
  if (a.index == kNone) return true;
  const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
  if (nan_a || nan_b) return nan_a && nan_b ? b.index < a.index : nan_b;
  return b.value > a.value || (b.value == a.value && b.index < a.index);
}

template <typename T>
WF_DEVICE T nan_max(T a, T b) { return a != a ? a : (b != b || b > a ? b : a); }

template <typename T>
WF_DEVICE T nan_min(T a, T b) { return a != a ? a : (b != b || b < a ? b : a); }

// Fixed tree over lane distance 16, 8, 4, 2, 1. a + b is commutative in IEEE arithmetic, so both ends of an
// exchange get the same bits and the result is the same in all lanes.
template <typename T>
WF_DEVICE T warp_sum(T v) {
  WF_UNROLL
  for (int d = kWarp / 2; d > 0; d >>= 1) v = v + __shfl_xor_sync(kFullMask, v, d);
  return v;
}

template <typename T>
WF_DEVICE T warp_max(T v) {
  WF_UNROLL
  for (int d = kWarp / 2; d > 0; d >>= 1) v = nan_max(v, __shfl_xor_sync(kFullMask, v, d));
  return v;
}

template <typename T>
WF_DEVICE T warp_min(T v) {
  WF_UNROLL
  for (int d = kWarp / 2; d > 0; d >>= 1) v = nan_min(v, __shfl_xor_sync(kFullMask, v, d));
  return v;
}

template <typename T>
WF_DEVICE indexed<T> warp_arg_max(indexed<T> best) {
  WF_UNROLL
  for (int d = kWarp / 2; d > 0; d >>= 1) {
    indexed<T> other;
    other.value = __shfl_xor_sync(kFullMask, best.value, d);
    other.index = __shfl_xor_sync(kFullMask, best.index, d);
    if (beats(other, best)) best = other;
  }
  return best;
}

}  // namespace wf
