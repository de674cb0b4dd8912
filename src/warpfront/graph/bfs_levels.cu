// Breadth-first search level by level from the host: the steps of the ladder, one on top of the other.
//
// naive      a thread to every vertex of the graph; those of the frontier walk their arcs
// queue      a thread to every vertex of the frontier, which is a queue; an atomic for each entry of it
// classes    few arcs: a thread; some: its warp; many: its block
// split      a vertex with many arcs is several queue items, which different blocks take
// batched    a warp walks the arcs of 32 items together; entries are kept in shared memory, one reservation for many
// direction  and levels are pulled when the host says so
//
// A block owns Threads queue items (or vertices, or 1024 vertices a warp where it pulls).
// Shared layout: `big` is the list of items that the whole block walks; block_memory is in bfs_block.cuh.
// Barriers: one between the writes of `big` and its reads, one between its count's reset and the first write; those of
// end_level. Levels are separated by the end of the kernel.
#include "bfs_block.cuh"

namespace wf {

// One reservation for each entry: the ladder's plain queue.
WF_DEVICE void put_alone(const search& s, u32 level, u32 v, tally& t) {
  const entry e = close_vertex(s, v, t);
  u64* const tail = slot_of(s, level + 1) + kItems;
  for (i64 at = 0; at < e.degree; at += s.piece) {
    const u32 length = static_cast<u32>(min_of<i64>(e.degree - at, s.piece));
    store16(half_of(s, level + 1) + atomicAdd(tail, u64(1)), item_of(e.first + at, length, v));
  }
}

template <bool Trace>
WF_DEVICE void walk_alone(const search& s, const vec16& item, u32 from, u32 step, u32 level, tally& t) {
  const i32* const arcs = s.ind + (first_of(item) - s.base);
  for (u32 k = from; k < item.w[2]; k += step) {
    const u32 v = static_cast<u32>(__ldg(arcs + k));
    if (offer<Trace>(s, item.w[3], v, level + 1, t)) put_alone(s, level, v, t);
  }
}

WF_DEVICE vec16 item_from(const vec16& item, int lane) {
  vec16 v;
  WF_UNROLL
  for (int k = 0; k < 4; ++k) v.w[k] = __shfl_sync(kFullMask, item.w[k], lane);
  return v;
}

template <bool Trace>
WF_DEVICE void add_tally(const search& s, u32 level, const tally& t) {
  u64* const slot = slot_of(s, level + 1);
  const u64 found = warp_sum(static_cast<u64>(t.found)), out = warp_sum(t.out);
  u64 extra[3] = {0, 0, 0};
  if (Trace) {
    extra[0] = warp_sum(static_cast<u64>(t.examined)), extra[1] = warp_sum(static_cast<u64>(t.duplicates));
    extra[2] = warp_sum(static_cast<u64>(t.tried));
  }
  if (lane_id() != 0) return;
  if (found) atomicAdd(slot + kFound, found), atomicAdd(slot + kOut, out);
  if (Trace) {
    atomicAdd(slot + kExamined, extra[0]), atomicAdd(slot + kDuplicates, extra[1]);
    atomicAdd(slot + kTried, extra[2]), atomicAdd(slot + kWon, extra[2] ? found : 0);
  }
}

}  // namespace wf

#define WF_SEARCH_ARGUMENTS                                                                                        \
  const long long *ptr, const int *ind, const long long *in_ptr, const int *in_ind, unsigned *dist,               \
      unsigned *parent, void *queue, unsigned *bits, unsigned long long *control
#define WF_SEARCH wf::make_search(ptr, ind, in_ptr, in_ind, dist, parent, queue, bits, control)

// Everything unreached, closed bits as at the start.
template <int Threads>
__global__ void __launch_bounds__(Threads) bfs_reset(WF_SEARCH_ARGUMENTS) {
  wf::reset(WF_SEARCH, static_cast<wf::i64>(blockIdx.x) * Threads + threadIdx.x,
            static_cast<wf::i64>(gridDim.x) * Threads);
}

// Sources into the queue of level 0; `first` is the source when there is one.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    bfs_sources(WF_SEARCH_ARGUMENTS, const long long* sources, long long first, long long count) {
  using namespace wf;
  __shared__ block_memory<Threads> m;
  const search s = WF_SEARCH;
  stage q = stage_of(m, half_of(s, 0), slot_of(s, 0) + kItems);
  tally t = no_tally();
  place_sources(s, sources, first, count, q, t);
  end_level<Threads, false>(m, q, t, slot_of(s, 0));
}

template <int Threads, bool Trace>
__global__ void __launch_bounds__(Threads) bfs_naive(WF_SEARCH_ARGUMENTS, int level) {
  using namespace wf;
  const search s = WF_SEARCH;
  const i64 u = static_cast<i64>(blockIdx.x) * Threads + threadIdx.x;
  tally t = no_tally();
  if (u < s.n && peek(s.dist + u) == static_cast<u32>(level)) {
    for (i64 k = s.ptr[u]; k < s.ptr[u + 1]; ++k) {
      const u32 v = static_cast<u32>(__ldg(s.ind + k - s.base));
      if (offer<Trace>(s, static_cast<u32>(u), v, static_cast<u32>(level) + 1, t)) close_vertex(s, v, t);
    }
  }
  add_tally<Trace>(s, static_cast<u32>(level), t);
}

