// Atomics and fences. CUDA's `atomicX` are relaxed at device scope; the ordered forms are for the twins of
// `ld.acquire`, `st.release`, `red`/`atom` with an order. A release store and the acquire load that reads it are an edge;
// so is a fence before a relaxed write paired with a relaxed read before a fence.
#pragma once

namespace simt {
template <typename T> constexpr int atomic_type() {
  if (std::is_same<T, float>::value) return ty_f32;
  if (std::is_same<T, double>::value) return ty_f64;
  if (sizeof(T) == 4) return std::is_signed<T>::value ? ty_i32 : ty_u32;
  return std::is_signed<T>::value ? ty_i64 : ty_u64;
}
template <typename T>
SIMT_INLINE T atomic(T *p, T v, T compare, AtomicOp op, int order = relaxed, int scope = gpu) {
  static_assert((sizeof(T) == 4 || sizeof(T) == 8) && std::is_arithmetic<T>::value, "atomics take 4 or 8 byte numbers");
  return from_bits<T>(simt_atomic(p, to_bits(v), to_bits(compare), op, atomic_type<T>(), order, scope));
}
template <typename T> SIMT_INLINE T load(const T *p, int order, int scope) {
  return from_bits<T>(simt_load(p, sizeof(T), order, scope));
}
template <typename T> SIMT_INLINE void store(T *p, T v, int order, int scope) {
  simt_store(p, to_bits(v), sizeof(T), order, scope);
}
template <typename T> SIMT_INLINE T relaxed_load(const T *p) { return load(p, relaxed, gpu); }
template <typename T> SIMT_INLINE T acquire_load(const T *p) { return load(p, acquire, gpu); }
template <typename T> SIMT_INLINE void relaxed_store(T *p, typename std::common_type<T>::type v) { store(p, v, relaxed, gpu); }
template <typename T> SIMT_INLINE void release_store(T *p, typename std::common_type<T>::type v) { store(p, v, release, gpu); }
template <typename T> SIMT_INLINE T atomic_add_acq_rel(T *p, typename std::common_type<T>::type v) {
  return atomic<T>(p, v, T(0), at_add, acq_rel, gpu);
}
}  // namespace simt

// Arguments that only convert to T follow the pointer's type, as CUDA's overloads do.
template <typename T> struct simt_same { using type = T; };
#define SIMT_ATOMIC(name, op)                                                                                       \
  template <typename T> SIMT_INLINE T name(T *p, typename simt_same<T>::type v) {                                    \
    return simt::atomic<T>(p, v, T(0), simt::op);                                                                    \
  }                                                                                                                  \
  template <typename T> SIMT_INLINE T name##_block(T *p, typename simt_same<T>::type v) {                            \
    return simt::atomic<T>(p, v, T(0), simt::op, simt::relaxed, simt::cta);                                          \
  }                                                                                                                  \
  template <typename T> SIMT_INLINE T name##_system(T *p, typename simt_same<T>::type v) {                           \
    return simt::atomic<T>(p, v, T(0), simt::op, simt::relaxed, simt::sys);                                          \
  }
SIMT_ATOMIC(atomicAdd, at_add)
SIMT_ATOMIC(atomicSub, at_sub)
SIMT_ATOMIC(atomicMin, at_min)
SIMT_ATOMIC(atomicMax, at_max)
SIMT_ATOMIC(atomicAnd, at_and)
SIMT_ATOMIC(atomicOr, at_or)
SIMT_ATOMIC(atomicXor, at_xor)
SIMT_ATOMIC(atomicExch, at_exch)
SIMT_ATOMIC(atomicInc, at_inc)
SIMT_ATOMIC(atomicDec, at_dec)
#undef SIMT_ATOMIC
template <typename T>
SIMT_INLINE T atomicCAS(T *p, typename simt_same<T>::type compare, typename simt_same<T>::type v) {
  return simt::atomic<T>(p, v, compare, simt::at_cas);
}
template <typename T>
SIMT_INLINE T atomicCAS_block(T *p, typename simt_same<T>::type compare, typename simt_same<T>::type v) {
  return simt::atomic<T>(p, v, compare, simt::at_cas, simt::relaxed, simt::cta);
}
SIMT_INLINE void __threadfence_block() { simt_fence(simt::cta); }
SIMT_INLINE void __threadfence() { simt_fence(simt::gpu); }
SIMT_INLINE void __threadfence_system() { simt_fence(simt::sys); }
