// Monte Carlo pricing: words, path, payoff and sums in one kernel; nothing of a path leaves the registers.
//
// A block of `Lanes` threads owns one chunk of one series at a time: Sweeps * Lanes * 4 samples. In sweep s, lane t owns
// counter block + t, whose four words are one step of the samples 4 (block + t) + (0, 1, 2, 3); the lane adds its
// samples up in order. The grid is persistent over (series, chunk); sums are written per chunk, so they do not
// depend on the grid. Production uses Lanes = 128, Sweeps = 32, the partition of `_path_kernels.py`.
//
// A series is one option (with Sobol points: one option under one scramble). Coefficients and channels:
// `_path_kernels.py`, which does the same operations in the same order in float64.
//
// Shared layout: double part[Lanes / 32][10], the channels of each warp. Barriers, two to a chunk: the first between
// the warps' writes and the reads of the ten threads that add them, the second between these reads and the
// next chunk's writes.
//
// Literature: Glasserman, "Monte Carlo Methods in Financial Engineering" (2003): 3.1 exact simulation, 4.1 control variates,
// 4.2 antithetic variates, 6.4 Brownian bridge crossing, 7.2 pathwise derivatives.
#include "normal.cuh"
#include "philox.cuh"
#include "warp.cuh"

namespace wf {

constexpr int kChannels = 10;
enum payoff_kind { kEuropean = 0, kAsian = 1, kBarrier = 2, kBarrierContinuous = 3 };
enum coefficient { kDrift, kVol, kScale, kOffset, kShift, kControlShift, kControlScale, kDeltaScale,
                   kRootDt, kVolDt, kPerStep, kLevel, kSide, kKnockBase, kKnockSign, kBridge, kCoefficients };

WF_DEVICE float fused(float a, float b, float c) { return fmaf(a, b, c); }
WF_DEVICE double fused(double a, double b, double c) { return fma(a, b, c); }
WF_DEVICE float positive(float v) { return fmaxf(v, 0.0f); }
WF_DEVICE double positive(double v) { return v > 0.0 ? v : 0.0; }

// One path: what a payoff needs to remember.
template <typename T>
struct path {
  T x, alive, bridged, sum, log_sum, vega_sum;
};

template <typename T>
struct settled {
  T payoff, control, delta, vega;
  float pays;  // 0 or 1: counted without a branch, exact
};

template <typename T>
WF_DEVICE T not_crossed(const T (&c)[kCoefficients], T before, T after) {
  const T u = (c[kLevel] - before) * c[kSide], v = (c[kLevel] - after) * c[kSide];
  return v > T(0) ? T(1) - exp2_of(held(c[kBridge] * (u * v))) : T(0);
}

template <int Payoff, bool Control, bool Greeks, typename T>
WF_DEVICE void step_path(path<T>& p, const T (&c)[kCoefficients], T z, T sign, T w, T time) {
  const T before = p.x;
  p.x = fused(sign * c[kVol], z, before + c[kDrift]);
  if constexpr (Payoff == kAsian) {
    const T price = exp2_of(p.x);
    p.sum += price;
    p.log_sum += p.x;
    if constexpr (Greeks) p.vega_sum = fused(price, fused(sign, w, -time), p.vega_sum);
  } else if constexpr (Payoff == kBarrier) {
    if (!((c[kLevel] - p.x) * c[kSide] > T(0))) p.alive = T(0);
    if constexpr (Control) p.bridged *= not_crossed(c, before, p.x);
  } else if constexpr (Payoff == kBarrierContinuous) {
    p.alive *= not_crossed(c, before, p.x);
  }
}

template <int Payoff, bool Control, bool Greeks, typename T>
WF_DEVICE settled<T> settle(const path<T>& p, const T (&c)[kCoefficients], T sign, T w, T time) {
  settled<T> r = {};
  if constexpr (Payoff == kEuropean) {
    const T price = exp2_of(p.x), v = fused(c[kScale], price, c[kOffset]);
    r.pays = v > T(0) ? 1.0f : 0.0f;
    r.payoff = positive(v);
    if constexpr (Control) r.control = c[kControlScale] * price;
    if constexpr (Greeks) {
      r.delta = v > T(0) ? c[kDeltaScale] * price : T(0);
      r.vega = v > T(0) ? (c[kScale] * price) * fused(sign, w, -time) : T(0);
    }
  } else if constexpr (Payoff == kAsian) {
    const T v = fused(c[kScale], p.sum, c[kOffset]);
    r.pays = v > T(0) ? 1.0f : 0.0f;
    r.payoff = positive(v);
    if constexpr (Control) r.control = positive(fused(c[kControlScale], exp2_of(p.log_sum * c[kPerStep]), c[kOffset]));
    if constexpr (Greeks) {
      r.delta = v > T(0) ? c[kDeltaScale] * p.sum : T(0);
      r.vega = v > T(0) ? c[kScale] * p.vega_sum : T(0);
    }
  } else {
    const T plain = positive(fused(c[kScale], exp2_of(p.x), c[kOffset]));
    r.payoff = plain * fused(c[kKnockSign], p.alive, c[kKnockBase]);
    r.pays = r.payoff > T(0) ? 1.0f : 0.0f;
    if constexpr (Control)
      r.control = Payoff == kBarrier ? plain * fused(c[kKnockSign], p.bridged, c[kKnockBase]) : plain;
  }
  return r;
}

// Sums of one lane, or of a chunk.
struct sums {
  double of[kChannels];
  float paying;
};

template <bool Antithetic, bool Control, bool Greeks, typename T>
WF_DEVICE void add_sample(sums& s, settled<T> a, const settled<T>& b, double shift, double control_shift) {
  s.paying += a.pays;
  if constexpr (Antithetic) {
    s.paying += b.pays;
    a.payoff = T(0.5) * (a.payoff + b.payoff);
    a.control = T(0.5) * (a.control + b.control);
    a.delta = T(0.5) * (a.delta + b.delta);
    a.vega = T(0.5) * (a.vega + b.vega);
  }
  const double d = static_cast<double>(a.payoff) - shift;
  s.of[0] += d;
  s.of[1] = fma(d, d, s.of[1]);
  if constexpr (Control) {
    const double e = static_cast<double>(a.control) - control_shift;
    s.of[3] += e;
    s.of[4] = fma(e, e, s.of[4]);
    s.of[5] = fma(d, e, s.of[5]);
  }
  if constexpr (Greeks) {
    const double g = static_cast<double>(a.delta), v = static_cast<double>(a.vega);
    s.of[6] += g;
    s.of[7] = fma(g, g, s.of[7]);
    s.of[8] += v;
    s.of[9] = fma(v, v, s.of[9]);
  }
}

// Four samples from their first step to the sums; unless `Full`, samples from `left` on do not exist.
template <typename T, int Payoff, int Steps, bool Antithetic, bool Control, bool Greeks, bool Sobol, bool Full>
WF_DEVICE void run_block(sums& s, u64 block, i64 left, const T (&c)[kCoefficients], double shift, double control_shift,
                         u64 key, u32 steps, u32 stream, const u32* directions, const u32* shifts) {
  path<T> up[4] = {}, down[4] = {};
  T w[4] = {};
  WF_UNROLL
  for (int j = 0; j < 4; ++j) up[j].alive = down[j].alive = up[j].bridged = down[j].bridged = T(1);
  const u32 count = Steps > 0 ? static_cast<u32>(Steps) : steps;
  for (u32 k = 0; k < count; ++k) {
    T z[4];
    normals<Sobol>(Sobol ? sobol(block, directions + 32 * k, shifts[k]) : philox(block, k, stream, key), z);
    const T time = c[kVolDt] * static_cast<T>(k + 1);
    WF_UNROLL
    for (int j = 0; j < 4; ++j) {
      if constexpr (Greeks) w[j] = fused(c[kRootDt], z[j], w[j]);
      step_path<Payoff, Control, Greeks>(up[j], c, z[j], T(1), w[j], time);
      if constexpr (Antithetic) step_path<Payoff, Control, Greeks>(down[j], c, z[j], T(-1), w[j], time);
    }
  }
  const T time = c[kVolDt] * static_cast<T>(count);
  WF_UNROLL
  for (int j = 0; j < 4; ++j) {
    if (!Full && j >= left) return;
    const settled<T> a = settle<Payoff, Control, Greeks>(up[j], c, T(1), w[j], time);
    settled<T> b = {};
    if constexpr (Antithetic) b = settle<Payoff, Control, Greeks>(down[j], c, T(-1), w[j], time);
    add_sample<Antithetic, Control, Greeks>(s, a, b, shift, control_shift);
  }
}

}  // namespace wf

