// Sobel, magnitude and threshold of eight pixels at a time, in half-precision lanes, and how results are stored.
//
// A thread goes down a column of rows: of each it keeps two numbers a pixel (`Kept`), and three rows' worth of them give
// one row of the result.
#pragma once
#include "lanes.cuh"
#include "source.cuh"
#include "types.cuh"
#include "vec16.cuh"

namespace wf {

// N words of shared memory from a multiple of 16 bytes on.
template <int N>
WF_DEVICE void read_words(const u32* p, u32 (&w)[N]) {
  WF_UNROLL
  for (int i = 0; i < N / 4; ++i) {
    const vec16 v = load16(p + 4 * i);
    WF_UNROLL
    for (int k = 0; k < 4; ++k) w[4 * i + k] = v.w[k];
  }
}

// The blurred pixels x - 1 .. x + 8 of one row, as sums.
struct Row {
  u32 at[10];
};

// Sobel's border for clamp and zero, from the blurred pixels themselves. y: row, x: column of at[1].
WF_DEVICE void own_border(Row& row, const Image& image, int y, int x) {
  if (image.options.border() == kClamp) {
    if (x == 0) row.at[0] = row.at[1];
    WF_UNROLL
    for (int p = 1; p < 10; ++p)
      if (x - 1 + p >= image.width) row.at[p] = row.at[p - 1];
  } else if (image.options.border() == kZero) {
    WF_UNROLL
    for (int p = 0; p < 10; ++p)
      if (y < 0 || y >= image.height || x - 1 + p < 0 || x - 1 + p >= image.width) row.at[p] = 0x64000000u;
  }
}

// What Sobel keeps of a row, two pixels in each of four words: difference b(x+1) - b(x-1), and 1024 + the sum
// b(x-1) + 2 b(x) + b(x+1).
struct Kept {
  u32 difference[4], smooth[4];

  WF_DEVICE void set(const u32 (&odd)[5], const u32 (&even)[4]) {
    WF_UNROLL
    for (int k = 0; k < 4; ++k) {
      difference[k] = half_sub(odd[k + 1], odd[k]);
      smooth[k] = half_add(half_add(half_twice_plus(even[k], kHalfMinus3072), odd[k]), odd[k + 1]);
    }
  }
};

WF_DEVICE void kept_of_sums(const Row& row, Kept& kept) {
  u32 odd[5], even[4];
  WF_UNROLL
  for (int k = 0; k < 5; ++k) odd[k] = lanes_of_sums(row.at[2 * k], row.at[2 * k + 1]);
  WF_UNROLL
  for (int k = 0; k < 4; ++k) even[k] = lanes_of_sums(row.at[2 * k + 1], row.at[2 * k + 2]);
  kept.set(odd, even);
}

// Without a blur: lanes x - 2 .. x + 9 straight from phase 1, halves 1024 + v already; p is at x - 4, a multiple of 8 bytes.
WF_DEVICE void kept_of_lanes(const u32* p, Kept& kept) {
  u32 odd[5], even[4], words[8], lanes[6];
  WF_UNROLL
  for (int k = 0; k < 4; ++k) {
    const u64 two = reinterpret_cast<const u64*>(p)[k];
    words[2 * k] = static_cast<u32>(two), words[2 * k + 1] = static_cast<u32>(two >> 32);
  }
  WF_UNROLL
  for (int k = 0; k < 6; ++k) lanes[k] = words[k + 1];
  WF_UNROLL
  for (int k = 0; k < 5; ++k) odd[k] = __byte_perm(lanes[k], lanes[k + 1], 0x5432);
  WF_UNROLL
  for (int k = 0; k < 4; ++k) even[k] = lanes[k + 1];
  kept.set(odd, even);
}

// Derivatives of eight pixels from three rows.
WF_DEVICE void derivatives(const Kept& above, const Kept& here, const Kept& below, u32 (&gx)[4], u32 (&gy)[4]) {
  WF_UNROLL
  for (int k = 0; k < 4; ++k) {
    gx[k] = half_twice_plus(here.difference[k], half_add(above.difference[k], below.difference[k]));
    gy[k] = half_sub(below.smooth[k], above.smooth[k]);
  }
}

// Square root to within a few units in the last place.
WF_DEVICE float near_root(float v) {
#ifdef WARPFRONT_SIMT
  return sqrtf(v);
#else
  float r;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
#endif
}

// Magnitude of one pixel, saturated. A float holds the sum of squares exactly; the root of a whole number up to 255.5
// is no closer than 4.8e-4 to half-way between two, thirty times what `near_root` may be off.
WF_DEVICE u32 size_of(float gx, float gy, bool euclidean) {
  const float size = euclidean ? near_root(gx * gx + gy * gy) + 0.5f : fabsf(gx) + fabsf(gy);
  return static_cast<u32>(fminf(size, 255.0f));
}

// The usual result of eight pixels: the threshold of |gx| + |gy|.
WF_DEVICE void binary8(const u32 (&gx)[4], const u32 (&gy)[4], u32 level, u32 (&out)[2]) {
  u32 mask[4];
  WF_UNROLL
  for (int k = 0; k < 4; ++k) mask[k] = half_greater(half_add_sizes(gx[k], gy[k]), level);
  out[0] = __byte_perm(mask[0], mask[1], 0x6420), out[1] = __byte_perm(mask[2], mask[3], 0x6420);
}

// Any result of eight pixels.
WF_DEVICE void threshold8(const u32 (&gx)[4], const u32 (&gy)[4], Options options, u32 (&out)[2]) {
  if (options.binary() && !options.euclidean()) {
    binary8(gx, gy, options.half_level(), out);
    return;
  }
  out[0] = out[1] = 0;
  WF_UNROLL
  for (int p = 0; p < 8; ++p) {
    u32 size = size_of(lane_value(gx[p / 2], p & 1), lane_value(gy[p / 2], p & 1), options.euclidean());
    if (options.binary()) size = static_cast<int>(size) > options.level() ? 255 : 0;
    out[p / 4] |= size << (8 * (p % 4));
  }
}

// `count` <= 8 bytes of a row, by the widest stores that fit.
WF_DEVICE void store8(u8* p, int count, const u32 (&v)[2], int align) {
  if (count >= 8 && align >= 8) {
    *reinterpret_cast<u64*>(p) = v[0] | static_cast<u64>(v[1]) << 32;
  } else if (count >= 8 && align >= 4) {
    reinterpret_cast<u32*>(p)[0] = v[0], reinterpret_cast<u32*>(p)[1] = v[1];
  } else {
    WF_UNROLL
    for (int i = 0; i < 8; ++i)
      if (i < count) p[i] = static_cast<u8>(v[i / 4] >> (8 * (i % 4)));
  }
}

// `count` <= 8 derivatives of a row.
WF_DEVICE void store_derivatives(u8* p, int count, const u32 (&v)[4], int align) {
  u32 words[4];
  WF_UNROLL
  for (int k = 0; k < 4; ++k)
    words[k] = (static_cast<u32>(static_cast<int>(lane_value(v[k], 0))) & 0xffff) |
               static_cast<u32>(static_cast<int>(lane_value(v[k], 1))) << 16;
  if (count >= 8 && align >= 16) {
    const vec16 all = {{words[0], words[1], words[2], words[3]}};
    store16(p, all);
    return;
  }
  WF_UNROLL
  for (int i = 0; i < 8; ++i)
    if (i < count) reinterpret_cast<u16*>(p)[i] = static_cast<u16>(words[i / 2] >> (16 * (i % 2)));
}

}  // namespace wf
