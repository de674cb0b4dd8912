// Exchange between the few blocks that work on one panel: a mailbox that every one of them reads, and a barrier.
//
// way_alone: one block, the mailbox is its shared memory. way_cluster (sm_90): a block writes into the shared memory of
// every block of its cluster and the cluster's barrier orders it. way_grid: the mailbox is one in global memory, the
// barrier a counter there; all blocks are resident (cooperative launch). The SIMT runner has no clusters: its twin of
// way_cluster is way_grid, which differs in these three functions only.
#pragma once
#include "signal.cuh"
#include "types.cuh"

namespace wf {

[[maybe_unused]] constexpr int kAlone = 0;
[[maybe_unused]] constexpr int kCluster = 1;
[[maybe_unused]] constexpr int kGrid = 2;

#if defined(WARPFRONT_SIMT) || WF_ARCH < 900
[[maybe_unused]] constexpr bool kHasClusters = false;
WF_DEVICE void cluster_barrier() {}
template <typename T>
WF_DEVICE void store_remote(T*, u32, T) {}
#else
[[maybe_unused]] constexpr bool kHasClusters = true;

// All threads of all blocks of the cluster; what was written before it, to any block's shared memory, is seen after it.
WF_DEVICE void cluster_barrier() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" : : : "memory");
}

WF_DEVICE u32 remote_address(const void* own, u32 rank) {
  u32 remote;
  const u32 address = static_cast<u32>(__cvta_generic_to_shared(own));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}

// Store into the shared variable that block `rank` of the cluster has where this block has `own`.
WF_DEVICE void store_remote(float* own, u32 rank, float v) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" : : "r"(remote_address(own, rank)), "f"(v) : "memory");
}
WF_DEVICE void store_remote(double* own, u32 rank, double v) {
  asm volatile("st.shared::cluster.f64 [%0], %1;" : : "r"(remote_address(own, rank)), "d"(v) : "memory");
}
WF_DEVICE void store_remote(i32* own, u32 rank, i32 v) {
  asm volatile("st.shared::cluster.s32 [%0], %1;" : : "r"(remote_address(own, rank)), "r"(v) : "memory");
}
#endif

// Barrier of the blocks that share a panel. counter: 0 before the launch, one for each panel; round: from 1.
template <int Way>
WF_DEVICE void panel_barrier(u32* counter, u32 round, u32 ranks) {
  if (Way == kAlone) {
    __syncthreads();
  } else if (Way == kCluster && kHasClusters) {
    cluster_barrier();
  } else {
    __syncthreads();
    if (threadIdx.x == 0) {
      add_acq_rel(counter, 1u);
      while (static_cast<i32>(acquire_load(counter) - round * ranks) < 0) spin();
    }
    __syncthreads();
  }
}

}  // namespace wf