// out[series][chunks][10]: sums of chunks first .. first + chunks - 1. coefficients[options][16]; whole[options][2]: steps and
// stream. A series is option * replicates + replicate; directions[replicates][dims][32], shifts[replicates][dims].
template <typename T, int Payoff, int Steps, bool Antithetic, bool Control, bool Greeks, bool Sobol, int Lanes, int Sweeps>
__global__ void __launch_bounds__(Lanes)
    price_paths(double* out, const double* coefficients, const int* whole, const unsigned* directions, const unsigned* shifts,
                unsigned long long key, long long n, long long first, long long chunks, long long series, long long replicates,
                long long dims) {
  using namespace wf;
  constexpr int kWarps = Lanes / kWarp;
  __shared__ double part[kWarps][kChannels];
  const int lane = static_cast<int>(threadIdx.x);
  for (i64 item = blockIdx.x; item < series * chunks; item += gridDim.x) {
    const i64 which = item / chunks, option = which / replicates, replicate = which - option * replicates;
    const double* given = coefficients + option * kCoefficients;
    T c[kCoefficients];
    WF_UNROLL
    for (int k = 0; k < kCoefficients; ++k) c[k] = static_cast<T>(given[k]);
    const double shift = given[kShift], control_shift = given[kControlShift];
    const u32 steps = static_cast<u32>(whole[2 * option]), stream = static_cast<u32>(whole[2 * option + 1]);
    const u64 begin = static_cast<u64>(first + item - which * chunks) * (Sweeps * Lanes) + static_cast<u64>(lane);
    sums s = {};
    const unsigned *columns = directions + replicate * dims * 32, *mine = shifts + replicate * dims;
    if ((first + item - which * chunks + 1) * (4 * Sweeps * Lanes) <= n) {
      for (int sweep = 0; sweep < Sweeps; ++sweep)
        run_block<T, Payoff, Steps, Antithetic, Control, Greeks, Sobol, true>(
            s, begin + static_cast<u64>(sweep * Lanes), 4, c, shift, control_shift, key, steps, stream, columns, mine);
    } else {
      for (int sweep = 0; sweep < Sweeps; ++sweep) {
        const u64 block = begin + static_cast<u64>(sweep * Lanes);
        const i64 left = n - 4 * static_cast<i64>(block);
        if (left <= 0) break;
        run_block<T, Payoff, Steps, Antithetic, Control, Greeks, Sobol, false>(s, block, left, c, shift, control_shift, key, steps,
                                                                               stream, columns, mine);
      }
    }
    s.of[2] = static_cast<double>(s.paying);
    WF_UNROLL
    for (int k = 0; k < kChannels; ++k) {
      if ((k >= 3 && k < 6 && !Control) || (k >= 6 && !Greeks)) continue;
      const double total = warp_sum(s.of[k]);
      if (lane % kWarp == 0) part[lane / kWarp][k] = total;
    }
    __syncthreads();
    if (lane < kChannels) {
      double total[kWarps];
      const bool used = lane < 3 || (lane < 6 ? Control : Greeks);
      WF_UNROLL
      for (int k = 0; k < kWarps; ++k) total[k] = used ? part[k][lane] : 0.0;
      WF_UNROLL
      for (int d = kWarps / 2; d > 0; d >>= 1) {
        WF_UNROLL
        for (int k = 0; k < d; ++k) total[k] += total[k + d];
      }
      out[item * kChannels + lane] = total[0];
    }
    __syncthreads();
  }
}

