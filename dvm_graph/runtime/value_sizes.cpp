#include "runtime/value_sizes.h"

#include <string>

#include "runtime/errors.h"

namespace dvm {
namespace {

int64_t size_in_bytes(const ModelValue& value, const Dims& dims) {
  auto bytes = static_cast<int64_t>(size_of(value.dtype));
  bool overflow = false, empty = false;
  for (const DimSlot slot : value.held()) {
    if (!dims.ok(slot) || dims.values()[slot] < 0) return -1;
    empty |= dims.values()[slot] == 0;
    overflow |= __builtin_mul_overflow(bytes, dims.values()[slot], &bytes);
  }
  if (empty) return 0;
  return overflow ? -1 : bytes;
}

}  // namespace

int64_t bytes_of(const Tensor& tensor) {
  auto bytes = static_cast<int64_t>(size_of(tensor.dtype));
  for (const int64_t extent : tensor.shape) bytes *= extent;
  return bytes;
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (a.data == nullptr || b.data == nullptr) return false;
  return a.data < b.data + bytes_of(b) && b.data < a.data + bytes_of(a);
}

void measure_values(const Model& model, const Dims& dims, std::vector<ValueInfo>& infos) {
  infos.resize(model.values.size());
  for (size_t i = 0; i < infos.size(); i++) {
    const ModelValue& value = model.values[i];
    infos[i].dtype = value.dtype;
    infos[i].bytes =
        value.contents.absent() ? size_in_bytes(value, dims) : bytes_of(value.contents);
  }
}

void throw_bad_size(const Model& model, uint32_t value, const Dims& dims) {
  const ModelValue& bad = model.values[value];
  std::string shape;
  for (const DimSlot slot : bad.shape) {
    const int64_t extent = dims.at(slot, bad.name);
    if (extent < 0) {
      throw ShapeError("a dim of " + bad.name + ", " + model.dims.text(slot) +
                       ", is negative: " + std::to_string(extent));
    }
    shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
  }
  throw OutOfMemoryError(bad.name + " of shape [" + shape + "] needs more than 2^63 bytes");
}

}  // namespace dvm
