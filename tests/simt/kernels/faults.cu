// Small kernels, each with a correct form (Faulty = false) and the same kernel with one thing wrong. The comment
// `@ name` marks a line that the report of fault `name` has to point at.

// One block of 32 x 8 threads transposes a 32 x 32 tile through shared memory; the barrier separates fill and drain.
template <bool Faulty> __global__ void removed_barrier(const double *__restrict__ a, double *__restrict__ b) {
  __shared__ double tile[32][33];
  const int x = threadIdx.x;
  for (int y = threadIdx.y; y < 32; y += blockDim.y) {
    tile[y][x] = a[y * 32 + x];  // @ removed_barrier
  }
  if (!Faulty) __syncthreads();
  for (int y = threadIdx.y; y < 32; y += blockDim.y) {
    b[y * 32 + x] = tile[x][y];  // @ removed_barrier
  }
}

// Threads past n leave before the barrier that the others wait at.
template <bool Faulty> __global__ void early_exit(const float *a, float *b, int n) {
  __shared__ float s[64];
  const int t = threadIdx.x;
  if (Faulty && t >= n) return;
  s[t] = t < n ? a[t] : 0.0f;
  __syncthreads();  // @ early_exit
  if (t < n) b[t] = s[63 - t < n ? 63 - t : t];
}

// Block 0 makes data and raises a flag; block 1 waits for it. The flag has to be stored with release.
template <bool Faulty> __global__ void unordered_signal(float *data, int *flag, float *out) {
  const int t = threadIdx.x;
  if (blockIdx.x == 0) {
    data[t] = 3.0f * t;  // @ unordered_signal
    __syncthreads();
    if (t == 0) {
      if (Faulty) simt::relaxed_store(flag, 1);
      else simt::release_store(flag, 1);
    }
  } else {
    if (t == 0)
      while (simt::acquire_load(flag) == 0) simt::spin();
    __syncthreads();
    out[t] = data[t];  // @ unordered_signal
  }
}

// Three-point sum over a block's 32 points with one halo point on each side.
template <bool Faulty> __global__ void halo_shared(const float *a, float *b) {
  __shared__ float s[34];
  const int t = threadIdx.x;
  s[t + 1] = a[t + 1];
  if (t == 0) s[0] = a[0];
  if (t == 31) s[33] = a[33];
  __syncthreads();
  const int at = Faulty ? t + 2 : t + 1;
  b[t] = s[at - 1] + s[at] + s[at + 1];  // @ halo_shared
}
template <bool Faulty> __global__ void halo_global(const float *a, float *b, int n) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  const int last = Faulty ? n : n - 1;
  if (t < n) b[t] = a[t] + (t < last ? a[t + 1] : 0.0f);  // @ halo_global
}

// Lane 31 is somewhere else while the others shuffle with all lanes named.
template <bool Faulty> __global__ void missing_lane(const int *a, int *b) {
  const int t = threadIdx.x;
  int v = a[t];
  if (!Faulty || t != 31) v += __shfl_xor_sync(0xffffffffu, v, 1);  // @ missing_lane
  __syncthreads();
  b[t] = v;
}
// A lane reads from one that the mask does not name.
template <bool Faulty> __global__ void absent_source(const int *a, int *b) {
  const int t = threadIdx.x;
  int v = a[t];
  if (t < 16) v = __shfl_sync(0x0000ffffu, v, Faulty ? 16 : 15);  // @ absent_source
  b[t] = v;
}

// Every thread of two warps writes one word.
template <bool Faulty> __global__ void two_writers(int *out) {
  if (!Faulty && threadIdx.x != 0) return;
  out[0] = threadIdx.x < 32 ? 1 : 2;  // @ two_writers
}

// Block 1 reads block 0's result before it has waited for it, and uses that value afterwards.
template <bool Faulty> __global__ void stale_read(float *data, int *flag, float *out) {
  if (blockIdx.x == 0) {
    data[0] = 7.0f;  // @ stale_read
    simt::release_store(flag, 1);
    return;
  }
  float early = 0.0f;
  if (Faulty) early = data[0];  // @ stale_read
  while (simt::acquire_load(flag) == 0) simt::spin();
  out[0] = Faulty ? early : data[0];
}

