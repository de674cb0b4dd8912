// L D L^T with interchanges of a front that a block holds and whose fully summed columns fit one warp: that warp searches
// in registers among the fully summed rows, the block then tests what the rows below have to say.
//
// The serial rule looks at the rows below too, but only to refuse: a pivot that it takes there is one that it takes without
// them, at the same test. So the search goes on without them, and if every pivot's columns turn out to fit its test, the
// decisions are the serial rule's. If one does not, nothing has been written, and the caller searches all rows.
// W = (L D) of the rows below is A inv(L)^T, a product, and so is L = W D^-1.
//
// Until a front has passed, L of the fully summed rows is kept transposed above the diagonal.
// Barriers: searched | maxima of the rows below stored | L and the inverse settled, D^-1 applied to it | rows formed |
// rest updated.
#pragma once
#include "pivoted_warp.cuh"

namespace wf {

template <typename T, int Threads>
struct alignas(16) SearchScratch {
  WarpScratch<T> warp;
  T part[Threads];           // maxima of each warp, by pivot
  T limit[kPanel];           // what a pivot's rows below have to fit
  T size[kPanel], rest[kPanel];
  i32 order[kPanel], found;
};

// Pivots with their tests in the registers of the lane of their number, until they are written to shared memory.
template <typename T>
struct PutShared {
  T own, other, limit, size, rest;
  i32 step, row;
  WF_DEVICE void zero(int k, int from) { one(k, T(0), from, true); }
  WF_DEVICE void one(int k, T pivot, int from, bool forced) {
    if (lane_id() == k) own = pivot, other = size = rest = T(0), step = 0, row = from, limit = forced ? T(-1) : size_of(pivot);
  }
  WF_DEVICE void two(int k, T pivot, T off, T next, int from, int next_from, const TwoTest<T>& test) {
    if (lane_id() == k) own = pivot, step = 1, row = from, size = test.mine, rest = test.x_rest;
    if (lane_id() == k + 1) own = next, step = -1, row = next_from, size = test.theirs, rest = test.y_rest;
    if (lane_id() == k || lane_id() == k + 1) other = off, limit = test.limit;
  }
  template <int Threads>
  WF_DEVICE void write(Diagonal<T>& d, SearchScratch<T, Threads>& s) const {
    const int k = lane_id();
    set_diagonal(d, k, own, other, step);
    s.order[k] = row, s.limit[k] = limit, s.size[k] = size, s.rest[k] = rest;
  }
};

// The inverse of the unit lower block of `width` columns at l (pitch kPitch, zeros above), a column a lane in r; l is lost.
// Two columns a step: their rows of the inverse stand first in the registers, the update moves the others up, and takes
// the columns from where these rows are then kept.
template <typename T>
WF_DEVICE void invert_columns(T (&r)[kPanel], int width, T* l) {
  const int lane = lane_id();
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) r[k] = T(k == lane && lane < width);
  WF_UNROLL_N(1)
  for (int k = 0; k < width; k += 2) {
    T *first = l + k * kPitch, *second = first + kPitch;
    const T y0 = r[0], y1 = fma(-first[k + 1], y0, r[1]);
    next_rows(r, y0, y1, first, second, k, width - k, kPanel - 1);
    __syncwarp();
    first[lane] = y0, second[lane] = y1;
  }
  __syncwarp();
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) r[k] = k < width ? l[k * kPitch + lane] : T(0);
  __syncwarp();
}

// One warp: L (pivot order) above the diagonal of a, inverse(k, n) of L, rows by pivot and columns by place in the front, at
// k * kPitch + n of `inverse`. False where the rows below could change a decision that no test covers.
template <typename T, int Threads>
__device__ __noinline__ bool search_block(T* a, int ld, int width, const T* rule, T* inverse, Diagonal<T>& d,
                                          SearchScratch<T, Threads>& s) {
  const int lane = lane_id();
  i32* stats = s.warp.stats;
  T r[kPanel];
  int at;
  load_rows(r, a, ld, width);
  PutShared<T> put = {T(0), T(0), T(0), T(0), T(0), 0, lane};
  pivot_in_registers(r, inverse, kPitch, width, width, rule, s.warp, at, put);
  put.write(d, s);
  __syncwarp();
  if (stats[kZeros] + stats[kDoubtful] + stats[kNonFinite] > 0) return false;
  const int own = lane < width ? lane : 0, before = lane < width ? at : 0;
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) r[k] = k < before ? inverse[k * kPitch + own] : T(0);
  __syncwarp();
  T* mine = a + at * ld;
  WF_UNROLL
  for (int k = 0; k < kPanel; ++k) {
    if (k < before) mine[k] = r[k];
    inverse[k * kPitch + at] = r[k];
  }
  __syncwarp();
  invert_columns(r, width, inverse);
  T* column = inverse + (lane < width ? s.order[lane] : lane) * kPitch;
  WF_UNROLL
  for (int k = 0; k < kPanel; k += 2) *reinterpret_cast<Two<T>*>(column + k) = {r[k], r[k + 1]};
  return true;
}

// Largest entries of the rows below in each column of W, a warp's part; NaN wins.
template <int Threads, typename T>
WF_DEVICE void largest_below(const T* a, int ld, int padded, int width, const T* inverse, T* part) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = lane_id(), depth = (width + 15) / 16 * 16;
  T largest[4][2] = {};
  for (int i0 = width / 16 * 16 + 16 * warp; i0 < padded; i0 += Threads / kWarp * 16) {
    T acc[4][4] = {};
    multiply(acc, a + i0, ld, inverse, kPitch, depth);
    WF_UNROLL
    for (int n = 0; n < 4; ++n)
      for (int e = 0; e < 4; ++e)
        if (i0 + tile_row(e) >= width) largest[n][e % 2] = larger(largest[n][e % 2], size_of(acc[n][e]));
  }
  WF_UNROLL
  for (int n = 0; n < 4; ++n)
    for (int h = 0; h < 2; ++h) {
      T v = largest[n][h];
      for (int step = 4; step < kWarp; step *= 2) v = larger(v, __shfl_xor_sync(kFullMask, v, step));
      if (lane < 4) part[warp * kPanel + 8 * n + 2 * lane + h] = v;
    }
}

