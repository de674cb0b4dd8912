// Distance of every x[t] to its nearest y, a block of 64 threads, y staged through shared memory 64 values at a time.
// Barriers: one between the chunk's writes and its reads; one between its reads and the next chunk's writes.
__global__ void nearest(const float *x, const float *y, float *out, int n) {
  __shared__ float chunk[64];
  const int t = threadIdx.x;
  float best = INFINITY;
  for (int at = 0; at < n; at += 64) {
    chunk[t] = y[at + t];
    __syncthreads();
    for (int k = 0; k < 64; ++k) best = fminf(best, fabsf(x[t] - chunk[k]));
#ifdef SECOND_BARRIER
    __syncthreads();
#endif
  }
  out[t] = best;
}
