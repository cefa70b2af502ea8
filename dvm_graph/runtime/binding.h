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
  // InputError for an input of another rank; ContradictionError for a result of one, and where a
  // symbol would get a second value, a negative or a fractional one. (Results bind the names of
  // inputs that have no extents here, of text for instance.)
  void bind(uint32_t value, std::span<const int64_t> shape, Dims& dims);

  // Checks every extent against its (evaluated) slot. Throws a ContradictionError naming both
  // sides; a ShapeError for an input that is to have another number of elements.
  void check(uint32_t value, std::span<const int64_t> shape, const Dims& dims) const;

  // As `check`, where every extent has been evaluated; else nothing.
  void check_known(uint32_t value, std::span<const int64_t> shape, const Dims& dims) const;

  // Confirms the compiler's assumptions, as far as their dims are known. Throws ShapeError.
  void check_assumptions(const Dims& dims) const;

 private:
  const std::string& name_of(uint32_t value) const { return model_.values[value].name; }
  bool is_input(uint32_t value) const;
  std::string binders_of(DimSlot slot, const Dims& dims) const;

  const Model& model_;
  std::vector<std::vector<const SymbolBinding*>> by_value_;
  std::vector<int64_t> bound_by_;  // by symbol: the value that bound it, or -1
};

}  // namespace dvm
