// The programs of all distinct kernels (kernel_table.h), each for the dims that it was compiled for
// last. Nothing else is cached: no program of an earlier shape. Where extents are others from turn
// to turn of a loop, they are compiled for several, and told which (vm/resize.h).
//
// Not thread-safe: one core compiles at a time, and entries that are current may be read meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/dims.h"
#include "runtime/kernel_table.h"
#include "vm/compile.h"

namespace dvm {

class KernelPrograms {
 public:
  KernelPrograms(const Model& model, const Target& target);

  const KernelTable& table() const { return table_; }
  const BoundKernel& bound(uint32_t call) const { return table_.bound[model_.calls[call].kernel]; }
  const std::string& name_of(uint32_t call) const {
    return model_.kernels[model_.calls[call].kernel].plan.name;
  }

  // The programs of the call's kernel are for these dims.
  bool is_current(uint32_t call, const Dims& dims, const ValueInfo* values) const;
  // Where they are:
  const CompiledKernel& compiled(uint32_t call) const { return entry(call).compiled; }
  CompileStatus status(uint32_t call) const { return entry(call).status; }

  // They are for these dims once they are told some extents.
  bool has_room(uint32_t call, const Dims& dims) const;

  // Makes and verifies them. False: they had room, and were not compiled. Throws CompileError,
  // ShapeError.
  bool compile(uint32_t call, const Dims& dims, const ValueInfo* values, CompilerScratch& scratch);

  // None is current any more.
  void forget();

 private:
  struct Entry {
    CompiledKernel compiled;
    CompileStatus status = CompileStatus::empty;
    bool valid = false;
    std::vector<int64_t> dims, strides;  // of the kernel's fixed slots
    std::vector<int64_t> extents;        // by axis
    std::vector<int64_t> room;           // by axis: of open ones, for how many there is room
    // Of arguments; of those that begin within a value, what is reached.
    std::vector<int64_t> bytes;
    bool resizes = false;        // there is room
    bool wants_extents = false;  // it is no kernel to have room, for these extents
  };

  const Entry& entry(uint32_t call) const { return entries_[bound(call).kernel]; }
  bool has_same_dims(uint32_t call, const Dims& dims) const;
  static bool is_open(const DistinctKernel& kernel, DimSlot extent);
  void remember_dims(uint32_t call, const Dims& dims);
  bool compile_with_room(uint32_t call, const Dims& dims, CompilerScratch& scratch);
  bool resize(uint32_t call, const Dims& dims);
  std::string complaint_of(uint32_t call) const;
  void require_sound(uint32_t call) const;

  const Model& model_;
  const Target& target_;
  const KernelTable table_;
  std::vector<Entry> entries_;        // by distinct kernel
  std::vector<ValueInfo> arguments_;  // of the kernel at hand
};

}  // namespace dvm
