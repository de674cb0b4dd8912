// What g++ -fsanitize=thread calls at each access of the kernel file. The runtime itself is built without it.
#pragma once
#include "launch.hpp"

#define SIMT_ON(name, size, flags) \
  void __tsan_##name(void *p) { rt::access_at(p, size, flags, SIMT_PC); }
#define SIMT_ON_BOTH(size)                                        \
  SIMT_ON(read##size, size, 0)                                    \
  SIMT_ON(write##size, size, rt::af_write)                        \
  SIMT_ON(unaligned_read##size, size, 0)                          \
  SIMT_ON(unaligned_write##size, size, rt::af_write)              \
  SIMT_ON_VOLATILE(size)
// A volatile access is a relaxed one at system scope (PTX ISA, memory consistency model, volatile operations).
#define SIMT_ON_VOLATILE(size)                                                           \
  void __tsan_volatile_read##size(void *p) { rt::volatile_read(p, size, SIMT_PC); }      \
  void __tsan_volatile_write##size(void *p) { rt::volatile_write(p, size, SIMT_PC); }    \
  void __tsan_unaligned_volatile_read##size(void *p) { rt::volatile_read(p, size, SIMT_PC); } \
  void __tsan_unaligned_volatile_write##size(void *p) { rt::volatile_write(p, size, SIMT_PC); }

namespace rt {
static bool is_local(const void *p) {
  return !cur || reinterpret_cast<uptr>(p) - reinterpret_cast<uptr>(cur->stack) < stack_bytes;
}
static void volatile_read(void *p, u32 size, u32 pc) {
  if (is_local(p)) return;
  yield_now(cur, true);
  access_at(p, size, af_atomic, pc);
  read_side(cur, sync_var(p), simt::relaxed, simt::sys);
}
static void volatile_write(void *p, u32 size, u32 pc) {
  if (is_local(p)) return;
  access_at(p, size, af_atomic | af_write, pc);
  write_side(cur, &sync_var(p), simt::relaxed, simt::sys, false);
}
}  // namespace rt

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
SIMT_ON_BOTH(1)
SIMT_ON_BOTH(2)
SIMT_ON_BOTH(4)
SIMT_ON_BOTH(8)
SIMT_ON_BOTH(16)
void __tsan_vptr_read(void *) {}
void __tsan_vptr_update(void *, void *) {}
void __tsan_read_range(void *p, std::size_t n) { rt::access_at(p, static_cast<rt::u32>(n), 0, SIMT_PC); }
void __tsan_write_range(void *p, std::size_t n) { rt::access_at(p, static_cast<rt::u32>(n), rt::af_write, SIMT_PC); }
// Calls the compiler makes for large copies; the build renames them in the assembly.
void *simt_memcpy(void *to, const void *from, std::size_t n) {
  if (n) rt::access_at(from, static_cast<rt::u32>(n), 0, SIMT_PC);
  if (n) rt::access_at(to, static_cast<rt::u32>(n), rt::af_write, SIMT_PC);
  return std::memmove(to, from, n);
}
void *simt_memmove(void *to, const void *from, std::size_t n) {
  if (n) rt::access_at(from, static_cast<rt::u32>(n), 0, SIMT_PC);
  if (n) rt::access_at(to, static_cast<rt::u32>(n), rt::af_write, SIMT_PC);
  return std::memmove(to, from, n);
}
void *simt_memset(void *to, int value, std::size_t n) {
  if (n) rt::access_at(to, static_cast<rt::u32>(n), rt::af_write, SIMT_PC);
  return std::memset(to, value, n);
}
}
