// A tile of the chain in shared memory: its geometry, phase 1 (gray values) and phase 2 (vertical sums). See edges.cu.
#pragma once
#include "source.cuh"
#include "types.cuh"
#include "vec16.cuh"

// Rows that a thread of phase 2 sums at a time.
#ifndef WF_DOWN_RUN
#define WF_DOWN_RUN 8
#endif

namespace wf {

template <int R, int TW, int TH>
struct geometry {
  static constexpr int kHalo = R + 1;
  static constexpr int kSide = kHalo <= 4 ? 4 : kHalo <= 8 ? 8 : 16;  // columns beyond the tile that are computed
  static constexpr int kGrayRows = TH + 2 * kHalo;
  static constexpr int kLead = kSide == 16 ? 16 : 8;  // columns before the tile in memory: its words begin at 16 bytes
  static constexpr int kGrayWords = (TW + 2 * kLead) / 2;
  static constexpr int kDownRows = TH + 2;
  static constexpr int kDownWords = (TW + 2 * kSide) / 2;
  static constexpr int kWindow = (8 + 2 * kSide) / 2;  // words a thread of phase 3 reads of a row
  static constexpr int kBytes = 4 * (kGrayRows * kGrayWords + (R ? kDownRows * kDownWords : 0));
};

// Weights of the blur: byte k of the two arguments is weight k, up to the centre.
template <int R>
struct Singles {
  u32 w[R + 1];

  WF_DEVICE Singles(u64 low, u64 high) {
    WF_UNROLL
    for (int k = 0; k <= R; ++k) w[k] = static_cast<u32>((k < 8 ? low >> (8 * k) : high >> (8 * k - 64)) & 255);
  }
  WF_DEVICE u32 at(int k) const { return k < 0 || k > 2 * R ? 0 : w[k <= R ? k : 2 * R - k]; }
};

// The same as pairs for dot products: w0 w1 w2 w3, ... and 0 w0 w1 w2, ...
template <int R>
struct Weights {
  static constexpr int kPairs = (R + 2) / 2;
  u32 even[kPairs], odd[kPairs];

