// Extend-add by pull into a whole LU front, both halves at once.
#pragma once
#include "lu_front.cuh"

namespace wf {

// Adds the children's blocks to a whole front in shared memory (column-major, ld): both halves of a child at once, their
// columns (of the upper half, rows of the front) by the warp that owns the place. The next child's record and the first of
// its places are loaded ahead.
template <int Threads, typename T>
WF_DEVICE void pull_halves(T* front, int ld, const Front& f, const Child* children, const i32* maps, const T* blocks) {
  constexpr int kWarps = Threads / kWarp, kBatch = kWarps == 1 ? 16 : kWarps == 4 ? 8 : 4;
  constexpr int kChunks = kWarps == 1 ? 1 : kWarps == 4 ? 2 : 4;  // columns, and 32 rows of each, loaded before any is added
  const int rank = team_rank<Threads>(), lane = rank % kWarp, warp = rank / kWarp;
  Child next = f.child0 < f.child1 ? children[f.child0] : Child{};
  Child after = f.child0 + 1 < f.child1 ? children[f.child0 + 1] : Child{};
  int place_next = lane < next.below ? maps[next.map + lane] : -1;
  for (int c = f.child0; c < f.child1; ++c) {
    const Child child = next;
    const int place_first = place_next, below = child.below;
    next = after;
    after = c + 2 < f.child1 ? children[c + 2] : Child{};
    place_next = lane < next.below ? maps[next.map + lane] : -1;
    const i32* map = maps + child.map;
    const T *lower = blocks + child.block, *upper = blocks + upper_block(child.block, below);
    for (int base = 0; base < below; base += kWarp) {
      const int place = base == 0 ? place_first : base + lane < below ? map[base + lane] : -1;
      u32 mine = __ballot_sync(kFullMask, place >= 0 && place % kWarps == warp);
      while (mine != 0) {
        int col[kBatch], into[kBatch];
        WF_UNROLL
        for (int q = 0; q < kBatch; ++q) {
          const int bit = mine != 0 ? __ffs(static_cast<int>(mine)) - 1 : -1;
          into[q] = __shfl_sync(kFullMask, place, bit < 0 ? 0 : bit);
          col[q] = bit < 0 ? below : base + bit;
          mine &= mine - 1;
        }
        for (int i0 = base; i0 < below; i0 += kWarp * kChunks) {
          T v[kChunks][kBatch], w[kChunks][kBatch];
          int row[kChunks];
          WF_UNROLL
          for (int h = 0; h < kChunks; ++h) {
            const int i = i0 + h * kWarp + lane;
            row[h] = i0 == base && h == 0 ? place : i < below ? map[i] : 0;
            WF_UNROLL
            for (int q = 0; q < kBatch; ++q) {
              const int at = packed_at(below, col[q]) + i;
              v[h][q] = i < below && i >= col[q] ? lower[at] : T(0);
              w[h][q] = i < below && i > col[q] ? upper[at] : T(0);
            }
          }
          WF_UNROLL
          for (int h = 0; h < kChunks; ++h) {
            const int i = i0 + h * kWarp + lane;
            WF_UNROLL
            for (int q = 0; q < kBatch; ++q) {
              if (i < below && i >= col[q]) front[into[q] * ld + row[h]] += v[h][q];
              if (i < below && i > col[q]) front[row[h] * ld + into[q]] += w[h][q];
            }
          }
        }
        __syncwarp();
      }
    }
  }
}

}  // namespace wf
