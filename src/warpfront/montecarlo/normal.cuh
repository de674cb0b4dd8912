// Words to normals, and powers of two.
//
// float64: the operations of `_normal_kernels.py`, in its order, with its coefficients: results have the CPU's bits
// (the file is compiled without contraction, every fused multiply-add is written out). float32: the special
// function unit's approximations; by the error bounds of the instruction set a normal is within 5e-6 of the exact one.
#pragma once
#include "philox.cuh"

namespace wf {

// Coefficients, constant term first. In constant memory: as literals, each would be put together from two moves.
__constant__ double kLog[8] = {-4.0, -1.333333333333353, -0.7999999999859692, -0.5714285752288646, -0.44444393955842004,
                               -0.3636727131230511, -0.3062485741276159, -0.29621374444152576};
__constant__ double kSin[7] = {1.5707963267948966, -0.6459640975062443, 0.07969262624603957, -0.004681754132282454,
                               0.00016044115029189453, -3.5986417551299964e-06, 5.633721075556274e-08};
__constant__ double kCos[8] = {1.0, -1.2337005501361697, 0.2536695079010466, -0.020863480763308004, 0.0009192602741467787,
                               -2.52020365582307e-05, 4.7106035813827195e-07, -6.320557297734941e-09};
__constant__ double kExp2[12] = {1.0, 0.6931471805599453, 0.24022650695910155, 0.055504108664819925, 0.009618129107588334,
                                 0.001333355814678982, 0.0001540353046251647, 1.5252733490053182e-05, 1.3215433088590364e-06,
                                 1.017819799974967e-07, 7.074105809748144e-09, 4.435285856334136e-10};
__constant__ double kCentreP[8] = {3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125,
                                   45921.953931549871457, 67265.770927008700853, 33430.575583588128105, 2509.0809287301226727};
__constant__ double kCentreQ[8] = {1.0, 42.313330701600911252, 687.18700749205790830, 5394.1960214247511077,
                                   21213.794301586595867, 39307.895800092710610, 28729.085735721942674, 5226.4952788528545610};
__constant__ double kTailP[8] = {1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
                                 1.27045825245236838258, 0.241780725177450611770, 0.0227238449892691845833,
                                 7.74545014278341407640e-4};
__constant__ double kTailQ[8] = {1.0, 2.05319162663775882187, 1.67638483018380384940, 0.689767334985100004550,
                                 0.148103976427480074590, 0.0151986665636164571966, 5.47593808499534494600e-4,
                                 1.05075007164441684324e-9};

template <int N>
WF_DEVICE double horner(const double (&c)[N], double x) {
  double p = c[N - 1];
  WF_UNROLL
  for (int k = N - 2; k >= 0; --k) p = fma(p, x, c[k]);
  return p;
}

// -2 ln u of u = (word + 1/2) / 2^32.
WF_DEVICE double minus_2_log(u32 word) {
  const double v = fma(static_cast<double>(word), 2.0, 1.0);
  const i64 i = __double_as_longlong(v) + (0x3FF0000000000000ll - 0x3FE6A09E667F3BCDll);
  const double e = static_cast<double>(static_cast<i32>(i >> 52) - (1023 + 33));
  const double m = __longlong_as_double((i & 0x000FFFFFFFFFFFFFll) + 0x3FE6A09E667F3BCDll);
  const double s = (m - 1.0) / (m + 1.0);
  return fma(e, -1.3862943611198906, s * horner(kLog, s * s));
}

// x with its sign turned where `negative` is 1.
WF_DEVICE double signed_by(double x, u32 negative) {
  return __longlong_as_double(__double_as_longlong(x) ^ static_cast<i64>(static_cast<u64>(negative) << 63));
}

WF_DEVICE void box_muller(u32 a, u32 b, double& z0, double& z1) {
  const double radius = sqrt(minus_2_log(a));
  const u32 turn = b + (1u << 29), quarter = turn >> 30;
  const double x = static_cast<double>(static_cast<i32>(turn & 0x3FFFFFFFu) - (1 << 29)) * 9.313225746154785e-10;
  const double t = x * x;
  const double sine = horner(kSin, t) * x, cosine = horner(kCos, t);
  const bool odd = quarter & 1u;
  // The cosine is negative in quarters 1 and 2, the sine in 2 and 3.
  z0 = signed_by(odd ? sine : cosine, (quarter + 1u) >> 1 & 1u) * radius;
  z1 = signed_by(odd ? cosine : sine, quarter >> 1 & 1u) * radius;
}

// AS 241 (Wichura, 1988).
WF_DEVICE double inverse_normal(u32 word, double) {
  const double q = (static_cast<double>(word) - 2147483647.5) * 2.3283064365386963e-10;
  if (fabs(q) <= 0.425) {
    const double r = fma(-q, q, 0.180625);
    return q * horner(kCentreP, r) / horner(kCentreQ, r);
  }
  const double tail = sqrt(0.5 * minus_2_log(q < 0.0 ? word : ~word)) - 1.6;
  const double z = horner(kTailP, tail) / horner(kTailQ, tail);
  return q < 0.0 ? -z : z;
}

// For |y| < 1020.
WF_DEVICE double exp2_of(double y) {
  const double shifted = y + 6755399441055744.0;
  const double p = horner(kExp2, y - (shifted - 6755399441055744.0));
  return __longlong_as_double(__double_as_longlong(p) +
                              static_cast<i64>(static_cast<u64>(__double_as_longlong(shifted)) << 52));
}

WF_DEVICE double held(double y) { return fmin(fmax(y, -1020.0), 1020.0); }
WF_DEVICE float held(float y) { return y; }

// The approximations of the special function unit, and their host twins: the correctly rounded functions.
#ifdef WARPFRONT_SIMT
WF_DEVICE float log2_near(float x) { return static_cast<float>(log2(static_cast<double>(x))); }
WF_DEVICE float sqrt_near(float x) { return sqrtf(x); }
WF_DEVICE float sin_near(float x) { return static_cast<float>(sin(static_cast<double>(x))); }
WF_DEVICE float cos_near(float x) { return static_cast<float>(cos(static_cast<double>(x))); }
WF_DEVICE float exp2_of(float x) { return static_cast<float>(exp2(static_cast<double>(x))); }
#else
#define WF_NEAR(name, instruction)                            \
  WF_DEVICE float name(float x) {                             \
    float y;                                                  \
    asm(instruction ".approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); \
    return y;                                                 \
  }
WF_NEAR(log2_near, "lg2")
WF_NEAR(sqrt_near, "sqrt")
WF_NEAR(sin_near, "sin")
WF_NEAR(cos_near, "cos")
WF_NEAR(exp2_of, "ex2")
#undef WF_NEAR
#endif

// u = (word + 1/2) / 2^32, rounded: in [2^-33, 1].
WF_DEVICE float radius_of(u32 word) {
  const float u = fmaf(static_cast<float>(word), 2.3283064365386963e-10f, 1.1641532182693481e-10f);
  // The logarithm of a number next to 1 may come out with the wrong sign.
  return sqrt_near(fabsf(-1.3862943611198906f * log2_near(u)));
}

WF_DEVICE void box_muller(u32 a, u32 b, float& z0, float& z1) {
  const float radius = radius_of(a);
  const float angle = static_cast<float>(static_cast<i32>(b)) * 1.4629180792671596e-09f;  // pi / 2^31
  z0 = radius * cos_near(angle);
  z1 = radius * sin_near(angle);
}

// The short form of AS 241, 1e-7.
WF_DEVICE float inverse_normal(u32 word, float) {
  const float q = fmaf(static_cast<float>(static_cast<i32>(word ^ 0x80000000u)), 2.3283064365386963e-10f, 1.1641532182693481e-10f);
  if (fabsf(q) <= 0.425f) {
    const float r = fmaf(-q, q, 0.180625f);
    const float p = fmaf(fmaf(fmaf(59.109374720f, r, 159.29113202f), r, 50.434271938f), r, 3.3871327179f);
    return q * p / fmaf(fmaf(fmaf(67.187563600f, r, 78.757757664f), r, 17.895169469f), r, 1.0f);
  }
  const float tail = 0.70710678118654752f * radius_of(q < 0.0f ? word : ~word) - 1.6f;
  const float p = fmaf(fmaf(fmaf(0.17023821103f, tail, 1.3067284816f), tail, 2.7568153900f), tail, 1.4234372777f);
  const float z = p / fmaf(fmaf(0.12021132975f, tail, 0.73700164250f), tail, 1.0f);
  return q < 0.0f ? -z : z;
}

// Four words to four normals: Box-Muller for words 0, 1 and 2, 3, or the quantile of each.
template <bool Quantile, typename T>
WF_DEVICE void normals(const words4& words, T (&z)[4]) {
  if constexpr (Quantile) {
    WF_UNROLL
    for (int j = 0; j < 4; ++j) z[j] = inverse_normal(words.w[j], T(0));
  } else {
    box_muller(words.w[0], words.w[1], z[0], z[1]);
    box_muller(words.w[2], words.w[3], z[2], z[3]);
  }
}

}  // namespace wf