// Whether the rows below fit every pivot's test; every warp finds the same.
template <int Threads, typename T>
WF_DEVICE bool rows_below_fit(const SearchScratch<T, Threads>& s, const Diagonal<T>& d, int width, T u) {
  const int lane = lane_id();
  T x = T(0);
  for (int w = 0; w < Threads / kWarp; ++w) x = larger(x, s.part[w * kPanel + lane]);
  const T following = __shfl_sync(kFullMask, x, (lane + 1) % kWarp);
  bool fits = true;
  if (lane < width) {
    const int step = d.step[kLead + lane];
    fits = x - x == T(0);
    if (step == 0 && s.limit[lane] >= T(0)) fits = fits && u * x <= s.limit[lane];
    if (step == 1) {
      const T largest_x = larger(x, s.rest[lane]), largest_y = larger(following, s.rest[lane + 1]);
      fits = fits && s.size[lane + 1] * largest_x + largest_y <= s.limit[lane] &&
             largest_x + s.size[lane] * largest_y <= s.limit[lane];
    }
  }
  return __all_sync(kFullMask, fits);
}

// L and the inverse to their places; the inverse in scratch becomes that of L D. A warp takes a column of the inverse.
template <int Threads, typename T>
WF_DEVICE void settle_search(T* a, int ld, int width, T* inverse, const Diagonal<T>& d, const i32* order) {
  const int lane = lane_id();
  const int step = d.step[kLead + lane], partner = lane + step;
  T own = T(0), other = T(0);
  if (lane < width) {
    const T mine = d.own[kLead + lane], off = d.other[kLead + lane];
    if (step == 0) own = reciprocal(mine);
    else {
      const T per_off = reciprocal(off), p = mine * per_off, q = d.own[kLead + partner] * per_off;
      const T scale = per_off * reciprocal(p * q - T(1));
      own = q * scale, other = -scale;
    }
  }
  for (int c = static_cast<int>(threadIdx.x) / kWarp; c < width; c += Threads / kWarp) {
    T* column = inverse + order[c] * kPitch;
    const T v = column[lane], w = __shfl_sync(kFullMask, v, partner);
    if (lane > c && lane < width) {
      a[c * ld + lane] = a[lane * ld + c];
      a[lane * ld + c] = v;
    }
    column[lane] = v * own + w * other;
  }
}

// Eliminates a front of at most 32 columns in place, or by one warp's search. False: refused, the front is as it was.
template <int Threads, typename T>
WF_DEVICE bool narrow_front(T* a, int ld, int rows, int padded, int width, const T* rule, DirectScratch<T>& direct,
                            PivotScratch<T>& p, SearchScratch<T, Threads>& s, T* diagonal, i32* pivots) {
  const int rank = threadIdx.x, warp = rank / kWarp, lane = lane_id();
  if (rank < kStats) s.warp.stats[rank] = rank == kFailed ? -1 : 0;
  clear_diagonal<Threads>(direct.d);
  clear_diagonal<Threads>(p.d);
  __syncthreads();
  const bool hopeful = !refused_at_once(a, width, width, rule[kDoubt], T(0));  // the same in every warp
  if (hopeful && try_direct<Threads>(a, ld, rows, padded, width, 0, width, rule, direct, s.warp.stats)) {
    if (warp == 0) write_direct(direct, 0, width, diagonal, pivots);
    if (width < rows) update_trailing<Threads>(a, ld, padded, 0, width, direct.d);
    __syncthreads();
    return true;
  }
  if (warp == 0) {
    const bool found = search_block<T, Threads>(a, ld, width, rule, direct.inverse, p.d, s);
    if (lane == 0) s.found = found;
  }
  __syncthreads();
  if (s.found == 0) return false;
  largest_below<Threads>(a, ld, padded, width, direct.inverse, s.part);
  __syncthreads();
  if (!rows_below_fit<Threads>(s, p.d, width, rule[kThreshold])) return false;
  settle_search<Threads>(a, ld, width, direct.inverse, p.d, s.order);
  if (warp == 0 && lane < width) {
    const int step = p.d.step[kLead + lane];
    diagonal[2 * lane] = p.d.own[kLead + lane], diagonal[2 * lane + 1] = step == 1 ? p.d.other[kLead + lane] : T(0);
    pivots[2 * lane] = s.order[lane], pivots[2 * lane + 1] = step == 1 ? 2 : step == -1 ? 3 : 1;
  }
  if (width == rows) {
    __syncthreads();
    return true;
  }
  __syncthreads();
  for (int i0 = width / 16 * 16 + 16 * warp; i0 < padded; i0 += Threads / kWarp * 16) {
    T acc[4][4] = {};
    multiply(acc, a + i0, ld, direct.inverse, kPitch, (width + 15) / 16 * 16);
    __syncwarp();
    WF_UNROLL
    for (int n = 0; n < 4; ++n)
      for (int e = 0; e < 4; ++e) {
        const int i = i0 + tile_row(e), k = 8 * n + tile_col(e);
        if (i >= width && k < width) a[k * ld + i] = acc[n][e];
      }
  }
  __syncthreads();
  update_trailing<Threads>(a, ld, padded, 0, width, p.d);
  __syncthreads();
  return true;
}

}  // namespace wf
