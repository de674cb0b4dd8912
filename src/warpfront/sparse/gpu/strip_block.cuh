// A strip's diagonal block (strips.cu): eliminated by one warp, published, announced, and only then written out.
#pragma once
#include "blocked.cuh"
#include "pivoted.cuh"
#include "tagged.cuh"

namespace wf {

constexpr int kStripThreads = 256;

// Published for each diagonal block: M (pitch 32), then D as own, other, step.
constexpr int kPublished = kPanel * kPanel + 3 * kPanel;

template <typename T>
WF_DEVICE void publish_diagonal(const Diagonal<T>& d, T* published) {
  const int lane = lane_id();
  published += kPanel * kPanel;
  published[lane] = d.own[kLead + lane], published[kPanel + lane] = d.other[kLead + lane];
  published[2 * kPanel + lane] = static_cast<T>(d.step[kLead + lane]);
}

// M of a block eliminated without interchanges; one warp. Zero outside size x size.
template <typename T>
WF_DEVICE void publish_direct(int size, const DirectScratch<T>& s, T* published) {
  const int lane = lane_id();
  WF_UNROLL_N(8)
  for (int k = 0; k < kPanel; ++k)
    published[k * kPanel + lane] = k < size && lane < size ? s.inverse[k * kPitch + lane] * s.reciprocal[lane] : T(0);
  publish_diagonal(s.d, published);
}

// The same with interchanges: lane n makes column n of M from columns n and its partner of the inverse.
template <typename T>
WF_DEVICE void publish_pivoted(const T* block, int size, const i32* order, const T* diagonal, const i32* pivots,
                               T* published) {
  const int n = lane_id();
  T own = T(0), other = T(0);
  int partner = n;
  if (n < size) {
    const int kind = pivots[2 * n + 1];
    const T d = diagonal[2 * n];
    if (kind == 1) own = T(1) / d;
    if (kind >= 2) {
      partner = kind == 2 ? n + 1 : n - 1;
      const T off = diagonal[2 * min_of(n, partner) + 1], mine = d / off, theirs = diagonal[2 * partner] / off;
      const T scale = T(1) / ((mine * theirs - T(1)) * off);
      own = theirs * scale, other = -scale;
    }
  }
  for (int k = 0; k < kPanel; ++k) {
    const int row = k < size ? order[k] : k;
    const T a = k == n ? T(1) : k < n ? block[n * kPitch + k] : T(0);
    const T b = k == partner ? T(1) : k < partner ? block[partner * kPitch + k] : T(0);
    published[row * kPanel + n] = n < size && k < size ? a * own + (partner != n ? b * other : T(0)) : T(0);
  }
}

template <typename T>
struct StripScratch {
  DirectScratch<T> direct;
  PivotScratch<T> pivot;
};

// Where an eliminated block goes: D, pivots and statistics of its columns, and what the other strips read. Values that say
// themselves when they are there (`tagged`) come by way of `published` where a block is searched, in shared memory then; others wait for a flag.
template <typename T>
struct BlockOutput {
  T* diagonal;
  i32 *pivots, *stats;
  T* published;
  u32* done;
  u32 epoch;
  Tagged* tagged;

