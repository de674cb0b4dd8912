// Accesses that carry an order (atomics, acquire and release, fences) and copies that land later.
#pragma once
#include "sync.hpp"

namespace rt {
inline SyncVar &sync_var(const void *p) {
  uptr key = reinterpret_cast<uptr>(p);
  if (key - g.tls_lo < g.tls_size) key |= static_cast<uptr>(cur->block->id + 1) << 48;
  return g.syncs[key];
}
inline void take_in(Table **into, const Table *s) {
  if (!s) return;
  if (!*into) *into = hold(g.zero);
  *into = join(*into, s);
}
inline void read_side(Thread *t, const SyncVar &v, int order, int scope) {
  Table *const visible[2] = {scope != simt::cta ? v.gpu : nullptr, v.cta && v.cta_block == t->block->id ? v.cta : nullptr};
  for (Table *s : visible) {
    if (!s) continue;
    if (order & simt::acquire) learn(t, s);
    else take_in(&t->pending, s);
  }
}
// `modify`: a read-modify-write continues the release sequence it read from; a store begins a new one.
inline void write_side(Thread *t, SyncVar *v, int order, int scope, bool modify) {
  if (!modify) {
    drop(v->gpu);
    drop(v->cta);
    v->gpu = v->cta = nullptr;
  }
  Table *mine = nullptr;
  if (order & simt::release) {
    mine = snapshot(t);
    if (scope != simt::cta) take_in(&v->gpu, mine);
  } else {
    take_in(&v->gpu, scope != simt::cta ? t->fence_gpu : nullptr);
  }
  Table *narrow = mine ? mine : t->fence_cta;
  if (narrow) {
    if (v->cta && v->cta_block != t->block->id) {
      drop(v->cta);
      v->cta = nullptr;
    }
    v->cta_block = t->block->id;
    take_in(&v->cta, narrow);
  }
  drop(mine);
}
inline u64 raw_load(const void *p, int bytes) {
  switch (bytes) {
    case 1: return *static_cast<const u8 *>(p);
    case 2: return *static_cast<const std::uint16_t *>(p);
    case 4: return *static_cast<const u32 *>(p);
    default: return *static_cast<const u64 *>(p);
  }
}
inline void raw_store(void *p, u64 v, int bytes) {
  switch (bytes) {
    case 1: *static_cast<u8 *>(p) = static_cast<u8>(v); break;
    case 2: *static_cast<std::uint16_t *>(p) = static_cast<std::uint16_t>(v); break;
    case 4: *static_cast<u32 *>(p) = static_cast<u32>(v); break;
    default: *static_cast<u64 *>(p) = v;
  }
}
template <typename T> inline T combine(T old, T v, T compare, int op) {
  switch (op) {
    case simt::at_add: return static_cast<T>(old + v);
    case simt::at_sub: return static_cast<T>(old - v);
    case simt::at_min: return v < old ? v : old;
    case simt::at_max: return old < v ? v : old;
    case simt::at_exch: return v;
    case simt::at_cas: return old == compare ? v : old;
    default: break;
  }
  if constexpr (std::is_integral<T>::value) {
    switch (op) {
      case simt::at_and: return old & v;
      case simt::at_or: return old | v;
      case simt::at_xor: return old ^ v;
      case simt::at_inc: return old >= v ? T(0) : static_cast<T>(old + 1);
      default: return old == 0 || old > v ? v : static_cast<T>(old - 1);
    }
  }
  return old;
}
template <typename T> inline u64 modify(void *p, u64 operand, u64 compare, int op, bool *changed) {
  T *at = static_cast<T *>(p);
  const T old = *at;
  const T v = simt::from_bits<T>(operand);
  const T next = op == simt::at_cas && !std::is_integral<T>::value ? (simt::to_bits(old) == compare ? v : old)
                                                                     : combine<T>(old, v, simt::from_bits<T>(compare), op);
  *at = next;
  *changed = simt::to_bits(next) != simt::to_bits(old);
  return simt::to_bits(old);
}

inline void land(const Copy &c) {
  mark_pending(c.to, c.bytes, false);
  access_at(c.to, c.bytes, af_write | af_async, c.pc);
  move_bytes(c.to, c.from, c.valid);
  for (u32 k = c.valid; k < c.bytes; ++k) c.to[k] = 0;
}
inline void land_groups(Thread *t, int kind, std::size_t pending) {
  std::vector<std::vector<Copy>> &q = t->groups[kind];
  while (q.size() > pending) {
    for (const Copy &c : q.front()) land(c);
    q.erase(q.begin());
  }
}
inline void land_all(Thread *t) {
  for (int kind = 0; kind < 2; ++kind) {
    land_groups(t, kind, 0);
    for (const Copy &c : t->open[kind]) land(c);
    t->open[kind].clear();
  }
}
inline Mbar &mbar(unsigned long long *bar) { return cur->block->mbars[reinterpret_cast<uptr>(bar)]; }
inline void mbar_advance(Mbar &m) {
  if (!m.count || m.arrived < m.count) return;
  for (auto &c : m.copies) {  // the barrier's transactions land now, at the latest point they may
    mark_pending(c.first.to, c.first.bytes, false);
    move_bytes(c.first.to, c.first.from, c.first.bytes);
    m.bytes -= c.first.bytes;
  }
  m.copies.clear();
  if (m.bytes != 0) return;
  drop(m.done);
  m.done = hold(m.acc);
  m.arrived = 0;
  ++m.phase;
  for (Thread *t : m.waiting) make_ready(t);
  m.waiting.clear();
  g.polls = 0;
}
}  // namespace rt

