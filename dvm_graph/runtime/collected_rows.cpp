#include "runtime/collected_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/errors.h"
#include "runtime/memory.h"
#include "runtime/value_sizes.h"

namespace dvm {
namespace {

// Rows whose number nobody knows begin with memory for this many bytes, or for one row.
constexpr int64_t kFirstBytes = int64_t{1} << 14;

}  // namespace

void CollectedRows::grow(int64_t count, int64_t most, bool all, const std::string& name) {
  if (count < capacity) return;
  const int64_t first = std::max<int64_t>(kFirstBytes / std::max<int64_t>(row_bytes, 1), 1);
  CollectedRows larger = *this;
  larger.capacity = all ? most : std::min(most, std::max(first, count + count / 2 + 1));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(larger.capacity, row_bytes, &bytes)) {
    throw OutOfMemoryError("what " + name + " collects needs more than 2^63 bytes");
  }
  const bool last = larger.capacity == most;
  larger.memory = last ? pool->take(bytes, name.c_str()) : allocate(bytes, name.c_str());
  const auto filled = static_cast<size_t>(count * row_bytes);
  if (filled > 0) {
    const int64_t first_row = backward ? count - 1 : 0;
    std::memcpy(larger.at(first_row), at(first_row), filled);
  }
  *this = std::move(larger);
}

void CollectedRows::begin(const Tensor& row, int64_t most, bool all, const std::string& name) {
  dtype = row.dtype;
  shape = row.shape;
  row_bytes = bytes_of(row);
  grow(0, most, all, name);
  std::memcpy(at(0), row.data, static_cast<size_t>(row_bytes));
}

void CollectedRows::begin_empty(DType of, std::vector<int64_t> row_shape, const std::string& name) {
  dtype = of;
  shape = std::move(row_shape);
  memory = allocate(0, name.c_str());
}

Tensor CollectedRows::finish(int64_t count) {
  std::vector<int64_t> whole{count};
  whole.insert(whole.end(), shape.begin(), shape.end());
  std::byte* const data =
      count == 0 ? static_cast<std::byte*>(memory.get()) : at(backward ? count - 1 : 0);
  return {dtype, std::move(whole), data, std::move(memory)};
}

}  // namespace dvm
