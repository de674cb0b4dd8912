// Exchange between the few blocks that work on one panel: a mailbox that every one of them reads.
//
// way_alone: one block, the mailbox is its shared memory and the block's barrier orders it. way_cluster (sm_90): a warp
// sends what it has to the shared memory of every block of the cluster, asynchronously; each block counts the bytes that
// arrive on an mbarrier and nothing else orders the blocks. way_grid: the mailbox is one in global memory, with a counter
// there; all blocks are resident (cooperative launch). The SIMT runner has no clusters: its twin of way_cluster is
// way_grid, which differs in how a message travels and how its arrival is awaited.
#pragma once
#include "async_copy.cuh"
#include "signal.cuh"
#include "types.cuh"

namespace wf {

[[maybe_unused]] constexpr int kAlone = 0;
[[maybe_unused]] constexpr int kCluster = 1;
[[maybe_unused]] constexpr int kGrid = 2;

template <typename T>
struct alignas(16) pack {
  T v[16 / sizeof(T)];
};

#if defined(WARPFRONT_SIMT) || WF_ARCH < 900
[[maybe_unused]] constexpr bool kHasClusters = false;
WF_DEVICE void cluster_barrier() {}
template <typename P>
WF_DEVICE void send16(P*, u32, u64*, const P&) {}
WF_DEVICE void messages_expect(u64*, u32) {}
WF_DEVICE void messages_wait(u64*, u32) {}
WF_DEVICE void messages_init(u64*) {}
#else
[[maybe_unused]] constexpr bool kHasClusters = true;

// All threads of all blocks of the cluster; what was written before it, to any block's shared memory, is seen after it.
WF_DEVICE void cluster_barrier() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" : : : "memory");
}

// Address, in the cluster, of what block `rank` has where this block has `own`.
WF_DEVICE u32 remote_address(const void* own, u32 rank) {
  u32 remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(own)), "r"(rank));
  return remote;
}

// Send 16 bytes to block `rank`, to where this block has `own`; they count on that block's barrier at `bar`.
template <typename P>
WF_DEVICE void send16(P* own, u32 rank, u64* bar, const P& value) {
  static_assert(sizeof(P) == 16, "a message has 16 bytes");
  const u32* const words = reinterpret_cast<const u32*>(&value);
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
               : : "r"(remote_address(own, rank)), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]),
                 "r"(remote_address(bar, rank)) : "memory");
}

WF_DEVICE void messages_init(u64* bar) { mbar_init(bar, 1); }

// One thread of the block, once for each round of messages.
WF_DEVICE void messages_expect(u64* bar, u32 bytes) { mbar_expect(bar, bytes); }

// Wait for a round; what was sent is seen by the thread that waited.
WF_DEVICE void messages_wait(u64* bar, u32 parity) {
  u32 done;
  do {
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(shared_address(bar)), "r"(parity) : "memory");
  } while (!done);
}
#endif

// Barrier of resident blocks. counter: 0 before the launch, one for each panel; round: from 1.
WF_DEVICE void panel_barrier(u32* counter, u32 round, u32 ranks) {
  __syncthreads();
  if (threadIdx.x == 0) {
    add_acq_rel(counter, 1u);
    while (static_cast<i32>(acquire_load(counter) - round * ranks) < 0) spin();
  }
  __syncthreads();
}

}  // namespace wf
