// Kernels that exercise every device header, for tests/backend/test_device_headers.py.
#include "async_copy.cuh"
#include "block.cuh"
#include "complex.cuh"
#include "dmma.cuh"
#include "signal.cuh"
#include "types.cuh"
#include "vec16.cuh"
#include "warp.cuh"

// One warp. out: sum, max, min, arg max's value; where: arg max's index in each lane.
template <typename T>
__global__ void warp_reductions(T* out, int* where, const T* in, const int* index) {
  const int lane = wf::lane_id();
  const T sum = wf::warp_sum(in[lane]), high = wf::warp_max(in[lane]), low = wf::warp_min(in[lane]);
  const wf::indexed<T> best = wf::warp_arg_max(wf::indexed<T>{in[lane], index[lane]});
  out[4 * lane] = sum;
  out[4 * lane + 1] = high;
  out[4 * lane + 2] = low;
  out[4 * lane + 3] = best.value;
  where[lane] = best.index;
}

// One block. As above, one line of output per thread; the scratch is used four times over.
template <typename T>
__global__ void block_reductions(T* out, int* where, const T* in, const int* index) {
  __shared__ T scratch[wf::kMaxWarps];
  __shared__ wf::indexed<T> pairs[wf::kMaxWarps];
  const int t = static_cast<int>(threadIdx.x);
  out[4 * t] = wf::block_sum(in[t], scratch);
  out[4 * t + 1] = wf::block_max(in[t], scratch);
  out[4 * t + 2] = wf::block_min(in[t], scratch);
  const wf::indexed<T> best = wf::block_arg_max(wf::indexed<T>{in[t], index[t]}, pairs);
  out[4 * t + 3] = best.value;
  where[t] = best.index;
}

// Block b waits for block b - 1, adds its number to what that one left, and signals. All blocks are resident.
__global__ void signal_chain(unsigned* values, unsigned* flags, int epoch) {
  const unsigned b = blockIdx.x;
  if (b > 0) {
    if (threadIdx.x == 0) wf::signal_wait(flags + b - 1, static_cast<unsigned>(epoch));
    __syncthreads();
  }
  const unsigned before = b > 0 ? values[(b - 1) * blockDim.x + threadIdx.x] : 0u;
  values[b * blockDim.x + threadIdx.x] = before + b + 1;
  __syncthreads();
  if (threadIdx.x == 0) wf::signal_set(flags + b, static_cast<unsigned>(epoch));
}

// Every block writes its cell, all meet, every block sums all cells; twice over, with the cells rewritten in
// between.
__global__ void meet(unsigned* sums, unsigned* cells, unsigned* counter) {
  for (unsigned round = 0; round < 2; ++round) {
    if (threadIdx.x == 0) cells[blockIdx.x] = (round + 1) * (blockIdx.x + 1);
    wf::grid_barrier(counter, 2 * round + 1);
    if (threadIdx.x == 0) {
      unsigned sum = 0;
      for (unsigned b = 0; b < gridDim.x; ++b) sum += cells[b];
      sums[round * gridDim.x + blockIdx.x] = sum;
    }
    wf::grid_barrier(counter, 2 * round + 2);
  }
}

__global__ void complex_arithmetic(wf::complex<double>* out, const wf::complex<double>* a, const wf::complex<double>* b) {
  const int t = static_cast<int>(threadIdx.x);
  out[6 * t] = a[t] + b[t];
  out[6 * t + 1] = a[t] - b[t];
  out[6 * t + 2] = a[t] * b[t];
  out[6 * t + 3] = a[t] / b[t];
  out[6 * t + 4] = wf::conj(a[t]);
  out[6 * t + 5] = wf::complex<double>{wf::abs2(a[t]), 0.0};
}

__global__ void copy_vec16(unsigned char* out, const unsigned char* in) {
  const int t = static_cast<int>(threadIdx.x);
  const unsigned char* from = in + 16 * t;
  unsigned char* to = out + 16 * t;
  const wf::vec16 v = t % 4 == 0 ? wf::load16_stream(from) : t % 4 == 1 ? wf::load16_first(from) : wf::load16(from);
  if (t % 3 == 0) wf::store16(to, v);
  else if (t % 3 == 1) wf::store16_first(to, v);
  else wf::store16_stream(to, v);
}

