// How a block ends a level: what its warps hold goes to the queue, what its threads counted to the counters.
#pragma once
#include "bfs.cuh"

namespace wf {

// Shared memory of a block. `stage` and `found` are a warp's own; the rest changes hands at the barriers below.
template <int Threads>
struct block_memory {
  static constexpr int kWarps = Threads / kWarp;
  vec16 stage[kWarps][kStage];
  u32 found[kWarps][kWarp];
  u32 held[kWarps];
  u64 sums[kWarps][6];
  u64 at;
  u64 plan[8];
};

template <int Threads>
WF_DEVICE stage stage_of(block_memory<Threads>& m, vec16* out, u64* tail) {
  return stage{m.stage[threadIdx.x / kWarp], 0, out, tail};
}

// All threads call. Two barriers: the first separates the warps' writes of what they hold and counted from the first
// warp's reads; the second its reservation from the writes to the queue. The caller has a barrier before the next use.
template <int Threads, bool Trace>
WF_DEVICE void end_level(block_memory<Threads>& m, stage& q, const tally& t, u64* slot) {
  constexpr int kWarps = block_memory<Threads>::kWarps;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = lane_id();
  u64 found = 0, out = 0;
  if (__any_sync(kFullMask, t.found != 0)) found = lanes_sum(t.found), out = lanes_sum(t.out);
  u64 extra[3] = {0, 0, 0};
  if (Trace) {
    extra[0] = lanes_sum(t.examined), extra[1] = lanes_sum(t.duplicates), extra[2] = lanes_sum(t.tried);
  }
  if (lane == 0) {
    m.held[warp] = q.held;
    m.sums[warp][0] = found, m.sums[warp][1] = out;
    if (Trace) m.sums[warp][2] = extra[0], m.sums[warp][3] = extra[1], m.sums[warp][4] = extra[2];
  }
  __syncthreads();
  if (warp == 0) {
    const bool have = lane < kWarps;
    const u32 own = have ? m.held[lane] : 0;
    u32 upto = own;
    WF_UNROLL
    for (int d = 1; d < kWarp; d <<= 1) {
      const u32 other = __shfl_up_sync(kFullMask, upto, d);
      if (lane >= d) upto += other;
    }
    const u32 total = __shfl_sync(kFullMask, upto, kWarp - 1);
    u64 sums[5] = {0, 0, 0, 0, 0};
    WF_UNROLL
    for (int k = 0; k < (Trace ? 5 : 2); ++k) sums[k] = lanes_sum(have ? m.sums[lane][k] : 0);
    if (have) m.held[lane] = upto - own;
    if (lane == 0) {
      m.at = total ? atomicAdd(q.tail, static_cast<u64>(total)) : 0;
      if (sums[0]) atomicAdd(slot + kFound, sums[0]), atomicAdd(slot + kOut, sums[1]);
      if (Trace) {
        atomicAdd(slot + kExamined, sums[2]), atomicAdd(slot + kDuplicates, sums[3]);
        atomicAdd(slot + kTried, sums[4]), atomicAdd(slot + kWon, sums[4] ? sums[0] : 0);
      }
    }
  }
  __syncthreads();
  const u64 at = m.at + m.held[warp];
  for (u32 k = lane; k < q.held; k += kWarp) store16(q.out + at + k, q.buffer[k]);
  q.held = 0;
}

// dist, parent <- unreached; closed bits <- as at the start.
WF_DEVICE void reset(const search& s, i64 first, i64 step) {
  for (i64 v = first; v < s.n; v += step) s.dist[v] = kNoVertex, s.parent[v] = kNoVertex;
  if (s.flags & kCanPull)
    for (i64 w = first; w < s.words; w += step) s.bits[w] = s.bits[3 * s.words + w];
}

// Sources go to the queue of level 0, with themselves as parents. Each is given once.
WF_DEVICE void place_sources(const search& s, const i64* sources, i64 only, i64 count, stage& q, tally& t) {
  const i64 warps = static_cast<i64>(gridDim.x) * blockDim.x / kWarp;
  const i64 warp = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  for (i64 at = warp * kWarp; at < count; at += warps * kWarp) {
    const bool mine = at + lane_id() < count;
    entry e = {0, 0, 0};
    if (mine) {
      const u32 v = static_cast<u32>(count == 1 ? only : sources[at + lane_id()]);
      s.dist[v] = 0, s.parent[v] = v;
      ++t.found;
      e = close_vertex(s, v, t);
    }
    put(s, q, mine, e);
  }
}

}  // namespace wf
