// Breadth-first search of a small graph by one block: graph, keys and queue in its shared memory.
//
// The block owns the whole search. A vertex's key is (level << 16 | parent), all ones where unreached, lowered by
// atomicMin. `packed` is the graph as one array of 16-byte chunks: n + 1 offsets of 4 bytes, then heads of 2 bytes.
//
// Shared layout: packed graph, key[n] (4 bytes), queue[n] (2 bytes), each on a multiple of 16; three counters.
//
// Barriers: one after the graph is there and the keys are clear; one after the sources are placed; one a level, between
// its writes of queue and counter and the reads of the next. The counters take turns by level modulo 3: one is read
// (this level's entries are known), one is added to, one is cleared.
#include "bfs.cuh"
#include "block.cuh"

namespace wf {

// Shared atomics of a warp that add one: the compiler joins them.
WF_DEVICE u32 place(u32* counter) { return atomicAdd(counter, 1u); }

WF_DEVICE u32 round16(u32 bytes) { return (bytes + 15u) / 16u * 16u; }

struct packed_graph {
  const u32* ptr;
  const u16* ind;
  u32* key;
  u16* queue;
};

WF_DEVICE packed_graph layout(unsigned char* memory, u32 n, u32 packed_bytes) {
  packed_graph g;
  g.ptr = reinterpret_cast<const u32*>(memory);
  g.ind = reinterpret_cast<const u16*>(memory + 4 * (n + 1));
  g.key = reinterpret_cast<u32*>(memory + packed_bytes);
  g.queue = reinterpret_cast<u16*>(memory + packed_bytes + round16(4 * n));
  return g;
}

// The frontier's vertices by groups of 4 to 32 neighbouring threads, which share a vertex's arcs.
template <int Threads>
WF_DEVICE void push_block(const packed_graph& g, u32 begin, u32 end, u32 next, u32* counter) {
  constexpr int kSmall = 2, kLarge = 5;  // logarithms of the group's size
  const int room = __clz(static_cast<int>(end - begin)) - __clz(Threads) - 1;
  const int shift = room < kSmall ? kSmall : room > kLarge ? kLarge : room;
  const u32 each = 1u << shift, sub = threadIdx.x & (each - 1);
  for (u32 k = begin + (threadIdx.x >> shift); k < end; k += Threads >> shift) {
    const u32 u = g.queue[k], mine = next << 16 | u;
    const u32 last = g.ptr[u + 1];
    for (u32 e = g.ptr[u] + sub; e < last; e += each) {
      const u32 v = g.ind[e];
      if (peek_shared(g.key + v) <= mine) continue;
      if (atomicMin(g.key + v, mine) == kNoVertex) g.queue[end + place(counter)] = static_cast<u16>(v);
    }
  }
}

}  // namespace wf

// control: kLevels, kReached, kReachedArcs and kDepth are written, and the log's rows (no times).
template <int Threads>
__global__ void __launch_bounds__(Threads)
    bfs_block(const void* packed, int* dist, int* parent, unsigned long long* control, const long long* sources,
              long long first, long long n_sources, int n_, int packed_bytes, int stop) {
  using namespace wf;
  WF_DYNAMIC_SHARED(memory);
  __shared__ u32 counter[3];
  __shared__ u64 scratch[kMaxWarps];
  const u32 n = static_cast<u32>(n_), bytes = static_cast<u32>(packed_bytes);
  const packed_graph g = layout(memory, n, bytes);
  const unsigned char* const from = static_cast<const unsigned char*>(packed);
  WF_UNROLL_N(4)
  for (u32 k = threadIdx.x * 16; k < bytes; k += Threads * 16) store16(memory + k, load16(from + k));
  for (u32 v = threadIdx.x; v < n; v += Threads) g.key[v] = kNoVertex;
  if (threadIdx.x < 3) counter[threadIdx.x] = 0;
  __syncthreads();
  for (i64 k = threadIdx.x; k < n_sources; k += Threads) {
    const u32 v = static_cast<u32>(n_sources == 1 ? first : sources[k]);
    g.key[v] = v;
    g.queue[k] = static_cast<u16>(v);
  }
  __syncthreads();
  const u32 rows = static_cast<u32>(control[kLogRows]);
  u32 begin = 0, end = static_cast<u32>(n_sources), level = 0;
  while (begin < end && level < static_cast<u32>(stop)) {
    if (threadIdx.x == 0) counter[(level + 1) % 3] = 0;
    push_block<Threads>(g, begin, end, level + 1, counter + level % 3);
    __syncthreads();
    const u32 found = counter[level % 3];
    if (threadIdx.x == Threads - 1 && level < rows) {  // of the warp with the least to do
      u64* const row = control + kLog + static_cast<u64>(level) * kLogColumns;
      row[0] = 0, row[1] = end - begin, row[2] = ~u64(0), row[3] = found, row[4] = ~u64(0), row[5] = ~u64(0);
      row[6] = ~u64(0), row[7] = ~u64(0), row[8] = ~u64(0);
    }
    begin = end, end += found, ++level;
  }
  u64 arcs = 0;
  for (u32 v = threadIdx.x; v < n; v += Threads) {
    const u32 key = peek_shared(g.key + v);
    const bool reached = key != kNoVertex;
    dist[v] = reached ? static_cast<int>(key >> 16) : -1;
    parent[v] = reached ? static_cast<int>(key & 0xffffu) : -1;
    if (reached) arcs += g.ptr[v + 1] - g.ptr[v];
  }
  arcs = block_sum(arcs, scratch);
  if (threadIdx.x == 0) {
    control[kLevels] = level, control[kReached] = end, control[kReachedArcs] = arcs;
    control[kDepth] = begin < end ? level : (level ? level - 1 : 0);
  }
}
