// What the three transpose kernel files share: how bytes become words, and which tile a block takes.
//
// Elements of B bytes move as words of max(B, 4) bytes. A word of 1- or 2-byte elements packs P = 4 / B of
// them, so that shared memory is never accessed by less than a bank. A chunk is 16 bytes = V elements.
#pragma once
#include "types.cuh"
#include "vec16.cuh"

namespace wf {

template <int B>
struct element {
  static constexpr int kWordBytes = B < 4 ? 4 : B;
  static constexpr int kPacked = kWordBytes / B;
  static constexpr int kChunk = 16 / B;
  static constexpr int kWordsPerChunk = 16 / kWordBytes;
};

template <int Bytes> struct word_of { typedef typename word<Bytes>::type type; };
template <> struct word_of<16> { typedef vec16 type; };

// One element by itself; its address is a multiple of min(B, 8).
template <int B>
WF_DEVICE typename word_of<B>::type load_element(const u8* p) {
  typename word_of<B>::type v;
  if constexpr (B == 16) {
    const u64* q = reinterpret_cast<const u64*>(p);
    const u64 a = q[0], b = q[1];
    v.w[0] = static_cast<u32>(a), v.w[1] = static_cast<u32>(a >> 32);
    v.w[2] = static_cast<u32>(b), v.w[3] = static_cast<u32>(b >> 32);
  } else {
    v = *reinterpret_cast<const typename word_of<B>::type*>(p);
  }
  return v;
}

template <int B>
WF_DEVICE void store_element(u8* p, typename word_of<B>::type v) {
  if constexpr (B == 16) {
    u64* q = reinterpret_cast<u64*>(p);
    q[0] = v.w[0] | static_cast<u64>(v.w[1]) << 32;
    q[1] = v.w[2] | static_cast<u64>(v.w[3]) << 32;
  } else {
    *reinterpret_cast<typename word_of<B>::type*>(p) = v;
  }
}

// Element e of a chunk, e known at compile time after unrolling.
template <int B>
WF_DEVICE typename word_of<B>::type get_element(const vec16& v, int e) {
  if constexpr (B == 16) {
    return v;
  } else if constexpr (B == 8) {
    return v.w[2 * e] | static_cast<u64>(v.w[2 * e + 1]) << 32;
  } else {
    return static_cast<typename word_of<B>::type>(v.w[e * B / 4] >> (8 * (e * B % 4)));
  }
}

// The chunk starts as zeros; each element is set at most once.
template <int B>
WF_DEVICE void set_element(vec16& v, int e, typename word_of<B>::type x) {
  if constexpr (B == 16) {
    v = x;
  } else if constexpr (B == 8) {
    v.w[2 * e] = static_cast<u32>(x), v.w[2 * e + 1] = static_cast<u32>(x >> 32);
  } else {
    v.w[e * B / 4] |= static_cast<u32>(x) << (8 * (e * B % 4));
  }
}

// Bytes from the last multiple of 16 to p.
WF_DEVICE u32 offset_in_chunk(const void* p) { return static_cast<u32>(reinterpret_cast<u64>(p) & 15); }

// Bytes shift, ..., shift + 15 of two neighbouring chunks; shift < 16 is a multiple of B.
template <int B>
WF_DEVICE vec16 shifted_bytes(const vec16& low, const vec16& high, u32 shift) {
  u32 w[8];
  WF_UNROLL
  for (int i = 0; i < 4; ++i) w[i] = low.w[i], w[i + 4] = high.w[i];
  WF_UNROLL
  for (int i = 0; i < 6; ++i) w[i] = shift & 8 ? w[i + 2] : w[i];
  if constexpr (B <= 4) {
    WF_UNROLL
    for (int i = 0; i < 5; ++i) w[i] = shift & 4 ? w[i + 1] : w[i];
  }
  vec16 v;
  WF_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (B < 4) v.w[i] = static_cast<u32>((w[i] | static_cast<u64>(w[i + 1]) << 32) >> (shift % 4 * 8));
    else v.w[i] = w[i];
  }
  return v;
}

