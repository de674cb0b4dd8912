// What the warp kernels of this folder share: arithmetic, the layout of a block, streaming, the triangular sweeps.
//
// Arithmetic is spelled out: each product and each sum is rounded by itself (no fused multiply-add, whatever the
// compiler's flags), division and square root are IEEE. So the CPU twin, the serial baseline and every variant here
// give the same bits, and a pivot that is zero for one is zero for all.
#pragma once
#include "types.cuh"
#include "vec16.cuh"
#include "warp.cuh"

namespace wf {

WF_DEVICE float mul(float a, float b) { return __fmul_rn(a, b); }
WF_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
WF_DEVICE float sub(float a, float b) { return __fsub_rn(a, b); }
WF_DEVICE float quotient(float a, float b) { return __fdiv_rn(a, b); }
WF_DEVICE float root(float a) { return __fsqrt_rn(a); }
WF_DEVICE float size_of(float a) { return fabsf(a); }
WF_DEVICE double mul(double a, double b) { return __dmul_rn(a, b); }
WF_DEVICE double add(double a, double b) { return __dadd_rn(a, b); }
WF_DEVICE double sub(double a, double b) { return __dsub_rn(a, b); }
WF_DEVICE double quotient(double a, double b) { return __ddiv_rn(a, b); }
WF_DEVICE double root(double a) { return __dsqrt_rn(a); }
WF_DEVICE double size_of(double a) { return fabs(a); }

WF_DEVICE bool is_finite(float a) { return fabsf(a) <= 3.402823466e+38f; }
WF_DEVICE bool is_finite(double a) { return fabs(a) <= 1.7976931348623157e+308; }
WF_DEVICE float infinity_of(float) { return __int_as_float(0x7f800000); }
WF_DEVICE double infinity_of(double) { return __longlong_as_double(0x7ff0000000000000ll); }

// Power of two 2^-e with 2^e <= largest < 2^(e+1), e held to [-126, 126] (double: [-1022, 1022]), and its inverse.
WF_DEVICE void power_scale(float largest, float& scale, float& inverse) {
  const int e = min_of(max_of(__float_as_int(largest) >> 23, 1), 253);
  scale = __int_as_float((254 - e) << 23);
  inverse = __int_as_float(e << 23);
}
WF_DEVICE void power_scale(double largest, double& scale, double& inverse) {
  const i64 e = min_of<i64>(max_of<i64>(__double_as_longlong(largest) >> 52, 1), 2045);
  scale = __longlong_as_double((2046 - e) << 52);
  inverse = __longlong_as_double(e << 52);
}

enum status_code { kOk = 0, kNonFiniteInput = -1, kNotSymmetric = -2, kNonFiniteIntermediate = -3 };

// One block is one warp; it owns kSystems = 32 / G systems, G lanes each. Lane g of a system owns its rows g, g + G, ...
// Shared words of a system: the matrix with row pitch P, systems S apart; right-hand sides N x R without gaps; the
// line (pivot column or row, two buffers) at 16-byte boundaries.
// In the sweeps a system's lanes are kAcross right-hand sides by kGroups row groups.
template <typename T, int N, int R, int G, int P, int S>
struct small {
  static constexpr int kN = N, kR = R, kG = G, kP = P, kS = S;
  static constexpr int kSystems = kWarp / G;
  static constexpr int kRows = (N + G - 1) / G;
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  static constexpr int kLine = (N + kChunk - 1) / kChunk * kChunk + kChunk;
  // Steps of a factorisation that run as a loop; the unrolled code shrinks from stage to stage.
  static constexpr int kStage = G < 8 ? G : 8, kStages = (N + kStage - 1) / kStage;
  static constexpr int kPower = R > 4 ? 8 : R > 2 ? 4 : R > 1 ? 2 : 1;
  static constexpr int kAcross = kPower < G ? kPower : G;
  static constexpr int kGroups = G / kAcross;
  static constexpr int kHeld = (N + kGroups - 1) / kGroups;
  static constexpr int kRounds = (R + kAcross - 1) / kAcross;
  static_assert(P >= N && S >= N * P && (G & (G - 1)) == 0 && G <= kWarp, "layout");
  // Columns that lane rows m * G .. m * G + G - 1 of a lower triangle have.
  static WF_DEVICE constexpr int columns(int m) { return (m + 1) * G < N ? (m + 1) * G : N; }
};

// The value of lane `from` of each group of G lanes. All 32 lanes call.
template <int G, typename T>
WF_DEVICE T share(T v, int from) {
  if constexpr (G == 1) return v;
  else return __shfl_sync(kFullMask, v, from, G);
}

template <int G, typename T>
WF_DEVICE T group_max(T v) {
  WF_UNROLL
  for (int d = G / 2; d > 0; d >>= 1) v = max_of(v, __shfl_xor_sync(kFullMask, v, d));
  return v;
}

template <int G>
WF_DEVICE int group_min(int v) {
  WF_UNROLL
  for (int d = G / 2; d > 0; d >>= 1) v = min_of(v, __shfl_xor_sync(kFullMask, v, d));
  return v;
}

WF_DEVICE void unpack(vec16 v, float (&x)[4]) {
  WF_UNROLL
  for (int i = 0; i < 4; ++i) x[i] = __uint_as_float(v.w[i]);
}
WF_DEVICE void unpack(vec16 v, double (&x)[2]) {
  WF_UNROLL
  for (int i = 0; i < 2; ++i) x[i] = __longlong_as_double(static_cast<i64>(v.w[2 * i] | static_cast<u64>(v.w[2 * i + 1]) << 32));
}
WF_DEVICE vec16 packed(const float (&x)[4]) {
  vec16 v;
  WF_UNROLL
  for (int i = 0; i < 4; ++i) v.w[i] = __float_as_uint(x[i]);
  return v;
}
WF_DEVICE vec16 packed(const double (&x)[2]) {
  vec16 v;
  WF_UNROLL
  for (int i = 0; i < 2; ++i) {
    const u64 bits = static_cast<u64>(__double_as_longlong(x[i]));
    v.w[2 * i] = static_cast<u32>(bits), v.w[2 * i + 1] = static_cast<u32>(bits >> 32);
  }
  return v;
}

// put(e, src[e]) for e < count, and put(e, 0) for count <= e < Count (systems beyond the batch). Neighbouring lanes
// read neighbouring addresses; up to eight loads of a lane are in flight before the first value is used.
template <typename T, int Count, bool Vec, typename Put>
WF_DEVICE void stream_in(const T* src, int count, Put put) {
  constexpr int V = Vec ? 16 / static_cast<int>(sizeof(T)) : 1;
  constexpr int kEach = (Count + kWarp * V - 1) / (kWarp * V), kBatch = kEach == 0 ? 1 : kEach < 8 ? kEach : 8;
  const int lane = lane_id();
  WF_UNROLL_N(1)
  for (int first = 0; first < kEach; first += kBatch) {
    T x[kBatch][V];
    WF_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      const int e = ((first + i) * kWarp + lane) * V;
      WF_UNROLL
      for (int q = 0; q < V; ++q) x[i][q] = T(0);
      if (e < count) {
        if constexpr (Vec) unpack(load16_stream(src + e), x[i]);
        else x[i][0] = src[e];
      }
    }
    WF_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      const int e = ((first + i) * kWarp + lane) * V;
      WF_UNROLL
      for (int q = 0; q < V; ++q)
        if (e + q < Count) put(e + q, x[i][q]);
    }
  }
}

