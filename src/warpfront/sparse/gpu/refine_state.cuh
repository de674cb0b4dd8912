// What the refinement knows of a right-hand side, and how blocks share maxima: integer atomics on the bits of non-negative
// numbers, whose result does not depend on order; NaN, whose bits are largest, wins.
#pragma once
#include "front.cuh"

namespace wf {

// Scalars of a factorisation (double): largest scaled entry, largest row sum.
enum : int { kLargest, kNorm };
// Refinement state of one right-hand side (double): running maxima, then what was decided. kSteps counts corrections; kWhich
// says which of two iterates is the better one where they change places (tree_solve.cu).
enum : int { kX, kR, kB, kComponent, kBest, kBestNormwise, kLast, kSteps, kGoOn, kImproved, kWhich, kStateSize = 16 };

WF_DEVICE double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }
WF_DEVICE double power_of_two(i32 e) { return __longlong_as_double(static_cast<i64>(e + 1023) << 52); }

WF_DEVICE void raise_to(double* slot, double v) {
  atomicMax(reinterpret_cast<unsigned long long*>(slot), static_cast<unsigned long long>(__double_as_longlong(v)));
}

// Largest of a block's values, raised into a slot. Barriers are block_max's.
WF_DEVICE void raise_block(double* slot, double v, double* scratch) {
  v = block_max(v, scratch);
  if (threadIdx.x == 0) raise_to(slot, v);
}

}  // namespace wf
