// Narrow levels: block 0 alone, the frontier in its shared memory. Included by bfs_persistent.cu, inside namespace wf.
#pragma once

// As `offer`, for few arcs: what counts is how long one takes, not how many atomics there are. The distance is claimed
// at once; the parent follows without an answer, and the offsets of v come while the claim is under way.
template <bool Trace>
WF_DEVICE bool offer_narrow(const search& s, u32 u, u32 v, u32 next, tally& t, entry& e) {
  e.first = s.ptr[v], e.degree = s.ptr[static_cast<i64>(v) + 1] - e.first, e.v = v;
  const u32 held = atomicCAS(s.dist + v, kNoVertex, next);
  if (held != kNoVertex && held != next) return false;
  atomicMin(s.parent + v, u);
  if (Trace) ++t.tried;
  if (held == next) {
    if (Trace) ++t.duplicates;
    return false;
  }
  ++t.found;
  t.out += static_cast<u64>(e.degree);
  if (s.flags & kCanPull) atomicOr(s.bits + v / 32, 1u << (v % 32));
  return true;
}

// Counters of a level, in shared memory; three take turns: one is read, one is added to, one is cleared.
struct narrow_counts {
  u32 count, found, spilled, duplicates, tried, pad;
  unsigned long long out;
};

// Where block 0 puts what it finds: a ring of shared memory, then the global queue.
struct ring {
  vec16* items;
  u32 size;
  narrow_counts* c;
  vec16* out;
  u64* tail;
};

// All lanes of a warp call.
WF_DEVICE void put_narrow(const search& s, const ring& r, bool mine, const entry& e) {
  mine = mine && e.degree > 0;
  const u32 mask = __ballot_sync(kFullMask, mine);
  if (mask == 0) return;
  u32 at = 0;
  if (lane_id() == 0) at = atomicAdd(&r.c->count, static_cast<u32>(__popc(mask)));
  at = __shfl_sync(kFullMask, at, 0) + static_cast<u32>(__popc(mask & ((1u << lane_id()) - 1)));
  const vec16 item = item_of(e.first, static_cast<u32>(min_of<i64>(e.degree, s.piece)), e.v);
  if (mine && at < r.size) r.items[at] = item;
  if (mine && at >= r.size) store16(r.out + atomicAdd(r.tail, u64(1)), item);
  const u32 further = mine && e.degree > static_cast<i64>(s.piece) ? static_cast<u32>((e.degree - 1) / s.piece) : 0;
  if (!__any_sync(kFullMask, further != 0)) return;
  if (lane_id() == 0) atomicOr(&r.c->spilled, 1u);
  put_further_pieces(r.out, r.tail, s.piece, further, e);
}

WF_DEVICE void clear_counts(narrow_counts& c) {
  c.count = 0, c.found = 0, c.spilled = 0, c.duplicates = 0, c.tried = 0, c.out = 0;
}

// All threads call: what a level's threads counted goes to the block's counters.
template <bool Trace>
WF_DEVICE void add_counts(narrow_counts& c, const tally& t) {
  if (__any_sync(kFullMask, t.found != 0)) {
    const u64 found = lanes_sum(t.found), out = lanes_sum(t.out);
    if (lane_id() == 0) atomicAdd(&c.found, static_cast<u32>(found)), atomicAdd(&c.out, out);
  }
  if (Trace) {
    if (t.duplicates) atomicAdd(&c.duplicates, t.duplicates);
    if (t.tried) atomicAdd(&c.tried, t.tried);
  }
}

// The frontier goes from its ring to the global queue, behind what did not fit.
template <int Threads>
WF_DEVICE u64 leave_narrow(const search& s, block_memory<Threads>& m, int side, u32 items, u32 level) {
  const u32 held = min_of(items, narrow_limits<Threads>::kRing);
  const u64 at = peek(s.control + kSpill);
  const vec16* const from = &m.stage[0][0] + side * narrow_limits<Threads>::kRing;
  for (u32 k = threadIdx.x; k < held; k += Threads) store16(half_of(s, level) + at + k, from[k]);
  return at + held;
}

