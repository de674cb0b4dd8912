// What the packed kernels of this folder share: layout, copies past the registers, arithmetic without branches.
//
// Quotients and roots are computed by short forms that equal IEEE's as long as their operands keep away from the ends of
// the range. Whether they did is gathered on the way (`doubt`) and judged once, at the end: a warp that cannot vouch for
// one of its systems does its work again in the plain way. So the ordinary way has no branch, and the bits are
// always those of the recurrence.
#pragma once
#include "async_copy.cuh"
#include "small.cuh"

namespace wf {

// One block is one warp; it owns kSystems = 32 / G systems, G lanes each. Lane g of a system owns its rows g, g + G, ...
// Shared words of a system: rows of kWhole words (N up to a multiple of 16 bytes) at pitch P, systems S apart. 16-byte
// chunks of eight neighbouring rows fall into different banks: P is an odd number of chunks, or (kSwizzled) a multiple
// of eight, and row r keeps chunk q at q ^ r % 8.
// Stage: columns for which a factorisation runs in a loop; the code shrinks from stage to stage.
template <typename T, int N, int R, int G, int P, int S, int Stage>
struct tile {
  static constexpr int kN = N, kR = R, kG = G, kP = P, kS = S;
  static constexpr int kSystems = kWarp / G, kRows = (N + G - 1) / G;
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  static constexpr int kWhole = (N + kChunk - 1) / kChunk * kChunk;
  static constexpr bool kAligned = N % kChunk == 0;
  static constexpr bool kSwizzled = P == kWhole && P / kChunk % 8 == 0;
  // A single right-hand side is spread over the rows' lanes; of several a lane has whole columns, kExtra of them.
  static constexpr bool kCarried = R == 1;
  static constexpr int kExtra = R > 1 ? (R + G - 1) / G : 0;
  // Words of a system's right-hand sides; systems G words apart in the banks.
  static constexpr int kRight = N * R + (R > 1 && N * R % 32 == 0 ? G : 0);
  // A line: the pivot's column or row, then a chunk for what a carried right-hand side has there.
  static constexpr int kLong = kRows * G > kWhole ? (kRows * G + kChunk - 1) / kChunk * kChunk : kWhole;
  static constexpr int kLine = kLong + (kCarried ? kChunk : 0);
  // Words from one system's `count` lines to the next system's: systems lie G words of four bytes apart in the banks, one
  // way or the other, so broadcasts of all systems meet in none, and stores of neighbouring lanes in float32 neither.
  static WF_DEVICE constexpr int lines(int count) {
    const int unit = static_cast<int>(sizeof(T)) / 4, apart = G > 4 ? G : 4;
    int words = count * kLine * unit;
    while (kSystems > 1 && words % 32 != apart && words % 32 != 32 - apart) words += 4;
    return words / unit;
  }
  // Words from one system's reciprocals (one to a row) to the next system's.
  static constexpr int kInverses = N | 1;
  static constexpr int kStage = Stage;
  // Words of a block.
  static constexpr int kMatrices = (kSystems - 1) * S + N * P, kRights = R > 0 ? (kSystems - 1) * kRight + N * R : 1;
  static_assert(P % kChunk == 0 && P >= kWhole && (P / kChunk % 2 == 1 || P / kChunk % 8 == 0) && S % kChunk == 0 &&
                    S >= N * P && (G & (G - 1)) == 0 && G <= kWarp && G % Stage == 0 && Stage % kChunk == 0, "layout");
  // Columns that lane rows m * G .. m * G + G - 1 of a lower triangle have.
  static WF_DEVICE constexpr int columns(int m) { return (m + 1) * G < N ? (m + 1) * G : N; }
  static WF_DEVICE int at(int row, int column) { return row * P + (kSwizzled ? column ^ row % 8 * kChunk : column); }
  // at(row, m * G + g), with what is known at compile time apart from what is not.
  static WF_DEVICE int across(int row, int m, int g) {
    const int turn = kSwizzled ? row % 8 * kChunk : 0;
    return row * P + ((m * G) ^ (turn & ~(G - 1))) + (g ^ (turn & (G - 1)));
  }
};

WF_DEVICE vec16 zero16() {
  vec16 v;
  WF_UNROLL
  for (int i = 0; i < 4; ++i) v.w[i] = 0;
  return v;
}

// The larger; NaN if one of them is.
WF_DEVICE float nan_larger(float a, float b) {
#ifdef WARPFRONT_SIMT
  return a != a || b != b ? __int_as_float(0x7fffffff) : fmaxf(a, b);
#else
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#endif
}
WF_DEVICE double nan_larger(double a, double b) { return a != a ? a : b != b || b > a ? b : a; }

template <int G, typename T>
WF_DEVICE T group_nan_max(T v) {
  WF_UNROLL
  for (int d = G / 2; d > 0; d >>= 1) v = nan_larger(v, __shfl_xor_sync(kFullMask, v, d));
  return v;
}

// 1 / sqrt(p) and 1 / d, roughly: float within two units in the last place, double some twenty bits.
#ifdef WARPFRONT_SIMT
WF_DEVICE float near_root(float p) { return 1.0f / sqrtf(p); }
WF_DEVICE double near_root(double p) { return 1.0 / sqrt(p); }
WF_DEVICE float near_reciprocal(float d) { return 1.0f / d; }
WF_DEVICE double near_reciprocal(double d) { return 1.0 / d; }
#else
WF_DEVICE float near_root(float p) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(p));
  return r;
}
WF_DEVICE double near_root(double p) {
  double r;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(p));
  return r;
}
WF_DEVICE float near_reciprocal(float d) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return r;
}
WF_DEVICE double near_reciprocal(double d) {
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(d));
  return r;
}
#endif