extern "C" {
std::uint64_t simt_load(const void *p, int bytes, int order, int scope) {
  rt::access_at(p, static_cast<rt::u32>(bytes), rt::af_atomic, SIMT_PC);
  const std::uint64_t v = rt::raw_load(p, bytes);
  rt::read_side(rt::cur, rt::sync_var(p), order, scope);
  rt::yield_now(rt::cur, true);
  return v;
}
void simt_store(void *p, std::uint64_t value, int bytes, int order, int scope) {
  rt::access_at(p, static_cast<rt::u32>(bytes), rt::af_atomic | rt::af_write, SIMT_PC);
  rt::write_side(rt::cur, &rt::sync_var(p), order, scope, false);
  rt::raw_store(p, value, bytes);
}
std::uint64_t simt_atomic(void *p, std::uint64_t operand, std::uint64_t compare, int op, int type, int order, int scope) {
  const bool wide = type == simt::ty_i64 || type == simt::ty_u64 || type == simt::ty_f64;
  const std::uint64_t polls = rt::g.polls;
  rt::access_at(p, wide ? 8 : 4, rt::af_atomic, SIMT_PC);
  rt::access_at(p, wide ? 8 : 4, rt::af_atomic | rt::af_write, SIMT_PC);
  rt::SyncVar &v = rt::sync_var(p);
  rt::read_side(rt::cur, v, order, scope);
  bool changed = false;
  std::uint64_t old = 0;
  switch (type) {
    case simt::ty_i32: old = rt::modify<int>(p, operand, compare, op, &changed); break;
    case simt::ty_u32: old = rt::modify<unsigned>(p, operand, compare, op, &changed); break;
    case simt::ty_i64: old = rt::modify<std::int64_t>(p, operand, compare, op, &changed); break;
    case simt::ty_u64: old = rt::modify<std::uint64_t>(p, operand, compare, op, &changed); break;
    case simt::ty_f32: old = rt::modify<float>(p, operand, compare, op, &changed); break;
    default: old = rt::modify<double>(p, operand, compare, op, &changed); break;
  }
  if (changed || op != simt::at_cas) rt::write_side(rt::cur, &v, order, scope, true);
  if (!changed) {  // a lock that is taken, or a counter read with add(0): let the others run
    rt::g.polls = polls;
    rt::yield_now(rt::cur, true);
  }
  return old;
}
void simt_fence(int scope) {
  rt::Thread *t = rt::cur;
  if (t->pending) rt::learn(t, t->pending);
  rt::drop(t->fence_cta);
  t->fence_cta = rt::snapshot(t);
  if (scope != simt::cta) {
    rt::drop(t->fence_gpu);
    t->fence_gpu = rt::hold(t->fence_cta);
  }
}
void simt_copy(void *to, const void *from, unsigned bytes, unsigned valid, int kind) {
  const rt::u32 pc = SIMT_PC;
  if (valid) rt::access_at(from, valid, 0, pc);
  rt::access_at(to, bytes, rt::af_write | rt::af_async, pc);
  rt::mark_pending(to, bytes, true);
  rt::cur->open[kind].push_back({static_cast<char *>(to), static_cast<const char *>(from), bytes, valid, pc});
}
void simt_copy_commit(int kind) {
  rt::cur->groups[kind].push_back(rt::cur->open[kind]);
  rt::cur->open[kind].clear();
}
void simt_copy_wait(int pending, int kind) { rt::land_groups(rt::cur, kind, static_cast<std::size_t>(pending)); }
void simt_mbar_init(unsigned long long *bar, unsigned count) {
  rt::access_at(bar, 8, rt::af_write, SIMT_PC);
  *bar = count;
  rt::Mbar &m = rt::mbar(bar);
  m = rt::Mbar();
  m.count = count;
}
void simt_mbar_arrive(unsigned long long *bar, unsigned expected_bytes) {
  rt::access_at(bar, 8, rt::af_atomic, SIMT_PC);
  rt::Mbar &m = rt::mbar(bar);
  rt::Table *s = rt::snapshot(rt::cur);
  rt::take_in(&m.acc, s);
  rt::drop(s);
  m.bytes += expected_bytes;
  ++m.arrived;
  rt::mbar_advance(m);
}
void simt_mbar_wait(unsigned long long *bar, unsigned parity) {
  rt::access_at(bar, 8, rt::af_atomic, SIMT_PC);
  rt::Thread *t = rt::cur;
  rt::Mbar &m = rt::mbar(bar);
  rt::mbar_advance(m);
  while ((m.phase & 1) == (parity & 1)) {
    m.waiting.push_back(t);
    rt::wait_in(t, rt::st_mbar);
  }
  rt::learn(t, m.done);
}
void simt_bulk_load(void *shared, const void *global, unsigned bytes, unsigned long long *bar) {
  const rt::u32 pc = SIMT_PC;
  rt::access_at(global, bytes, 0, pc);
  rt::access_at(shared, bytes, rt::af_write | rt::af_async, pc);
  rt::mark_pending(shared, bytes, true);
  rt::Mbar &m = rt::mbar(bar);
  rt::Table *s = rt::snapshot(rt::cur);
  rt::take_in(&m.acc, s);
  rt::drop(s);
  m.copies.push_back({{static_cast<char *>(shared), static_cast<const char *>(global), bytes, bytes, pc}, rt::cur});
  rt::mbar_advance(m);
}
void simt_yield() { rt::yield_now(rt::cur, true); }
}
