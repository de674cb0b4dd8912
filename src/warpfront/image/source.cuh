// Reading an image: gray values of several pixels at once, whatever the format, the alignment and the border.
//
// A granule is 16 pixels of a row, or 4 at the sides of a tile. Inside the image 16 are read by 16-byte loads where the
// image is aligned, else by 4-byte loads that are shifted into place; at the image's edge pixel by pixel, from where
// the border maps it.
// No byte outside the image's own lowest and highest is read.
#pragma once
#include "lanes.cuh"
#include "types.cuh"
#include "vec16.cuh"

// How a granule is read from global memory; the tuning tries the others of vec16.cuh.
#ifndef WF_LOAD16
#define WF_LOAD16 wf::load16
#endif

namespace wf {

enum Format { kGray = 0, kPlanar = 1, kPacked3 = 3, kPacked4 = 4 };
enum Border { kClamp = 0, kReflect = 1, kReflect101 = 2, kWrap = 3, kZero = 4 };

// The bits of the argument `options` (`_edges_cuda.py` packs them).
struct Options {
  u64 bits;
  WF_DEVICE int border() const { return static_cast<int>(bits & 7); }
  WF_DEVICE bool aligned() const { return bits >> 3 & 1; }       // 16-byte loads of the image
  WF_DEVICE bool reversed() const { return bits >> 4 & 1; }      // blue comes first
  WF_DEVICE bool euclidean() const { return bits >> 5 & 1; }     // L2 norm
  WF_DEVICE int out_align() const { return 1 << (bits >> 6 & 7); }  // of every row of the output, up to 16
  WF_DEVICE bool binary() const { return bits >> 9 & 1; }        // threshold, else the magnitude
  WF_DEVICE int level() const { return static_cast<int>(bits >> 16 & 0xffff); }
  WF_DEVICE u32 half_level() const { return static_cast<u32>(bits >> 32 & 0xffff) * 0x10001u; }
};

struct Image {
  const u8* base;  // lowest byte
  i64 bytes;       // from there to one past the highest
  i64 pitch;
  i64 plane;
  int height, width;
  Options options;
};

// The image whose lowest byte is `base`. size: height | width << 32.
WF_DEVICE Image image_at(const u8* base, u64 size, u64 options, i64 pitch, i64 plane, int step) {
  Image image;
  image.height = static_cast<int>(size & 0xffffffffu), image.width = static_cast<int>(size >> 32);
  image.options.bits = options;
  image.pitch = pitch, image.plane = plane;
  image.base = base;
  image.bytes = (image.height - 1) * pitch + static_cast<i64>(image.width - 1) * step + (step == 1 ? 2 * plane + 1 : 3);
  return image;
}

// Pixel of 0 .. n - 1 that stands for position i; -1 for none.
WF_DEVICE int border_index(int i, int n, int border) {
  if (i >= 0 && i < n) return i;
  if (border == kClamp) return i < 0 ? 0 : n - 1;
  if (border == kZero) return -1;
  if (n == 1) return 0;
  const int period = border == kWrap ? n : border == kReflect ? 2 * n : 2 * n - 2;
  int k = i % period;
  if (k < 0) k += period;
  return k < n ? k : border == kReflect ? 2 * n - 1 - k : 2 * n - 2 - k;
}

// Twice OpenCV's 15-bit weights, so that the gray value is the third byte of the sum.
constexpr u32 kRed = 19596, kGreen = 38470, kBlue = 7470, kGrayHalf = 32768;

// `exponent`: what every lane has above its value, 0 or that of the half 1024 + v.
struct GrayWeights {
  u32 first_two, last, none_first, last_two, only_high, start, fill;
  WF_DEVICE explicit GrayWeights(bool reversed, u32 exponent = 0) {
    start = kGrayHalf | exponent << 24, fill = exponent * 0x01010101u;
    const u32 a = reversed ? kBlue : kRed, c = reversed ? kRed : kBlue;
    first_two = a | kGreen << 16, last = c, none_first = a << 16, last_two = kGreen | c << 16, only_high = c << 16;
  }
};

WF_DEVICE u32 lanes_of_sums(u32 a, u32 b) { return __byte_perm(a, b, 0x7632); }

// A pixel's three bytes at the low end of `word`.
WF_DEVICE u32 gray_sum(u32 word, const GrayWeights& w) {
  return dot_high(w.last, word, dot_low(w.first_two, word, w.start));
}

WF_DEVICE u32 gray_at(const Image& image, int format, int y, int x) {
  const u8* p = image.base + y * image.pitch;
  if (format == kGray) return p[x];
  const GrayWeights w(image.options.reversed());
  const i64 step = format == kPlanar ? image.plane : 1;
  p += static_cast<i64>(x) * (format == kPlanar ? 1 : format);
  return gray_sum(p[0] | static_cast<u32>(p[step]) << 8 | static_cast<u32>(p[2 * step]) << 16, w) >> 16;
}

// Words of a row from p on; p's address is a multiple of 16 if `aligned`.
template <int N>
WF_DEVICE void load_words(const u8* p, bool aligned, u32 (&w)[N]) {
  if (aligned) {
    WF_UNROLL
    for (int i = 0; i < N / 4; ++i) {
      const vec16 v = WF_LOAD16(p + 16 * i);
      WF_UNROLL
      for (int k = 0; k < 4; ++k) w[4 * i + k] = v.w[k];
    }
    return;
  }
  const u32 shift = static_cast<u32>(reinterpret_cast<u64>(p) & 3) * 8;
  const u32* q = reinterpret_cast<const u32*>(p - shift / 8);
  u32 next = q[0];
  WF_UNROLL
  for (int i = 0; i < N; ++i) {
    const u32 word = next;
    // Without a shift nothing of the following word is used, and at the end it may lie outside the image.
    next = i + 1 < N || shift ? q[i + 1] : 0;
    w[i] = __funnelshift_r(word, next, shift);
  }
}

// Bytes that `load_words` touches around p .. p + n.
WF_DEVICE bool words_inside(const Image& image, const u8* p, int n, bool aligned) {
  const i64 at = p - image.base;
  if (aligned) return at >= 0 && at + n <= image.bytes;
  const int shift = static_cast<int>(reinterpret_cast<u64>(p) & 3);
  return at >= shift && at - shift + n + (shift ? 4 : 0) <= image.bytes;
}

template <int Px>
WF_DEVICE void gray_packed3(const u8* p, bool aligned, const GrayWeights& weights, u32 (&out)[Px / 2]) {
  u32 w[3 * Px / 4];
  load_words(p, aligned, w);
  WF_UNROLL
  for (int g = 0; g < Px / 4; ++g) {
    const u32 a = w[3 * g], b = w[3 * g + 1], c = w[3 * g + 2];
    const u32 p0 = gray_sum(a, weights), p1 = gray_sum(__byte_perm(a, b, 0x6543), weights);
    const u32 p2 = gray_sum(__byte_perm(b, c, 0x5432), weights);
    const u32 p3 = dot_high(weights.last_two, c, dot_low(weights.none_first, c, weights.start));
    out[2 * g] = lanes_of_sums(p0, p1), out[2 * g + 1] = lanes_of_sums(p2, p3);
  }
}

template <int Px>
WF_DEVICE void gray_packed4(const u8* p, bool aligned, const GrayWeights& weights, u32 (&out)[Px / 2]) {
  u32 w[Px];
  load_words(p, aligned, w);
  WF_UNROLL
  for (int i = 0; i < Px / 2; ++i)
    out[i] = lanes_of_sums(gray_sum(w[2 * i], weights), gray_sum(w[2 * i + 1], weights));
}

template <int Px>
WF_DEVICE void gray_planar(const u8* p, i64 plane, bool aligned, const GrayWeights& weights, u32 (&out)[Px / 2]) {
  u32 a[Px / 4], b[Px / 4], c[Px / 4];
  load_words(p, aligned, a);
  load_words(p + plane, aligned, b);
  load_words(p + 2 * plane, aligned, c);
  WF_UNROLL
  for (int i = 0; i < Px / 4; ++i) {
    const u32 low = __byte_perm(a[i], b[i], 0x5140), high = __byte_perm(a[i], b[i], 0x7362);
    const u32 p0 = dot_low(weights.last, c[i], dot_low(weights.first_two, low, weights.start));
    const u32 p1 = dot_low(weights.only_high, c[i], dot_high(weights.first_two, low, weights.start));
    const u32 p2 = dot_high(weights.last, c[i], dot_low(weights.first_two, high, weights.start));
    const u32 p3 = dot_high(weights.only_high, c[i], dot_high(weights.first_two, high, weights.start));
    out[2 * i] = lanes_of_sums(p0, p1), out[2 * i + 1] = lanes_of_sums(p2, p3);
  }
}

template <int F>
constexpr int step_of = F == kPacked3 || F == kPacked4 ? F : 1;

// Lanes of the Px = 4 or 16 pixels from p on; all words that hold one of them may be read.
template <int F, int Px>
WF_DEVICE void gray_words(const u8* p, i64 plane, bool aligned, const GrayWeights& weights, u32 (&out)[Px / 2]) {
  if constexpr (F == kGray) {
    u32 w[Px / 4];
    load_words(p, aligned, w);
    WF_UNROLL
    for (int i = 0; i < Px / 4; ++i) {
      out[2 * i] = __byte_perm(w[i], weights.fill, 0x4140);
      out[2 * i + 1] = __byte_perm(w[i], weights.fill, 0x4342);
    }
  } else if constexpr (F == kPlanar) {
    gray_planar<Px>(p, plane, aligned, weights, out);
  } else if constexpr (F == kPacked3) {
    gray_packed3<Px>(p, aligned, weights, out);
  } else {
    gray_packed4<Px>(p, aligned, weights, out);
  }
}

// The same for the pixels from (y, x) on, if they lie inside the image and their words may be read.
template <int F, int Px>
WF_DEVICE bool gray_pixels(const Image& image, int y, int x, u32 exponent, u32 (&out)[Px / 2]) {
  constexpr int kStep = step_of<F>;
  const bool aligned = Px == 16 && image.options.aligned();
  const u8* p = image.base + y * image.pitch + static_cast<i64>(x) * kStep;
  const i64 planes = F == kPlanar ? 2 * image.plane : 0;
  if (x < 0 || x + Px > image.width || !words_inside(image, p, Px * kStep, aligned) ||
      !words_inside(image, p + planes, Px * kStep, aligned))
    return false;
  gray_words<F, Px>(p, image.plane, aligned, GrayWeights(image.options.reversed(), exponent), out);
  return true;
}

// The gray value of virtual pixel (y, x) of a row that is inside.
template <int F>
WF_DEVICE u32 gray_virtual(const Image& image, int y, int x) {
  const int k = border_index(x, image.width, image.options.border());
  return k < 0 ? 0 : gray_at(image, F, y, k);
}

}  // namespace wf