// Classes: whether long lists are walked by the warp and the block.
template <int Threads, bool Classes, bool Trace>
__global__ void __launch_bounds__(Threads) bfs_push(WF_SEARCH_ARGUMENTS, int level_, long long items) {
  using namespace wf;
  constexpr u32 kWarpArcs = 32, kBlockArcs = 256;
  __shared__ vec16 big[Threads];
  __shared__ u32 n_big;
  const search s = WF_SEARCH;
  const u32 level = static_cast<u32>(level_);
  const i64 k = static_cast<i64>(blockIdx.x) * Threads + threadIdx.x;
  tally t = no_tally();
  vec16 item = {{0, 0, 0, 0}};
  if (k < items) item = load16(half_of(s, level) + k);
  if (!Classes) {
    walk_alone<Trace>(s, item, 0, 1, level, t);
  } else {
    if (threadIdx.x == 0) n_big = 0;
    __syncthreads();
    if (item.w[2] >= kBlockArcs) big[atomicAdd(&n_big, 1u)] = item;
    if (item.w[2] < kWarpArcs) walk_alone<Trace>(s, item, 0, 1, level, t);
    u32 some = __ballot_sync(kFullMask, item.w[2] >= kWarpArcs && item.w[2] < kBlockArcs);
    while (some != 0) {
      const vec16 theirs = item_from(item, __ffs(static_cast<int>(some)) - 1);
      some &= some - 1;
      walk_alone<Trace>(s, theirs, static_cast<u32>(lane_id()), kWarp, level, t);
    }
    __syncthreads();
    const u32 all = n_big;
    for (u32 b = 0; b < all; ++b) walk_alone<Trace>(s, big[b], threadIdx.x, Threads, level, t);
    __syncwarp();
  }
  add_tally<Trace>(s, level, t);
}

template <int Threads, bool Trace>
__global__ void __launch_bounds__(Threads) bfs_push_batched(WF_SEARCH_ARGUMENTS, int level_, long long items) {
  using namespace wf;
  __shared__ block_memory<Threads> m;
  const search s = WF_SEARCH;
  const u32 level = static_cast<u32>(level_);
  u64* const slot = slot_of(s, level + 1);
  stage q = stage_of(m, half_of(s, level + 1), slot + kItems);
  tally t = no_tally();
  const i64 k = static_cast<i64>(blockIdx.x) * Threads + threadIdx.x;
  vec16 item = {{0, 0, 0, 0}};
  if (k < items) item = load16(half_of(s, level) + k);
  push_items<Trace>(s, item, level + 1, t, q);
  end_level<Threads, Trace>(m, q, t, slot);
}

// Bits of the frontier's queue; the bitmap is clear.
template <int Threads>
__global__ void __launch_bounds__(Threads) bfs_front(WF_SEARCH_ARGUMENTS, int level, long long items) {
  using namespace wf;
  const search s = WF_SEARCH;
  u32* const front = s.bits + front_of(static_cast<u32>(level)) * s.words;
  const i64 k = static_cast<i64>(blockIdx.x) * Threads + threadIdx.x;
  if (k >= items) return;
  const u32 v = half_of(s, static_cast<u32>(level))[k].w[3];
  atomicOr(front + v / 32, 1u << (v % 32));
}

template <int Threads, bool Trace>
__global__ void __launch_bounds__(Threads) bfs_pull(WF_SEARCH_ARGUMENTS, int level_) {
  using namespace wf;
  __shared__ block_memory<Threads> m;
  const search s = WF_SEARCH;
  const u32 level = static_cast<u32>(level_);
  u64* const slot = slot_of(s, level + 1);
  stage q = stage_of(m, half_of(s, level + 1), slot + kItems);
  tally t = no_tally();
  const i64 group = (static_cast<i64>(blockIdx.x) * Threads + threadIdx.x) / kWarp;
  if (group * kWarp < s.words)
    pull_group<Trace>(s, group, kWarp, front_of(level), level + 1, m.found[threadIdx.x / kWarp], t);
  end_level<Threads, Trace>(m, q, t, slot);
}

// Queue of the frontier's bits.
template <int Threads>
__global__ void __launch_bounds__(Threads) bfs_compact(WF_SEARCH_ARGUMENTS, int level_) {
  using namespace wf;
  __shared__ block_memory<Threads> m;
  const search s = WF_SEARCH;
  const u32 level = static_cast<u32>(level_);
  stage q = stage_of(m, half_of(s, level), slot_of(s, level) + kItems);
  const i64 group = (static_cast<i64>(blockIdx.x) * Threads + threadIdx.x) / kWarp;
  if (group * kWarp < s.words) compact_group(s, group, kWarp, front_of(level), q);
  end_level<Threads, false>(m, q, no_tally(), slot_of(s, level));
}

// Inner numbers -> the caller's: order[k] is the caller's number of vertex k.
template <int Threads>
__global__ void __launch_bounds__(Threads)
    bfs_restore(const int* order, const unsigned* dist, const unsigned* parent, int* dist_out, int* parent_out, long long n) {
  const long long k = static_cast<long long>(blockIdx.x) * Threads + threadIdx.x;
  if (k >= n) return;
  const int v = order[k];
  const unsigned p = parent[k];
  dist_out[v] = static_cast<int>(dist[k]);
  parent_out[v] = p == wf::kNoVertex ? -1 : order[p];
}
