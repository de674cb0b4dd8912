// The C interface, and the few functions that need every part.
#pragma once
#include <dlfcn.h>
#include <link.h>

#include "order.hpp"
#include "simt_launch.hpp"

extern "C" const simt::Entry simt_table[];
extern "C" const unsigned simt_table_size;
extern "C" __thread char simt_dynamic_begin[];

namespace rt {
State0 g;
Thread *cur;
StackPool stacks;
#ifdef SIMT_ASAN
void *main_fake;
const void *main_stack;
std::size_t main_stack_size;
#endif

void preempt() { yield_now(cur, false); }

void other_memory(const Access &a) {
  const uptr p = a.address;
  if (p - g.image_lo < g.image_size && !(a.flags & af_write)) return;  // constants of the kernel file
  Access b = a;
  b.space = sp_other;
  if (p - g.stacks_lo < g.stacks_size) {
    b.space = sp_local;
    report_access(k_foreign_local, b);
    return;
  }
  report_access(k_wild, b);
  abandon(a.t);
}

void report_deadlock(bool polling) {
  for (Block *b : g.resident) {
    for (Barrier &bar : b->bar) {
      if (!bar.arrived) continue;
      Finding f = finding(k_deadlock, bar.first, bar.pc);
      for (Thread *t : b->threads) {
        if (t->state == st_barrier) continue;
        f.kind = k_divergent_barrier;
        f.other_thread = static_cast<int>(t->id);
        f.other_pc = t->pc;
        break;
      }
      report(f);
    }
    for (u32 w = 0; w < g.warps_per_block; ++w)
      for (const Meet *m : b->warps[w].meets) report_missing(b, w, m, m->mask & b->warps[w].exists & ~m->arrived);
    for (Thread *t : b->threads)
      if (t->state == st_mbar || (polling && t->state == st_ready)) report(finding(k_deadlock, t, t->pc));
  }
}

static int find_module(dl_phdr_info *info, std::size_t, void *) {
  const uptr here = reinterpret_cast<uptr>(&find_module);
  uptr lo = ~uptr(0), hi = 0;
  for (int k = 0; k < info->dlpi_phnum; ++k) {
    const auto &h = info->dlpi_phdr[k];
    if (h.p_type != PT_LOAD) continue;
    const uptr at = info->dlpi_addr + h.p_vaddr;
    lo = at < lo ? at : lo;
    hi = at + h.p_memsz > hi ? at + h.p_memsz : hi;
  }
  if (here < lo || here >= hi) return 0;
  g.module_lo = info->dlpi_addr;
  g.image_lo = lo;
  g.image_size = hi - lo;
  for (int k = 0; k < info->dlpi_phnum; ++k) {
    const auto &h = info->dlpi_phdr[k];
    if (h.p_type == PT_LOAD && (h.p_flags & PF_W)) {
      g.rw_lo = (info->dlpi_addr + h.p_vaddr) & ~uptr(3);
      g.rw_size = h.p_memsz + 4;
    }
    if (h.p_type == PT_TLS) {
      g.tls_lo = reinterpret_cast<uptr>(info->dlpi_tls_data);
      g.tls_size = h.p_memsz;
    }
  }
  return 1;
}
#ifdef SIMT_ASAN
static void poison_shared(bool on) {
  const uptr lo = g.tls_lo;
  if (!on) return ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void *>(lo), g.tls_size);
  ASAN_POISON_MEMORY_REGION(reinterpret_cast<void *>(lo), g.tls_size);
  for (const Range &r : g.shared_vars) ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void *>(lo + r.at), r.size);
  ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void *>(g.dyn_lo), g.shared_bytes);
}
#else
static void poison_shared(bool) {}
#endif
}  // namespace rt

