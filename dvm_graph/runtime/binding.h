// Binds the extents of tensors to symbols and holds the tensors to what the model says of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/model.h"

namespace dvm {

class DimBinder {
 public:
  explicit DimBinder(const Model& model);

  void clear();

  // Checks the rank of a value's tensor and binds the symbols that the value decides. Throws
  // InputError for an input of another rank, and a ContradictionError for a result of one;
  // ShapeError where a symbol would get a second value, a negative or a fractional one: for an
  // input a ContradictionError, as `check` does.
  void bind(uint32_t value, std::span<const int64_t> shape, Dims& dims);

  // Checks every extent against its (evaluated) slot. Throws ShapeError naming both sides.
  void check(uint32_t value, std::span<const int64_t> shape, const Dims& dims) const;

  // Confirms the compiler's assumptions, as far as their dims are known. Throws ShapeError.
  void check_assumptions(const Dims& dims) const;

 private:
  const std::string& name_of(uint32_t value) const { return model_.values[value].name; }
  bool is_input(uint32_t value) const;
  std::string binders_of(DimSlot slot, const Dims& dims) const;
  [[noreturn]] void contradicted(uint32_t value, const std::string& what) const;

  const Model& model_;
  std::vector<std::vector<const SymbolBinding*>> by_value_;
  std::vector<int64_t> bound_by_;  // by symbol: the value that bound it, or -1
};

}  // namespace dvm
