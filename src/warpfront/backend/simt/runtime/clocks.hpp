// Vector clocks. A thread's clock is a table of chunks, one per warp, both copy-on-write: after a barrier all threads of
// the block share one table, so a join costs a pointer comparison where nothing was learned. A thread's own entry is kept
// apart (Thread::clock) and written into the table only when it is handed on. (Epochs and their use: Flanagan, Freund,
// "FastTrack", PLDI 2009.)
#pragma once
#include "state.hpp"

namespace rt {
inline void drop(Chunk *c) {
  if (--c->ref == 0) g.free_chunks.push_back(c);
}
inline Chunk *new_chunk() {
  Chunk *c;
  if (g.free_chunks.empty()) {
    c = static_cast<Chunk *>(own(sizeof(Chunk)));
  } else {
    c = g.free_chunks.back();
    g.free_chunks.pop_back();
  }
  c->ref = 1;
  return c;
}
inline void drop(Table *t) {
  if (!t || --t->ref) return;
  for (u32 w = 0; w < g.n_warps; ++w) drop(t->warp[w]);
  g.free_tables.push_back(t);
}
inline Table *hold(Table *t) {
  if (t) ++t->ref;
  return t;
}
inline Table *copy_table(const Table *from) {
  Table *t;
  if (g.free_tables.empty()) {
    t = static_cast<Table *>(own(sizeof(Table) + g.n_warps * sizeof(Chunk *)));
  } else {
    t = g.free_tables.back();
    g.free_tables.pop_back();
  }
  t->ref = 1;
  for (u32 w = 0; w < g.n_warps; ++w) {
    t->warp[w] = from->warp[w];
    ++t->warp[w]->ref;
  }
  return t;
}
inline Chunk *private_chunk(Table *t, u32 w) {  // t must be private itself
  Chunk *c = t->warp[w];
  if (c->ref == 1) return c;
  Chunk *n = new_chunk();
  for (int k = 0; k < 32; ++k) n->clock[k] = c->clock[k];
  drop(c);
  return t->warp[w] = n;
}
inline u32 known(const Thread *t, u32 other) {  // latest epoch of `other` that is ordered before t's next access
  return t->vc->warp[other >> 5]->clock[other & 31];
}
inline bool covers(const Chunk *a, const Chunk *b) {
  u32 bad = 0;
  for (int k = 0; k < 32; ++k) bad |= b->clock[k] > a->clock[k];
  return !bad;
}
// a := a joined with b. Consumes the caller's hold on a, returns a held table.
inline Table *join(Table *a, const Table *b) {
  if (!b || a == b) return a;
  bool is_private = a->ref == 1;
  for (u32 w = 0; w < g.n_warps; ++w) {
    const Chunk *x = a->warp[w], *y = b->warp[w];
    if (x == y || covers(x, y)) continue;
    if (!is_private) {
      Table *n = copy_table(a);
      drop(a);
      a = n;
      is_private = true;
    }
    if (covers(y, x)) {
      Chunk *old = a->warp[w];
      a->warp[w] = b->warp[w];
      ++a->warp[w]->ref;
      drop(old);
    } else {
      Chunk *n = private_chunk(a, w);
      for (int k = 0; k < 32; ++k)
        if (y->clock[k] > n->clock[k]) n->clock[k] = y->clock[k];
    }
  }
  return a;
}
inline Table *snapshot(Thread *t) {  // everything up to now, the thread's own epoch included; the thread moves on
  Table *s = copy_table(t->vc);
  private_chunk(s, t->warp)->clock[t->lane] = t->clock++;
  return s;
}
inline void learn(Thread *t, const Table *s) {
  if (s) t->vc = join(t->vc, s);
}
// What a barrier does: each learns all the others did. `extra` (may be null) is what arrive-only threads had done.
inline void join_all(Thread *const *threads, std::size_t n, const Table *extra) {
  if (!n) return;
  Table *all = hold(threads[0]->vc);
  for (std::size_t k = 1; k < n; ++k)
    if (threads[k]->vc != threads[k - 1]->vc) all = join(all, threads[k]->vc);
  all = join(all, extra);
  Table *next = copy_table(all);
  drop(all);
  for (std::size_t k = 0; k < n; ++k) {
    Thread *t = threads[k];
    private_chunk(next, t->warp)->clock[t->lane] = t->clock++;
    drop(t->vc);
    t->vc = hold(next);
  }
  drop(next);
}
}  // namespace rt
