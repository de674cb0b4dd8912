// Context switches: a fiber is a stack and a saved stack pointer. Callee-saved registers are all the C++ ABI asks for.
#pragma once
#include <sys/mman.h>

#include "state.hpp"
#ifdef SIMT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" void simt_switch(void **save, void *load);
extern "C" void simt_fiber_start();
#if defined(__x86_64__)
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.globl simt_fiber_start
.hidden simt_fiber_start
simt_fiber_start:
  xorl %ebp, %ebp
  call simt_fiber_main@PLT
  ud2
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
simt_switch:
  stp x29, x30, [sp, #-160]!
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #160
  ret
.globl simt_fiber_start
.hidden simt_fiber_start
simt_fiber_start:
  mov x29, xzr
  bl simt_fiber_main
  brk #1
)");
#else
#error "the SIMT runner has context switches for x86-64 and aarch64 only"
#endif

namespace rt {
struct StackPool {
  char *base;
  std::size_t count;
  std::vector<u32> free;
};
extern StackPool stacks;

inline bool reserve_stacks(std::size_t count) {
  if (stacks.count < count) {
    if (stacks.base) munmap(stacks.base, stacks.count * stack_bytes);
    void *p = mmap(nullptr, count * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    stacks.base = static_cast<char *>(p);
    stacks.count = count;
    // A guard below each stack: an overflow stops the process instead of changing another thread's locals.
    for (std::size_t k = 0; k < count; ++k) mprotect(stacks.base + k * stack_bytes, 4096, PROT_NONE);
  }
  stacks.free.clear();
  for (std::size_t k = stacks.count; k-- > 0;) stacks.free.push_back(static_cast<u32>(k));
  g.stacks_lo = reinterpret_cast<uptr>(stacks.base);
  g.stacks_size = stacks.count * stack_bytes;
  return true;
}
inline void release_stacks() {
  munmap(stacks.base, stacks.count * stack_bytes);
  stacks.base = nullptr;
  stacks.count = 0;
}
inline void start_fiber(Thread *t) {
  const u32 slot = stacks.free.back();
  stacks.free.pop_back();
  t->stack = stacks.base + slot * stack_bytes;
  void **top = reinterpret_cast<void **>(t->stack + stack_bytes - 64);
#if defined(__x86_64__)
  *--top = reinterpret_cast<void *>(&simt_fiber_start);
  for (int k = 0; k < 6; ++k) *--top = nullptr;
#else
  top -= 20;
  for (int k = 0; k < 20; ++k) top[k] = nullptr;
  top[1] = reinterpret_cast<void *>(&simt_fiber_start);  // x30
#endif
  t->sp = top;
}
inline void free_fiber(Thread *t) {
  stacks.free.push_back(static_cast<u32>((t->stack - stacks.base) / stack_bytes));
}
#ifdef SIMT_ASAN
extern void *main_fake;
extern const void *main_stack;
extern std::size_t main_stack_size;
inline void to_fiber(Thread *t) {
  __sanitizer_start_switch_fiber(&main_fake, t->stack, stack_bytes);
  simt_switch(&g.main_sp, t->sp);
  __sanitizer_finish_switch_fiber(main_fake, nullptr, nullptr);
}
inline void to_main(Thread *t) {
  __sanitizer_start_switch_fiber(t->state == st_done ? nullptr : &t->fake, main_stack, main_stack_size);
  simt_switch(&t->sp, g.main_sp);
  __sanitizer_finish_switch_fiber(t->fake, &main_stack, &main_stack_size);
}
#else
inline void to_fiber(Thread *t) { simt_switch(&g.main_sp, t->sp); }
inline void to_main(Thread *t) { simt_switch(&t->sp, g.main_sp); }
#endif
}  // namespace rt
