// Correct kernels that a careless checker would report.

// Neighbouring bytes of one word belong to different threads.
__global__ void bytes(const unsigned char *a, unsigned char *b) { b[threadIdx.x] = a[threadIdx.x] + 1; }

// Counters and a histogram in shared memory, with atomics; the barriers order the plain accesses around them.
__global__ void histogram(const int *a, int *bins, int n) {
  __shared__ int s[16];
  const int t = threadIdx.x;
  if (t < 16) s[t] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[a[i]], 1);
  __syncthreads();
  if (t < 16) atomicAdd(&bins[t], s[t]);
}

// A grid barrier made of a counter, twice: every block writes, every block reads another one's value.
__device__ void grid_barrier(unsigned *count, unsigned target) {
  __syncthreads();
  if (threadIdx.x == 0) {
    simt::atomic_add_acq_rel(count, 1u);
    while (simt::acquire_load(count) < target) simt::spin();
  }
  __syncthreads();
}
__global__ void neighbours(float *a, float *b, unsigned *count) {
  const unsigned n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
  a[i] = i;
  grid_barrier(count, gridDim.x);
  b[i] = a[(i + blockDim.x) % n];
  grid_barrier(count, 2 * gridDim.x);
  a[i] = b[(i + n - blockDim.x) % n] + 1.0f;
}

// A spin lock: compare-and-swap, fence, plain update, fence, release by exchange.
__global__ void locked(int *lock, long long *sum) {
  if (threadIdx.x % 32 != 0) return;
  while (atomicCAS(lock, 0, 1) != 0) simt::spin();
  __threadfence();
  sum[0] += blockIdx.x + 1;
  __threadfence();
  atomicExch(lock, 0);
}

// Named barriers: warp 0 fills, warp 1 drains; two stages, so each barrier is used twice.
__global__ void pipeline(const float *a, float *b, int rounds) {
  __shared__ float s[32];
  const int lane = threadIdx.x % 32;
  for (int k = 0; k < rounds; ++k) {
    if (threadIdx.x < 32) {
      if (k > 0) simt::barrier_sync(2, 64);
      s[lane] = a[32 * k + lane];
      simt::barrier_arrive(1, 64);
    } else {
      simt::barrier_sync(1, 64);
      b[32 * k + lane] = s[31 - lane];
      if (k + 1 < rounds) simt::barrier_arrive(2, 64);
    }
  }
}

// A bulk copy that completes on an mbarrier, two phases.
__global__ void bulk(const float *a, float *b) {
  __shared__ __align__(128) float s[64];
  __shared__ unsigned long long bar;
  const int t = threadIdx.x;
  if (t == 0) simt::mbar_init(&bar, 1);
  __syncthreads();
  for (int phase = 0; phase < 2; ++phase) {
    if (t == 0) {
      simt::mbar_expect(&bar, 256);
      simt::bulk_load(s, a + 64 * phase, 256, &bar);
    }
    simt::mbar_wait(&bar, phase & 1);
    b[64 * phase + t] = s[63 - t];
    __syncthreads();
  }
}

// Warp collectives, and two disjoint groups that do not wait for each other.
__global__ void collectives(const int *a, int *out) {
  const int t = threadIdx.x;
  const unsigned all = 0xffffffffu;
  const int v = a[t];
  out[t] = __shfl_up_sync(all, v, 3);
  out[32 + t] = __shfl_down_sync(all, v, 5, 16);
  out[64 + t] = static_cast<int>(__ballot_sync(all, v & 1));
  out[96 + t] = __reduce_add_sync(all, v);
  out[128 + t] = __reduce_min_sync(all, v);
  out[160 + t] = static_cast<int>(__match_any_sync(all, v & 3));
  const unsigned half = t < 16 ? 0x0000ffffu : 0xffff0000u;
  if (t < 16) out[192 + t] = __shfl_xor_sync(half, v, 8);
  else out[192 + t] = __shfl_xor_sync(half, v, 4);
  out[224 + t] = __any_sync(all, v > 100) * 2 + __all_sync(all, v >= 0);
  out[256 + t] = __syncthreads_count(v & 1);
}

struct View {
  const double *data;
  int rows, cols;
  double *out;
};
__constant__ double scale_table[2] = {2.0, 3.0};
// A structure by value, a constant table, three-dimensional indices.
__global__ void by_value(View v, float factor) {
  const int i = threadIdx.y + blockIdx.y * blockDim.y, j = threadIdx.x + blockIdx.x * blockDim.x;
  if (i < v.rows && j < v.cols) v.out[j * v.rows + i] = v.data[i * v.cols + j] * scale_table[(i + j) % 2] * factor;
}
