// Barriers and warp collectives, and what goes wrong with them: different barriers, lanes that left, lanes that are elsewhere.
#pragma once
#include "sched.hpp"

namespace rt {
enum MeetOp : int { op_syncwarp = 0, op_shuffle = 16, op_vote = 32, op_gather = 1024 };
void land_all(Thread *t);

inline void complete(Block *b, Barrier *bar) {
  join_all(bar->waiting.data(), bar->waiting.size(), bar->acc);
  const int result = bar->op == 1 ? bar->trues : bar->op == 2 ? bar->trues == bar->arrived : bar->trues > 0;
  std::vector<Thread *> woken;
  woken.swap(bar->waiting);
  for (Thread *t : woken) {
    t->result = static_cast<u64>(result);
    make_ready(t);
  }
  drop(bar->acc);
  *bar = Barrier();
  b->polls = 0;
  g.polls = 0;
}
// The block's barrier opens when all its threads are there. When the rest have returned from the kernel, hardware may
// let the others pass; here that is a finding, and they pass.
inline void try_open(Block *b, Barrier *bar, bool whole_block) {
  if (!bar->arrived) return;
  if (!whole_block) {
    if (bar->arrived >= bar->expected) complete(b, bar);
    return;
  }
  const u32 n = static_cast<u32>(b->threads.size());
  if (static_cast<u32>(bar->arrived) + b->exited < n) return;
  if (b->exited) {
    Finding f = finding(k_exit_before_barrier, bar->first, bar->pc);
    for (Thread *t : b->threads)
      if (t->state == st_done) {
        f.other_thread = static_cast<int>(t->id);
        f.other_pc = t->pc;
        break;
      }
    f.mask = b->exited;
    report(f);
  }
  complete(b, bar);
}
inline int arrive(int id, int expected, bool whole_block, bool only, int op, int predicate, u32 pc) {
  Thread *t = cur;
  Block *b = t->block;
  Barrier *bar = &b->bar[id & 15];
  t->pc = pc;
  if (!bar->arrived) {
    bar->pc = pc;
    bar->first = t;
    bar->op = op;
    bar->expected = expected;
  } else if (whole_block && bar->pc != pc) {
    Finding f = finding(k_divergent_barrier, t, pc);
    f.other_pc = bar->pc;
    f.other_thread = static_cast<int>(bar->first->id);
    report(f);
  }
  ++bar->arrived;
  bar->trues += predicate != 0;
  if (only) {
    Table *s = snapshot(t);
    bar->acc = bar->acc ? join(bar->acc, s) : hold(s);
    drop(s);
    try_open(b, bar, whole_block);
    return 0;
  }
  t->state = st_barrier;
  bar->waiting.push_back(t);
  try_open(b, bar, whole_block);
  leave(t);
  return static_cast<int>(t->result);
}

inline u64 poison(u32 lane) { return 0xdead0000dead0000ull | (static_cast<u64>(lane) << 32) | lane; }
inline Thread *lane_thread(Block *b, u32 warp_in_block, u32 lane) {
  const u32 k = warp_in_block * 32 + lane;
  return k < b->threads.size() ? b->threads[k] : nullptr;
}
inline u64 vote(const Meet &m, u32 lane) {
  const int op = m.op - op_vote;
  u64 r = 0;
  bool first = true;
  for (u32 k = 0; k < 32; ++k) {
    if (!(m.arrived >> k & 1)) continue;
    const u64 v = m.value[k];
    const u32 u = static_cast<u32>(v), q = static_cast<u32>(r);
    switch (op) {
      case simt::vote_ballot: r |= v << k; break;
      case simt::vote_any: case simt::vote_or: r |= v; break;
      case simt::vote_all: case simt::vote_and: r = first ? v : (r & v); break;
      case simt::vote_match_any: r |= static_cast<u64>(v == m.value[lane]) << k; break;
      case simt::vote_add: r = static_cast<u32>(q + u); break;
      case simt::vote_xor: r ^= v; break;
      case simt::vote_min_u: r = first || u < q ? u : q; break;
      case simt::vote_max_u: r = first || u > q ? u : q; break;
      case simt::vote_min_s: r = first || static_cast<int>(u) < static_cast<int>(q) ? u : q; break;
      default: r = first || static_cast<int>(u) > static_cast<int>(q) ? u : q; break;
    }
    first = false;
  }
  return r;
}
// Source lane of a shuffle within its segment of `width` lanes; out of the segment means the lane itself (PTX ISA, shfl).
inline u32 shuffle_source(u32 lane, int arg, int width, int mode) {
  const u32 w = static_cast<u32>(width), base = lane & ~(w - 1), in = lane - base;
  switch (mode) {
    case simt::shfl_idx: return base + (static_cast<u32>(arg) & (w - 1));
    case simt::shfl_up: return in >= static_cast<u32>(arg) ? lane - static_cast<u32>(arg) : lane;
    case simt::shfl_down: return in + static_cast<u32>(arg) < w ? lane + static_cast<u32>(arg) : lane;
    default: {
      const u32 to = lane ^ static_cast<u32>(arg);
      return to < base + w ? to : lane;
    }
  }
}
inline void complete(Block *b, u32 w, Meet *m) {
  Thread *there[32];
  u32 n = 0;
  for (u32 k = 0; k < 32; ++k)
    if (m->arrived >> k & 1) there[n++] = lane_thread(b, w, k);
  if (m->op == op_syncwarp) join_all(there, n, nullptr);
  for (u32 j = 0; j < n; ++j) {
    Thread *t = there[j];
    const u32 k = t->lane;
    if (m->op >= op_gather) {
      const u32 bytes = static_cast<u32>(m->op - op_gather);
      for (u32 s = 0; s < 32; ++s) {
        char *to = static_cast<char *>(m->out[k]) + s * bytes;
        if (m->arrived >> s & 1) move_bytes(to, m->in[s], bytes);
        else for (u32 q = 0; q < bytes; ++q) to[q] = static_cast<char>(0xde);
      }
    } else if (m->op >= op_vote) {
      t->result = vote(*m, k);
    } else if (m->op >= op_shuffle) {
      const u32 s = shuffle_source(k, m->lane_arg[k] >> 8, m->lane_arg[k] & 255, m->op & 3);
      t->result = m->arrived >> s & 1 ? m->value[s] : poison(s);
      if (!(m->arrived >> s & 1)) {
        Finding f = finding(k_shuffle_source, t, m->pc[k]);
        const Thread *other = lane_thread(b, w, s);
        f.other_thread = other ? static_cast<int>(other->id) : -1;
        f.mask = m->mask;
        f.size = s;
        report(f);
      }
    }
    make_ready(t);
  }
  g.polls = 0;
  b->polls = 0;
  std::vector<Meet *> &open = b->warps[w].meets;
  for (std::size_t k = 0; k < open.size(); ++k)
    if (open[k] == m) open.erase(open.begin() + static_cast<std::ptrdiff_t>(k));
  delete m;
}
inline void report_missing(Block *b, u32 w, const Meet *m, u32 missing) {
  const u32 first = static_cast<u32>(__builtin_ctz(m->arrived));
  const Thread *t = lane_thread(b, w, first), *other = lane_thread(b, w, static_cast<u32>(__builtin_ctz(missing)));
  Finding f = finding(k_missing_lane, t, m->pc[first]);
  f.mask = missing;
  f.flags = m->mask;
  if (other) {
    f.other_thread = static_cast<int>(other->id);
    f.other_pc = other->pc;
    f.other_flags = other->state == st_done;
  }
  report(f);
}
inline void try_complete(Block *b, u32 w, Meet *m) {
  const Warp &warp = b->warps[w];
  // Lanes past the end of a partial last warp do not exist and are not waited for.
  if (m->mask & warp.exists & ~(m->arrived | warp.exited)) return;
  const u32 left = m->mask & warp.exited & ~m->arrived;
  if (left) report_missing(b, w, m, left);
  complete(b, w, m);
}
inline void meet(u32 mask, int op, u64 value, int arg, const void *in, void *out, u32 pc) {
  Thread *t = cur;
  Block *b = t->block;
  const u32 w = t->warp % g.warps_per_block;
  Warp &warp = b->warps[w];
  t->pc = pc;
  if (!(mask >> t->lane & 1)) {
    Finding f = finding(k_missing_lane, t, pc);
    f.mask = 1u << t->lane;
    f.flags = mask;
    f.other_flags = 2;  // the caller itself is not in its mask
    report(f);
    mask |= 1u << t->lane;
  }
  Meet *m = nullptr;
  for (Meet *have : warp.meets)
    if (have->mask == mask && have->op == op && !(have->arrived >> t->lane & 1)) m = have;
  if (!m) {
    m = new Meet();
    m->mask = mask;
    m->op = op;
    warp.meets.push_back(m);
  }
  m->arrived |= 1u << t->lane;
  m->value[t->lane] = value;
  m->lane_arg[t->lane] = arg;
  m->pc[t->lane] = pc;
  m->in[t->lane] = in;
  m->out[t->lane] = out;
  t->state = st_meet;
  try_complete(b, w, m);
  leave(t);
}
// A lane returned from the kernel: whoever waits for it must not wait for ever.
inline void lane_left(Thread *t) {
  Block *b = t->block;
  const u32 w = t->warp % g.warps_per_block;
  ++b->exited;
  b->warps[w].exited |= 1u << t->lane;
  std::vector<Meet *> open = b->warps[w].meets;
  for (Meet *m : open)
    if (m->mask >> t->lane & 1) try_complete(b, w, m);
  try_open(b, &b->bar[0], true);
}
}  // namespace rt