// The last block to finish adds up the others' parts: fence, counter, fence (CUDA's threadFenceReduction pattern).
template <bool Faulty> __global__ void last_block(float *part, unsigned *count, float *out) {
  part[blockIdx.x] = 1.0f + blockIdx.x;  // @ last_block
  if (!Faulty) __threadfence();
  if (atomicAdd(count, 1u) != gridDim.x - 1) return;
  __threadfence();
  float sum = 0.0f;
  for (unsigned k = 0; k < gridDim.x; ++k) sum += part[k];  // @ last_block
  out[0] = sum;
}
// The same with a fence that reaches only the own block.
template <bool Faulty> __global__ void narrow_fence(volatile float *data, volatile int *flag, float *plain, float *out) {
  if (blockIdx.x == 0) {
    plain[0] = 5.0f;  // @ narrow_fence
    if (Faulty) __threadfence_block();
    else __threadfence();
    *flag = 1;
    return;
  }
  while (*flag == 0) {
  }
  __threadfence();
  out[0] = plain[0] + data[0];  // @ narrow_fence
}

// Lanes exchange through shared memory. A shuffle brings them together but orders no memory; __syncwarp does.
template <bool Faulty> __global__ void warp_order(const int *a, int *b) {
  __shared__ int s[32];
  const int t = threadIdx.x;
  s[t] = a[t];  // @ warp_order
  if (Faulty) (void)__shfl_sync(0xffffffffu, t, 0);
  else __syncwarp();
  b[t] = s[31 - t];  // @ warp_order
}

// Both sides of a condition have a barrier, but not the same one.
template <bool Faulty> __global__ void divergent_barrier(int *b) {
  const int t = threadIdx.x;
  if (Faulty && t < 32) {
    b[t] = 1;
    __syncthreads();  // @ divergent_barrier
  } else {
    b[t] = 2;
    __syncthreads();  // @ divergent_barrier
  }
}

// A wait for a flag that nobody raises.
template <bool Faulty> __global__ void lost_signal(int *flag, int *out) {
  if (blockIdx.x == 0) {
    if (!Faulty) simt::release_store(flag, 1);
    return;
  }
  while (simt::acquire_load(flag) == 0) simt::spin();  // @ lost_signal
  out[0] = 1;
}

// Half the buffer is filled, all of it is summed.
template <bool Faulty> __global__ void unwritten_shared(const float *a, float *b) {
  extern __shared__ float raw[];
  const int t = threadIdx.x;
  if (!Faulty || t < 16) raw[t] = a[t];
  __syncthreads();
  b[t] = raw[31 - t];  // @ unwritten_shared
}
template <bool Faulty> __global__ void unwritten_output(float *b, int n) {
  const int t = threadIdx.x;
  if (!Faulty) b[t] = 0.0f;
  b[t] += 1.0f;  // @ unwritten_output
}

// The wait for an asynchronous copy is missing.
template <bool Faulty> __global__ void early_copy(const float *a, float *b) {
  __shared__ __align__(16) float s[128];
  const int t = threadIdx.x;
  simt::cp_async(s + 4 * t, a + 4 * t, 16, 16);
  simt::cp_async_commit();
  simt::cp_async_wait(Faulty ? 1 : 0);
  __syncthreads();
  b[t] = s[127 - t];  // @ early_copy
}

// An asynchronous copy reads past the end of its input.
template <bool Faulty> __global__ void copy_beyond(const float *a, float *b) {
  __shared__ __align__(16) float s[128];
  const int t = threadIdx.x;
  simt::cp_async(s + 4 * t, a + 4 * t + (Faulty ? 4 : 0), 16, 16);  // @ copy_beyond
  simt::cp_async_commit();
  simt::cp_async_wait(0);
  __syncthreads();
  b[t] = s[127 - t];
}

// Sixteen-byte loads need addresses that are multiples of sixteen.
template <bool Faulty> __global__ void misaligned(const float *a, float *b) {
  const float4 v = *reinterpret_cast<const float4 *>(a + 4 * threadIdx.x + (Faulty ? 1 : 0));  // @ misaligned
  b[threadIdx.x] = v.x + v.y + v.z + v.w;
}

// An input is written.
template <bool Faulty> __global__ void written_input(const float *a, float *b) {
  if (Faulty) const_cast<float *>(a)[threadIdx.x] = 0.0f;  // @ written_input
  b[threadIdx.x] = a[threadIdx.x];
}

// Signed overflow and a shift by 32: no race, but not defined (the second build sees it).
template <bool Faulty> __global__ void undefined_shift(int *b) {
  const int t = threadIdx.x;
  b[t] = 1 << (Faulty ? t + 1 : t % 31);  // @ undefined_shift
}

// A flag is read atomically and then, in the same breath, plainly, while another block stores it atomically.
template <bool Faulty> __global__ void mixed_flag(int *flag, int *out) {
  if (blockIdx.x == 1) {
    simt::relaxed_store(flag, 1);  // @ mixed_flag
    return;
  }
  const int first = simt::relaxed_load(flag);
  out[0] = first >= 0 ? 1 : 0;
  if (Faulty) out[0] += *flag >= 0;  // @ mixed_flag
}
