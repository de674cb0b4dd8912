// The checks made at each access: bounds, alignment, written before read, and order (FastTrack epochs, widened to one
// entry per reader while a word has several unordered readers). Shadow cells stand for four bytes; the first narrower
// access splits a cell in four, so neighbouring bytes of different threads are not a race.
#pragma once
#include "clocks.hpp"
#ifdef SIMT_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace rt {
void preempt();
void abandon(Thread *t);

inline Lanes *&readers(Cell *c) { return g.lanes_heads[c->extra - 1]; }
inline void clear_readers(Cell *c) {
  if (c->flags & cf_readers) {
    Lanes *head = readers(c), *last = head;
    while (last->next) last = last->next;
    last->next = g.free_lanes;
    g.free_lanes = head;
    g.free_heads.push_back(c->extra);
    c->flags &= static_cast<u8>(~cf_readers);
    c->extra = 0;
  }
  c->r_clock = 0;
}
inline void add_reader(Cell *c, u32 thread, u32 clock, u32 pc, bool atomic) {
  const u32 warp = thread >> 5, lane = thread & 31;
  Lanes *l = readers(c);
  while (l && l->warp != warp) l = l->next;
  if (!l) {
    if (g.free_lanes) {
      l = g.free_lanes;
      g.free_lanes = l->next;
    } else {
      l = static_cast<Lanes *>(own(sizeof(Lanes)));
    }
    l->warp = warp;
    l->mask = l->atomic = 0;
    l->next = readers(c);
    readers(c) = l;
  }
  const u32 bit = 1u << lane;
  // A plain read stays on record for as long as the thread's epoch lasts.
  const bool plain = !atomic || ((l->mask & bit) && l->clock[lane] == clock && !(l->atomic & bit));
  l->mask |= bit;
  l->atomic = plain ? l->atomic & ~bit : l->atomic | bit;
  l->clock[lane] = clock;
  l->pc[lane] = pc;
}
inline void widen(Cell *c) {  // from one reader's epoch to a list
  if (g.free_heads.empty()) {
    g.lanes_heads.push_back(nullptr);
    c->extra = static_cast<u32>(g.lanes_heads.size());
  } else {
    c->extra = g.free_heads.back();
    g.free_heads.pop_back();
    g.lanes_heads[c->extra - 1] = nullptr;
  }
  c->flags |= cf_readers;
  add_reader(c, c->r_thread, c->r_clock, c->r_pc, c->flags & cf_r_atomic);
}

struct Access {
  Thread *t;
  u32 flags, pc, size;
  uptr address;
  Space space;
};
inline void report_race(const Access &a, u32 thread, u32 pc, u32 flags) {
  Finding f = finding(k_race, a.t, a.pc);
  f.space = a.space;
  f.other_pc = pc;
  f.other_thread = static_cast<int>(thread);
  f.flags = a.flags;
  f.other_flags = flags;
  f.size = a.size;
  f.address = a.address;
  report(f);
}
inline void report_access(Kind kind, const Access &a) {
  Finding f = finding(kind, a.t, a.pc);
  f.space = a.space;
  f.flags = a.flags;
  f.size = a.size;
  f.address = a.address;
  report(f);
}

inline void check_order(Cell *c, const Access &a) {
  Thread *t = a.t;
  const bool atomic = a.flags & af_atomic;
  if (!(a.flags & af_write)) {
    // Already read in this epoch: nothing new, unless that was atomic and this is not.
    const bool again = c->r_thread == t->id && c->r_clock == t->clock && !(c->flags & cf_readers);
    if (again && (atomic || !(c->flags & cf_r_atomic))) return;
    if (c->w_clock && c->w_thread != t->id && !(atomic && (c->flags & cf_w_atomic)) && c->w_clock > known(t, c->w_thread))
      report_race(a, c->w_thread, c->w_pc, af_write | (c->flags & cf_w_atomic ? af_atomic : 0u));
    if (!(c->flags & cf_readers) && c->r_clock && c->r_thread != t->id && c->r_clock > known(t, c->r_thread)) widen(c);
    if (c->flags & cf_readers) {
      add_reader(c, t->id, t->clock, a.pc, atomic);
      return;
    }
    c->r_thread = t->id;
    c->r_clock = t->clock;
    c->r_pc = a.pc;
    c->flags = static_cast<u8>((c->flags & ~cf_r_atomic) | (atomic ? cf_r_atomic : 0));
    return;
  }
  const bool was_atomic = c->flags & cf_w_atomic;
  if (c->w_clock && c->w_thread != t->id && !(atomic && was_atomic) && c->w_clock > known(t, c->w_thread))
    report_race(a, c->w_thread, c->w_pc, af_write | (was_atomic ? af_atomic : 0u));
  if (c->flags & cf_readers) {
    for (const Lanes *l = readers(c); l; l = l->next) {
      const u32 *have = t->vc->warp[l->warp]->clock;
      for (u32 m = l->mask; m; m &= m - 1) {
        const u32 k = static_cast<u32>(__builtin_ctz(m)), who = l->warp * 32 + k;
        if (l->clock[k] > have[k] && who != t->id && !(atomic && (l->atomic >> k & 1)))
          report_race(a, who, l->pc[k], l->atomic >> k & 1 ? af_atomic : 0u);
      }
    }
  } else if (c->r_clock && c->r_thread != t->id && !(atomic && (c->flags & cf_r_atomic)) &&
             c->r_clock > known(t, c->r_thread)) {
    report_race(a, c->r_thread, c->r_pc, c->flags & cf_r_atomic ? af_atomic : 0u);
  }
  clear_readers(c);
  c->w_thread = t->id;
  c->w_clock = t->clock;
  c->w_pc = a.pc;
  c->flags = static_cast<u8>((c->flags & ~(cf_w_atomic | cf_r_atomic)) | (atomic ? cf_w_atomic : 0));
}

