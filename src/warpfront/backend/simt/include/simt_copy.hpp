// Twins of asynchronous copies. The copy is made when its wait is reached, and until then its destination counts as
// unwritten: a kernel that reads early, or drops the wait, reads poison and is reported.
#pragma once

namespace simt {
SIMT_INLINE void cp_async(void *shared, const void *global, unsigned bytes, unsigned valid) {
  simt_copy(shared, global, bytes, valid, 0);
}
SIMT_INLINE void cp_async_commit() { simt_copy_commit(0); }
SIMT_INLINE void cp_async_wait(int pending) { simt_copy_wait(pending, 0); }
SIMT_INLINE void bulk_store(void *global, const void *shared, unsigned bytes) { simt_copy(global, shared, bytes, bytes, 1); }
SIMT_INLINE void bulk_commit() { simt_copy_commit(1); }
SIMT_INLINE void bulk_wait(int pending) { simt_copy_wait(pending, 1); }
SIMT_INLINE void bulk_load(void *shared, const void *global, unsigned bytes, unsigned long long *bar) {
  simt_bulk_load(shared, global, bytes, bar);
}
SIMT_INLINE void mbar_init(unsigned long long *bar, unsigned count) { simt_mbar_init(bar, count); }
SIMT_INLINE void mbar_expect(unsigned long long *bar, unsigned bytes) { simt_mbar_arrive(bar, bytes); }
SIMT_INLINE void mbar_arrive(unsigned long long *bar) { simt_mbar_arrive(bar, 0); }
SIMT_INLINE void mbar_wait(unsigned long long *bar, unsigned parity) { simt_mbar_wait(bar, parity); }
// The proxies are one memory here: a missing proxy fence is not seen (docs/proof.md).
SIMT_INLINE void fence_proxy_async() {}
}  // namespace simt