namespace wf {

template <int Levels>
WF_DEVICE double tree_sum(const double* p, i64 stride) {
  if constexpr (Levels == 0) return *p;
  else return tree_sum<Levels - 1>(p, stride) + tree_sum<Levels - 1>(p + (stride << (Levels - 1)), stride);
}

}  // namespace wf

// dst[series][groups][10] from src[series][pitch][10]: a group is 2^Levels chunks from chunk `skip` on, added in a
// binary tree. A thread owns one sum of one group.
template <int Levels>
__global__ void __launch_bounds__(128)
    add_chunks(double* dst, const double* src, long long series, long long groups, long long pitch, long long skip) {
  using namespace wf;
  const i64 k = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (k >= series * groups * kChannels) return;
  const i64 channel = k % kChannels, group = k / kChannels % groups, which = k / kChannels / groups;
  dst[k] = tree_sum<Levels>(src + (which * pitch + skip + (group << Levels)) * kChannels + channel, kChannels);
}

// The four words of the counters first .. first + count - 1, for tests of the stream.
template <int Rounds>
__global__ void __launch_bounds__(128)
    philox_words(unsigned* out, unsigned long long first, long long count, unsigned step, unsigned stream, unsigned long long key) {
  static_assert(Rounds == 10, "Philox4x32-10");
  const long long k = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (k >= count) return;
  const wf::words4 words = wf::philox(first + static_cast<unsigned long long>(k), step, stream, key);
  for (int j = 0; j < 4; ++j) out[4 * k + j] = words.w[j];
}
