// Three ways to bring children's contribution blocks into their parents' fronts, for tools/device/sparse_gpu_assembly.py.
// Fronts are padded squares in global memory. One block of 128 threads a front (pull) or a child (push).
#include "../../src/warpfront/sparse/gpu/gather.cuh"

using namespace wf;

// Parent's lists, summed in shared memory, written out: what factor_tree.cu does, but for the writing.
__global__ void __launch_bounds__(128)
    pull(const i32* work, const Front* fronts, const i64* squares, const Gather* gathers, const i32* sources,
         const place_t* places, const double* values, const double* blocks, double* out) {
  WF_DYNAMIC_SHARED(memory);
  double* a = reinterpret_cast<double*>(memory);
  const int s = work[blockIdx.x], padded = (fronts[s].rows + 15) / 16 * 16, words = padded * (padded + 4);
  const GatherLists<double> lists = {gathers, sources, places, values, blocks};
  gather_front<128>(a, words, s, lists, [] { __syncthreads(); });
  __syncthreads();
  for (int e = threadIdx.x; e < words; e += 128) out[squares[s] + e] = a[e];
}

// Zeroes and entries of A, before either push.
__global__ void __launch_bounds__(128)
    enter(const i32* work, const Front* fronts, const i64* squares, const Entry* entries, const double* values, double* out) {
  const Front f = fronts[work[blockIdx.x]];
  const int padded = (f.rows + 15) / 16 * 16, ld = padded + 4;
  double* to = out + squares[work[blockIdx.x]];
  for (int e = threadIdx.x; e < padded * ld; e += 128) to[e] = 0.0;
  __syncthreads();
  for (i64 e = f.entry0 + threadIdx.x; e < f.entry1; e += 128) to[entries[e].col * ld + entries[e].row] = values[entries[e].slot];
}

// A child's block into its parent's square: by atomic additions, or plain ones where a launch holds one child a parent.
template <bool Atomic>
__global__ void __launch_bounds__(128)
    push(const i32* work, const Front* fronts, const i64* squares, const i32* parents, const i32* maps, const double* blocks,
         double* out) {
  const int s = work[blockIdx.x], parent = parents[s];
  const Front f = fronts[s];
  const int below = f.rows - f.width, ld = (fronts[parent].rows + 15) / 16 * 16 + 4;
  const i32* map = maps + f.map;
  const double* block = blocks + f.block;
  double* to = out + squares[parent];
  const int lane = threadIdx.x % 32;
  for (int j = static_cast<int>(threadIdx.x) / 32; j < below; j += 4)
    for (int i = j + lane; i < below; i += 32) {
      double* at = to + map[j] * ld + map[i];
      const double v = block[packed_at(below, j) + i];
      if (Atomic) atomicAdd(at, v);
      else *at += v;
    }
}
