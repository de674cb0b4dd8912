// What the warp kernels of this folder share: arithmetic, the layout of a block, streaming, the triangular sweeps.
//
// Arithmetic is spelled out: each product and each sum is rounded by itself (no fused multiply-add, whatever the
// compiler's flags), division and square root are IEEE. So the CPU twin, the serial baseline and every variant here
// give the same bits, and a pivot that is zero for one is zero for all.
// Lambdas name their argument types: NVRTC 13.0 takes a generic lambda for a host function.
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

WF_DEVICE float larger(float a, float b) { return fmaxf(a, b); }
WF_DEVICE double larger(double a, double b) { return fmax(a, b); }
// NaN from the first x that is not finite on; zero before. One instruction, where a comparison takes two.
WF_DEVICE float poisoned(float poison, float x) { return __fmaf_rn(x, 0.0f, poison); }
WF_DEVICE double poisoned(double poison, double x) { return __fma_rn(x, 0.0, poison); }

// Division by a number whose reciprocal v is known, rounded as IEEE division rounds it: one correction by the exact
// remainder (Markstein, 1990). An exact remainder needs exponents away from the ends of the range: reciprocal_of
// returns NaN for a d out of its range, and whatever is out of range divides in the ordinary way.
WF_DEVICE float reciprocal_of(float d) {
  return (__float_as_uint(d) >> 23 & 0xff) - 107u < 41u ? __fdiv_rn(1.0f, d) : __int_as_float(0x7fffffff);
}
WF_DEVICE double reciprocal_of(double d) {
  const u64 e = static_cast<u64>(__double_as_longlong(d)) >> 52 & 0x7ff;
  return e - 823u < 401u ? __ddiv_rn(1.0, d) : __longlong_as_double(0x7fffffffffffffffll);
}
// 2^-80 to 2^100; 2^-700 to 2^700.
WF_DEVICE bool in_range(float t) { return fabsf(t) > 8.27180613e-25f && fabsf(t) < 1.2676506e+30f; }
WF_DEVICE bool in_range(double t) { return fabs(t) > 1.9010942e-211 && fabs(t) < 5.2601359e+210; }
WF_DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
WF_DEVICE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

// t / d. Only lanes with `needed` may leave the short way; the others' result is not used.
template <typename T>
WF_DEVICE T quotient_by(T t, T d, T v, bool needed = true) {
  const T first = mul(t, v);
  T result = fused(fused(-first, d, t), v, first);
  if (needed && !(in_range(t) && result == result)) result = t == T(0) && v == v ? first : quotient(t, d);
  return result;
}

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
// lines (pivot column or row, two) at 16-byte boundaries.
// In the sweeps a system's lanes are kAcross right-hand sides by kGroups row groups.
template <typename T, int N, int R, int G, int P, int S>
struct small {
  static constexpr int kN = N, kR = R, kG = G, kP = P, kS = S;
  static constexpr int kSystems = kWarp / G;
  static constexpr int kRows = (N + G - 1) / G;
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  static constexpr int kWhole = (N + kChunk - 1) / kChunk * kChunk;
  // A line: kWhole words of slack (rows that are done write there), then kWhole in use, then a chunk of padding.
  static constexpr int kLine = 2 * kWhole + kChunk;
  // Steps of a factorisation that run as a loop; the unrolled code shrinks from stage to stage.
  static constexpr int kStage = G < 8 ? G : 8, kStages = (N + kStage - 1) / kStage;
  static constexpr int kPower = R > 4 ? 8 : R > 2 ? 4 : R > 1 ? 2 : 1;
  static constexpr int kAcross = kPower < G ? kPower : G;
  static constexpr int kGroups = G / kAcross;
  static constexpr int kHeld = (N + kGroups - 1) / kGroups;
  static constexpr int kRounds = (R + kAcross - 1) / kAcross;
  // One right-hand side is carried through the factorisation as one more column.
  static constexpr bool kCarried = R == 1;
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
  for (int d = G / 2; d > 0; d >>= 1) v = larger(v, __shfl_xor_sync(kFullMask, v, d));
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

// put(e, x) with the V elements x of src from e on, for e < count, and with zeros for count <= e < Count (systems beyond
// the batch). V is 16 bytes' worth if Vec, else 1. Neighbouring lanes read neighbouring addresses; up to eight loads of a
// lane are in flight before the first value is used.
template <typename T, int Count, bool Vec, typename Put>
WF_DEVICE void stream_in(const T* src, u32 count, Put put) {
  constexpr int V = Vec ? 16 / static_cast<int>(sizeof(T)) : 1;
  constexpr int kEach = (Count + kWarp * V - 1) / (kWarp * V), kBatch = kEach == 0 ? 1 : kEach < 8 ? kEach : 8;
  const u32 lane = threadIdx.x % kWarp;
  WF_UNROLL_N(1)
  for (int first = 0; first < kEach; first += kBatch) {
    T x[kBatch][V];
    WF_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      const u32 e = static_cast<u32>((first + i) * kWarp * V) + lane * V;
      WF_UNROLL
      for (int q = 0; q < V; ++q) x[i][q] = T(0);
      if (e < count) {
        if constexpr (Vec) unpack(load16_stream(src + e), x[i]);
        else x[i][0] = src[e];
      }
    }
    WF_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      const u32 e = static_cast<u32>((first + i) * kWarp * V) + lane * V;
      if (Count % (kBatch * kWarp * V) == 0 || e < Count) put(e, x[i]);
    }
  }
}

