// Block reductions: a warp reduction, one value per warp in shared memory, a fold in warp order by every
// warp.
//
// All threads of the block call together; blockDim.x is a multiple of 32, at most 1024, and the block is
// one-dimensional. `scratch` holds kMaxWarps entries and is the caller's shared memory. Two barriers: the
// first separates an earlier use of the scratch from this one's writes, the second those writes from the
// reads.
#pragma once
#include "types.cuh"
#include "warp.cuh"

namespace wf {

constexpr int kMaxWarps = 32;

template <typename T>
WF_DEVICE T block_sum(T v, T* scratch) {
  v = warp_sum(v);
  __syncthreads();
  if (lane_id() == 0) scratch[threadIdx.x / kWarp] = v;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  return warp_sum(lane_id() < warps ? scratch[lane_id()] : T(0));
}

// The fold reads at least one value: lanes beyond the last warp repeat it, which changes neither a maximum
// nor a minimum.
template <typename T>
WF_DEVICE T block_max(T v, T* scratch) {
  v = warp_max(v);
  __syncthreads();
  if (lane_id() == 0) scratch[threadIdx.x / kWarp] = v;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  return warp_max(scratch[min_of(lane_id(), warps - 1)]);
}

template <typename T>
WF_DEVICE T block_min(T v, T* scratch) {
  v = warp_min(v);
  __syncthreads();
  if (lane_id() == 0) scratch[threadIdx.x / kWarp] = v;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  return warp_min(scratch[min_of(lane_id(), warps - 1)]);
}

template <typename T>
WF_DEVICE indexed<T> block_arg_max(indexed<T> best, indexed<T>* scratch) {
  best = warp_arg_max(best);
  __syncthreads();
  if (lane_id() == 0) scratch[threadIdx.x / kWarp] = best;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  return warp_arg_max(scratch[min_of(lane_id(), warps - 1)]);
}

}  // namespace wf