// What may have left the range in which the short forms equal IEEE's.
template <typename T>
struct doubt {
  u32 least, most;  // least numerator; a divisor's or pivot's greatest distance from the range's lower end
  bool odd;
  T poison;
};
template <typename T>
WF_DEVICE doubt<T> no_doubt() {
  doubt<T> d;
  d.least = 0xffffffffu, d.most = 0, d.odd = false, d.poison = T(0);
  return d;
}

// v, or the reciprocal of a d > 0 whose mantissa is all ones, which Newton's iteration misses: (1 + 2^-23) / 2 of its power of
// two. Known at once in float: one such pivot in a batch would have a warp begin again when others have finished.
WF_DEVICE float unless_all_ones(float d, float v) {
  const u32 u = __float_as_uint(d);
  return (u & 0x7fffffu) == 0x7fffffu ? __uint_as_float(0x7f000000u - u) : v;
}

// d = sqrt(p), v = 1 / d. The root is what compilers make of it in this range: one correction of p / sqrt(p). The
// reciprocal is Newton's iteration from the same start, twice; it is the IEEE one for every d whose mantissa is not all
// ones (float: tried for all mantissas and starts up to four units off).
WF_DEVICE void root_and_reciprocal(float p, float& d, float& v, doubt<float>& doubts) {
  const u32 u = __float_as_uint(p);
  const float y = near_root(p), g = mul(p, y), h = mul(y, 0.5f);
  d = fused(fused(-g, g, p), h, g);
  const float z = fused(fused(-d, y, 1.0f), y, y);
  v = unless_all_ones(d, fused(fused(-d, z, 1.0f), z, z));
  doubts.most = max_of(doubts.most, u - (47u << 23));  // 2^-80 <= p < 2^80
}
WF_DEVICE u32 high_word(double x) { return static_cast<u32>(static_cast<u64>(__double_as_longlong(x)) >> 32); }
WF_DEVICE bool is_all_ones(double x) {
  constexpr u64 mantissa = 0xfffffffffffffull;
  return (static_cast<u64>(__double_as_longlong(x)) & mantissa) == mantissa;
}
WF_DEVICE void root_and_reciprocal(double p, double& d, double& v, doubt<double>& doubts) {
  const double s = near_root(p), e = fused(p, -mul(s, s), 1.0), y = fused(fused(e, 0.375, 0.5), mul(e, s), s);
  const double g = mul(p, y), h = mul(y, 0.5);
  d = fused(fused(-g, g, p), h, g);
  const double z = fused(fused(-d, y, 1.0), y, y);
  v = fused(fused(-d, z, 1.0), z, z);
  doubts.most = max_of(doubts.most, high_word(p) - (623u << 20));  // 2^-400 <= p < 2^400
  doubts.odd = doubts.odd || is_all_ones(d);
}

