// Unique: arguments (sorted, axis), or (sorted) for the elements of the tensor in a row. Entries
// that differ, where each stands first, which of them each entry is, and how often each occurs.
//
// Entries are numbered as they come, by a hash table over their keys; only those that differ are
// sorted: as sequences of elements, NaN behind all numbers and equal to NaN.
#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"
#include "runtime/host_ops/ordered_keys.h"

namespace dvm {
namespace {

uint64_t mixed(uint64_t hash) {
  hash ^= hash >> 32;
  hash *= 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

// The entries of a tensor as rows of keys.
template <class Keys>
class Entries {
 public:
  using Key = typename Keys::Key;
  using Storage = typename Keys::Storage;

  Entries(const Storage* x, const AroundAxis& around, Key* keys)
      : width_(around.before * around.behind), keys_(keys) {
    for (int64_t entry = 0; entry < around.extent; entry++) {
      Key* key = keys + entry * width_;
      for (int64_t before = 0; before < around.before; before++) {
        const Storage* from = x + (before * around.extent + entry) * around.behind;
        for (int64_t i = 0; i < around.behind; i++) *key++ = Keys::key(from[i]);
      }
    }
  }

  uint64_t hash(int64_t entry) const {
    const Key* const key = keys_ + entry * width_;
    uint64_t hash = 0;
    for (int64_t i = 0; i < width_; i++) hash = mixed(hash + static_cast<uint64_t>(key[i]));
    return hash;
  }
  bool same(int64_t a, int64_t b) const {
    return width_ == 0 || std::memcmp(keys_ + a * width_, keys_ + b * width_,
                                      static_cast<size_t>(width_) * sizeof(Key)) == 0;
  }
  bool less(int64_t a, int64_t b) const {
    const Key *const x = keys_ + a * width_, *const y = keys_ + b * width_;
    return std::lexicographical_compare(x, x + width_, y, y + width_);
  }

 private:
  const int64_t width_;
  const Key* const keys_;
};

// Numbers the entries as they come: `number` of each, `first` of each number. How many there are.
template <class Keys>
int64_t number_entries(const Entries<Keys>& entries, int64_t count, std::span<int64_t> table,
                       int64_t* number, int64_t* first) {
  std::fill(table.begin(), table.end(), -1);
  const uint64_t mask = table.size() - 1;
  int64_t found = 0;
  for (int64_t entry = 0; entry < count; entry++) {
    uint64_t slot = entries.hash(entry) & mask;
    while (table[slot] >= 0 && !entries.same(first[table[slot]], entry)) slot = (slot + 1) & mask;
    if (table[slot] < 0) {
      first[found] = entry;
      table[slot] = found++;
    }
    number[entry] = table[slot];
  }
  return found;
}

template <class Keys>
void find_unique(HostFrame& frame, std::vector<int64_t> shape, size_t axis) {
  using Key = typename Keys::Key;
  const bool sorted = frame.argument(0) != 0;
  const AroundAxis around(shape, axis);
  const int64_t count = around.extent;
  const auto slots = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * count + 1)));

  constexpr auto kWord = static_cast<int64_t>(sizeof(int64_t));
  const int64_t words = slots + 4 * count;
  const int64_t key_bytes =
      static_cast<int64_t>(sizeof(Key)) * around.before * count * around.behind;
  auto* const table = reinterpret_cast<int64_t*>(frame.scratch(words * kWord + key_bytes));
  int64_t* const number = table + slots;
  int64_t* const first = number + count;
  int64_t* const order = first + count;
  int64_t* const place = order + count;
  const Entries<Keys> entries(frame.data<typename Keys::Storage>(0), around,
                              reinterpret_cast<Key*>(place + count));
  const int64_t found =
      number_entries<Keys>(entries, count, {table, static_cast<size_t>(slots)}, number, first);

  std::iota(order, order + found, int64_t{0});
  if (sorted) {
    std::sort(order, order + found,
              [&](int64_t a, int64_t b) { return entries.less(first[a], first[b]); });
  }
  for (int64_t i = 0; i < found; i++) place[order[i]] = i;

  const Tensor& x = frame.operand(0);
  shape[axis] = found;
  if (std::byte* out = frame.give(0, x.dtype, shape)) {
    const auto bytes = static_cast<int64_t>(size_of(x.dtype)) * around.behind;
    for (int64_t before = 0; before < around.before; before++) {
      for (int64_t i = 0; i < found; i++, out += bytes) {
        std::memcpy(out, x.data + (before * count + first[order[i]]) * bytes,
                    static_cast<size_t>(bytes));
      }
    }
  }
  if (auto* const out = frame.give<int64_t>(1, DType::i64, {found})) {
    for (int64_t i = 0; i < found; i++) out[i] = first[order[i]];
  }
  if (auto* const out = frame.give<int64_t>(2, DType::i64, {count})) {
    for (int64_t i = 0; i < count; i++) out[i] = place[number[i]];
  }
  if (auto* const out = frame.give<int64_t>(3, DType::i64, {found})) {
    std::fill(out, out + found, int64_t{0});
    for (int64_t i = 0; i < count; i++) out[place[number[i]]]++;
  }
}

}  // namespace

void unique(HostFrame& frame) {
  std::vector<int64_t> shape = frame.operand(0).shape;
  const bool whole = frame.arguments() < 2;
  if (whole) shape = {elements_of(shape)};
  const size_t axis = whole ? 0 : frame.axis(1, shape.size());
  with_keys(frame.operand(0).dtype,
            [&]<class Keys>(Keys) { find_unique<Keys>(frame, shape, axis); });
}

}  // namespace dvm
