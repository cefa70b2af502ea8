#include "npu/host/levels.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "npu/host/cpu.h"

namespace dvm {
namespace {

// Tables are filled here, in code compiled for the baseline; a level's own code runs only where
// the CPU supports it (see simd.h).
struct LevelCode {
  const char* name;
  bool supported;
  const LevelInfo* info;
  const Limits* limits;
  JoinedHandler joined;
  void (*fill[8])(Handler*);
  bool multiplies_bf16 = false;
};

#define DVM_LEVEL_CODE(level, name)                                                             \
  LevelCode {                                                                                   \
    name, runs_##level(), &level::level_info, &level::limits, &level::run_joined, {             \
      &level::fill_arithmetic, &level::fill_math, &level::fill_conversion, &level::fill_reduce, \
          &level::fill_dma, &level::fill_cube, &level::fill_window, &level::fill_half           \
    }                                                                                           \
  }

// Best first. The build says by DVM_BUILT_... which levels it has code for.
std::vector<LevelCode> compiled_levels() {
  std::vector<LevelCode> compiled;
#if defined(DVM_BUILT_x86_64_v4)
  compiled.push_back(DVM_LEVEL_CODE(x86_64_v4, "x86-64-v4"));
#endif
#if defined(DVM_BUILT_x86_64_v4_bf16)
  if (runs_x86_64_v4_bf16()) {
    compiled.back().multiplies_bf16 = true;
    compiled.back().fill[7] = &x86_64_v4_bf16::fill_half;
  }
#endif
#if defined(DVM_BUILT_x86_64_v3)
  compiled.push_back(DVM_LEVEL_CODE(x86_64_v3, "x86-64-v3"));
#endif
#if defined(DVM_BUILT_x86_64)
  compiled.push_back(DVM_LEVEL_CODE(x86_64, "x86-64"));
#endif
#if defined(DVM_BUILT_portable)
  compiled.push_back(DVM_LEVEL_CODE(portable, "portable"));
#endif
  return compiled;
}

struct Tables {
  std::vector<InstructionTable> tables;
  std::vector<Level> levels;
  std::vector<std::string_view> built;

  Tables() {
    const std::vector<LevelCode> compiled = compiled_levels();
    tables.reserve(compiled.size());
    for (const LevelCode& code : compiled) {
      built.push_back(code.name);
      if (!code.supported) continue;
      InstructionTable& table = tables.emplace_back();
      table.name = code.name;
      table.matmul_nr = code.info->matmul_nr;
      table.matmul_mr = code.info->matmul_mr;
      table.multiplies_bf16 = code.multiplies_bf16;
      for (const auto fill : code.fill) fill(table.handlers);
      table.joined = code.joined;
      levels.push_back({&table, code.info->vector_bytes, code.limits});
    }
  }
};

// Size in bytes of this CPU's data or unified cache of a level; 0 if the system does not say.
int64_t cache_bytes(int level) {
  for (int index = 0; index < 8; index++) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    int cache_level = 0;
    std::string type;
    int64_t kibibytes = 0;
    std::ifstream(folder + "level") >> cache_level;
    std::ifstream(folder + "type") >> type;
    std::ifstream(folder + "size") >> kibibytes;
    if (cache_level == level && type != "Instruction") return kibibytes * 1024;
  }
  return 0;
}

const Tables& tables() {
  static const Tables tables;
  return tables;
}

}  // namespace

std::span<const Level> available_levels() { return tables().levels; }

std::span<const std::string_view> built_levels() { return tables().built; }

const InstructionTable& best_table() {
  if (available_levels().empty()) {
    throw std::runtime_error("this CPU runs no instruction-set level that was built");
  }
  return *available_levels().front().table;
}

const InstructionTable* table_by_name(std::string_view name) {
  for (const Level& level : available_levels()) {
    if (name == level.table->name) return level.table;
  }
  return nullptr;
}

Target host_target(int cores, const InstructionTable& table) {
  constexpr int64_t kKiB = 1024;
  const int64_t l1 = cache_bytes(1) > 0 ? cache_bytes(1) : 32 * kKiB;
  const int64_t l2 = cache_bytes(2) > 0 ? cache_bytes(2) : 512 * kKiB;
  const int64_t l3 = cache_bytes(3) > 0 ? cache_bytes(3) : 32 * kKiB * kKiB;
  Target target;
  target.name = "host";
  target.cores = cores;
  target.local_bytes = l2 * 3 / 4 / 64 * 64;
  // More than there is of it: of what is live, joined instructions keep most in registers.
  target.vector_tile_bytes = l1 * 4 / 3;
  target.stream_bytes = l3 / 3;  // what was read lies there, too, and other processes share it
  for (const Level& level : available_levels()) {
    if (level.table == &table) target.vector_bytes = level.vector_bytes;
  }
  target.matmul_nr = table.matmul_nr;
  target.matmul_mr = table.matmul_mr;
  target.matmul_rows = (128 + table.matmul_mr - 1) / table.matmul_mr * table.matmul_mr;
  target.matmul_k_block = 1024;  // longer blocks push A and panels of B out of L2
  target.tile_overhead = 512;
  target.stage_overhead = 16384;
  return target;
}

}  // namespace dvm
