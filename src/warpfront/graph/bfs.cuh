// What the breadth-first kernels share: the state of a search, claiming a vertex, the queue, push and pull by a warp.
//
// State. dist[v] and parent[v] are all ones (-1) where unreached. parent[v] is lowered by atomicMin: all ones is the
// largest number, so whoever lowers it first has found v, and the smallest candidate stays, whatever the order. A
// vertex of an earlier level has dist[v] < next and is left alone. `bits` holds four bitmaps of `words` words: closed
// so far (reached, or without an arc into it), frontier, what comes after it, closed at the start.
//
// Queue. Two halves of `capacity` items, by parity of the level. An item is a range of arcs (offset, length, tail):
// a vertex with more than `piece` arcs is several items, which different warps take. A level holds at most
// n + arcs / piece items: every vertex once, and one more for each whole piece.
//
// Counters. Three slots, by level modulo 3: one is read (this level's frontier), one is added to (the next), one is
// cleared. So one grid barrier a level is enough.
//
// Memory order. Between levels: the grid barrier (or the kernel's end), whose acquire lets every thread read with
// plain loads what other blocks wrote before it. Within a level only parent, dist, the closed bits and the counters are
// touched by several threads, by atomics and relaxed accesses.
//
// Literature: S. Beamer, K. Asanovic, D. Patterson, SC 2012 (direction); D. Merrill, M. Garland, A. Grimshaw, PPoPP
// 2012 (prefix sums over a warp's arcs); H. Liu, H. H. Huang, SC 2015 (degree classes).
#pragma once
#include "signal.cuh"
#include "types.cuh"
#include "vec16.cuh"
#include "warp.cuh"

