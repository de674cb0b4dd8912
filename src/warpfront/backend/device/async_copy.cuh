// Copies from global to shared memory that do not pass through registers.
//
// cp.async (sm_80): each thread copies 4, 8 or 16 bytes; a group is what a thread issued since its last
// commit. A thread's wait covers its own groups only: a barrier after it makes them visible to the block.
// cp.async.bulk (sm_90): one thread copies a run of a multiple of 16 bytes; it completes on an mbarrier,
// whose wait makes the bytes visible to whoever waited.
#pragma once
#include "types.cuh"

namespace wf {

#ifndef WARPFRONT_SIMT
WF_DEVICE u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }
#endif

#if WF_ARCH >= 800

// Bytes of the 16 beyond `valid` are written as zero; nothing is read past `valid`.
WF_DEVICE void cp_async16(void* shared, const void* global, u32 valid = 16) {
#ifdef WARPFRONT_SIMT
  simt::cp_async(shared, global, 16, valid);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(shared_address(shared)), "l"(global), "r"(valid) : "memory");
#endif
}

template <int Bytes>
WF_DEVICE void cp_async_small(void* shared, const void* global) {
  static_assert(Bytes == 4 || Bytes == 8, "cp.async moves 4, 8 or 16 bytes");
#ifdef WARPFRONT_SIMT
  simt::cp_async(shared, global, Bytes, Bytes);
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" : : "r"(shared_address(shared)), "l"(global), "n"(Bytes) : "memory");
#endif
}

WF_DEVICE void cp_async_commit() {
#ifdef WARPFRONT_SIMT
  simt::cp_async_commit();
#else
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

// Wait until at most Pending of this thread's groups are in flight.
template <int Pending>
WF_DEVICE void cp_async_wait() {
#ifdef WARPFRONT_SIMT
  simt::cp_async_wait(Pending);
#else
  asm volatile("cp.async.wait_group %0;" : : "n"(Pending) : "memory");
#endif
}

#endif  // WF_ARCH >= 800

#if WF_ARCH >= 900

WF_DEVICE void mbar_init(u64* bar, u32 arrivals) {
#ifdef WARPFRONT_SIMT
  simt::mbar_init(bar, arrivals);
#else
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(shared_address(bar)), "r"(arrivals) : "memory");
  // Makes the initialised barrier visible to the copy engine.
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
#endif
}

// Arrive once and announce `bytes` of bulk copies.
WF_DEVICE void mbar_expect(u64* bar, u32 bytes) {
#ifdef WARPFRONT_SIMT
  simt::mbar_expect(bar, bytes);
#else
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" : : "r"(shared_address(bar)), "r"(bytes) : "memory");
#endif
}

WF_DEVICE void mbar_arrive(u64* bar) {
#ifdef WARPFRONT_SIMT
  simt::mbar_arrive(bar);
#else
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" : : "r"(shared_address(bar)) : "memory");
#endif
}

WF_DEVICE void mbar_wait(u64* bar, u32 parity) {
#ifdef WARPFRONT_SIMT
  simt::mbar_wait(bar, parity);
#else
  u32 done;
  do {
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(shared_address(bar)), "r"(parity) : "memory");
  } while (!done);
#endif
}

WF_DEVICE void bulk_load(void* shared, const void* global, u32 bytes, u64* bar) {
#ifdef WARPFRONT_SIMT
  simt::bulk_load(shared, global, bytes, bar);
#else
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               : : "r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(bar)) : "memory");
#endif
}

WF_DEVICE void bulk_store(void* global, const void* shared, u32 bytes) {
#ifdef WARPFRONT_SIMT
  simt::bulk_store(global, shared, bytes);
#else
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               : : "l"(global), "r"(shared_address(shared)), "r"(bytes) : "memory");
#endif
}

WF_DEVICE void bulk_commit() {
#ifdef WARPFRONT_SIMT
  simt::bulk_commit();
#else
  asm volatile("cp.async.bulk.commit_group;" : : : "memory");
#endif
}

// Wait until the shared memory of all but Pending of this thread's bulk stores has been read.
template <int Pending>
WF_DEVICE void bulk_wait_read() {
#ifdef WARPFRONT_SIMT
  simt::bulk_wait(Pending);
#else
  asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(Pending) : "memory");
#endif
}

// Each thread whose ordinary shared-memory stores a bulk copy will read calls this, then a barrier, then the
// copy is issued.
WF_DEVICE void fence_proxy_async() {
#ifdef WARPFRONT_SIMT
  simt::fence_proxy_async();
#else
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}

#endif  // WF_ARCH >= 900

}  // namespace wf