// Levels from p.level on, until the frontier is empty, wide, to be pulled, or the last. Leaves it in the global queue
// and what is to be published in m.plan: other blocks may still be reading this level's counters. Every thread decides
// for itself, from the same counters: one barrier a level.
template <int Threads, bool Trace>
WF_DEVICE void narrow(const search& s, block_memory<Threads>& m, progress& p) {
  typedef narrow_limits<Threads> limits;
  constexpr u32 kWarps = block_memory<Threads>::kWarps;
  __shared__ narrow_counts counts[3];
  vec16* const rings = &m.stage[0][0];
  u32 items = static_cast<u32>(m.plan[kPlanItems]), level = p.level;
  u64 frontier = slot_of(s, level)[kFound], out = slot_of(s, level)[kOut];
  u64 open = m.plan[kPlanOpen], reached = 0, reached_out = 0;
  const u64 stop = s.control[kStop];
  int side = 0;
  for (u32 k = threadIdx.x; k < items; k += Threads) rings[k] = load16(half_of(s, level) + k);
  if (threadIdx.x < 3) clear_counts(counts[threadIdx.x]);
  __syncthreads();
  for (;;) {
    narrow_counts& c = counts[level % 3];
    if (threadIdx.x == 0) clear_counts(counts[(level + 1) % 3]);
    tally t = no_tally();
    const ring r = {rings + (side ^ 1) * limits::kRing, limits::kRing, &c, half_of(s, level + 1), s.control + kSpill};
    const u32 each = (items + kWarps - 1) / kWarps;
    const u32 at = threadIdx.x / kWarp * each + lane_id();
    vec16 item = {{0, 0, 0, 0}};
    if (static_cast<u32>(lane_id()) < each && at < items) item = rings[side * limits::kRing + at];
    push_batch(s, item, [&](bool active, u32 u, u32 v) {
      entry e = {0, 0, 0};
      const bool found = active && offer_narrow<Trace>(s, u, v, level + 1, t, e);
      put_narrow(s, r, found, e);
    });
    add_counts<Trace>(c, t);
    __syncthreads();
    items = c.count;
    const u64 grown = c.found, grown_out = c.out;
    open -= grown_out;
    if (threadIdx.x == kLogger<Threads>) {
      const u64 next[kSlotWords] = {0, grown, grown_out, 0, 0, c.duplicates, c.tried, c.tried ? grown : 0};
      const long long now = clock64();
      log_level(s, level, false, frontier, out, next, static_cast<u64>(now - p.clock));
      p.clock = now;
    }
    frontier = grown, out = grown_out, side ^= 1, ++level;
    if (grown == 0 || items > limits::kRing || grown_out > 2 * limits::kOut || c.spilled || level >= stop ||
        wants_pull(s, false, grown, grown_out, open))
      break;
    reached += grown, reached_out += grown_out;
  }
  const u64 total = leave_narrow<Threads>(s, m, side, items, level);
  if (threadIdx.x == 0) {
    m.plan[kPlanItems] = total, m.plan[kPlanLevel] = level, m.plan[kPlanFound] = frontier, m.plan[kPlanOut] = out;
    m.plan[kPlanOpen] = open;
    s.control[kReached] += reached, s.control[kReachedArcs] += reached_out, s.control[kDepth] = level - 1;
  }
}

// Thread 0 of block 0, when every block has read the old counters. `decide` will subtract and count the frontier.
template <int Threads>
WF_DEVICE void publish(const search& s, block_memory<Threads>& m) {
  const u32 level = static_cast<u32>(m.plan[kPlanLevel]);
  for (u32 a = 0; a < 3; ++a)
    for (int k = 0; k < kSlotWords; ++k) poke(slot_of(s, a) + k, 0);
  u64* const now = slot_of(s, level);
  poke(now + kItems, m.plan[kPlanItems]), poke(now + kFound, m.plan[kPlanFound]), poke(now + kOut, m.plan[kPlanOut]);
  poke(s.control + kSpill, 0);
  poke(s.control + kLevel, level), poke(s.control + kOpen, m.plan[kPlanOpen] + m.plan[kPlanOut]);
}
