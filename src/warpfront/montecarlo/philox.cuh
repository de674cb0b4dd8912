// Random words on the device: Philox4x32-10 and scrambled Sobol points, the same words as `_normal_kernels.py`.
//
// Literature: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); Antonov and
// Saleev (1979), the Gray-code form of Sobol's points.
#pragma once
#include "types.cuh"

namespace wf {

struct words4 {
  u32 w[4];
};

// Both halves of a product of 32 bits. As one instruction with two results: from a 64-bit product the compiler makes
// the same instruction and an addition of zero to the upper half.
WF_DEVICE void mul_wide(u32 a, u32 b, u32& low, u32& high) {
#ifdef WARPFRONT_SIMT
  const u64 p = static_cast<u64>(a) * b;
  low = static_cast<u32>(p);
  high = static_cast<u32>(p >> 32);
#else
  asm("{\n\t.reg .u64 p;\n\tmul.wide.u32 p, %2, %3;\n\tmov.b64 {%0, %1}, p;\n\t}" : "=r"(low), "=r"(high) : "r"(a), "r"(b));
#endif
}

// The words of counter (block, step, stream) under a key of 64 bits.
WF_DEVICE words4 philox(u64 block, u32 step, u32 stream, u64 key) {
  u32 c0 = static_cast<u32>(block), c1 = static_cast<u32>(block >> 32), c2 = step, c3 = stream;
  u32 k0 = static_cast<u32>(key), k1 = static_cast<u32>(key >> 32);
  WF_UNROLL
  for (int round = 0; round < 10; ++round) {
    u32 low0, high0, low1, high1;
    mul_wide(c0, 0xD2511F53u, low0, high0);
    mul_wide(c2, 0xCD9E8D57u, low1, high1);
    c0 = high1 ^ c1 ^ k0;
    c2 = high0 ^ c3 ^ k1;
    c1 = low1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// One coordinate of the points 4 * block .. 4 * block + 3; `directions`: 32 scrambled direction numbers.
WF_DEVICE words4 sobol(u64 block, const u32* directions, u32 shift) {
  // They share all Gray-code bits but the lowest two.
  const u32 index = static_cast<u32>(block), gray = index ^ (index >> 1), odd = 0u - (index & 1u);
  u32 base = shift;
  WF_UNROLL_N(10)
  for (int bit = 0; bit < 30; ++bit) base ^= directions[bit + 2] & (0u - ((gray >> bit) & 1u));
  // Bit 1 is bit 1 of the point's number exclusive-or the lowest bit of the block.
  const u32 low = directions[0], first = base ^ (directions[1] & odd), second = base ^ (directions[1] & ~odd);
  return {{first, first ^ low, second ^ low, second}};
}

}  // namespace wf
