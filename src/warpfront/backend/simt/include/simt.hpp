// The host half of CUDA C++: a kernel file that is compiled by g++ with `-include simt.hpp` runs under the SIMT
// runner. Every name below is CUDA's own; house twins (`#ifdef WARPFRONT_SIMT`) use namespace `simt`.
//
// Nothing here touches memory in the caller's name: loads and stores that carry an order go to the runtime, which is
// compiled without instrumentation. `__shared__` is `thread_local`: one storage, exchanged when blocks are switched.
#pragma once
#ifndef WARPFRONT_SIMT
#define WARPFRONT_SIMT 1
#endif
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

#define SIMT_INLINE inline __attribute__((always_inline))
#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ thread_local
#define __forceinline__ SIMT_INLINE
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define SIMT_CONST __attribute__((const))

struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace simt {
enum Order { relaxed = 0, acquire = 1, release = 2, acq_rel = 3 };
enum Scope { cta = 0, gpu = 1, sys = 2 };
enum ShuffleMode { shfl_idx = 0, shfl_up = 1, shfl_down = 2, shfl_xor = 3 };
enum VoteOp { vote_ballot, vote_any, vote_all, vote_match_any, vote_add, vote_min_s, vote_max_s, vote_min_u, vote_max_u,
              vote_and, vote_or, vote_xor };
enum AtomicOp { at_add, at_sub, at_min, at_max, at_and, at_or, at_xor, at_exch, at_cas, at_inc, at_dec };
enum AtomicType { ty_i32, ty_u32, ty_i64, ty_u64, ty_f32, ty_f64 };
}  // namespace simt

extern "C" {
// Constant within one fiber, so the compiler may keep the value.
uint3 simt_thread_idx() SIMT_CONST;
uint3 simt_block_idx() SIMT_CONST;
uint3 simt_block_dim() SIMT_CONST;
uint3 simt_grid_dim() SIMT_CONST;
int simt_syncthreads(int op, int predicate);  // op 0 none, 1 count, 2 and, 3 or
void simt_barrier(int id, int threads, int arrive_only);
void simt_syncwarp(unsigned mask);
std::uint64_t simt_shfl(unsigned mask, std::uint64_t value, int lane, int width, int mode);
std::uint64_t simt_vote(unsigned mask, std::uint64_t value, int op, int bytes);
void simt_gather(unsigned mask, const void *mine, void *all, std::size_t bytes);
unsigned simt_activemask();
std::uint64_t simt_atomic(void *p, std::uint64_t operand, std::uint64_t compare, int op, int type, int order, int scope);
std::uint64_t simt_load(const void *p, int bytes, int order, int scope);
void simt_store(void *p, std::uint64_t value, int bytes, int order, int scope);
void simt_fence(int scope);
// Deferred copies: kind 0 cp.async (global to shared), 1 cp.async.bulk store (shared to global). They land at the wait.
void simt_copy(void *to, const void *from, unsigned bytes, unsigned valid, int kind);
void simt_copy_commit(int kind);
void simt_copy_wait(int pending, int kind);
void simt_mbar_init(unsigned long long *bar, unsigned count);
void simt_mbar_arrive(unsigned long long *bar, unsigned expected_bytes);
void simt_mbar_wait(unsigned long long *bar, unsigned parity);
void simt_bulk_load(void *shared, const void *global, unsigned bytes, unsigned long long *bar);
unsigned simt_lane() SIMT_CONST;
void simt_yield();
void simt_trap(const char *why);
long long simt_clock();
void *simt_dynamic_shared() SIMT_CONST;
}

#define threadIdx (simt_thread_idx())
#define blockIdx (simt_block_idx())
#define blockDim (simt_block_dim())
#define gridDim (simt_grid_dim())
constexpr int warpSize = 32;

#include "simt_types.hpp"
#include "simt_warp.hpp"
// The warp header's bit casts serve the next two.
#include "simt_atomic.hpp"
#include "simt_copy.hpp"
#include "simt_math.hpp"