// get(e, x) fills the V elements of dst from e on, for e < count.
template <typename T, int Count, bool Vec, typename Get>
WF_DEVICE void stream_out(T* dst, u32 count, Get get) {
  constexpr int V = Vec ? 16 / static_cast<int>(sizeof(T)) : 1;
  constexpr int kEach = (Count + kWarp * V - 1) / (kWarp * V);
  const u32 lane = threadIdx.x % kWarp;
  WF_UNROLL_N(4)
  for (int i = 0; i < kEach; ++i) {
    const u32 e = static_cast<u32>(i * kWarp * V) + lane * V;
    if (e >= count) continue;
    T x[V];
    get(e, x);
    if constexpr (Vec) store16_stream(dst + e, packed(x));
    else dst[e] = x[0];
  }
}

// Where element e of a block's matrices lies, and elements that follow it: they stay in one row if N is a multiple of V.
struct place {
  u32 system, row, column, at;
};
template <typename K>
WF_DEVICE place place_of(u32 e) {
  constexpr u32 n = K::kN;
  const u32 i = e % (n * n);
  const place p = {e / (n * n), i / n, i % n, e / (n * n) * K::kS + i / n * K::kP + i % n};
  return p;
}
template <typename K, int V>
WF_DEVICE place place_after(place first, u32 e, int q) {
  if (K::kN % V != 0) return place_of<K>(e + static_cast<u32>(q));
  first.column += static_cast<u32>(q), first.at += static_cast<u32>(q);
  return first;
}

template <typename K, typename T, int V>
WF_DEVICE void put_matrix(T* matrix, u32 e, const T (&x)[V]) {
  const place first = place_of<K>(e);
  WF_UNROLL
  for (int q = 0; q < V; ++q) matrix[place_after<K, V>(first, e, q).at] = x[q];
}

// One triangular sweep over the right-hand sides a lane holds: x[m] belongs to row m * kGroups + s.
// Down: rows above their dependants (L y = b); else upwards. Divide: by the diagonal, whose reciprocals are in `inverse`.
// Across: the element that couples row r to row k is [k][r] (L^T), else [r][k]. Products reach a row in the order the
// sweep meets them. Only the loop over held rows is unrolled in full: code stays small, registers keep constant indices.
template <typename K, bool Down, bool Divide, bool Across, typename T>
WF_DEVICE void sweep(T (&x)[K::kHeld], const T* a, const T* inverse, int s, int column) {
  WF_UNROLL
  for (int block = 0; block < K::kHeld; ++block) {
    const int mk = Down ? block : K::kHeld - 1 - block;
    const int steps = (mk + 1) * K::kGroups <= K::kN ? K::kGroups : K::kN - mk * K::kGroups;
    WF_UNROLL_N(4)
    for (int step = 0; step < steps; ++step) {
      const int sk = Down ? step : steps - 1 - step, k = mk * K::kGroups + sk;
      T t = share<K::kG>(x[mk], sk * K::kAcross + column);
      if constexpr (Divide) {
        t = quotient_by(t, a[k * K::kP + k], inverse[k]);
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

// As sweep upwards with division, for one right-hand side: each lane keeps the diagonal d of its rows and its reciprocal
// v, and divides before the quotient is shared.
template <typename K, bool Across, typename T>
WF_DEVICE void sweep_own(T (&x)[K::kHeld], const T (&d)[K::kHeld], const T (&v)[K::kHeld], const T* a, int s) {
  WF_UNROLL
  for (int block = 0; block < K::kHeld; ++block) {
    const int mk = K::kHeld - 1 - block;
    const int steps = (mk + 1) * K::kGroups <= K::kN ? K::kGroups : K::kN - mk * K::kGroups;
    WF_UNROLL_N(8)
    for (int step = 0; step < steps; ++step) {
      const int sk = steps - 1 - step, k = mk * K::kGroups + sk;
      const T mine = quotient_by(x[mk], d[mk], v[mk], s == sk);
      const T t = share<K::kG>(mine, sk);
      x[mk] = s == sk ? mine : x[mk];
      WF_UNROLL
      for (int m = 0; m < K::kHeld; ++m) {
        if (m > mk) continue;
        const int r = m * K::kGroups + s;
        if (m < mk || s < sk) x[m] = sub(x[m], mul(a[Across ? k * K::kP + r : r * K::kP + k], t));
      }
    }
  }
}

// The reciprocals of the diagonal, one lane of the system each.
template <typename K, typename T>
WF_DEVICE void invert_diagonal(const T* a, T* inverse, int g) {
  WF_UNROLL
  for (int m = 0; m < K::kRows; ++m) {
    const int i = m * K::kG + g;
    if (i < K::kN) inverse[i] = reciprocal_of(a[i * K::kP + i]);
  }
}

}  // namespace wf