  WF_DEVICE Weights(u64 low, u64 high) {
    const Singles<R> single(low, high);
    WF_UNROLL
    for (int m = 0; m < kPairs; ++m) {
      even[m] = odd[m] = 0;
      WF_UNROLL
      for (int b = 0; b < 4; ++b) {
        even[m] |= single.at(4 * m + b) << (8 * b);
        odd[m] |= single.at(4 * m + b - 1) << (8 * b);
      }
    }
  }
};

template <int Px>
WF_DEVICE void keep_lanes(const u32 (&lanes)[Px / 2], u32* p) {
  if constexpr (Px == 4) {
    *reinterpret_cast<u64*>(p) = lanes[0] | static_cast<u64>(lanes[1]) << 32;
  } else {
    WF_UNROLL
    for (int i = 0; i < 2; ++i) {
      const vec16 four = {{lanes[4 * i], lanes[4 * i + 1], lanes[4 * i + 2], lanes[4 * i + 3]}};
      store16(p + 4 * i, four);
    }
  }
}

// Without a blur phase 3 takes the gray lanes as halves: they come with an exponent.
template <int R>
constexpr u32 exponent_of = R == 0 ? 0x64 : 0;

// One granule of phase 1: Px pixels of virtual row v from virtual column x on; what no later phase uses becomes zero.
template <int F, int R, int Px>
WF_DEVICE void fill_granule(const Image& image, int v, int x, int first, int last, u32* p) {
  const int y = border_index(v, image.height, image.options.border());
  u32 lanes[Px / 2];
  WF_UNROLL
  for (int i = 0; i < Px / 2; ++i) lanes[i] = exponent_of<R> * 0x01000100u;
  const bool used = y >= 0 && x + Px > first && x < last;
  if (used && !gray_pixels<F, Px>(image, y, x, exponent_of<R>, lanes)) {
    WF_UNROLL_N(1)
    for (int i = 0; i < Px / 2; ++i) {
      u32 word = exponent_of<R> * 0x01000100u;
      WF_UNROLL_N(1)
      for (int k = 0; k < 2; ++k) {
        const int at = x + 2 * i + k;
        if (at >= first && at < last) word |= gray_virtual<F>(image, y, at) << (16 * k);
      }
      p[i] = word;
    }
    return;
  }
  keep_lanes<Px>(lanes, p);
}

// What phase 1 knows of its tile. Columns from `first` to `last` are needed, and `rows` rows from `top` on.
struct Needed {
  int x0, top, rows, first, last;
  bool rows_inside;
};

// Phase 1 for `Count` granules of Px pixels in every row, the k-th from column `from(k)` on. Plain: their words lie inside
// the image, and only rows may be virtual.
template <int F, int R, int Px, int Count, int Rows, int Words, int Threads, bool Plain, typename From>
WF_DEVICE void fill_columns(const Image& image, const Needed& needed, u32* gray, From from) {
  const GrayWeights weights(image.options.reversed(), exponent_of<R>);
  const bool aligned = Px == 16 && image.options.aligned();
  const u8* const origin = image.base + static_cast<i64>(needed.x0) * step_of<F>;
  for (int item = static_cast<int>(threadIdx.x); item < Rows * Count; item += Threads) {
    const int row = item / Count, column = from(item % Count), v = needed.top + row;
    u32* const p = gray + row * Words + column / 2;
    if constexpr (Plain) {
      const int y = needed.rows_inside ? v : border_index(v, image.height, image.options.border());
      u32 lanes[Px / 2];
      WF_UNROLL
      for (int i = 0; i < Px / 2; ++i) lanes[i] = exponent_of<R> * 0x01000100u;
      const u8* const q = origin + y * image.pitch + column * step_of<F>;
      if (y >= 0) gray_words<F, Px>(q, image.plane, aligned, weights, lanes);
      keep_lanes<Px>(lanes, p);
    } else {
      fill_granule<F, R, Px>(image, v, needed.x0 + column, needed.first, row < needed.rows ? needed.last : needed.first, p);
    }
  }
}

// Phase 1. A thread owns a granule at a time: those of the tile itself first, then the sides, in granules of 4 pixels or
// one of 16 where they are that wide. Virtual pixels that no later phase uses become anything.
template <int F, int R, int TW, int TH, int Threads>
WF_DEVICE void fill_gray(const Image& image, int x0, int y0, u32* gray) {
  typedef geometry<R, TW, TH> G;
  constexpr int kPx = G::kSide == 16 ? 16 : 4, kInner = TW / 16, kOuter = 2 * G::kSide / kPx;
  constexpr int kRows = G::kGrayRows, kWords = G::kGrayWords;
  const int top = y0 - G::kHalo, right = x0 + TW;
  const Needed needed = {x0, top, image.height + G::kHalo - top, x0 - G::kHalo, min_of(right, image.width) + G::kHalo,
                         top >= 0 && top + kRows <= image.height};
  const bool sides_inside = x0 >= 16 && right + 16 <= image.width;
  const auto inner = [](int k) { return k * 16; };
  const auto outer = [](int k) { return k < kOuter / 2 ? k * kPx - G::kSide : TW + (k - kOuter / 2) * kPx; };
  u32* const at = gray + G::kLead / 2;
  // Words of aligned granules hold nothing but their pixels.
  if (sides_inside || (image.options.aligned() && right <= image.width)) {
    fill_columns<F, R, 16, kInner, kRows, kWords, Threads, true>(image, needed, at, inner);
  } else {
    fill_columns<F, R, 16, kInner, kRows, kWords, Threads, false>(image, needed, at, inner);
  }
  if (sides_inside) {
    fill_columns<F, R, kPx, kOuter, kRows, kWords, Threads, true>(image, needed, at, outer);
  } else {
    fill_columns<F, R, kPx, kOuter, kRows, kWords, Threads, false>(image, needed, at, outer);
  }
}

// Phase 2. A thread owns two words of a row and Run rows below one another.
template <int R, int TW, int TH, int Threads>
WF_DEVICE void sum_down(const u32* gray, u32* down, u64 weights_low, u64 weights_high) {
  typedef geometry<R, TW, TH> G;
  const Singles<R> w(weights_low, weights_high);
  constexpr int kRun = WF_DOWN_RUN, kPairs = G::kDownWords / 2, kRuns = (G::kDownRows + kRun - 1) / kRun;
  for (int item = static_cast<int>(threadIdx.x); item < kPairs * kRuns; item += Threads) {
    const int column = item % kPairs * 2, first = item / kPairs * kRun;
    u32 sum[kRun][2];
    WF_UNROLL
    for (int o = 0; o < kRun; ++o) sum[o][0] = sum[o][1] = 0;
    WF_UNROLL
    for (int i = 0; i < kRun + 2 * R; ++i) {
      if (first + i >= G::kGrayRows) break;
      const u32* p = gray + (first + i) * G::kGrayWords + column + (G::kLead - G::kSide) / 2;
      const u64 both = *reinterpret_cast<const u64*>(p);
      const u32 a = static_cast<u32>(both), b = static_cast<u32>(both >> 32);
      WF_UNROLL
      for (int o = 0; o < kRun; ++o) {
        const int k = i - o;
        if (k < 0 || k > 2 * R) continue;
        sum[o][0] += w.at(k) * a;
        sum[o][1] += w.at(k) * b;
      }
    }
    WF_UNROLL
    for (int o = 0; o < kRun; ++o) {
      if (first + o >= G::kDownRows) break;
      *reinterpret_cast<u64*>(down + (first + o) * G::kDownWords + column) = sum[o][0] | static_cast<u64>(sum[o][1]) << 32;
    }
  }
}

}  // namespace wf
