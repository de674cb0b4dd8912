// The second build is a program: it reads one launch from a file, runs it under AddressSanitizer and
// UndefinedBehaviorSanitizer, and writes findings and outputs. A fault ends this process, not the caller's.
// Layout of both files: address.py.
#pragma once
#include "launch.hpp"

namespace rt {
struct Header {
  char magic[8];
  u32 kernel, grid[3], block[3], shared_bytes, resident, n_vars, n_buffers, n_params;
  u64 seed;
};
struct BufferHeader {
  u64 bytes, mode;
};
struct ParamHeader {
  u32 bytes, pointers;
};
static bool get(std::FILE *f, void *to, std::size_t n) { return n == 0 || std::fread(to, 1, n, f) == n; }
static bool put(std::FILE *f, const void *from, std::size_t n) { return n == 0 || std::fwrite(from, 1, n, f) == n; }

static int replay(std::FILE *in, const char *out_path) {
  Header h;
  if (!get(in, &h, sizeof h) || std::memcmp(h.magic, "SIMTRUN1", 8) != 0) return 90;
  std::vector<Range> vars(h.n_vars + 1);
  if (!get(in, vars.data(), h.n_vars * sizeof(Range))) return 91;
  if (simt_begin(0, vars.data(), h.n_vars)) return 92;
  std::vector<BufferHeader> sizes(h.n_buffers);
  std::vector<void *> at(h.n_buffers);
  for (u32 k = 0; k < h.n_buffers; ++k) {
    if (!get(in, &sizes[k], sizeof sizes[k])) return 93;
    std::vector<char> data(sizes[k].bytes + 1);
    if (!get(in, data.data(), sizes[k].bytes)) return 94;
    at[k] = simt_buffer(sizes[k].bytes, static_cast<int>(sizes[k].mode), data.data());
  }
  std::vector<void *> params(h.n_params + 1);
  for (u32 k = 0; k < h.n_params; ++k) {
    ParamHeader p;
    if (!get(in, &p, sizeof p)) return 95;
    char *data = static_cast<char *>(std::aligned_alloc(16, (p.bytes + 15) & ~15u));
    if (!get(in, data, p.bytes)) return 96;
    for (u32 j = 0; j < p.pointers; ++j) {
      u32 where[2];
      if (!get(in, where, sizeof where)) return 97;
      std::memcpy(data + where[0], &at[where[1]], sizeof(void *));
    }
    params[k] = data;
  }
  simt_result result = {};
  if (simt_run(static_cast<int>(h.kernel), h.grid, h.block, h.shared_bytes, params.data(), h.seed, h.resident, &result))
    return 98;
  std::FILE *out = std::fopen(out_path, "wb");
  if (!out || !put(out, &result, sizeof result) || !put(out, g.findings.data(), g.findings.size() * sizeof(Finding))) return 99;
  for (u32 k = 0; k < h.n_buffers; ++k)
    if ((sizes[k].mode & 3) != 0 && !put(out, at[k], sizes[k].bytes)) return 99;
  return std::fclose(out) ? 99 : 0;
}
}  // namespace rt

// No leaks to look for: the process ends with the launch. Stacks are the runner's own.
extern "C" const char *__asan_default_options() { return "detect_leaks=0:detect_stack_use_after_return=0"; }

int main(int count, char **words) {
  if (count != 3) return 89;
  std::FILE *in = std::fopen(words[1], "rb");
  return in ? rt::replay(in, words[2]) : 88;
}