// dst[e] = get(e) for e < count.
template <typename T, int Count, bool Vec, typename Get>
WF_DEVICE void stream_out(T* dst, int count, Get get) {
  constexpr int V = Vec ? 16 / static_cast<int>(sizeof(T)) : 1;
  constexpr int kEach = (Count + kWarp * V - 1) / (kWarp * V);
  const int lane = lane_id();
  WF_UNROLL_N(4)
  for (int i = 0; i < kEach; ++i) {
    const int e = (i * kWarp + lane) * V;
    if (e >= count) continue;
    if constexpr (Vec) {
      T x[V];
      WF_UNROLL
      for (int q = 0; q < V; ++q) x[q] = get(e + q);
      store16_stream(dst + e, packed(x));
    } else {
      dst[e] = get(e);
    }
  }
}

// One triangular sweep over the right-hand sides a lane holds: x[m] belongs to row m * kGroups + s.
// Down: rows above their dependants (L y = b); else upwards. Divide: by the diagonal. Across: the element that couples
// row r to row k is [k][r] (L^T), else [r][k]. Products reach a row in the order the sweep meets them. Only the loop over
// held rows is unrolled in full: code stays small, registers keep constant indices.
template <typename K, bool Down, bool Divide, bool Across, typename T>
WF_DEVICE void sweep(T (&x)[K::kHeld], const T* a, int s, int column) {
  WF_UNROLL
  for (int block = 0; block < K::kHeld; ++block) {
    const int mk = Down ? block : K::kHeld - 1 - block;
    WF_UNROLL_N(4)
    for (int step = 0; step < K::kGroups; ++step) {
      const int sk = Down ? step : K::kGroups - 1 - step, k = mk * K::kGroups + sk;
      if (K::kN % K::kGroups != 0 && k >= K::kN) continue;
      T t = share<K::kG>(x[mk], sk * K::kAcross + column);
      if constexpr (Divide) {
        t = quotient(t, a[k * K::kP + k]);
        if (s == sk) x[mk] = t;
      }
      WF_UNROLL
      for (int m = 0; m < K::kHeld; ++m) {
        if (Down ? m < mk : m > mk) continue;
        const int r = m * K::kGroups + s;
        if (Down ? r > k && r < K::kN : r < k) x[m] = sub(x[m], mul(a[Across ? k * K::kP + r : r * K::kP + k], t));
      }
    }
  }
}

}  // namespace wf