#if WF_ARCH >= 800
// D (8 x 8) = A (8 x 4) B (4 x 8) + C, row-major.
__global__ void product_m8n8k4(double* d, const double* a, const double* b, const double* c) {
  const int g = wf::lane_id() / 4, t = wf::lane_id() % 4;
  double acc[2] = {c[8 * g + 2 * t], c[8 * g + 2 * t + 1]};
  wf::dmma_m8n8k4(acc, a[4 * g + t], b[8 * t + g]);
  d[8 * g + 2 * t] = acc[0];
  d[8 * g + 2 * t + 1] = acc[1];
}

// Sixteen bytes a thread, of which `valid` are read and the rest is zero, two groups in flight; then eight
// and four bytes.
__global__ void copy_async(unsigned char* out, const unsigned char* in, int valid) {
  __shared__ __align__(16) unsigned char s[64 * 32];
  const int t = static_cast<int>(threadIdx.x);
  unsigned char* const second = s + 32 * 32;
  wf::cp_async16(s + 16 * t, in + 16 * t, static_cast<unsigned>(valid));
  wf::cp_async_commit();
  wf::cp_async_small<8>(second + 8 * t, in + 8 * t);
  wf::cp_async_small<4>(second + 512 + 4 * t, in + 4 * t);
  wf::cp_async_commit();
  wf::cp_async_wait<1>();
  __syncthreads();
  const int other = 31 - t;
  wf::store16(out + 16 * other, wf::load16(s + 16 * other));
  wf::cp_async_wait<0>();
  __syncthreads();
  for (int i = 0; i < 12; ++i) out[512 + 12 * other + i] = second[i < 8 ? 8 * other + i : 512 + 4 * other + i - 8];
}
#endif

#if WF_ARCH >= 900
// D (16 x 8) = A (16 x 16) B (16 x 8) + C, row-major.
__global__ void product_m16n8k16(double* d, const double* a, const double* b, const double* c) {
  const int g = wf::lane_id() / 4, t = wf::lane_id() % 4;
  double x[8], y[4], acc[4];
  for (int j = 0; j < 4; ++j) {
    for (int i = 0; i < 2; ++i) x[2 * j + i] = a[16 * (g + 8 * i) + t + 4 * j];
    y[j] = b[8 * (t + 4 * j) + g];
  }
  for (int i = 0; i < 2; ++i)
    for (int h = 0; h < 2; ++h) acc[2 * i + h] = c[8 * (g + 8 * i) + 2 * t + h];
  wf::dmma_m16n8k16(acc, x, y);
  for (int i = 0; i < 2; ++i)
    for (int h = 0; h < 2; ++h) d[8 * (g + 8 * i) + 2 * t + h] = acc[2 * i + h];
}

// Rows of 64 bytes by bulk loads, reversed by the threads, out by bulk stores; twice through one buffer.
__global__ void copy_bulk(unsigned char* out, const unsigned char* in) {
  __shared__ __align__(128) unsigned char s[32 * 64];
  __shared__ __align__(128) unsigned char turned[32 * 64];
  __shared__ __align__(8) unsigned long long landed;
  const int t = static_cast<int>(threadIdx.x);
  if (t == 0) wf::mbar_init(&landed, 32);
  __syncthreads();
  for (unsigned round = 0; round < 2; ++round) {
    const unsigned char* from = in + round * 2048;
    wf::mbar_expect(&landed, 64);
    wf::bulk_load(s + 64 * t, from + 64 * t, 64, &landed);
    wf::mbar_wait(&landed, round & 1);
    wf::bulk_wait_read<0>();
    __syncthreads();
    for (int i = 0; i < 4; ++i) wf::store16(turned + 64 * t + 16 * i, wf::load16(s + 64 * (31 - t) + 16 * i));
    wf::fence_proxy_async();
    __syncthreads();
    wf::bulk_store(out + round * 2048 + 64 * t, turned + 64 * t, 64);
    wf::bulk_commit();
  }
  wf::bulk_wait_read<0>();
}
#endif
