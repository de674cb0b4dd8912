// Barriers and warp collectives. Only `__syncthreads`, `__syncwarp` and named barriers order
// memory; shuffles, votes, matches and reductions do not (CUDA C++ Programming Guide, warp shuffle and vote functions).
#pragma once

SIMT_INLINE void __syncthreads() { simt_syncthreads(0, 0); }
SIMT_INLINE int __syncthreads_count(int p) { return simt_syncthreads(1, p); }
SIMT_INLINE int __syncthreads_and(int p) { return simt_syncthreads(2, p); }
SIMT_INLINE int __syncthreads_or(int p) { return simt_syncthreads(3, p); }
SIMT_INLINE void __syncwarp(unsigned mask = 0xffffffffu) { simt_syncwarp(mask); }
SIMT_INLINE unsigned __activemask() { return simt_activemask(); }

namespace simt {
template <typename T> SIMT_INLINE std::uint64_t to_bits(T v) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "warp and atomic operands have at most 8 bytes");
  if constexpr (sizeof(T) == 8) return __builtin_bit_cast(std::uint64_t, v);
  else if constexpr (sizeof(T) == 4) return __builtin_bit_cast(std::uint32_t, v);
  else if constexpr (sizeof(T) == 2) return __builtin_bit_cast(std::uint16_t, v);
  else return __builtin_bit_cast(std::uint8_t, v);
}
template <typename T> SIMT_INLINE T from_bits(std::uint64_t v) {
  if constexpr (sizeof(T) == 8) return __builtin_bit_cast(T, v);
  else if constexpr (sizeof(T) == 4) return __builtin_bit_cast(T, static_cast<std::uint32_t>(v));
  else if constexpr (sizeof(T) == 2) return __builtin_bit_cast(T, static_cast<std::uint16_t>(v));
  else return __builtin_bit_cast(T, static_cast<std::uint8_t>(v));
}
// Every lane of `mask` gives `mine`; `all[k]` is lane k's value (lanes outside the mask: poison). For twins of
// warp-wide instructions (matrix multiply-accumulate, ldmatrix). Orders no memory, as those do not.
template <typename T> SIMT_INLINE void gather(unsigned mask, const T &mine, T (&all)[32]) {
  simt_gather(mask, &mine, all, sizeof(T));
}
SIMT_INLINE void barrier_sync(int id, int threads) { simt_barrier(id, threads, 0); }
SIMT_INLINE void barrier_arrive(int id, int threads) { simt_barrier(id, threads, 1); }
SIMT_INLINE unsigned lane() { return simt_lane(); }
SIMT_INLINE unsigned char *dynamic_shared() { return static_cast<unsigned char *>(simt_dynamic_shared()); }
SIMT_INLINE void spin() { simt_yield(); }
}  // namespace simt

template <typename T> SIMT_INLINE T __shfl_sync(unsigned mask, T v, int lane, int width = 32) {
  return simt::from_bits<T>(simt_shfl(mask, simt::to_bits(v), lane, width, simt::shfl_idx));
}
template <typename T> SIMT_INLINE T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
  return simt::from_bits<T>(simt_shfl(mask, simt::to_bits(v), static_cast<int>(delta), width, simt::shfl_up));
}
template <typename T> SIMT_INLINE T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
  return simt::from_bits<T>(simt_shfl(mask, simt::to_bits(v), static_cast<int>(delta), width, simt::shfl_down));
}
template <typename T> SIMT_INLINE T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32) {
  return simt::from_bits<T>(simt_shfl(mask, simt::to_bits(v), lanes, width, simt::shfl_xor));
}
SIMT_INLINE unsigned __ballot_sync(unsigned mask, int p) {
  return static_cast<unsigned>(simt_vote(mask, p != 0, simt::vote_ballot, 4));
}
SIMT_INLINE int __any_sync(unsigned mask, int p) { return static_cast<int>(simt_vote(mask, p != 0, simt::vote_any, 4)); }
SIMT_INLINE int __all_sync(unsigned mask, int p) { return static_cast<int>(simt_vote(mask, p != 0, simt::vote_all, 4)); }
template <typename T> SIMT_INLINE unsigned __match_any_sync(unsigned mask, T v) {
  return static_cast<unsigned>(simt_vote(mask, simt::to_bits(v), simt::vote_match_any, sizeof(T)));
}
template <typename T> SIMT_INLINE unsigned __match_all_sync(unsigned mask, T v, int *same) {
  const bool all = static_cast<unsigned>(simt_vote(mask, simt::to_bits(v), simt::vote_match_any, sizeof(T))) == mask;
  *same = all;
  return all ? mask : 0u;
}
#define SIMT_REDUCE(name, op_u, op_s)                                                                                \
  SIMT_INLINE unsigned name(unsigned mask, unsigned v) { return static_cast<unsigned>(simt_vote(mask, v, op_u, 4)); } \
  SIMT_INLINE int name(unsigned mask, int v) {                                                                       \
    return static_cast<int>(simt_vote(mask, static_cast<unsigned>(v), op_s, 4));                                     \
  }
SIMT_REDUCE(__reduce_add_sync, simt::vote_add, simt::vote_add)
SIMT_REDUCE(__reduce_min_sync, simt::vote_min_u, simt::vote_min_s)
SIMT_REDUCE(__reduce_max_sync, simt::vote_max_u, simt::vote_max_s)
SIMT_REDUCE(__reduce_and_sync, simt::vote_and, simt::vote_and)
SIMT_REDUCE(__reduce_or_sync, simt::vote_or, simt::vote_or)
SIMT_REDUCE(__reduce_xor_sync, simt::vote_xor, simt::vote_xor)
#undef SIMT_REDUCE
