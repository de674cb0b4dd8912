// Who runs next. Everything is a function of the schedule's seed: policy 0 runs lanes and blocks in ascending order until
// they wait, 1 in descending order, every other seed draws the order and preempts at random accesses.
#pragma once
#include <utility>

#include "fiber.hpp"
#include "shadow.hpp"

namespace rt {
inline void make_ready(Thread *t) {
  t->state = st_ready;
  t->block->ready.push_back(t);
}
inline u32 new_quantum() {
  if (g.policy < 2) return 1u << 20;
  const u64 r = next_random();
  return 1 + static_cast<u32>(r % (r >> 60 ? 48 : 2048));
}
inline void leave(Thread *t) {  // give up the processor; the state says why
  to_main(t);
}
inline void wait_in(Thread *t, State why) {
  t->state = why;
  leave(t);
}
inline void yield_now(Thread *t, bool poll) {
  if (poll) {
    ++t->block->polls;
    ++g.polls;
  }
  make_ready(t);
  leave(t);
}
// The launch cannot go on: drop every fiber where it stands.
inline void abandon(Thread *t) {
  g.aborting = true;
  t->state = st_done;
#ifdef SIMT_ASAN
  t->state = st_ready;
#endif
  to_main(t);
}
inline void exchange_shared(char *saved, bool load) {
  const uptr edge[4] = {g.tls_lo, g.dyn_lo, g.dyn_lo + g.shared_bytes, 0};
  const uptr rest = g.dyn_lo + dynamic_capacity;
  const uptr at[3] = {edge[0], edge[1], rest};
  const uptr size[3] = {g.dyn_lo - g.tls_lo, g.shared_bytes, g.tls_lo + g.tls_size - rest};
  for (int k = 0; k < 3; ++k) {
    char *live = reinterpret_cast<char *>(at[k]), *kept = saved + (at[k] - g.tls_lo);
    if (load) move_bytes(live, kept, size[k]);
    else move_bytes(kept, live, size[k]);
  }
}
inline void load_block(Block *b) {
  if (g.loaded == b) return;
  if (g.loaded) exchange_shared(g.loaded->saved, false);
  if (b) exchange_shared(b->saved, true);
  g.loaded = b;
}

inline Block *start_block(u32 id) {
  Block *b = new Block();
  b->id = id;
  b->index = {id % g.grid.x, id / g.grid.x % g.grid.y, id / g.grid.x / g.grid.y};
  b->warps.resize(g.warps_per_block);
  b->cells = static_cast<Cell *>(std::calloc(g.tls_size / 4 + 1, sizeof(Cell)));
  b->saved = static_cast<char *>(std::malloc(g.tls_size));
  // Unwritten shared memory is a pattern that is a NaN in both precisions and differs between schedules.
  std::memset(b->saved, 0xff - (g.policy & 1), g.dyn_lo - g.tls_lo + g.shared_bytes);
  std::memset(b->saved + (g.dyn_lo - g.tls_lo) + dynamic_capacity, 0xff, g.tls_lo + g.tls_size - g.dyn_lo - dynamic_capacity);
  for (const Range &r : g.shared_vars) mark_valid(b->cells, r.at, r.size, false, 0);
  mark_valid(b->cells, g.dyn_lo - g.tls_lo, g.shared_bytes, false, 0);
  for (u32 k = 0; k < g.block_threads; ++k) {
    Thread *t = new Thread();
    t->id = id * g.slot_threads + k;
    t->lane = k & 31;
    t->warp = t->id >> 5;
    t->block = b;
    t->index = {k % g.block.x, k / g.block.x % g.block.y, k / g.block.x / g.block.y};
    t->clock = 1;
    t->vc = hold(g.zero);
    b->warps[k >> 5].exists |= 1u << t->lane;
    start_fiber(t);
    b->threads.push_back(t);
    make_ready(t);
  }
  return b;
}
inline void end_block(Block *b) {
  for (Thread *t : b->threads) {
    free_fiber(t);
    drop(t->vc);
    delete t;
  }
  std::free(b->cells);
  std::free(b->saved);
  if (g.loaded == b) g.loaded = nullptr;
  delete b;
}
inline Thread *take(Block *b) {
  std::vector<Thread *> &r = b->ready;
  std::size_t k = 0;
  if (g.policy == 1) k = r.size() - 1;
  if (g.policy >= 2) k = next_random() % r.size();
  // A poller must not be taken again before the others had their turn: oldest first.
  if (b->polls && g.policy == 1) k = 0;
  Thread *t = r[k];
  if (g.policy >= 2) {
    r[k] = r.back();
    r.pop_back();
  } else {
    r.erase(r.begin() + static_cast<std::ptrdiff_t>(k));
  }
  return t;
}
inline void admit() {
  while (g.next_block < g.n_blocks && g.resident.size() < g.max_resident) {
    const u32 k = g.next_block++;
    g.resident.push_back(start_block(g.order[k]));
  }
}
inline Block *choose() {
  const std::size_t n = g.resident.size();
  Block *b = g.resident[g.at % n];
  const bool polled_out = b->polls >= b->ready.size();
  const bool wander = g.policy >= 2 && next_random() % 24 == 0;
  if (!b->ready.empty() && !polled_out && !wander) return b;
  b->polls = 0;
  const std::size_t first = g.policy >= 2 ? next_random() % n : (g.at + 1) % n;
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t at = (first + k) % n;
    if (!g.resident[at]->ready.empty()) {
      g.at = static_cast<u32>(at);
      return g.resident[at];
    }
  }
  return nullptr;
}
void report_deadlock(bool polling);

inline void run_all() {
  u64 poll_limit = 0;
  for (;;) {
    admit();
    if (g.resident.empty()) return;
    Block *b = choose();
    if (!poll_limit) poll_limit = 200000 + 64ull * g.block_threads * g.resident.size();
    if (!b || g.polls > poll_limit) {
      report_deadlock(b != nullptr);
      return;
    }
    Thread *t = take(b);
    load_block(b);
    g.digest = (g.digest ^ t->id) * 0x100000001b3ull;
    ++g.slices;
    g.quantum = new_quantum();
    const u32 polls = b->polls;
    cur = t;
    to_fiber(t);
    cur = nullptr;
    if (b->polls == polls) b->polls = 0;  // some lane did work: the block keeps its turn
    if (g.aborting) return;
    if (b->exited == b->threads.size()) {
      for (std::size_t k = 0; k < g.resident.size(); ++k)
        if (g.resident[k] == b) {
          g.resident.erase(g.resident.begin() + static_cast<std::ptrdiff_t>(k));
          break;
        }
      end_block(b);
      g.polls = 0;
    }
  }
}
}  // namespace rt
