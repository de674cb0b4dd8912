// What the runtime knows about a launch. One OS thread runs everything, so nothing here is synchronised.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "simt.hpp"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#undef assert
#undef __noinline__

namespace rt {
using u8 = std::uint8_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using uptr = std::uintptr_t;

// The numbers are part of the C interface; report.py names them.
enum Kind : int {
  k_race = 1, k_out_of_bounds, k_uninitialised, k_divergent_barrier, k_exit_before_barrier, k_missing_lane,
  k_shuffle_source, k_deadlock, k_misaligned, k_read_only, k_wild, k_foreign_local, k_trap, k_pending_copy,
};
enum Space : int { sp_global, sp_shared, sp_local, sp_other };
enum AccessFlags : u32 { af_write = 1, af_atomic = 2, af_async = 4 };

struct Finding {
  int kind, space;
  u32 pc, other_pc;  // offsets in the module; 0 where there is none
  int thread, other_thread;
  u32 flags, other_flags, size, mask;
  u64 address;
  char text[64];
};

struct Chunk {  // clocks of one warp
  u32 ref;
  u32 clock[32];
};
struct Table {  // a vector clock: one chunk per warp of the grid, shared copy-on-write
  u32 ref;
  Chunk *warp[1];
};
struct Lanes {  // concurrent readers of one word, of one warp
  u32 warp, mask;
  u32 clock[32], pc[32];
  u32 atomic;
  Lanes *next;
};
struct Cell {  // shadow of four bytes, or of one when split
  u32 w_thread, w_clock, w_pc;
  u32 r_thread, r_clock, r_pc;
  u8 valid, init, flags, pad;
  u32 extra;  // 1 + index of a reader list or of four one-byte cells
};
enum CellFlags : u8 { cf_w_atomic = 1, cf_r_atomic = 2, cf_readers = 4, cf_split = 8, cf_read_only = 16, cf_pending = 32 };

struct Block;
struct Copy {
  char *to;
  const char *from;
  u32 bytes, valid, pc;
};
enum State : u8 { st_ready, st_barrier, st_meet, st_mbar, st_done };
struct Thread {
  void *sp;
  char *stack;
  u32 id, lane, warp;  // warp: index over the grid
  Block *block;
  uint3 index;
  u32 clock, pc;
  State state;
  Table *vc, *pending, *fence_gpu, *fence_cta;
  u64 result;
  std::vector<std::vector<Copy>> groups[2];
  std::vector<Copy> open[2];
#ifdef SIMT_ASAN
  void *fake;
#endif
};
struct Barrier {
  std::vector<Thread *> waiting;
  int arrived, expected, trues, op;
  u32 pc;
  Thread *first;
  Table *acc;
};
struct Meet {  // lanes of a warp that are waiting for one another
  u32 mask, arrived;
  int op;
  u64 value[32];
  int lane_arg[32];
  u32 pc[32];
  const void *in[32];
  void *out[32];
};
struct Warp {
  u32 exited, exists;
  std::vector<Meet *> meets;
};
struct Mbar {
  u32 count, arrived, phase;
  long long bytes;
  Table *acc, *done;
  std::vector<std::pair<Copy, Thread *>> copies;
  std::vector<Thread *> waiting;
};
struct Block {
  u32 id;
  uint3 index;
  std::vector<Thread *> threads, ready;
  std::vector<Warp> warps;
  Barrier bar[16];
  u32 exited, polls;
  Cell *cells;
  char *saved;
  std::unordered_map<uptr, Mbar> mbars;
};
struct SyncVar {
  Table *gpu, *cta;
  u32 cta_block;
};
struct Range {
  u32 at, size;
};

struct State0 {
  uint3 grid, block;
  u32 n_blocks, block_threads, slot_threads, warps_per_block, n_warps, shared_bytes, next_block, max_resident;
  std::vector<u32> order;
  std::vector<Block *> resident;
  Block *loaded;
  u32 at;  // index in resident
  u64 random, digest, polls, accesses, slices, ticks;
  int policy;
  u32 quantum;
  void *main_sp;
  bool aborting;
  void (*invoke)(void **);
  void **params;
  uptr tls_lo, tls_size, dyn_lo, module_lo, rw_lo, rw_size, image_lo, image_size, stacks_lo, stacks_size;
  uptr arena_lo, arena_size, arena_used;
  Cell *arena_cells, *rw_cells;
  std::vector<Range> shared_vars;
  std::vector<Finding> findings;
  std::unordered_map<uptr, SyncVar> syncs;
  Table *zero;
  std::vector<Table *> free_tables;
  std::vector<Chunk *> free_chunks;
  std::vector<Lanes *> lanes_heads;  // by Cell::extra - 1
  std::vector<u32> free_heads;
  Lanes *free_lanes;
  std::vector<Cell *> splits;
  std::vector<void *> owned;
};
extern State0 g;
extern Thread *cur;
constexpr std::size_t stack_bytes =
#ifdef SIMT_ASAN
    512 * 1024;
#else
    128 * 1024;
#endif
constexpr u32 dynamic_capacity = 262144;

inline u64 next_random() {
  u64 z = (g.random += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
// Copies that a sanitizer's interceptor must not see: stacks and poisoned shared memory are moved with them.
inline void move_bytes(void *to, const void *from, std::size_t n) {
  char *a = static_cast<char *>(to);
  const char *b = static_cast<const char *>(from);
  for (; n >= 8; n -= 8, a += 8, b += 8) *reinterpret_cast<u64 *>(a) = *reinterpret_cast<const u64 *>(b);
  for (; n; --n) *a++ = *b++;
}
inline void *own(std::size_t bytes) {
  void *p = std::calloc(1, bytes);
  if (!p) std::abort();
  g.owned.push_back(p);
  return p;
}
inline void report(const Finding &f) {
  for (const Finding &seen : g.findings)
    if (seen.kind == f.kind && seen.pc == f.pc && seen.other_pc == f.other_pc) return;
  if (g.findings.size() < 256) g.findings.push_back(f);
}
inline Finding finding(Kind kind, const Thread *t, u32 pc) {
  Finding f = {};
  f.kind = kind;
  f.thread = t ? static_cast<int>(t->id) : -1;
  f.pc = pc;
  f.other_thread = -1;
  f.space = sp_other;
  return f;
}
inline u32 pc_of(void *return_address) { return static_cast<u32>(reinterpret_cast<uptr>(return_address) - g.module_lo - 1); }
#define SIMT_PC (rt::pc_of(__builtin_return_address(0)))
}  // namespace rt
