// Image edges in one kernel: gray, Gaussian blur, Sobel and threshold of a tile, nothing in between in global memory;
// with other template arguments the same kernel is the blur alone, Sobel and threshold alone, or the derivatives.
//
// A block owns a tile of TW x TH output pixels of one image. Three phases, a barrier between each two:
//   1. gray   image -> `gray`: (TH + 2 halo) rows of TW pixels and the halo's, halo = R + 1 (granules, source.cuh)
//   2. down   `gray` -> `down`: vertical sums of 2R + 1 rows, exact in 16 bits (at most 255 * 256)
//   3. across `down` -> registers: horizontal sums, one rounding, then Sobel on three rows that a thread keeps, and
//      the threshold; a thread owns 8 columns and Run rows
// A word of shared memory holds two neighbouring pixels in 16-bit lanes: a product with a weight acts on both
// lanes at once (no carry: sums stay below 65536), and a horizontal sum takes both with one dot product. The sum
// starts as 0x64008000: half a unit for rounding, and an exponent that turns the upper 16 bits into the half 1024 + v.
//
// Virtual pixels beyond the image come from where the border maps them. For reflect, reflect101 and wrap, blurring
// the extended image extends the blurred image; for clamp and zero it does not, and phase 3 puts the blurred
// image's own border in its place (`own_border`).
//
// Barriers: one between the writes of `gray` and the reads of phase 2, one between the writes of `down` and the reads of
// phase 3. No block reads what another writes. Every thread reaches both; bounds are tested inside the phases.
#include "sobel.cuh"
#include "source.cuh"

// Rows that a thread of phase 2 sums at a time.
#ifndef WF_DOWN_RUN
#define WF_DOWN_RUN 8
#endif

namespace wf {

enum Result { kEdges = 0, kBlur = 1, kDerivatives = 2 };

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
struct Weights {
  static constexpr int kPairs = (R + 2) / 2;
  u32 single[R + 1];
  u32 even[kPairs], odd[kPairs];  // w0 w1 w2 w3, ... and 0 w0 w1 w2, ...