inline void split(Cell *c) {
  Cell *four = static_cast<Cell *>(own(4 * sizeof(Cell)));
  for (int k = 0; k < 4; ++k) {
    four[k] = *c;
    four[k].flags &= static_cast<u8>(~(cf_readers | cf_split));
    four[k].extra = 0;
    if (c->flags & cf_readers) {
      four[k].r_clock = 0;
      for (const Lanes *l = readers(c); l; l = l->next)
        for (u32 m = l->mask; m; m &= m - 1) {
          const u32 lane = static_cast<u32>(__builtin_ctz(m));
          if (!(four[k].flags & cf_readers)) {
            four[k].r_thread = l->warp * 32 + lane;
            four[k].r_clock = l->clock[lane];
            four[k].r_pc = l->pc[lane];
            widen(&four[k]);
          } else {
            add_reader(&four[k], l->warp * 32 + lane, l->clock[lane], l->pc[lane], l->atomic >> lane & 1);
          }
        }
    }
  }
  clear_readers(c);
  g.splits.push_back(four);
  c->extra = static_cast<u32>(g.splits.size());
  c->flags |= cf_split;
}
// One cell. `mask`: which of its four bytes. False when the bytes are out of bounds.
inline bool check_cell(Cell *c, u32 mask, const Access &a) {
  if ((c->valid & mask) != mask) {
    report_access(k_out_of_bounds, a);
    return false;
  }
  if (c->flags & cf_read_only) {
    if (a.flags & af_write) report_access(k_read_only, a);
    return true;
  }
  if ((c->flags & cf_pending) && !(a.flags & af_async)) report_access(k_pending_copy, a);
  if (a.flags & af_write) {
    c->init |= static_cast<u8>(mask);
  } else if ((c->init & mask) != mask) {
    if (!(c->flags & cf_pending)) report_access(k_uninitialised, a);
    c->init |= static_cast<u8>(mask);
  }
  if (mask != 15 && !(c->flags & cf_split)) split(c);
  if (!(c->flags & cf_split)) {
    check_order(c, a);
  } else {
    for (int k = 0; k < 4; ++k)
      if (mask >> k & 1) check_order(&g.splits[c->extra - 1][k], a);
  }
  return true;
}
inline Cell *cell_of(uptr p, const Thread *t, Space *space) {
  if (p - g.tls_lo < g.tls_size) {
    *space = sp_shared;
    return t->block->cells + ((p - g.tls_lo) >> 2);
  }
  if (p - g.arena_lo < g.arena_size) {
    *space = sp_global;
    return g.arena_cells + ((p - g.arena_lo) >> 2);
  }
  if (p - g.rw_lo < g.rw_size) {  // `__device__` variables
    *space = sp_global;
    return g.rw_cells + ((p - g.rw_lo) >> 2);
  }
  return nullptr;
}
void other_memory(const Access &a);

// `pc` is where the access stands; called before it is made.
inline void access_at(const void *where, u32 size, u32 flags, u32 pc) {
  Thread *t = cur;
  const uptr p = reinterpret_cast<uptr>(where);
  if (!t || p - reinterpret_cast<uptr>(t->stack) < stack_bytes) return;
  t->pc = pc;
  ++g.accesses;
  if (--g.quantum == 0) preempt();
  Access a = {t, flags, pc, size, p, sp_global};
#ifdef SIMT_ASAN
  // Only the runtime's own accesses (atomics, copies) come here in this build; the sanitizer knows what is valid.
  if (flags & af_write) g.polls = 0;
  if (__asan_region_is_poisoned(const_cast<void *>(where), size)) {
    report_access(k_out_of_bounds, a);
    abandon(t);
  }
  return;
#endif
  Cell *c = cell_of(p, t, &a.space);
  if (!c) return other_memory(a);
  if ((size & (size - 1)) == 0 && (p & (size - 1)) && size <= 16) report_access(k_misaligned, a);
  if (flags & af_write) g.polls = 0;
  u32 offset = p & 3;
  for (u32 left = size; left;) {
    const u32 n = left < 4 - offset ? left : 4 - offset;
    if (!check_cell(c, ((1u << n) - 1) << offset, a)) return;
    left -= n;
    offset = 0;
    ++c;
  }
}
inline void mark_pending(const void *where, u32 bytes, bool on) {
  Space space;
  Cell *c = cell_of(reinterpret_cast<uptr>(where), cur, &space);
  for (u32 k = 0; c && k < bytes; k += 4, ++c) c->flags = static_cast<u8>(on ? c->flags | cf_pending : c->flags & ~cf_pending);
}
inline void mark_valid(Cell *cells, uptr offset, uptr bytes, bool init, u8 flags) {
  for (uptr k = offset; k < offset + bytes; ++k) {
    Cell &c = cells[k >> 2];
    c.valid |= static_cast<u8>(1u << (k & 3));
    if (init) c.init |= static_cast<u8>(1u << (k & 3));
    c.flags = flags;
  }
}
}  // namespace rt
