// Breadth-first search in one cooperative launch: all levels, direction decided on the device.
//
// A warp owns whatever it takes: up to 32 queue items (ranges of arcs) of a pushed level, 1024 vertices of a pulled one.
// The first share is fixed by its number, further ones come from a counter, so that a warp that got long lists takes
// fewer. Frontiers that fit a block's shared memory are run by block 0 alone, level after level, while the others wait
// at one barrier: a level of a road map then costs block barriers instead of a grid barrier.
//
// Shared layout: block_memory (bfs_block.cuh); the narrow levels use the stages as two rings of items.
//
// Barriers: a grid barrier ends each level (and each change between queue and bitmap): it separates every write of the
// level from every read of the next. Block barriers: bfs_block.cuh, and in `narrow` one a level, between its puts and
// counts and the reads of the next.
#include "bfs_block.cuh"

namespace wf {

// What thread 0 of each block decides from the counters, the same in every block. In shared memory.
enum plan_word { kPlanItems, kPlanDo, kPlanLevel, kPlanFound, kPlanOut, kPlanOpen };
enum what { kHalt, kPush, kPull, kPushFromBits, kPullFromQueue, kNarrow };

struct progress {
  u32 level, round;
  bool pulled;      // the frontier is a bitmap
  u64 open;         // arcs out of unreached vertices
  long long clock;
};

WF_DEVICE double as_double(u64 bits) { return __longlong_as_double(static_cast<i64>(bits)); }

// Direction of the next level: see bfs.py.
WF_DEVICE bool wants_pull(const search& s, bool pulled, u64 frontier, u64 out, u64 open) {
  if (!(s.flags & kCanPull)) return false;
  if (s.flags & kAlwaysPull) return true;
  const double n = static_cast<double>(s.n), beta = as_double(s.control[kBeta]);
  if (pulled) return static_cast<double>(frontier) * beta >= n;
  return static_cast<double>(out) * as_double(s.control[kAlpha]) > static_cast<double>(open) &&
         static_cast<double>(out) * beta > n;
}

template <int Threads>
struct narrow_limits {
  static constexpr u32 kRing = block_memory<Threads>::kWarps * kStage / 2;
  static constexpr u32 kItems = kRing / 2;
  static constexpr u64 kOut = 4 * Threads;
};

// The thread of block 0 that writes the log: of a warp that has little else to do.
template <int Threads>
constexpr u32 kLogger = Threads - kWarp;

WF_DEVICE void log_level(const search& s, u32 level, bool pulled, u64 frontier, u64 out, const u64* next, u64 cycles) {
  if (level >= s.control[kLogRows]) return;
  u64* const row = s.control + kLog + static_cast<u64>(level) * kLogColumns;
  row[0] = pulled, row[1] = frontier, row[2] = out, row[3] = next[kFound];
  row[4] = pulled ? next[kExamined] : out, row[5] = next[kDuplicates], row[6] = next[kTried], row[7] = next[kWon];
  row[8] = cycles;
}

// Thread 0 of each block: read the counters of the frontier, choose what to do with it.
template <int Threads>
WF_DEVICE void decide(const search& s, block_memory<Threads>& m, progress& p) {
  u64* const slot = slot_of(s, p.level);
  // Items may be added already, by a block that turns the frontier's bits into a queue: they are then read again.
  const u64 items = peek(slot + kItems), found = slot[kFound], out = slot[kOut];
  p.open -= out;
  int act = kPush;
  const bool pull = wants_pull(s, p.pulled, found, out, p.open);
  if (found == 0 || p.level >= s.control[kStop]) act = kHalt;
  else if (pull) act = p.pulled ? kPull : kPullFromQueue;
  else if (p.pulled) act = kPushFromBits;
  else if (items <= narrow_limits<Threads>::kItems && out <= narrow_limits<Threads>::kOut) act = kNarrow;
  m.plan[kPlanItems] = items, m.plan[kPlanDo] = static_cast<u64>(act);
  m.plan[kPlanFound] = found, m.plan[kPlanOut] = out, m.plan[kPlanOpen] = p.open;
  if (blockIdx.x == 0) {
    u64* const control = s.control;
    control[kReached] += found, control[kReachedArcs] += out;
    if (found) control[kDepth] = p.level;
    if (act == kHalt) control[kLevels] = p.level;
    // The slot after the next was this level's predecessor: nobody reads it any more.
    u64* const old = slot_of(s, p.level + 2);
    for (int k = 0; k < kSlotWords; ++k) poke(old + k, 0);
  }
}

// The logger, after the level's barrier: the level's line. The counters next to be read are complete; those of the level
// itself are being cleared, so they are given.
WF_DEVICE void log_after(const search& s, u32 level, bool pulled, u64 frontier, u64 out, progress& p) {
  const long long clock = clock64();
  log_level(s, level, pulled, frontier, out, slot_of(s, level + 1), static_cast<u64>(clock - p.clock));
  p.clock = clock;
}

// With few items of many arcs, several warps share one: a warp's slice of its item.
WF_DEVICE vec16 slice_of(const vec16& item, u32 slice, u32 slices) {
  const u32 begin = static_cast<u32>(static_cast<u64>(item.w[2]) * slice / slices);
  const u32 end = static_cast<u32>(static_cast<u64>(item.w[2]) * (slice + 1) / slices);
  return item_of(first_of(item) + begin, end - begin, item.w[3]);
}

template <int Threads, bool Trace>
WF_DEVICE void push_level(const search& s, block_memory<Threads>& m, u32 level, u64 items, u64 out) {
  u64* const slot = slot_of(s, level + 1);
  stage q = stage_of(m, half_of(s, level + 1), slot + kItems);
  tally t = no_tally();
  const vec16* const from = half_of(s, level);
  const u64 warps = static_cast<u64>(gridDim.x) * Threads / kWarp;
  const u64 warp = (static_cast<u64>(threadIdx.x / kWarp) * gridDim.x) + blockIdx.x;
  u64 each = (items + warps - 1) / warps;
  each = each > kWarp ? kWarp : each;
  // A slice has 32 arcs or more.
  const u64 slices = items * 2 > warps ? 1 : max_of<u64>(1, min_of<u64>(warps / items, out / items / kWarp));
  u64 at = warp / slices * each;
  while (at < items) {
    const u64 k = at + lane_id();
    vec16 item = {{0, 0, 0, 0}};
    if (lane_id() < static_cast<int>(each) && k < items) item = load16(from + k);
    if (slices > 1) item = slice_of(item, static_cast<u32>(warp % slices), static_cast<u32>(slices));
    push_items<Trace>(s, item, level + 1, t, q);
    if (warps * each >= items) break;
    u64 taken = 0;
    if (lane_id() == 0) taken = atomicAdd(slot + kTake, each);
    at = warps * each + __shfl_sync(kFullMask, taken, 0);
  }
  end_level<Threads, Trace>(m, q, t, slot);
}

template <int Threads, bool Trace>
WF_DEVICE void pull_level(const search& s, block_memory<Threads>& m, u32 level) {
  u64* const slot = slot_of(s, level + 1);
  stage q = stage_of(m, half_of(s, level + 1), slot + kItems);
  tally t = no_tally();
  const u64 warps = static_cast<u64>(gridDim.x) * Threads / kWarp;
  u64 group = (static_cast<u64>(threadIdx.x / kWarp) * gridDim.x) + blockIdx.x;
  const i64 each = words_each(s, static_cast<i64>(warps));
  const u64 groups = static_cast<u64>((s.words + each - 1) / each);
  while (group < groups) {
    pull_group<Trace>(s, static_cast<i64>(group), each, front_of(level), level + 1, m.found[threadIdx.x / kWarp], t);
    if (warps >= groups) break;
    u64 taken = 0;
    if (lane_id() == 0) taken = atomicAdd(slot + kTake, u64(1));
    group = warps + __shfl_sync(kFullMask, taken, 0);
  }
  end_level<Threads, Trace>(m, q, t, slot);
}

// The frontier's bitmap from its queue (first half: clear; second, after a grid barrier: set).
WF_DEVICE void clear_front(const search& s, u32 level, i64 first, i64 step) {
  u32* const front = s.bits + front_of(level) * s.words;
  for (i64 w = first; w < s.words; w += step) front[w] = 0;
}

WF_DEVICE void set_front(const search& s, u32 level, u64 items, i64 first, i64 step) {
  u32* const front = s.bits + front_of(level) * s.words;
  for (i64 k = first; k < static_cast<i64>(items); k += step) {
    const u32 v = half_of(s, level)[k].w[3];
    atomicOr(front + v / 32, 1u << (v % 32));
  }
}

// The frontier's queue from its bitmap. The vertices are counted already: only items are added.
template <int Threads>
WF_DEVICE void compact_level(const search& s, block_memory<Threads>& m, u32 level) {
  u64* const slot = slot_of(s, level);
  stage q = stage_of(m, half_of(s, level), slot + kItems);
  const i64 warps = static_cast<i64>(gridDim.x) * Threads / kWarp;
  const i64 each = words_each(s, warps);
  for (i64 g = static_cast<i64>(threadIdx.x / kWarp) * gridDim.x + blockIdx.x; g * each < s.words; g += warps)
    compact_group(s, g, each, front_of(level), q);
  end_level<Threads, false>(m, q, no_tally(), slot);
}

#include "bfs_narrow.cuh"

}  // namespace wf

