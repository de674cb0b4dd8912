// Sobel and threshold of a gray image, the usual result of it alone: 255 where |gx| + |gy| is above the level.
//
// A thread owns 8 columns and goes down Run rows; of each row it reads 8 pixels and one on either side, straight from
// global memory: a pixel is read by one warp, and by its neighbours from L1. No shared memory, no barrier. What is kept of a
// row, and the arithmetic, is that of sobel.cuh. A warp owns 256 columns; Threads / 32 warps of a block lie below one
// another. At the image's edge pixels are read one by one, from where the border maps them.
#include "sobel.cuh"
#include "source.cuh"

namespace wf {

// Lanes 1024 + value of pixels x - 2 .. x + 9 (the outermost two are not used), for a row that lies side by side.
WF_DEVICE void row_inside(const u8* p, bool aligned, u32 (&lanes)[6]) {
  u32 w[2];
  if (aligned) {
    const u64 both = *reinterpret_cast<const u64*>(p);
    w[0] = static_cast<u32>(both), w[1] = static_cast<u32>(both >> 32);
  } else {
    WF_UNROLL
    for (int i = 0; i < 2; ++i) {
      const u8* q = p + 4 * i;
      w[i] = q[0] | static_cast<u32>(q[1]) << 8 | static_cast<u32>(q[2]) << 16 | static_cast<u32>(q[3]) << 24;
    }
  }
  lanes[0] = kHalf1024 | static_cast<u32>(p[-1]) << 16;
  lanes[5] = kHalf1024 | p[8];
  WF_UNROLL
  for (int i = 0; i < 2; ++i) {
    lanes[2 * i + 1] = __byte_perm(w[i], kHalf1024, 0x5150);
    lanes[2 * i + 2] = __byte_perm(w[i], kHalf1024, 0x5352);
  }
}

WF_DEVICE void kept_row(const u32 (&lanes)[6], Kept& kept) {
  u32 odd[5], even[4];
  WF_UNROLL
  for (int k = 0; k < 5; ++k) odd[k] = __byte_perm(lanes[k], lanes[k + 1], 0x5432);
  WF_UNROLL
  for (int k = 0; k < 4; ++k) even[k] = lanes[k + 1];
  kept.set(odd, even);
}

// The same anywhere: virtual row v, virtual columns. One pixel at a time, in a loop: it runs at edges only.
WF_DEVICE void row_anywhere(const Image& image, int v, int x, Kept& kept) {
  const int y = border_index(v, image.height, image.options.border());
  const int count = y < 0 ? 0 : min_of(10, image.width - x + 2);
  u64 first = 0;  // pixels x - 1 .. x + 6
  u32 last = 0;   // x + 7, x + 8
  WF_UNROLL_N(1)
  for (int i = 0; i < count; ++i) {
    const u32 value = gray_virtual<kGray>(image, y, x - 1 + i);
    if (i < 8) first |= static_cast<u64>(value) << (8 * i);
    if (i >= 8) last |= value << (8 * (i - 8));
  }
  u32 lanes[6];
  lanes[0] = kHalf1024 | static_cast<u32>(first & 255) << 16;
  WF_UNROLL
  for (int k = 0; k < 3; ++k) {
    const u32 two = static_cast<u32>(first >> (8 + 16 * k)) & 0xffff;
    lanes[k + 1] = kHalf1024 | (two & 255) | (two >> 8) << 16;
  }
  lanes[4] = kHalf1024 | static_cast<u32>(first >> 56) | (last & 255) << 16;
  lanes[5] = kHalf1024 | last >> 8;
  kept_row(lanes, kept);
}

}  // namespace wf

// Grid: blocks of 256 columns times images, blocks of Run * Threads / 32 rows down. Rows of the output of any alignment.
template <int Run, int Threads>
__global__ void __launch_bounds__(Threads, 1024 / Threads)
    image_sobel(unsigned char* dst, const unsigned char* src, unsigned long long size, unsigned long long options,
                long long src_pitch, long long src_stride, long long plane, long long dst_pitch, long long dst_stride) {
  using namespace wf;
  const u32 across = (static_cast<u32>(size >> 32) + 255) / 256, k = blockIdx.x / across;
  const int x = static_cast<int>(blockIdx.x - k * across) * 256 + static_cast<int>(threadIdx.x % 32) * 8;
  const int y0 = static_cast<int>(blockIdx.y * (Threads / 32) + threadIdx.x / 32) * Run;
  const Image image = image_at(src + k * src_stride, size, options, src_pitch, plane, 1);
  if (x >= image.width || y0 >= image.height) return;
  const u32 level = image.options.half_level();
  u8* out_row = dst + k * dst_stride + y0 * dst_pitch + x;
  Kept above, here, below;
  u32 gx[4], gy[4], out[2];
  if (x >= 1 && x + 9 <= image.width && y0 >= 1 && y0 + Run < image.height && image.options.out_align() >= 8) {
    const bool aligned = image.options.aligned();
    const u8* p = image.base + (y0 - 1) * src_pitch + x;
    u32 lanes[Run + 2][6];
    WF_UNROLL
    for (int i = 0; i < Run + 2; ++i, p += src_pitch) row_inside(p, aligned, lanes[i]);
    kept_row(lanes[0], above);
    kept_row(lanes[1], here);
    WF_UNROLL
    for (int i = 0; i < Run; ++i, out_row += dst_pitch) {
      kept_row(lanes[i + 2], below);
      derivatives(above, here, below, gx, gy);
      binary8(gx, gy, level, out);
      *reinterpret_cast<u64*>(out_row) = out[0] | static_cast<u64>(out[1]) << 32;
      above = here, here = below;
    }
    return;
  }
  row_anywhere(image, y0 - 1, x, above);
  row_anywhere(image, y0, x, here);
  WF_UNROLL_N(1)
  for (int i = 0; i < Run && y0 + i < image.height; ++i, out_row += dst_pitch) {
    row_anywhere(image, y0 + i + 1, x, below);
    derivatives(above, here, below, gx, gy);
    binary8(gx, gy, level, out);
    store8(out_row, image.width - x, out, image.options.out_align());
    above = here, here = below;
  }
}
