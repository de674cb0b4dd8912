// Fixed-size integers and the few spellings that differ between a device compiler and the SIMT runner.
//
// Bare NVRTC has no <cstdint>; the sizes below are those of every CUDA target and of the hosts the runner
// works on.
#pragma once

#ifdef WARPFRONT_SIMT
#define WF_DEVICE inline
#define WF_UNROLL
#define WF_UNROLL_N(n)
#define WF_DYNAMIC_SHARED(name) unsigned char* name = simt::dynamic_shared()
#else
#define WF_DEVICE __device__ __forceinline__
#define WF_PRAGMA(text) _Pragma(#text)
#define WF_UNROLL WF_PRAGMA(unroll)
#define WF_UNROLL_N(n) WF_PRAGMA(unroll n)
// One symbol of one type for all kernels of a translation unit: the language asks for that.
#define WF_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#endif

#ifdef __CUDA_ARCH__
#define WF_ARCH __CUDA_ARCH__
#else
// The runner plays the newest target, so that every path is exercised.
#define WF_ARCH 900
#endif

namespace wf {

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

static_assert(sizeof(i16) == 2 && sizeof(i32) == 4 && sizeof(i64) == 8 && sizeof(void*) == 8, "unsupported data model");

constexpr int kWarp = 32;
constexpr u32 kFullMask = 0xffffffffu;

template <typename T>
WF_DEVICE T min_of(T a, T b) { return b < a ? b : a; }

template <typename T>
WF_DEVICE T max_of(T a, T b) { return a < b ? b : a; }

// Unsigned integer of a given size, for moving bits.
template <int Bytes> struct word;
template <> struct word<1> { typedef u8 type; };
template <> struct word<2> { typedef u16 type; };
template <> struct word<4> { typedef u32 type; };
template <> struct word<8> { typedef u64 type; };

}  // namespace wf
