// The serial baseline: one thread to a system, any n and nrhs, the factor read and written in global memory throughout.
//
// It states the recurrence that every other kernel of this folder equals bit for bit, and it is what they are measured
// against. Threads share nothing: there is no shared memory and no barrier. Neighbouring threads work n * n elements
// apart, so no access is coalesced; that is the price the warp kernels remove.
//
// Literature: Golub and Van Loan, Matrix Computations, 4th ed., algorithms 4.2.2 and 3.4.1.
#include "small.cuh"

namespace wf {

template <typename T>
WF_DEVICE bool all_finite(const T* x, i64 count) {
  bool good = true;
  for (i64 e = 0; e < count; ++e) good = good && is_finite(x[e]);
  return good;
}

template <typename T>
WF_DEVICE T largest_of(const T* x, i64 count) {
  T largest = T(0);
  for (i64 e = 0; e < count; ++e) largest = max_of(largest, size_of(x[e]));
  return largest;
}

template <typename T>
WF_DEVICE int symmetric(const T* a, int n, T rtol, T atol) {
  T apart = T(0);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < i; ++j) apart = max_of(apart, size_of(sub(a[i * n + j], a[j * n + i])));
  return apart <= add(atol, mul(rtol, largest_of(a, static_cast<i64>(n) * n))) ? kOk : kNotSymmetric;
}

// L x = b in place, then the second sweep with L^T (Cholesky) or with U. L has a unit diagonal for LU.
template <bool Cholesky, typename T>
WF_DEVICE void solve_serially(const T* f, T* x, int n, int nrhs) {
  for (int c = 0; c < nrhs; ++c) {
    for (int k = 0; k < n; ++k) {
      const T t = Cholesky ? quotient(x[k * nrhs + c], f[k * n + k]) : x[k * nrhs + c];
      x[k * nrhs + c] = t;
      for (int i = k + 1; i < n; ++i) x[i * nrhs + c] = sub(x[i * nrhs + c], mul(f[i * n + k], t));
    }
    for (int k = n - 1; k >= 0; --k) {
      const T t = quotient(x[k * nrhs + c], f[k * n + k]);
      x[k * nrhs + c] = t;
      for (int i = 0; i < k; ++i)
        x[i * nrhs + c] = sub(x[i * nrhs + c], mul(Cholesky ? f[k * n + i] : f[i * n + k], t));
    }
  }
}

template <typename T>
WF_DEVICE void zero(T* x, i64 count) {
  for (i64 e = 0; e < count; ++e) x[e] = T(0);
}

}  // namespace wf

// a, factor [batch, n, n]; b, solution [batch, n, nrhs]; status [batch]. n * n and n * nrhs fit an int.
template <typename T>
__global__ void __launch_bounds__(128)
    cholesky_serial(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ factor, T* __restrict__ solution,
                    int* __restrict__ status, long long batch, int n, int nrhs, T shift, T rtol, T atol) {
  using namespace wf;
  const i64 system = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (system >= batch) return;
  const T* const in = a + system * n * n;
  T* const f = factor + system * n * n;
  T* const x = solution + system * n * nrhs;
  for (int e = 0; e < n * nrhs; ++e) x[e] = b[system * n * nrhs + e];
  int code = all_finite(in, n * n) && all_finite(x, n * nrhs) ? symmetric(in, n, rtol, atol) : kNonFiniteInput;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) f[i * n + j] = j > i ? T(0) : j == i ? add(in[i * n + j], shift) : in[i * n + j];
  for (int j = 0; code == kOk && j < n; ++j) {
    const T v = f[j * n + j];
    if (!(v > T(0) && is_finite(v))) code = is_finite(v) ? j + 1 : kNonFiniteIntermediate;
    const T d = root(v > T(0) ? v : T(1));
    f[j * n + j] = d;
    for (int i = j + 1; i < n; ++i) f[i * n + j] = quotient(f[i * n + j], d);
    for (int i = j + 1; i < n; ++i)
      for (int c = j + 1; c <= i; ++c) f[i * n + c] = sub(f[i * n + c], mul(f[i * n + j], f[c * n + j]));
  }
  if (code == kOk) {
    solve_serially<true>(f, x, n, nrhs);
    if (!all_finite(x, n * nrhs)) code = kNonFiniteIntermediate;
  }
  if (code != kOk) zero(f, n * n), zero(x, n * nrhs);
  status[system] = code;
}

// As cholesky_serial; pivots [batch, n], from 0.
template <typename T>
__global__ void __launch_bounds__(128)
    lu_serial(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ factor, T* __restrict__ solution,
              int* __restrict__ pivots, int* __restrict__ status, long long batch, int n, int nrhs) {
  using namespace wf;
  const i64 system = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (system >= batch) return;
  const T* const in = a + system * n * n;
  T* const f = factor + system * n * n;
  T* const x = solution + system * n * nrhs;
  int* const piv = pivots + system * n;
  for (int e = 0; e < n * nrhs; ++e) x[e] = b[system * n * nrhs + e];
  int code = all_finite(in, n * n) && all_finite(x, n * nrhs) ? kOk : kNonFiniteInput;
  T scale, inverse;
  power_scale(code == kOk ? largest_of(in, n * n) : T(0), scale, inverse);
  for (int e = 0; e < n * n; ++e) f[e] = mul(in[e], scale);
  for (int k = 0; code == kOk && k < n; ++k) {
    int p = k;
    for (int i = k + 1; i < n; ++i)
      if (size_of(f[i * n + k]) > size_of(f[p * n + k])) p = i;
    piv[k] = p;
    if (f[p * n + k] == T(0)) code = k + 1;
    for (int c = 0; p != k && c < n; ++c) {
      const T upper = f[k * n + c];
      f[k * n + c] = f[p * n + c], f[p * n + c] = upper;
    }
    for (int c = 0; p != k && c < nrhs; ++c) {
      const T upper = x[k * nrhs + c];
      x[k * nrhs + c] = x[p * nrhs + c], x[p * nrhs + c] = upper;
    }
    for (int i = k + 1; code == kOk && i < n; ++i) {
      const T l = quotient(f[i * n + k], f[k * n + k]);
      f[i * n + k] = l;
      for (int c = k + 1; c < n; ++c) f[i * n + c] = sub(f[i * n + c], mul(l, f[k * n + c]));
    }
  }
  if (code == kOk) {
    solve_serially<false>(f, x, n, nrhs);
    for (int e = 0; e < n * nrhs; ++e) x[e] = mul(x[e], scale);
    for (int i = 0; i < n; ++i)
      for (int c = i; c < n; ++c) f[i * n + c] = mul(f[i * n + c], inverse);
    if (!all_finite(x, n * nrhs) || !all_finite(f, n * n)) code = kNonFiniteIntermediate;
  }
  if (code != kOk) {
    zero(f, n * n), zero(x, n * nrhs);
    for (int k = 0; k < n; ++k) piv[k] = -1;
  }
  status[system] = code;
}