// size = |d|, v = 1 / |d|: Newton's iteration from an approximate reciprocal, likewise.
WF_DEVICE void reciprocal(float d, float& size, float& v, doubt<float>& doubts) {
  size = fabsf(d);
  const u32 u = __float_as_uint(size);
  const float y = near_reciprocal(size), z = fused(fused(-size, y, 1.0f), y, y);
  v = unless_all_ones(size, fused(fused(-size, z, 1.0f), z, z));
  doubts.most = max_of(doubts.most, u - (47u << 23));
}
WF_DEVICE void reciprocal(double d, double& size, double& v, doubt<double>& doubts) {
  size = fabs(d);
  const double s = near_reciprocal(size), e = fused(-size, s, 1.0), y = fused(fused(e, e, e), s, s);
  v = fused(fused(-size, y, 1.0), y, y);
  // 2^-200 <= |d| < 2^200; twice the distance, so that one bound serves both.
  doubts.most = max_of(doubts.most, (high_word(size) - (823u << 20)) << 1);
  doubts.odd = doubts.odd || is_all_ones(size);
}

// t / d, v being 1 / d (see quotient_by). Zeros keep their sign: of -0 the remainder is +0, its product with v -0.
WF_DEVICE float over(float t, float d, float v, doubt<float>& doubts) {
  const u32 u = __float_as_uint(t);
  doubts.least = min_of(doubts.least, u + u - 1u);
  const float first = mul(t, v);
  return fused(-fused(first, d, -t), v, first);
}
WF_DEVICE double over(double t, double d, double v, doubt<double>& doubts) {
  const u64 u = static_cast<u64>(__double_as_longlong(t));
  const u32 high = static_cast<u32>(u >> 32), low = static_cast<u32>(u);
  doubts.least = min_of(doubts.least, high + high - (low == 0 ? 1u : 0u));
  const double first = mul(t, v);
  return fused(-fused(first, d, -t), v, first);
}

// No numerator but zero was below 2^-80 (2^-700); no pivot was out of its range; nothing became NaN or infinite.
WF_DEVICE bool is_sure(const doubt<float>& d) {
  return d.least >= (47u << 24) - 1u && d.most < 160u << 23 && !d.odd && d.poison == 0.0f;
}
WF_DEVICE bool is_sure(const doubt<double>& d) {
  return d.least >= (323u << 21) - 1u && d.most < 800u << 20 && !d.odd && d.poison == 0.0;
}
// Below it entries of a matrix make no quotient overflow while pivots keep their range: 2^80, 2^700.
WF_DEVICE bool is_moderate(float largest) { return largest < 1.2089258e+24f; }
WF_DEVICE bool is_moderate(double largest) { return largest < 5.2601359e+210; }

// Where chunk `lane` of pass i lies, 32 chunks to a pass, if a matrix is a whole number of passes.
template <typename K>
struct passes {
  static constexpr int kAcross = K::kAligned ? K::kN / K::kChunk : 1;
  static constexpr bool kWhole = K::kAligned && kWarp % kAcross == 0 && K::kN * kAcross % kWarp == 0;
  static constexpr int kTimes = K::kN * kAcross / kWarp;
  static WF_DEVICE int row(int i, int lane) { return i * (kWarp / kAcross) + lane / kAcross; }
  static WF_DEVICE int column(int lane) { return lane % kAcross * K::kChunk; }
};

// The block's matrices into shared memory, 16 bytes at a time past the registers where Vec (bases are multiples of 16)
// and N allow; zeros for systems beyond the batch. The caller waits for the copies.
template <typename K, bool Vec, typename T>
WF_DEVICE void load_matrices(T* matrix, const T* src, int present) {
  typedef passes<K> L;
  constexpr int N = K::kN, V = K::kChunk;
  const int lane = static_cast<int>(threadIdx.x);
  if constexpr (Vec && L::kWhole) {
    WF_UNROLL_N(1)
    for (int s = 0; s < K::kSystems; ++s) {
      const bool here = s < present;
      WF_UNROLL
      for (int i = 0; i < L::kTimes; ++i)
        cp_async16(matrix + s * K::kS + K::at(L::row(i, lane), L::column(lane)),
                   src + (here ? s * N * N + i * kWarp * V + lane * V : 0), here ? 16 : 0);
    }
  } else if constexpr (Vec && K::kAligned) {
    WF_UNROLL_N(4)
    for (int e = lane * V; e < K::kSystems * N * N; e += kWarp * V) {
      const bool here = e < present * N * N;
      cp_async16(matrix + e / (N * N) * K::kS + K::at(e % (N * N) / N, e % N), src + (here ? e : 0), here ? 16 : 0);
    }
  } else {
    WF_UNROLL_N(4)
    for (int e = lane; e < K::kSystems * N * N; e += kWarp)
      matrix[e / (N * N) * K::kS + K::at(e % (N * N) / N, e % N)] = e < present * N * N ? src[e] : T(0);
  }
}

