// Assembly of a front that one team holds in shared memory, by lists made on the host.
//
// The sources of an element (entries of A, then the children's, in ascending child order) stand in one lane's slots of one
// chunk, so an element is summed by one lane in this order: no barrier, no atomic, one result. A chunk has eight slots a
// lane: a source each, and in an element's last slot its place in the front. Elements of one source, two, three and four,
// five to eight fill chunks of their own; those with more go on from chunk to chunk, from `longs` on, all in one warp.
// All loads of a chunk are in flight together, the next chunk's list with them.
#pragma once
#include "front.cuh"

namespace wf {

// A front's chunks first..last; sources in blocks are counted from `base`.
struct Gather {
  i64 base;
  i32 first, longs, last, unused;
};

typedef unsigned short place_t;
constexpr int kSlots = 8;
constexpr place_t kNowhere = 0xffff;
constexpr i32 kNothing = -1;  // a slot without a source; -2 - k: entry k of A

template <typename T>
struct GatherLists {
  const Gather* gathers;
  const i32* sources;
  const place_t* places;
  const T *values, *blocks;
};

// A list on its way.
struct Chunk {
  i32 source[kSlots];
  place_t place[kSlots];
};

template <typename T>
WF_DEVICE void fetch_chunk(Chunk& to, const GatherLists<T>& lists, int chunk, bool wanted) {
  const i64 at = (static_cast<i64>(chunk) * kSlots) * kWarp + lane_id();
  WF_UNROLL
  for (int q = 0; q < kSlots; ++q) {
    to.source[q] = wanted ? lists.sources[at + q * kWarp] : kNothing;
    to.place[q] = wanted ? lists.places[at + q * kWarp] : kNowhere;
  }
}

// Sums a chunk's elements into the front; what is unfinished stays in `sum`. The list of chunk `next` is fetched meanwhile.
template <typename T>
WF_DEVICE void add_chunk(T* front, Chunk& chunk, T& sum, const T* base, const GatherLists<T>& lists, int next, bool wanted) {
  T v[kSlots];
  WF_UNROLL
  for (int q = 0; q < kSlots; ++q) {
    const i32 from = chunk.source[q];
    v[q] = from >= 0 ? base[from] : from == kNothing ? T(0) : lists.values[-2 - from];
  }
  place_t place[kSlots];
  WF_UNROLL
  for (int q = 0; q < kSlots; ++q) place[q] = chunk.place[q];
  fetch_chunk(chunk, lists, next, wanted);
  WF_UNROLL
  for (int q = 0; q < kSlots; ++q) {
    sum += v[q];
    if (place[q] != kNowhere) front[place[q]] = sum, sum = T(0);
  }
}

// Fills a front's square of `words` words. Barriers: zeroed (`ready`, behind which the children's blocks may be read; a
// barrier of the team) | elements written; the caller's follows.
// Not `real`: the square stays zero and no source is read, but every instruction is passed (factor_tree.cu rehearses).
template <int Threads, typename T, typename Ready>
WF_DEVICE void gather_front(T* front, int words, int s, const GatherLists<T>& lists, const Ready& ready, bool real = true) {
  constexpr int kWarps = Threads / kWarp;
  const int rank = team_rank<Threads>(), warp = rank / kWarp;
  Gather g = lists.gathers[s];
  if (!real) g.longs = g.first + kWarps, g.last = g.longs + 1;
  const T* base = lists.blocks + g.base;
  Chunk chunk;
  int c = g.first + warp;
  fetch_chunk(chunk, lists, c, real && c < g.longs);
  for (int e = rank; e < words; e += Threads) front[e] = T(0);
  ready();
  T sum = T(0);
  for (; c < g.longs; c += kWarps) add_chunk(front, chunk, sum, base, lists, c + kWarps, c + kWarps < g.longs);
  if (warp != kWarps - 1 || g.longs == g.last) return;
  fetch_chunk(chunk, lists, g.longs, real);
  for (c = g.longs; c < g.last; ++c) add_chunk(front, chunk, sum, base, lists, c + 1, c + 1 < g.last);
}

}  // namespace wf