extern "C" {
void simt_fiber_main() {
#ifdef SIMT_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &rt::main_stack, &rt::main_stack_size);
#endif
  rt::Thread *t = rt::cur;
  rt::g.invoke(rt::g.params);
  rt::land_all(t);
  t->state = rt::st_done;
  rt::lane_left(t);
  rt::leave(t);
}
void simt_trap(const char *why) {
  rt::Finding f = rt::finding(rt::k_trap, rt::cur, SIMT_PC);
  std::snprintf(f.text, sizeof f.text, "%s", why);
  rt::report(f);
  rt::abandon(rt::cur);
}
long long simt_clock() { return static_cast<long long>(++rt::g.ticks); }
uint3 simt_thread_idx() { return rt::cur->index; }
uint3 simt_block_idx() { return rt::cur->block->index; }
uint3 simt_block_dim() { return rt::g.block; }
uint3 simt_grid_dim() { return rt::g.grid; }
unsigned simt_lane() { return rt::cur->lane; }
void *simt_dynamic_shared() { return simt_dynamic_begin; }

const simt::Entry *simt_entries(unsigned *count) {
  *count = simt_table_size;
  return simt_table;
}
// Begin a launch: forget the last one, and make room for `bytes` of global memory with gaps (filled with poison).
int simt_begin(std::uint64_t bytes, const rt::Range *shared_vars, unsigned n_vars) {
  using rt::g;
  if (g.arena_lo) munmap(reinterpret_cast<void *>(g.arena_lo), g.arena_size);
  if (g.arena_cells) munmap(g.arena_cells, g.arena_size / 4 * sizeof(rt::Cell));
  std::free(g.rw_cells);
  for (void *p : g.owned) std::free(p);
  g = rt::State0();
  simt_dynamic_begin[0] = 0;  // the thread's storage exists from its first use on
  dl_iterate_phdr(&rt::find_module, nullptr);
  if (!g.tls_lo) return 1;
  g.dyn_lo = reinterpret_cast<rt::uptr>(simt_dynamic_begin);
  g.shared_vars.assign(shared_vars, shared_vars + n_vars);
  g.rw_cells = static_cast<rt::Cell *>(std::calloc(g.rw_size / 4 + 1, sizeof(rt::Cell)));
  rt::mark_valid(g.rw_cells, 0, g.rw_size, true, 0);
  g.arena_size = (bytes + 8191) & ~rt::uptr(4095);
  const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void *arena = mmap(nullptr, g.arena_size, prot, flags, -1, 0);
  void *cells = mmap(nullptr, g.arena_size / 4 * sizeof(rt::Cell), prot, flags, -1, 0);
  if (arena == MAP_FAILED || cells == MAP_FAILED) return 2;
  g.arena_lo = reinterpret_cast<rt::uptr>(arena);
  g.arena_cells = static_cast<rt::Cell *>(cells);
  g.arena_used = 1024;
  return 0;
}
// mode & 3: 0 read only, 1 read and written, 2 unwritten (poison); mode >> 4: bytes from a multiple of 16, which the
// kernel sees. At least 1 KiB of no-man's-land on both sides.
void *simt_buffer(std::uint64_t bytes, int mode, const void *data) {
  using rt::g;
  const rt::uptr offset = static_cast<unsigned>(mode) >> 4;
  mode &= 3;
#ifdef SIMT_ASAN
  const rt::uptr whole = (offset + bytes + 255) & ~rt::uptr(255);
  char *begin = static_cast<char *>(std::aligned_alloc(256, whole));
  ASAN_POISON_MEMORY_REGION(begin, offset);
  ASAN_POISON_MEMORY_REGION(begin + offset + bytes, whole - offset - bytes);
  void *p = begin + offset;
#else
  void *p = reinterpret_cast<void *>(g.arena_lo + g.arena_used + offset);
  rt::mark_valid(g.arena_cells, g.arena_used + offset, bytes, mode != 2, mode == 0 ? rt::cf_read_only : 0);
  g.arena_used += (offset + bytes + 1024 + 255) & ~rt::uptr(255);
#endif
  if (mode == 2) std::memset(p, 0xff, bytes);
  else std::memcpy(p, data, bytes);
  return p;
}
struct simt_result {
  std::uint64_t accesses, slices, digest, findings, shared_at, dynamic_at;
};
int simt_run(int kernel, const unsigned *grid, const unsigned *block, unsigned shared_bytes, void **params,
             std::uint64_t seed, unsigned max_resident, simt_result *result) {
  using rt::g;
  g.grid = {grid[0], grid[1], grid[2]};
  g.block = {block[0], block[1], block[2]};
  g.n_blocks = grid[0] * grid[1] * grid[2];
  g.block_threads = block[0] * block[1] * block[2];
  g.warps_per_block = (g.block_threads + 31) / 32;
  g.slot_threads = 32 * g.warps_per_block;
  g.n_warps = g.n_blocks * g.warps_per_block;
  g.shared_bytes = shared_bytes;
  g.max_resident = max_resident < g.n_blocks ? max_resident : g.n_blocks;
  g.random = seed * 0x2545f4914f6cdd1dull + 1;
  g.digest = 0xcbf29ce484222325ull;
  g.policy = seed > 2 ? 2 : static_cast<int>(seed);
  g.invoke = simt_table[kernel].invoke;
  g.params = params;
  g.zero = static_cast<rt::Table *>(rt::own(sizeof(rt::Table) + g.n_warps * sizeof(rt::Chunk *)));
  rt::Chunk *none = rt::new_chunk();
  none->ref = 1u << 31;
  g.zero->ref = 1u << 30;
  for (unsigned w = 0; w < g.n_warps; ++w) g.zero->warp[w] = none;
  for (unsigned k = 0; k < g.n_blocks; ++k) g.order.push_back(g.policy == 1 ? g.n_blocks - 1 - k : k);
  if (!rt::reserve_stacks(static_cast<std::size_t>(g.max_resident) * g.block_threads)) return 2;
  rt::poison_shared(true);
  rt::run_all();
  rt::load_block(nullptr);
  rt::poison_shared(false);
  while (!g.resident.empty()) {
    rt::end_block(g.resident.back());
    g.resident.pop_back();
  }
#ifndef SIMT_ASAN
  // Every kernel file has a pool of its own, and two mappings a stack: kept, they would use up those of a process.
  rt::release_stacks();
#endif
  *result = {g.accesses, g.slices, g.digest, g.findings.size(), g.tls_lo, g.dyn_lo};
  return 0;
}
const rt::Finding *simt_findings() { return rt::g.findings.data(); }
}
