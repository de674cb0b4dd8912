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

// The values of a chunk's sources. One load a slot, whichever array it is from: a branch between two would divide the warp.
template <typename T>
WF_DEVICE void load_chunk(T (&v)[kSlots], const Chunk& chunk, const T* base, const GatherLists<T>& lists) {
  WF_UNROLL
  for (int q = 0; q < kSlots; ++q) {
    const i32 from = chunk.source[q];
    const T* array = from >= 0 ? base : lists.values;
    const i32 at = from >= 0 ? from : -2 - from;
    v[q] = T(0);
    if (from != kNothing) v[q] = array[at];
  }
}

// Fills a front's square of `words` words. Barriers: zeroed (`ready`, behind which the children's blocks may be read; a
// barrier of the team) | elements written; the caller's follows.
// A warp takes its share of the chunks of short elements; the last one takes all long ones instead, where there are any. Two chunks' lists
// are fetched before `ready`; after it a chunk's values are under way while those of the chunk before are summed.
template <int Threads, typename T, typename Ready>
WF_DEVICE void gather_front(T* front, int words, int s, const GatherLists<T>& lists, const Ready& ready) {
  constexpr int kWarps = Threads / kWarp;
  const int rank = team_rank<Threads>(), warp = rank / kWarp;
  const Gather g = lists.gathers[s];
  const T* base = lists.blocks + g.base;
  int c = g.first, step = 1, end = g.last;
  if constexpr (kWarps > 1) {
    const int takers = g.longs < g.last ? kWarps - 1 : kWarps;
    if (warp < takers) c += warp, step = takers, end = g.longs;
    else c = g.longs;
  }
  Chunk chunk;
  place_t place[kSlots];
  T v[kSlots], sum = T(0);
  fetch_chunk(chunk, lists, c, c < end);
  const Chunk first = chunk;
  fetch_chunk(chunk, lists, c + step, c + step < end);
  for (int e = rank; e < words; e += Threads) front[e] = T(0);
  ready();
  load_chunk(v, first, base, lists);
  WF_UNROLL
  for (int q = 0; q < kSlots; ++q) place[q] = first.place[q];
  WF_UNROLL_N(1)
  for (; c < end; c += step) {
    T next[kSlots];
    place_t next_place[kSlots];
    load_chunk(next, chunk, base, lists);
    WF_UNROLL
    for (int q = 0; q < kSlots; ++q) next_place[q] = chunk.place[q];
    fetch_chunk(chunk, lists, c + 2 * step, c + 2 * step < end);
    WF_UNROLL
    for (int q = 0; q < kSlots; ++q) {
      sum += v[q];
      if (place[q] != kNowhere) front[place[q]] = sum, sum = T(0);
      v[q] = next[q], place[q] = next_place[q];
    }
  }
}

}  // namespace wf
