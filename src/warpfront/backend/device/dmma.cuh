// FP64 tensor-core products, one warp each: D = A B + C.
//
// Fragments (PTX ISA, "Warp-level matrix instructions"), with g = lane / 4 and t = lane % 4:
//   m8n8k4   : a = A[g][t], b = B[t][g], c[i] = C[g][2 t + i]
//   m16n8k16 : a[2 j + i] = A[g + 8 i][t + 4 j], b[j] = B[t + 4 j][g],
//              c[2 i + h] = C[g + 8 i][2 t + h], with i, h < 2 and j < 4
// Host twin: the operands travel by shuffle; the products are added with fused multiply-adds in order of k.
// The order inside the hardware's unit is not specified, so the twin proves layout and data flow; the last
// bits may differ.
#pragma once
#include "types.cuh"
#include "warp.cuh"

namespace wf {

#if WF_ARCH >= 800
// Compute capability 8.0 and newer.
WF_DEVICE void dmma_m8n8k4(double (&c)[2], double a, double b) {
#ifdef WARPFRONT_SIMT
  const int g = lane_id() / 4, t = lane_id() % 4;
  for (int k = 0; k < 4; ++k) {
    const double x = __shfl_sync(kFullMask, a, 4 * g + k);
    for (int i = 0; i < 2; ++i) {
      const double y = __shfl_sync(kFullMask, b, 4 * (2 * t + i) + k);
      c[i] = fma(x, y, c[i]);
    }
  }
#else
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(c[0]), "+d"(c[1]) : "d"(a), "d"(b));
#endif
}
#endif

#if WF_ARCH >= 900
// Compute capability 9.0 and newer; twice the rate of m8n8k4 there.
WF_DEVICE void dmma_m16n8k16(double (&c)[4], const double (&a)[8], const double (&b)[4]) {
#ifdef WARPFRONT_SIMT
  const int g = lane_id() / 4, t = lane_id() % 4;
  for (int k = 0; k < 16; ++k) {
    double x[2], y[2];
    for (int i = 0; i < 2; ++i) x[i] = __shfl_sync(kFullMask, a[2 * (k / 4) + i], 4 * g + k % 4);
    for (int h = 0; h < 2; ++h) y[h] = __shfl_sync(kFullMask, b[k / 4], 4 * (2 * t + h) + k % 4);
    for (int i = 0; i < 2; ++i)
      for (int h = 0; h < 2; ++h) c[2 * i + h] = fma(x[i], y[h], c[2 * i + h]);
  }
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
        "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
#endif
}
#endif

}  // namespace wf