template <typename K, bool Vec, typename T>
WF_DEVICE void load_right(T* right, const T* src, int present) {
  constexpr int M = K::kN * K::kR, V = K::kChunk;
  const int lane = static_cast<int>(threadIdx.x);
  if constexpr (M > 0 && Vec && M % V == 0) {
    WF_UNROLL_N(4)
    for (int e = lane * V; e < K::kSystems * M; e += kWarp * V) {
      const bool here = e < present * M;
      cp_async16(right + e / M * K::kRight + e % M, src + (here ? e : 0), here ? 16 : 0);
    }
  } else if constexpr (M > 0) {
    WF_UNROLL_N(4)
    for (int e = lane; e < K::kSystems * M; e += kWarp) right[e / M * K::kRight + e % M] = e < present * M ? src[e] : T(0);
  }
}

template <typename K, bool Vec, typename T>
WF_DEVICE void store_right(T* dst, const T* right, int present) {
  constexpr int M = K::kN * K::kR, V = K::kChunk;
  const int lane = static_cast<int>(threadIdx.x);
  if constexpr (M > 0 && Vec && M % V == 0) {
    WF_UNROLL_N(4)
    for (int e = lane * V; e < present * M; e += kWarp * V)
      store16_stream(dst + e, load16(right + e / M * K::kRight + e % M));
  } else if constexpr (M > 0) {
    WF_UNROLL_N(4)
    for (int e = lane; e < present * M; e += kWarp) dst[e] = right[e / M * K::kRight + e % M];
  }
}

// Elements of a row on their way out: zeros above the diagonal (within a chunk on the diagonal they are in shared memory
// already), or the upper triangle multiplied.
template <typename T, int V>
WF_DEVICE void read_lower(const T* from, int row, int column, T (&x)[V]) {
  WF_UNROLL
  for (int q = 0; q < V; ++q) x[q] = T(0);
  if (column > row) return;
  if constexpr (V > 1) unpack(load16(from), x);
  else x[0] = from[0];
}
template <typename T, int V>
WF_DEVICE void read_scaled(const T* from, int row, int column, T factor, T (&x)[V]) {
  if constexpr (V > 1) unpack(load16(from), x);
  else x[0] = from[0];
  WF_UNROLL
  for (int q = 0; q < V; ++q) x[q] = mul(x[q], column + q >= row ? factor : T(1));
}

// The block's matrices from shared to global memory; `factors`, one to a system, for upper triangles to be multiplied, or
// Lower.
template <typename K, bool Vec, bool Lower, typename T>
WF_DEVICE void store_matrices(T* dst, const T* matrix, const T* factors, int present) {
  typedef passes<K> L;
  constexpr int N = K::kN, V = Vec && K::kAligned ? K::kChunk : 1;
  const int lane = static_cast<int>(threadIdx.x);
  if constexpr (Vec && L::kWhole) {
    WF_UNROLL_N(1)
    for (int s = 0; s < present; ++s) {
      const T factor = Lower ? T(1) : factors[s];
      WF_UNROLL
      for (int i = 0; i < L::kTimes; ++i) {
        const int row = L::row(i, lane), column = L::column(lane);
        T x[V];
        if constexpr (Lower) read_lower(matrix + s * K::kS + K::at(row, column), row, column, x);
        else read_scaled(matrix + s * K::kS + K::at(row, column), row, column, factor, x);
        store16_stream(dst + s * N * N + i * kWarp * V + lane * V, packed(x));
      }
    }
  } else {
    WF_UNROLL_N(4)
    for (int e = lane * V; e < present * N * N; e += kWarp * V) {
      const int s = e / (N * N), row = e % (N * N) / N, column = e % N;
      T x[V];
      if constexpr (Lower) read_lower(matrix + s * K::kS + K::at(row, column), row, column, x);
      else read_scaled(matrix + s * K::kS + K::at(row, column), row, column, factors[s], x);
      if constexpr (V > 1) store16_stream(dst + e, packed(x));
      else dst[e] = x[0];
    }
  }
}

// Zeros for a system that failed.
template <typename K, typename T>
WF_DEVICE void clear_system(T* a, T* right, int g) {
  WF_UNROLL_N(1)
  for (int i = g; i < K::kN; i += K::kG)
    WF_UNROLL_N(1)
    for (int c = 0; c < K::kWhole; c += K::kChunk) store16(a + K::at(i, c), zero16());
  WF_UNROLL_N(1)
  for (int e = g; e < K::kN * K::kR; e += K::kG) right[e] = T(0);
}

}  // namespace wf