  WF_DEVICE Weights(u64 low, u64 high) {
    WF_UNROLL
    for (int k = 0; k <= R; ++k) single[k] = static_cast<u32>((k < 8 ? low >> (8 * k) : high >> (8 * k - 64)) & 255);
    WF_UNROLL
    for (int m = 0; m < kPairs; ++m) {
      even[m] = odd[m] = 0;
      WF_UNROLL
      for (int b = 0; b < 4; ++b) {
        even[m] |= at(4 * m + b) << (8 * b);
        odd[m] |= at(4 * m + b - 1) << (8 * b);
      }
    }
  }
  WF_DEVICE u32 at(int k) const { return k < 0 || k > 2 * R ? 0 : single[k <= R ? k : 2 * R - k]; }
};

// One granule of phase 1: Px pixels of virtual row v from virtual column x on; what no later phase uses becomes zero.
template <int F, int Px>
WF_DEVICE void fill_granule(const Image& image, int v, int x, int first, int last, u32* p) {
  const int y = border_index(v, image.height, image.options.border());
  u32 lanes[Px / 2];
  WF_UNROLL
  for (int i = 0; i < Px / 2; ++i) lanes[i] = 0;
  const bool used = y >= 0 && x + Px > first && x < last;
  if (used && !gray_pixels<F, Px>(image, y, x, lanes)) {
    WF_UNROLL_N(1)
    for (int i = 0; i < Px / 2; ++i) {
      u32 word = 0;
      WF_UNROLL_N(1)
      for (int k = 0; k < 2; ++k) {
        const int at = x + 2 * i + k;
        if (at >= first && at < last) word |= gray_virtual<F>(image, y, at) << (16 * k);
      }
      p[i] = word;
    }
    return;
  }
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

// Phase 1. A thread owns a granule at a time: those of the tile itself first, then the sides.
template <int F, int R, int TW, int TH, int Threads>
WF_DEVICE void fill_gray(const Image& image, int x0, int y0, u32* gray) {
  typedef geometry<R, TW, TH> G;
  // The sides in granules of 4 pixels, or one of 16 where they are that wide.
  constexpr int kPx = G::kSide == 16 ? 16 : 4, kInner = TW / 16, kOuter = 2 * G::kSide / kPx;
  const int first = x0 - G::kHalo, last = min_of(x0 + TW, image.width) + G::kHalo, top = y0 - G::kHalo;
  // Rows that nobody needs lie below the image's halo.
  const int rows = min_of(G::kGrayRows, image.height + G::kHalo - top);
  for (int item = static_cast<int>(threadIdx.x); item < G::kGrayRows * kInner; item += Threads) {
    const int row = item / kInner, column = item % kInner * 16;
    fill_granule<F, 16>(image, row < rows ? top + row : top, x0 + column, first, row < rows ? last : first,
                        gray + row * G::kGrayWords + (G::kLead + column) / 2);
  }
  for (int item = static_cast<int>(threadIdx.x); item < G::kGrayRows * kOuter; item += Threads) {
    const int row = item / kOuter, k = item % kOuter;
    const int column = k < kOuter / 2 ? k * kPx - G::kSide : TW + (k - kOuter / 2) * kPx;
    fill_granule<F, kPx>(image, row < rows ? top + row : top, x0 + column, first, row < rows ? last : first,
                         gray + row * G::kGrayWords + (G::kLead + column) / 2);
  }
}

// Phase 2. A thread owns two words of a row and Run rows below one another.
template <int R, int TW, int TH, int Threads>
WF_DEVICE void sum_down(const u32* gray, u32* down, const Weights<R>& w) {
  typedef geometry<R, TW, TH> G;
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

// Rounded horizontal sum around pixel Q of a window of lanes, in its third byte, with the exponent above it.
template <int R, int N>
WF_DEVICE u32 sum_across(const u32 (&window)[N], int q, const Weights<R>& w) {
  const int first = q - R, word = first >> 1;
  u32 sum = 0x64008000u;
  WF_UNROLL
  for (int k = 0; k <= R; ++k) {
    const u32 pair = first & 1 ? w.odd[k / 2] : w.even[k / 2];
    sum = k & 1 ? dot_high(window[word + k], pair, sum) : dot_low(window[word + k], pair, sum);
  }
  return sum;
}

struct Target {
  u8 *first, *second;  // the result; for derivatives gx and gy
  i64 pitch;
};

// Phase 3 of a blur: eight bytes a row.
template <int R, int TW, int TH, int Run>
WF_DEVICE void finish_blur(const u32* down, const Weights<R>& w, const Image& image, const Target& target, int x0, int y0,
                           int item) {
  typedef geometry<R, TW, TH> G;
  const int column = item % (TW / 8) * 8, run = item / (TW / 8) * Run, x = x0 + column;
  if (x >= image.width) return;
  for (int i = 0; i < Run; ++i) {
    const int y = y0 + run + i;
    if (y >= image.height) break;
    u32 window[G::kWindow], sum[8], out[2];
    read_words<G::kWindow>(down + (run + i + 1) * G::kDownWords + column / 2, window);
    WF_UNROLL
    for (int p = 0; p < 8; ++p) sum[p] = sum_across<R>(window, G::kSide + p, w);
    WF_UNROLL
    for (int k = 0; k < 2; ++k)
      out[k] = __byte_perm(lanes_of_sums(sum[4 * k], sum[4 * k + 1]), lanes_of_sums(sum[4 * k + 2], sum[4 * k + 3]),
                           0x6420);
    store8(target.first + y * target.pitch + x, image.width - x, out, image.options.out_align());
  }
}

// One row of phase 3, r rows below the tile's first: what Sobel keeps of it.
template <int R, int TW, int TH>
WF_DEVICE void keep_row(const u32* tile, const Weights<R>& w, const Image& image, int x0, int y0, int column, int r,
                        Kept& kept) {
  typedef geometry<R, TW, TH> G;
  if constexpr (R == 0) {
    kept_of_lanes(tile + (r + 1) * G::kGrayWords + (column + G::kLead - 4) / 2, kept);
  } else {
    const int border = image.options.border(), y = y0 + r;
    // Sobel's clamped row is the blurred image's last one.
    const int line = border == kClamp ? max_of(0, min_of(y, image.height - 1)) - y0 : r;
    u32 window[G::kWindow];
    read_words<G::kWindow>(tile + (line + 1) * G::kDownWords + column / 2, window);
    Row row;
    WF_UNROLL
    for (int p = 0; p < 10; ++p) row.at[p] = sum_across<R>(window, G::kSide - 1 + p, w);
    const bool edge = x0 + column == 0 || x0 + column + 9 > image.width || y < 0 || y >= image.height;
    if (edge && (border == kClamp || border == kZero)) own_border(row, image, y, x0 + column);
    kept_of_sums(row, kept);
  }
}

// Phase 3 with Sobel.
template <int R, int Out, int TW, int TH, int Run>
WF_DEVICE void finish_sobel(const u32* tile, const Weights<R>& w, const Image& image, const Target& target, int x0, int y0,
                            int item) {
  const int column = item % (TW / 8) * 8, run = item / (TW / 8) * Run, x = x0 + column;
  if (x >= image.width || y0 + run >= image.height) return;
  Kept above, here, below;
  keep_row<R, TW, TH>(tile, w, image, x0, y0, column, run - 1, above);
  keep_row<R, TW, TH>(tile, w, image, x0, y0, column, run, here);
  WF_UNROLL_N(R > 4 ? 1 : 2)
  for (int i = 0; i < Run; ++i) {
    const int y = y0 + run + i;
    if (y >= image.height) break;
    keep_row<R, TW, TH>(tile, w, image, x0, y0, column, run + i + 1, below);
    u32 gx[4], gy[4];
    WF_UNROLL
    for (int k = 0; k < 4; ++k) {
      gx[k] = half_twice_plus(here.difference[k], half_add(above.difference[k], below.difference[k]));
      gy[k] = half_sub(below.smooth[k], above.smooth[k]);
    }
    if constexpr (Out == kDerivatives) {
      store_derivatives(target.first + y * target.pitch + 2 * x, image.width - x, gx, image.options.out_align());
      store_derivatives(target.second + y * target.pitch + 2 * x, image.width - x, gy, image.options.out_align());
    } else {
      u32 out[2];
      threshold8(gx, gy, image.options, out);
      store8(target.first + y * target.pitch + x, image.width - x, out, image.options.out_align());
    }
    above = here, here = below;
  }
}

// The batch's image number k. size: height | width << 32.
WF_DEVICE Image image_at(const u8* src, i64 k, i64 batch, u64 size, u64 options, i64 pitch, i64 stride, i64 plane, int step) {
  Image image;
  image.height = static_cast<int>(size & 0xffffffffu), image.width = static_cast<int>(size >> 32);
  image.options.bits = options;
  image.pitch = pitch, image.plane = plane;
  image.base = src + k * stride;
  image.low = -k * stride;
  image.high = (batch - 1 - k) * stride + (image.height - 1) * pitch + static_cast<i64>(image.width - 1) * step +
               (step == 1 ? 2 * plane + 1 : 3);
  return image;
}

}  // namespace wf

// Format: of source.cuh. R: radius of the blur, 0 for none. Out: of wf::Result. Grid: tiles across, down, then images.
// Run: rows a thread finishes. weights: bytes, up to the centre.
template <int F, int R, int Out, int TW, int TH, int Threads, int Run>
__global__ void __launch_bounds__(Threads)
    image_chain(unsigned char* dst, unsigned char* dst2, const unsigned char* src, unsigned long long size,
                unsigned long long options, long long src_pitch, long long src_stride, long long plane,
                long long dst_pitch, long long dst_stride, unsigned long long weights_low, unsigned long long weights_high) {
  using namespace wf;
  typedef geometry<R, TW, TH> G;
  WF_DYNAMIC_SHARED(memory);
  u32* const gray = reinterpret_cast<u32*>(memory);
  u32* const down = gray + G::kGrayRows * G::kGrayWords;
  const u32 height = static_cast<u32>(size), width = static_cast<u32>(size >> 32);
  const u32 across = (width + TW - 1) / TW, tiles = across * ((height + TH - 1) / TH);
  const u32 k = blockIdx.x / tiles, t = blockIdx.x - k * tiles;
  const int x0 = static_cast<int>(t % across) * TW, y0 = static_cast<int>(t / across) * TH;
  const int step = F == kPacked3 || F == kPacked4 ? F : 1;
  const Image image = image_at(src, k, gridDim.x / tiles, size, options, src_pitch, src_stride, plane, step);
  const Weights<R> w(weights_low, weights_high);

  fill_gray<F, R, TW, TH, Threads>(image, x0, y0, gray);
  __syncthreads();
  if constexpr (R > 0) {
    sum_down<R, TW, TH, Threads>(gray, down, w);
    __syncthreads();
  }
  const Target target = {dst + k * dst_stride, dst2 + k * dst_stride, dst_pitch};
  for (int item = static_cast<int>(threadIdx.x); item < TW / 8 * (TH / Run); item += Threads) {
    if constexpr (Out == kBlur) {
      finish_blur<R, TW, TH, Run>(down, w, image, target, x0, y0, item);
    } else {
      finish_sobel<R, Out, TW, TH, Run>(R > 0 ? down : gray, w, image, target, x0, y0, item);
    }
  }
}

// Gray values alone. A thread owns a granule of 16 pixels; `count` granules in all.
template <int F, int Threads>
__global__ void __launch_bounds__(Threads)
    image_gray(unsigned char* dst, const unsigned char* src, unsigned long long size, unsigned long long options,
               long long src_pitch, long long src_stride, long long plane, long long dst_pitch, long long dst_stride,
               long long count) {
  using namespace wf;
  const i64 item = static_cast<i64>(blockIdx.x) * Threads + threadIdx.x;
  if (item >= count) return;
  const u32 height = static_cast<u32>(size), width = static_cast<u32>(size >> 32), across = (width + 15) / 16;
  const u32 line = static_cast<u32>(item / across), k = line / height;
  const int x = static_cast<int>(item - static_cast<i64>(line) * across) * 16, y = static_cast<int>(line - k * height);
  const int step = F == kPacked3 || F == kPacked4 ? F : 1;
  const i64 batch = count / (static_cast<i64>(across) * height);
  const Image image = image_at(src, k, batch, size, options, src_pitch, src_stride, plane, step);
  u8* p = dst + k * dst_stride + y * dst_pitch + x;
  u32 lanes[8];
  if (!gray_pixels<F, 16>(image, y, x, lanes)) {
    WF_UNROLL_N(1)
    for (int i = 0; i < min_of(16, image.width - x); ++i) p[i] = static_cast<u8>(gray_at(image, F, y, x + i));
    return;
  }
  vec16 v;
  WF_UNROLL
  for (int i = 0; i < 4; ++i) v.w[i] = __byte_perm(lanes[2 * i], lanes[2 * i + 1], 0x6420);
  if (image.options.out_align() >= 16) {
    store16(p, v);
    return;
  }
  WF_UNROLL
  for (int i = 0; i < 16; ++i) p[i] = static_cast<u8>(v.w[i / 4] >> (8 * (i % 4)));
}
