#include "npu/host/levels.h"

#include <algorithm>
#include <array>
#include <stdexcept>
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
  void (*fill[12])(Handler*);
  bool multiplies_bf16 = false, multiplies_i8 = false;
};

#define DVM_LEVEL_CODE(level, name)                                                             \
  LevelCode {                                                                                   \
    name, runs_##level(), &level::level_info, &level::limits, &level::run_joined, {             \
      &level::fill_arithmetic, &level::fill_math, &level::fill_conversion, &level::fill_reduce, \
          &level::fill_dma, &level::fill_cube, &level::fill_window, &level::fill_half,          \
          &level::fill_integer, &level::fill_window_product, &level::fill_block,                \
          &level::fill_rounded                                                                  \
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
#if defined(DVM_BUILT_x86_64_v4_vnni)
  if (runs_x86_64_v4_vnni()) {
    compiled.back().multiplies_i8 = true;
    compiled.back().fill[8] = &x86_64_v4_vnni::fill_integer;
    compiled.back().fill[11] = &x86_64_v4_vnni::fill_rounded;
  }
#endif
#if defined(DVM_BUILT_x86_64_v4_amx)
  if (runs_x86_64_v4_amx()) {
    LevelCode tiled = compiled.back();
    tiled.name = "x86-64-v4-amx";
    tiled.info = &x86_64_v4_amx::level_info;
    tiled.fill[5] = &x86_64_v4_amx::fill_cube;
    tiled.fill[7] = &x86_64_v4_amx::fill_half;
    tiled.fill[8] = &x86_64_v4_amx::fill_integer;
    compiled.insert(compiled.begin(), tiled);
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
      table.multiplies_i8 = code.multiplies_i8;
      for (const auto fill : code.fill) fill(table.handlers);
      table.joined = code.joined;
      levels.push_back({&table, code.info, code.limits});
    }
  }
};

const Tables& tables() {
  static const Tables tables;
  return tables;
}

const Level& level_of(const InstructionTable& table) {
  for (const Level& level : available_levels()) {
    if (level.table == &table) return level;
  }
  throw std::invalid_argument("a table of no level of this CPU");
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

const Limits& limits_of(const InstructionTable& table) { return *level_of(table).limits; }

Target host_target(int cores, const InstructionTable& table, const Machine& machine) {
  return host_target(cores, *level_of(table).info, machine);
}

}  // namespace dvm
