// Signals between blocks: acquire and release at device scope, epoch flags, a grid barrier.
//
// A flag holds the epoch it was last set for, so one array serves every launch or iteration without clearing:
// set for epoch e, it satisfies a wait for any epoch up to e. Whoever waits must be able to rely on the
// signalling block running: a grid that is resident as a whole (cooperative launch), or work handed out in
// dependency order.
#pragma once
#include "types.cuh"

namespace wf {

WF_DEVICE void release_store(u32* p, u32 v) {
#ifdef WARPFRONT_SIMT
  simt::release_store(p, v);
#else
  asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(p), "r"(v) : "memory");
#endif
}

WF_DEVICE u32 acquire_load(const u32* p) {
#ifdef WARPFRONT_SIMT
  return simt::acquire_load(p);
#else
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
#endif
}

WF_DEVICE void relaxed_store(u32* p, u32 v) {
#ifdef WARPFRONT_SIMT
  simt::relaxed_store(p, v);
#else
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(p), "r"(v) : "memory");
#endif
}

WF_DEVICE u32 relaxed_load(const u32* p) {
#ifdef WARPFRONT_SIMT
  return simt::relaxed_load(p);
#else
  u32 v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
#endif
}

WF_DEVICE u32 add_acq_rel(u32* p, u32 v) {
#ifdef WARPFRONT_SIMT
  return simt::atomic_add_acq_rel(p, v);
#else
  u32 old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  return old;
#endif
}

// Launches that begin before the one before them has ended (compute capability 9.0; `Kernel.launch` with ``early=True``). A kernel that
// is launched so may read what older work than that launch wrote; `grid_wait`, called by every thread of every block, returns when
// all launches before it have ended and what they wrote is visible. `grid_release`: once every block has called it or ended, the
// next early launch may begin. Elsewhere neither does anything, nor need it: launches follow one another.
WF_DEVICE void grid_wait() {
#if !defined(WARPFRONT_SIMT) && WF_ARCH >= 900
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

WF_DEVICE void grid_release() {
#if !defined(WARPFRONT_SIMT) && WF_ARCH >= 900
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

WF_DEVICE void spin() {
#ifdef WARPFRONT_SIMT
  simt::spin();
#endif
  // On the device a tight loop answers soonest: a signal takes 0.43 us, and nanosleep's shortest nap is of
  // that order.
}

// One thread of the producing block calls this after the barrier that ends the block's writes.
WF_DEVICE void signal_set(u32* flag, u32 epoch) { release_store(flag, epoch); }

// One thread of the consuming block waits; a barrier then lets the others read. Epochs wrap around.
WF_DEVICE void signal_wait(const u32* flag, u32 epoch) {
  while (static_cast<i32>(acquire_load(flag) - epoch) < 0) spin();
}

// Barrier over the whole grid: `counter` starts at 0 and is never cleared; `round` counts the barriers from
// 1. All threads of every block call it, and all blocks are resident.
WF_DEVICE void grid_barrier(u32* counter, u32 round) {
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    const u32 blocks = gridDim.x * gridDim.y * gridDim.z;
    add_acq_rel(counter, 1u);
    while (static_cast<i32>(acquire_load(counter) - round * blocks) < 0) spin();
  }
  __syncthreads();
}

}  // namespace wf