// out[b] = byte b of each of the four words, in order: a 4 x 4 transpose of bytes.
WF_DEVICE void transpose_bytes(u32 a, u32 b, u32 c, u32 d, u32 (&out)[4]) {
  const u32 ab01 = __byte_perm(a, b, 0x5140), ab23 = __byte_perm(a, b, 0x7362);
  const u32 cd01 = __byte_perm(c, d, 0x5140), cd23 = __byte_perm(c, d, 0x7362);
  out[0] = __byte_perm(ab01, cd01, 0x5410), out[1] = __byte_perm(ab01, cd01, 0x7632);
  out[2] = __byte_perm(ab23, cd23, 0x5410), out[3] = __byte_perm(ab23, cd23, 0x7632);
}

// P rows of one chunk -> V words, word e holding element e of each row.
template <int B>
WF_DEVICE void rows_to_words(const vec16 (&row)[element<B>::kPacked],
                             typename word_of<element<B>::kWordBytes>::type (&out)[element<B>::kChunk]) {
  if constexpr (B == 1) {
    WF_UNROLL
    for (int i = 0; i < 4; ++i) {
      u32 t[4];
      transpose_bytes(row[0].w[i], row[1].w[i], row[2].w[i], row[3].w[i], t);
      WF_UNROLL
      for (int b = 0; b < 4; ++b) out[4 * i + b] = t[b];
    }
  } else if constexpr (B == 2) {
    WF_UNROLL
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = __byte_perm(row[0].w[i], row[1].w[i], 0x5410);
      out[2 * i + 1] = __byte_perm(row[0].w[i], row[1].w[i], 0x7632);
    }
  } else {
    WF_UNROLL
    for (int e = 0; e < element<B>::kChunk; ++e) out[e] = get_element<B>(row[0], e);
  }
}

// V words, one from each of V rows and each holding P neighbouring columns -> P chunks, one for each column.
template <int B>
WF_DEVICE void words_to_columns(const typename word_of<element<B>::kWordBytes>::type (&x)[element<B>::kChunk],
                                vec16 (&column)[element<B>::kPacked]) {
  if constexpr (B == 1) {
    WF_UNROLL
    for (int i = 0; i < 4; ++i) {
      u32 t[4];
      transpose_bytes(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3], t);
      WF_UNROLL
      for (int b = 0; b < 4; ++b) column[b].w[i] = t[b];
    }
  } else if constexpr (B == 2) {
    WF_UNROLL
    for (int i = 0; i < 4; ++i) {
      column[0].w[i] = __byte_perm(x[2 * i], x[2 * i + 1], 0x5410);
      column[1].w[i] = __byte_perm(x[2 * i], x[2 * i + 1], 0x7632);
    }
  } else if constexpr (B == 16) {
    column[0] = x[0];
  } else {
    column[0] = vec16{{0, 0, 0, 0}};
    WF_UNROLL
    for (int e = 0; e < element<B>::kChunk; ++e) set_element<B>(column[0], e, x[e]);
  }
}

struct tile {
  i64 batch;
  i64 row;  // of the tile, in tiles
  i64 column;
};

// Tiles are numbered batch by batch; within a matrix in panels of `group` tile rows, down the panel first.
// Neighbouring blocks then read neighbouring segments of the input's rows and write neighbouring segments of
// the output's rows, both within one sweep of the L2. group = 1 is row order, group = tiles_m column order, and no
// larger one is passed; group = 0 is the diagonal order, in which blocks that run together share neither a row nor
// a column.
WF_DEVICE tile tile_at(i64 index, i64 tiles_m, i64 tiles_n, i64 group) {
  const u32 rows = static_cast<u32>(tiles_m), columns = static_cast<u32>(tiles_n);
  const u64 per_matrix = static_cast<u64>(tiles_m) * static_cast<u64>(tiles_n);
  tile t;
  // The first matrix, often the only one, needs no division of 64 bits.
  t.batch = static_cast<u64>(index) < per_matrix ? 0 : static_cast<i64>(static_cast<u64>(index) / per_matrix);
  const u32 k = static_cast<u32>(static_cast<u64>(index) - static_cast<u64>(t.batch) * per_matrix);
  if (group == 0) {
    const u32 row = k % rows;
    t.row = row;
    t.column = (k / rows + row) % columns;
    return t;
  }
  const u32 g = static_cast<u32>(group);
  const u32 panel = k / (g * columns), inside = k - panel * g * columns;
  const u32 height = min_of(g, rows - panel * g);
  t.row = panel * g + inside % height;
  t.column = inside / height;
  return t;
}

}  // namespace wf