// Queue, bits, control and sources are the search's; see bfs.cuh. `first` is the source when there is one.
template <int Threads, bool Trace>
__global__ void __launch_bounds__(Threads, 1024 / Threads < 1 ? 1 : 1024 / Threads)
    bfs_persistent(const long long* ptr, const int* ind, const long long* in_ptr, const int* in_ind, unsigned* dist,
                   unsigned* parent, void* queue, unsigned* bits, unsigned long long* control,
                   const long long* sources, long long first, long long n_sources) {
  using namespace wf;
  __shared__ block_memory<Threads> m;
  const search s = make_search(ptr, ind, in_ptr, in_ind, dist, parent, queue, bits, control);
  const i64 thread = static_cast<i64>(blockIdx.x) * Threads + threadIdx.x;
  const i64 threads = static_cast<i64>(gridDim.x) * Threads;
  u32* const barrier = reinterpret_cast<u32*>(control + kBarrier);
  progress p = {0, 0, false, control[kArcs], clock64()};
  const long long started = p.clock;
  reset(s, thread, threads);
  grid_barrier(barrier, ++p.round);
  {
    stage q = stage_of(m, half_of(s, 0), slot_of(s, 0) + kItems);
    tally t = no_tally();
    place_sources(s, sources, first, n_sources, q, t);
    end_level<Threads, false>(m, q, t, slot_of(s, 0));
  }
  grid_barrier(barrier, ++p.round);
  for (;;) {
    if (threadIdx.x == 0) decide(s, m, p);
    __syncthreads();
    const int act = static_cast<int>(m.plan[kPlanDo]);
    const u64 items = m.plan[kPlanItems], frontier = m.plan[kPlanFound], out = m.plan[kPlanOut];
    if (act == kHalt) break;
    if (act == kNarrow) {
      if (blockIdx.x == 0) narrow<Threads, Trace>(s, m, p);
      grid_barrier(barrier, ++p.round);
      if (thread == 0) publish(s, m);
      grid_barrier(barrier, ++p.round);
      p.level = static_cast<u32>(control[kLevel]), p.open = control[kOpen];
      continue;
    }
    if (act == kPushFromBits) {
      compact_level(s, m, p.level);
      grid_barrier(barrier, ++p.round);
      if (threadIdx.x == 0) m.plan[kPlanItems] = slot_of(s, p.level)[kItems];
      __syncthreads();
    } else if (act == kPullFromQueue) {
      clear_front(s, p.level, thread, threads);
      grid_barrier(barrier, ++p.round);
      set_front(s, p.level, items, thread, threads);
      grid_barrier(barrier, ++p.round);
    }
    const bool pull = act == kPull || act == kPullFromQueue;
    if (pull) pull_level<Threads, Trace>(s, m, p.level);
    else push_level<Threads, Trace>(s, m, p.level, m.plan[kPlanItems], out);
    grid_barrier(barrier, ++p.round);
    if (thread == kLogger<Threads>) log_after(s, p.level, pull, frontier, out, p);
    ++p.level;
    p.pulled = pull;
  }
  if (thread == 0) control[kCycles] = static_cast<u64>(clock64() - started);
}