namespace wf {

constexpr u32 kNoVertex = 0xffffffffu;

// Words of `control`. Parameters first; from kBarrier on the host clears before each search.
enum control_word {
  kN, kCapacity, kStop, kAlpha, kBeta, kBase, kArcs, kFlags, kPiece, kLogRows,
  kBarrier = 16, kLevel, kOpen, kLevels, kReached, kReachedArcs, kDepth, kSpill,
  kSlots = 24,   // three slots of kSlotWords
  kCycles = 48,
  kLog = 64      // kLogColumns words a level
};
enum flag { kCanPull = 1, kAlwaysPull = 2, kSymmetric = 4 };
enum slot_word { kItems, kFound, kOut, kTake, kExamined, kDuplicates, kTried, kWon, kSlotWords };
constexpr int kLogColumns = 9;  // pulled, frontier, arcs, found, examined, duplicates, tried, won, cycles

struct search {
  const i64 *ptr, *in_ptr;
  const i32 *ind, *in_ind;
  u32 *dist, *parent;
  vec16* queue;
  u32* bits;
  u64* control;
  i64 n, words, capacity, base;
  u32 piece, flags;
};

struct tally {
  u32 found, examined, duplicates, tried;
  u64 out;
};

WF_DEVICE u32 peek(const u32* p) { return relaxed_load(p); }
WF_DEVICE void poke(u32* p, u32 v) { relaxed_store(p, v); }

WF_DEVICE u64 peek(const u64* p) {
#ifdef WARPFRONT_SIMT
  return simt::relaxed_load(p);
#else
  u64 v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
#endif
}

WF_DEVICE void poke(u64* p, u64 v) {
#ifdef WARPFRONT_SIMT
  simt::relaxed_store(p, v);
#else
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
#endif
}

// Shared words that others in the block change by atomics.
WF_DEVICE u32 peek_shared(const u32* p) { return *static_cast<const volatile u32*>(p); }

WF_DEVICE search make_search(const i64* ptr, const i32* ind, const i64* in_ptr, const i32* in_ind, u32* dist,
                             u32* parent, void* queue, u32* bits, u64* control) {
  search s;
  s.ptr = ptr, s.in_ptr = in_ptr, s.ind = ind, s.in_ind = in_ind, s.dist = dist, s.parent = parent;
  s.queue = static_cast<vec16*>(queue), s.bits = bits, s.control = control;
  s.n = static_cast<i64>(control[kN]), s.capacity = static_cast<i64>(control[kCapacity]);
  s.base = static_cast<i64>(control[kBase]), s.piece = static_cast<u32>(control[kPiece]);
  s.flags = static_cast<u32>(control[kFlags]), s.words = (s.n + 31) / 32;
  return s;
}

WF_DEVICE u64* slot_of(const search& s, u32 level) { return s.control + kSlots + (level % 3) * kSlotWords; }
WF_DEVICE vec16* half_of(const search& s, u32 level) { return s.queue + (level & 1) * s.capacity; }
WF_DEVICE tally no_tally() { return tally{0, 0, 0, 0, 0}; }

// Sum over the lanes of a warp; all get it.
WF_DEVICE u64 lanes_sum(u64 v) {
#if WF_ARCH >= 800
  // Three sums of 24 bits and less, an instruction each, instead of ten shuffles.
  const u32 low = __reduce_add_sync(kFullMask, static_cast<u32>(v & 0xffffff));
  const u32 middle = __reduce_add_sync(kFullMask, static_cast<u32>(v >> 24 & 0xffffff));
  const u32 high = __reduce_add_sync(kFullMask, static_cast<u32>(v >> 48));
  return low + (static_cast<u64>(middle) << 24) + (static_cast<u64>(high) << 48);
#else
  return warp_sum(v);
#endif
}

// Offer u as the parent of v, which would be at distance `next`. True for the one offer that finds v.
template <bool Trace>
WF_DEVICE bool offer(const search& s, u32 u, u32 v, u32 next, tally& t) {
  const u32 held = peek(s.parent + v);
  if (held <= u) {
    if (Trace) t.duplicates += peek(s.dist + v) == next;
    return false;
  }
  if (held != kNoVertex) {
    const u32 d = peek(s.dist + v);  // none yet: whoever found v in this level is about to write it
    if (d != kNoVertex && d != next) return false;
  }
  if (Trace) ++t.tried;
  if (atomicMin(s.parent + v, u) != kNoVertex) {
    if (Trace) ++t.duplicates;
    return false;
  }
  poke(s.dist + v, next);
  ++t.found;
  return true;
}

// The lane whose running sum is the first beyond k. All lanes call.
WF_DEVICE int owner_of(u32 upto, u32 k) {
  int owner = 0;
  WF_UNROLL
  for (int d = kWarp / 2; d > 0; d >>= 1)
    if (__shfl_sync(kFullMask, upto, owner + d - 1) <= k) owner += d;
  return owner;
}

// A found vertex with its arcs.
struct entry {
  i64 first;
  i64 degree;
  u32 v;
};

WF_DEVICE vec16 item_of(i64 first, u32 length, u32 v) {
  return vec16{{static_cast<u32>(first), static_cast<u32>(static_cast<u64>(first) >> 32), length, v}};
}

WF_DEVICE i64 first_of(const vec16& item) {
  return static_cast<i64>(item.w[0] | static_cast<u64>(item.w[1]) << 32);
}

// What is known of a vertex once it is found; counts its arcs, closes its bit.
WF_DEVICE entry close_vertex(const search& s, u32 v, tally& t) {
  const i64 first = s.ptr[v], degree = s.ptr[static_cast<i64>(v) + 1] - first;
  t.out += static_cast<u64>(degree);
  if (s.flags & kCanPull) atomicOr(s.bits + v / 32, 1u << (v % 32));
  return entry{first, degree, v};
}

// All lanes call: the pieces after the first of each lane's vertex (of `pieces` more) go straight to the queue, with one
// reservation for all.
WF_DEVICE void put_further_pieces(vec16* out, u64* tail, u32 piece, u32 pieces, const entry& e) {
  u32 upto = pieces;
  WF_UNROLL
  for (int d = 1; d < kWarp; d <<= 1) {
    const u32 other = __shfl_up_sync(kFullMask, upto, d);
    if (lane_id() >= d) upto += other;
  }
  const u32 total = __shfl_sync(kFullMask, upto, kWarp - 1);
  u64 at = 0;
  if (lane_id() == 0) at = atomicAdd(tail, static_cast<u64>(total));
  at = __shfl_sync(kFullMask, at, 0);
  for (u32 first = 0; first < total; first += kWarp) {
    const u32 k = first + lane_id();
    const int owner = owner_of(upto, k);
    const u32 before = __shfl_sync(kFullMask, upto - pieces, owner), v = __shfl_sync(kFullMask, e.v, owner);
    const i64 origin = __shfl_sync(kFullMask, e.first, owner), arcs = __shfl_sync(kFullMask, e.degree, owner);
    const i64 skip = static_cast<i64>(k - before + 1) * piece;
    if (k < total) store16(out + at + k, item_of(origin + skip, static_cast<u32>(min_of<i64>(arcs - skip, piece)), v));
  }
}

// A warp's part of the queue in shared memory: flushed with one reservation when it is more than half full.
constexpr int kStage = 64;

struct stage {
  vec16* buffer;  // kStage items of shared memory
  u32 held;       // the same in all lanes
  vec16* out;
  u64* tail;
};

WF_DEVICE void flush(stage& q) {
  __syncwarp();
  u64 at = 0;
  if (lane_id() == 0) at = atomicAdd(q.tail, static_cast<u64>(q.held));
  at = __shfl_sync(kFullMask, at, 0);
  for (u32 k = lane_id(); k < q.held; k += kWarp) store16(q.out + at + k, q.buffer[k]);
  __syncwarp();
  q.held = 0;
}

// All lanes call; those with `mine` put their vertex.
WF_DEVICE void put(const search& s, stage& q, bool mine, const entry& e) {
  mine = mine && e.degree > 0;
  const u32 mask = __ballot_sync(kFullMask, mine);
  if (mask == 0) return;
  const u32 rank = static_cast<u32>(__popc(mask & ((1u << lane_id()) - 1)));
  if (mine) {
    const u32 length = static_cast<u32>(min_of<i64>(e.degree, s.piece));
    q.buffer[q.held + rank] = item_of(e.first, length, e.v);
  }
  q.held += static_cast<u32>(__popc(mask));
  const u32 further = mine && e.degree > static_cast<i64>(s.piece) ? static_cast<u32>((e.degree - 1) / s.piece) : 0;
  if (__any_sync(kFullMask, further != 0)) put_further_pieces(q.out, q.tail, s.piece, further, e);
  if (q.held > kStage - kWarp) flush(q);
}

// One item a lane (length 0: none): the warp walks all their arcs together, 32 at a time. sink(active, tail, head) is
// called by all lanes in each step.
template <typename Sink>
WF_DEVICE void push_batch(const search& s, const vec16& item, Sink sink) {
  const u32 length = item.w[2];
  u32 upto = length;
  WF_UNROLL
  for (int d = 1; d < kWarp; d <<= 1) {
    const u32 other = __shfl_up_sync(kFullMask, upto, d);
    if (lane_id() >= d) upto += other;
  }
  const i64 first = first_of(item) - s.base - static_cast<i64>(upto - length);
  const u32 total = __shfl_sync(kFullMask, upto, kWarp - 1);
  for (u32 at = 0; at < total; at += kWarp) {
    const u32 arc = at + lane_id();
    const int owner = owner_of(upto, arc);
    const i64 origin = __shfl_sync(kFullMask, first, owner);
    const u32 u = __shfl_sync(kFullMask, item.w[3], owner);
    sink(arc < total, u, arc < total ? static_cast<u32>(__ldg(s.ind + origin + arc)) : 0);
  }
}

// A warp's arcs are offered and what they find is put to its part of the queue.
template <bool Trace>
WF_DEVICE void push_items(const search& s, const vec16& item, u32 next, tally& t, stage& q) {
  push_batch(s, item, [&](bool active, u32 u, u32 v) {
    entry e = {0, 0, v};
    const bool found = active && offer<Trace>(s, u, v, next, t);
    if (found) e = close_vertex(s, v, t);
    put(s, q, found, e);
  });
}

// Position of the set bit number k of a word that has more than k.
WF_DEVICE u32 select_bit(u32 word, u32 k) {
  u32 at = 0;
  WF_UNROLL
  for (u32 width = 16; width > 0; width >>= 1) {
    const u32 low = static_cast<u32>(__popc((word >> at) & ((1u << width) - 1)));
    if (k >= low) k -= low, at += width;
  }
  return at;
}

// 32 words of a bitmap, one a lane: their set bits are taken 32 at a time, all lanes busy but in the last round.
// visit(active, owner lane, vertex) is called by all lanes. `first` is the number of lane 0's word.
template <typename Visit>
WF_DEVICE void each_bit(u32 word, i64 first, Visit visit) {
  const u32 own = static_cast<u32>(__popc(word));
  u32 upto = own;
  WF_UNROLL
  for (int d = 1; d < kWarp; d <<= 1) {
    const u32 other = __shfl_up_sync(kFullMask, upto, d);
    if (lane_id() >= d) upto += other;
  }
  const u32 total = __shfl_sync(kFullMask, upto, kWarp - 1);
  for (u32 at = 0; at < total; at += kWarp) {
    const u32 k = at + lane_id();
    const int owner = owner_of(upto, k);
    const u32 bits = __shfl_sync(kFullMask, word, owner), before = __shfl_sync(kFullMask, upto - own, owner);
    const bool active = k < total;
    const u32 v = active ? static_cast<u32>((first + owner) * 32) + select_bit(bits, k - before) : 0;
    visit(active, owner, v);
  }
}

// Arcs a lane looks at by itself before the warp helps with the rest of its list.
constexpr int kAlone = 8;

// Words of a group: 32, or fewer where that leaves warps without work.
WF_DEVICE i64 words_each(const search& s, i64 warps) { return min_of<i64>(kWarp, (s.words + warps - 1) / warps); }

// Pull for the vertices of a group of `each` words, 1024 at most: each that is not closed looks for the first arc from
// the frontier. `found` is 32 words of shared memory of this warp.
template <bool Trace>
WF_DEVICE void pull_group(const search& s, i64 group, i64 each, u32 front_at, u32 next, u32* found, tally& t) {
  const int lane = lane_id();
  const i64 w = group * each + lane;
  const bool mine = lane < each && w < s.words;
  const u32 closed = mine ? s.bits[w] : 0xffffffffu;
  const u32* const front = s.bits + front_at * s.words;
  found[lane] = 0;
  __syncwarp();
  each_bit(~closed, group * each, [&](bool active, int owner, u32 v) {
    i64 k = 0, last = 0, first = 0;
    if (active) first = s.in_ptr[v], last = s.in_ptr[static_cast<i64>(v) + 1];
    u32 u = kNoVertex;
    const i64 alone = min_of<i64>(last, first + kAlone);
    for (k = first; k < alone; ++k) {
      const u32 c = static_cast<u32>(__ldg(s.in_ind + k - s.base));
      if (front[c / 32] >> (c % 32) & 1u) {
        u = c;
        ++k;
        break;
      }
    }
    if (Trace) t.examined += static_cast<u32>(k - first);
    u32 more = __ballot_sync(kFullMask, u == kNoVertex && k < last);
    while (more != 0) {
      const int from = __ffs(static_cast<int>(more)) - 1;
      more &= more - 1;
      const i64 begin = __shfl_sync(kFullMask, k, from), end = __shfl_sync(kFullMask, last, from);
      for (i64 at = begin; at < end; at += kWarp) {
        u32 c = kNoVertex;
        bool hit = false;
        if (at + lane < end) {
          c = static_cast<u32>(__ldg(s.in_ind + at + lane - s.base));
          hit = front[c / 32] >> (c % 32) & 1u;
          if (Trace) ++t.examined;
        }
        const u32 hits = __ballot_sync(kFullMask, hit);
        if (hits != 0) {
          c = __shfl_sync(kFullMask, c, __ffs(static_cast<int>(hits)) - 1);
          if (lane == from) u = c;
          break;
        }
      }
    }
    if (u != kNoVertex) {
      s.dist[v] = next;
      s.parent[v] = u;
      atomicOr(found + owner, 1u << (v % 32));
      ++t.found;
      t.out += static_cast<u64>(s.flags & kSymmetric ? last - first : s.ptr[static_cast<i64>(v) + 1] - s.ptr[v]);
    }
  });
  __syncwarp();
  if (mine) {
    const u32 hits = found[lane];
    s.bits[(3 - front_at) * s.words + w] = hits;
    if (hits) s.bits[w] = closed | hits;
  }
}

// Bitmaps 1 and 2 are the frontier and what comes after it, in turn.
WF_DEVICE u32 front_of(u32 level) { return 1 + (level & 1); }

// The vertices of a group of the frontier's bitmap go to the queue.
WF_DEVICE void compact_group(const search& s, i64 group, i64 each, u32 front_at, stage& q) {
  const i64 w = group * each + lane_id();
  const u32 word = lane_id() < each && w < s.words ? s.bits[front_at * s.words + w] : 0;
  each_bit(word, group * each, [&](bool active, int, u32 v) {
    entry e = {0, 0, v};
    if (active) e.first = s.ptr[v], e.degree = s.ptr[static_cast<i64>(v) + 1] - e.first;
    put(s, q, active, e);
  });
}

}  // namespace wf
