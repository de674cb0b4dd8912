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
#include "tile.cuh"

// Threads that a multiprocessor should hold at least; it bounds the registers of one.
#ifndef WF_LEAST_THREADS
#define WF_LEAST_THREADS 1024
#endif

namespace wf {

enum Result { kEdges = 0, kBlur = 1, kDerivatives = 2 };

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

// Eight blurred pixels of a row of `down`, as bytes.
template <int R, int TW, int TH>
WF_DEVICE void blur8(const u32* p, const Weights<R>& w, u32 (&out)[2]) {
  typedef geometry<R, TW, TH> G;
  u32 window[G::kWindow], sum[8];
  read_words<G::kWindow>(p, window);
  WF_UNROLL
  for (int k = 0; k < 8; ++k) sum[k] = sum_across<R>(window, G::kSide + k, w);
  WF_UNROLL
  for (int k = 0; k < 2; ++k)
    out[k] = __byte_perm(lanes_of_sums(sum[4 * k], sum[4 * k + 1]), lanes_of_sums(sum[4 * k + 2], sum[4 * k + 3]), 0x6420);
}

// Phase 3 of a blur: eight bytes a row. Whole: the tile lies inside the image, and rows of the output at multiples of 8.
template <int R, int TW, int TH, int Run, bool Whole>
WF_DEVICE void finish_blur(const u32* down, const Weights<R>& w, const Image& image, const Target& target, int x0, int y0,
                           int item) {
  typedef geometry<R, TW, TH> G;
  const int column = item % (TW / 8) * 8, run = item / (TW / 8) * Run, x = x0 + column;
  const int rows = Whole ? Run : min_of(Run, image.height - y0 - run);
  if (!Whole && x >= image.width) return;
  const u32* line = down + (run + 1) * G::kDownWords + column / 2;
  u8* p = target.first + (y0 + run) * target.pitch + x;
  WF_UNROLL_N(R > 4 ? 1 : Run)
  for (int i = 0; i < Run; ++i, line += G::kDownWords, p += target.pitch) {
    if (!Whole && i >= rows) break;
    u32 out[2];
    blur8<R, TW, TH>(line, w, out);
    store8(p, Whole ? 8 : image.width - x, out, Whole ? 8 : image.options.out_align());
  }
}

// One row of phase 3, r rows below the tile's first: what Sobel keeps of it. Inner: no border of its own.
template <int R, int TW, int TH, bool Inner>
WF_DEVICE void keep_row(const u32* tile, const Weights<R>& w, const Image& image, int x0, int y0, int column, int r,
                        Kept& kept) {
  typedef geometry<R, TW, TH> G;
  if constexpr (R == 0) {
    kept_of_lanes(tile + (r + 1) * G::kGrayWords + (column + G::kLead - 4) / 2, kept);
  } else {
    const int border = image.options.border(), y = y0 + r;
    // Sobel's clamped row is the blurred image's last one.
    const int line = !Inner && border == kClamp ? max_of(0, min_of(y, image.height - 1)) - y0 : r;
    u32 window[G::kWindow];
    read_words<G::kWindow>(tile + (line + 1) * G::kDownWords + column / 2, window);
    Row row;
    WF_UNROLL
    for (int p = 0; p < 10; ++p) row.at[p] = sum_across<R>(window, G::kSide - 1 + p, w);
    if (!Inner) {
      const bool edge = x0 + column == 0 || x0 + column + 9 > image.width || y < 0 || y >= image.height;
      if (edge && (border == kClamp || border == kZero)) own_border(row, image, y, x0 + column);
    }
    kept_of_sums(row, kept);
  }
}

// Phase 3 with Sobel, of a tile that lies inside the image, without a border of its own, for the usual result: the
// threshold of |gx| + |gy|, rows of the output at multiples of 8.
template <int R, int TW, int TH, int Run>
WF_DEVICE void finish_inside(const u32* tile, const Weights<R>& w, const Image& image, const Target& target, int x0, int y0,
                             int item) {
  const int column = item % (TW / 8) * 8, run = item / (TW / 8) * Run;
  const u32 level = image.options.half_level();
  u8* p = target.first + (y0 + run) * target.pitch + x0 + column;
  Kept above, here, below;
  keep_row<R, TW, TH, true>(tile, w, image, x0, y0, column, run - 1, above);
  keep_row<R, TW, TH, true>(tile, w, image, x0, y0, column, run, here);
  WF_UNROLL_N(R > 4 ? 1 : Run)
  for (int i = 0; i < Run; ++i, p += target.pitch) {
    keep_row<R, TW, TH, true>(tile, w, image, x0, y0, column, run + i + 1, below);
    u32 gx[4], gy[4], out[2];
    derivatives(above, here, below, gx, gy);
    binary8(gx, gy, level, out);
    *reinterpret_cast<u64*>(p) = out[0] | static_cast<u64>(out[1]) << 32;
    above = here, here = below;
  }
}

// Phase 3 with Sobel, of any tile and for any result.
template <int R, int Out, int TW, int TH, int Run>
WF_DEVICE void finish_sobel(const u32* tile, const Weights<R>& w, const Image& image, const Target& target, int x0, int y0,
                            int item) {
  const int column = item % (TW / 8) * 8, run = item / (TW / 8) * Run, x = x0 + column;
  if (x >= image.width || y0 + run >= image.height) return;
  Kept above, here, below;
  keep_row<R, TW, TH, false>(tile, w, image, x0, y0, column, run - 1, above);
  keep_row<R, TW, TH, false>(tile, w, image, x0, y0, column, run, here);
  WF_UNROLL_N(1)
  for (int i = 0; i < Run; ++i) {
    const int y = y0 + run + i;
    if (y >= image.height) break;
    keep_row<R, TW, TH, false>(tile, w, image, x0, y0, column, run + i + 1, below);
    u32 gx[4], gy[4];
    derivatives(above, here, below, gx, gy);
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

}  // namespace wf

// F: Format of source.cuh. R: radius of the blur, 0 for none. Out: of wf::Result. Grid: tiles across times images, tiles
// down.
// Run: rows a thread finishes. weights: bytes, up to the centre.
template <int F, int R, int Out, int TW, int TH, int Threads, int Run>
__global__ void __launch_bounds__(Threads, WF_LEAST_THREADS / Threads)
    image_chain(unsigned char* dst, unsigned char* dst2, const unsigned char* src, unsigned long long size,
                unsigned long long options, long long src_pitch, long long src_stride, long long plane,
                long long dst_pitch, long long dst_stride, unsigned long long weights_low, unsigned long long weights_high) {
  using namespace wf;
  typedef geometry<R, TW, TH> G;
  WF_DYNAMIC_SHARED(memory);
  u32* const gray = reinterpret_cast<u32*>(memory);
  u32* const down = gray + G::kGrayRows * G::kGrayWords;
  const u32 across = (static_cast<u32>(size >> 32) + TW - 1) / TW, k = blockIdx.x / across;
  const int x0 = static_cast<int>(blockIdx.x - k * across) * TW, y0 = static_cast<int>(blockIdx.y) * TH;
  const Image image = image_at(src + k * src_stride, size, options, src_pitch, plane, step_of<F>);

  // The tile's halo is inside the image; the tile itself is.
  const bool inside = x0 >= 16 && x0 + TW + 16 <= image.width && y0 >= G::kHalo && y0 + TH + G::kHalo <= image.height;
  const bool whole = x0 + TW <= image.width && y0 + TH <= image.height && image.options.out_align() >= 8;
  fill_gray<F, R, TW, TH, Threads>(image, x0, y0, gray);
  __syncthreads();
  if constexpr (R > 0) {
    sum_down<R, TW, TH, Threads>(gray, down, weights_low, weights_high);
    __syncthreads();
  }
  const Weights<R> w(weights_low, weights_high);
  const Target target = {dst + k * dst_stride, dst2 + k * dst_stride, dst_pitch};
  const int border = image.options.border();
  const bool usual = whole && image.options.binary() && !image.options.euclidean() &&
                     (R == 0 || inside || (border != kClamp && border != kZero));
  for (int item = static_cast<int>(threadIdx.x); item < TW / 8 * (TH / Run); item += Threads) {
    if constexpr (Out == kBlur) {
      if (whole) {
        finish_blur<R, TW, TH, Run, true>(down, w, image, target, x0, y0, item);
      } else {
        finish_blur<R, TW, TH, Run, false>(down, w, image, target, x0, y0, item);
      }
    } else if (Out == kEdges && usual) {
      finish_inside<R, TW, TH, Run>(R > 0 ? down : gray, w, image, target, x0, y0, item);
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
  const Image image = image_at(src + k * src_stride, size, options, src_pitch, plane, step_of<F>);
  u8* p = dst + k * dst_stride + y * dst_pitch + x;
  u32 lanes[8];
  if (!gray_pixels<F, 16>(image, y, x, 0, lanes)) {
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