  // One warp, behind its stores.
  WF_DEVICE void announce() const {
    __syncwarp();
    if (tagged == nullptr) {
      if (lane_id() == 0) signal_set(done, epoch);
      return;
    }
    WF_UNROLL_N(5)
    for (int k = 0; k < kPublished; k += kWarp) tagged_store(tagged + k + lane_id(), published[k + lane_id()], epoch);
  }
};

// Columns n of M and of D of a definite block as eliminate_blocked finds them, while it goes on: M's rows before 8 (n + 1) only.
// One warp: rows 4 part.. of each 4 of.
template <typename T>
WF_DEVICE void publish_eight(int n, int part, int of, int size, const BlockedScratch<T>& s, const BlockOutput<T>& to) {
  const int lane = lane_id(), col = kSub * n + lane % kSub;
  WF_UNROLL_N(1)
  for (int k = 4 * part + lane / kSub; k < kSub * (n + 1); k += 4 * of)
    tagged_store(to.tagged + k * kPanel + col, k < size && col < size ? s.l[k * kPitch + col] : T(0), to.epoch);
  if (part == 0 && lane < kSub) tagged_store(to.tagged + kPanel * kPanel + col, col < size ? s.d[col] : T(0), to.epoch);
}

// Columns that are not there; one warp.
template <typename T>
WF_DEVICE void publish_zeros(int size, const BlockOutput<T>& to) {
  const int lane = lane_id(), end = (size + kSub - 1) / kSub * kSub;
  for (int k = end; k < kPanel; ++k) tagged_store(to.tagged + lane * kPanel + k, T(0), to.epoch);
  if (lane >= end) tagged_store(to.tagged + kPanel * kPanel + lane, T(0), to.epoch);
}

// M and D of a whole block that eliminate_blocked has taken, by one warp of `of`. Zero outside size x size.
template <typename T>
WF_DEVICE void publish_blocked(int part, int of, int size, const BlockedScratch<T>& s, const BlockOutput<T>& to) {
  const int lane = lane_id();
  for (int k = part; k < kPanel + 3; k += of) {
    T m = T(0);
    if (lane < size && k <= lane) m = s.l[k * kPitch + lane];
    if (lane < size && k == kPanel) m = s.d[lane];
    tagged_store(to.tagged + k * kPanel + lane, m, to.epoch);
  }
}

// What a block taken by eliminate_blocked leaves behind: D, pivots, statistics, and in the block L and the
// inverse above it.
template <typename T>
WF_DEVICE void settle_blocked(T* block, int size, int bad, const BlockedScratch<T>& s, const BlockOutput<T>& to) {
  const int lane = lane_id();
  const T d = lane < size ? s.d[lane] : T(0);
  const int positive = __popc(__ballot_sync(kFullMask, d > T(0)));
  if (lane < kStats)
    to.stats[lane] = lane == kFailed ? bad : lane == kOnes ? size : lane == kPositive ? positive : lane == kNegative ? size - positive : 0;
  if (lane < size) {
    to.diagonal[2 * lane] = d, to.diagonal[2 * lane + 1] = T(0);
    to.pivots[2 * lane] = lane, to.pivots[2 * lane + 1] = 1;
  }
  for (int k = 0; k < size; ++k) {
    const T* from = lane <= k ? s.x + lane * kPitch + k : lane / kSub == k / kSub ? s.own + lane * kSub + k % kSub : s.l + lane * kPitch + k;
    block[k * kPitch + lane] = *from;
  }
}

// Eliminates a diagonal block by eliminate_blocked, publishes it (the others wait for that), and only then settles it; the whole block,
// whose first warp settles. An indefinite one may be refused: false, and it is as it was, and nothing has been published.
template <bool Indefinite, typename T>
WF_DEVICE bool take_blocked(int role, T* block, int size, T least, BlockedScratch<T>& s, const BlockOutput<T>& to) {
  if (!Indefinite && role == 2) publish_zeros(size, to);
  const int bad = eliminate_blocked<Indefinite>(role, block, kPitch, size, least, s, [&](int n, int part, int of) {
    if (!Indefinite) publish_eight(n, part, of, size, s, to);
  });
  if (Indefinite && bad >= 0) return false;
  if (Indefinite) publish_blocked(role, kStripThreads / kWarp, size, s, to);
  if (role == 0) settle_blocked(block, size, bad, s, to);
  return true;
}

// The same by direct_block, a column's values at a time; goes through whatever the pivots are.
template <typename T>
WF_DEVICE void take_direct(T* block, int size, DirectScratch<T>& s, const BlockOutput<T>& to) {
  const int bad = direct_block<false, false>(block, kPitch, 0, size, T(0), s);
  __syncwarp();
  publish_direct(size, s, to.published);
  to.announce();
  write_direct(s, 0, size, to.diagonal, to.pivots);
  const int k = lane_id();
  if (k < kStats) to.stats[k] = k == kFailed ? bad : k == kOnes || k == kPositive ? size : 0;
}

// Without interchanges, by direct_block; false: refused, and the block is as it was.
template <typename T>
WF_DEVICE bool try_unsearched(T* block, int size, T least, DirectScratch<T>& s, const BlockOutput<T>& to) {
  const int lane = lane_id();
  // L is stashed above the diagonal until the last column has passed: a refused block is searched from its own values.
  if (direct_block<true, true>(block, kPitch, 0, size, least, s) >= 0) return false;
  __syncwarp();
  publish_direct(size, s, to.published);
  to.announce();
  settle_block(block, kPitch, 0, size, s);
  write_direct(s, 0, size, to.diagonal, to.pivots);
  const int positive = __popc(__ballot_sync(kFullMask, lane < size && s.d.own[kLead + lane] > T(0)));
  if (lane < kStats)
    to.stats[lane] = lane == kFailed ? -1 : lane == kOnes ? size : lane == kPositive ? positive : lane == kNegative ? size - positive : 0;
  return true;
}

template <typename T>
WF_DEVICE void search_block(T* block, int size, const T* rule, StripScratch<T>& s, i32* order, const BlockOutput<T>& to) {
  const int lane = lane_id();
  order[lane] = lane;
  if (lane < kStats) s.pivot.stats[lane] = lane == kFailed ? -1 : 0;
  __syncwarp();
  eliminate_pivoted<kWarp>(block, kPitch, size, kPanel, size, rule, static_cast<DirectScratch<T>*>(nullptr), s.pivot, order,
                           to.diagonal, to.pivots);
  __syncwarp();
  if (lane < kStats) to.stats[lane] = s.pivot.stats[lane];
  invert_unit(block, kPitch, size);
  __syncwarp();
  publish_pivoted(block, size, order, to.diagonal, to.pivots, to.published);
  load_diagonal(s.direct.d, to.diagonal, to.pivots, size, lane);
  __syncwarp();
  publish_diagonal(s.direct.d, to.published);
  to.announce();
}

// Eliminates a strip's diagonal block; the whole block, `role` a thread's warp. Tags: as in strips.cu.
template <bool Tags, typename T>
WF_DEVICE void eliminate_block(int role, T* block, int size, const T*, BlockedScratch<T>& blocked, DirectScratch<T>& s, i32*,
                               const BlockOutput<T>& to) {
  if (Tags) take_blocked<false>(role, block, size, T(0), blocked, to);
  else if (role == 0) take_direct(block, size, s, to);
}
template <bool Tags, typename T>
WF_DEVICE void eliminate_block(int role, T* block, int size, const T* rule, BlockedScratch<T>& blocked, StripScratch<T>& s, i32* order,
                               const BlockOutput<T>& to) {
  const T least = rule[kDoubt];
  const bool taken = Tags && take_blocked<true>(role, block, size, least, blocked, to);
  if (role != 0 || taken || (!Tags && try_unsearched(block, size, least, s.direct, to))) return;
  search_block(block, size, rule, s, order, to);
}

template <bool Pivoting, typename T>
struct ScratchOf {
  typedef DirectScratch<T> type;
};
template <typename T>
struct ScratchOf<true, T> {
  typedef StripScratch<T> type;
};

}  // namespace wf