extern "C" {
int simt_syncthreads(int op, int predicate) {
  return rt::arrive(0, static_cast<int>(rt::cur->block->threads.size()), true, false, op, predicate, SIMT_PC);
}
void simt_barrier(int id, int threads, int arrive_only) {
  const bool whole = id == 0 && threads == static_cast<int>(rt::cur->block->threads.size());
  rt::arrive(id, threads, whole, arrive_only != 0, 0, 0, SIMT_PC);
}
void simt_syncwarp(unsigned mask) { rt::meet(mask, rt::op_syncwarp, 0, 0, nullptr, nullptr, SIMT_PC); }
std::uint64_t simt_shfl(unsigned mask, std::uint64_t value, int lane, int width, int mode) {
  rt::meet(mask, rt::op_shuffle + mode, value, lane * 256 + width, nullptr, nullptr, SIMT_PC);
  return rt::cur->result;
}
std::uint64_t simt_vote(unsigned mask, std::uint64_t value, int op, int) {
  rt::meet(mask, rt::op_vote + op, value, 0, nullptr, nullptr, SIMT_PC);
  return rt::cur->result;
}
void simt_gather(unsigned mask, const void *mine, void *all, std::size_t bytes) {
  rt::meet(mask, rt::op_gather + static_cast<int>(bytes), 0, 0, mine, all, SIMT_PC);
}
unsigned simt_activemask() {
  const rt::Thread *t = rt::cur;
  const rt::Warp &w = t->block->warps[t->warp % rt::g.warps_per_block];
  return w.exists & ~w.exited;
}
}
