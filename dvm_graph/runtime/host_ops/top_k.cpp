// TopK: arguments (axis, largest, sorted); operands x, k. Of equal elements the first counts more;
// NaN is the largest. Not sorted, elements are as the heap below leaves them, or the selection.
//
// Few of many: a heap of the k best so far, the worst on top. Blocks of elements none of which
// beats it are passed over by vector comparisons.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"
#include "runtime/host_ops/ordered_keys.h"

namespace dvm {
namespace {

constexpr int64_t kBlock = 64;  // elements, compared at once
constexpr int64_t kTile = 16;   // columns, whose keys are read together: a line of memory

// From here on, of log(k) / log(n), selecting among all elements is faster than a heap.
constexpr double kFew = 0.725;

template <class Key>
struct Candidate {
  Key key;
  int64_t at;
  bool beats(const Candidate& other) const {
    return key > other.key || (key == other.key && at < other.at);
  }
};

// The elements of a column as keys that are the larger the better.
template <class Keys>
struct Column {
  const typename Keys::Storage* x;
  int64_t count;
  typename Keys::Key flip;  // all ones: the smallest are the best
  auto key(int64_t at) const { return static_cast<typename Keys::Key>(Keys::key(x[at]) ^ flip); }
};

// Moves what is on top of a heap down to its place.
template <class Key>
void sink(std::span<Candidate<Key>> heap, size_t at) {
  while (true) {
    size_t worse = 2 * at + 1;
    if (worse >= heap.size()) return;
    if (worse + 1 < heap.size() && heap[worse].beats(heap[worse + 1])) worse++;
    if (!heap[at].beats(heap[worse])) return;
    std::swap(heap[at], heap[worse]);
    at = worse;
  }
}

// The first position from `at` on whose key is above a bound.
template <class Column, class Key>
int64_t next_above(const Column& column, int64_t at, Key bound) {
  if (at < column.count && column.key(at) > bound) return at;
  for (; at + kBlock <= column.count; at += kBlock) {
    int above = 0;
    for (int64_t i = 0; i < kBlock; i++) above |= column.key(at + i) > bound;
    if (above != 0) break;
  }
  while (at < column.count && column.key(at) <= bound) at++;
  return at;
}

template <class Column, class Key>
void keep_best(const Column& column, std::span<Candidate<Key>> heap) {
  const auto k = static_cast<int64_t>(heap.size());
  for (int64_t at = 0; at < k; at++) {
    const auto place = static_cast<size_t>(k - 1 - at);
    heap[place] = {column.key(at), at};
    sink(heap, place);
  }
  for (int64_t at = next_above(column, k, heap[0].key); at < column.count;
       at = next_above(column, at + 1, heap[0].key)) {
    heap[0] = {column.key(at), at};
    sink(heap, 0);
  }
}

// The first of the best.
template <class Column, class Key>
Candidate<Key> best_of(const Column& column) {
  Key best = column.key(0);
  for (int64_t at = 1; at < column.count; at++) best = std::max<Key>(best, column.key(at));
  for (int64_t at = 0;; at += kBlock) {
    const int64_t end = std::min(at + kBlock, column.count);
    int found = 0;
    for (int64_t i = at; i < end; i++) found |= column.key(i) == best;
    if (found == 0) continue;
    while (column.key(at) != best) at++;
    return {best, at};
  }
}

template <class Keys>
class Selection {
 public:
  using Key = typename Keys::Key;

  Selection(int64_t count, int64_t k, bool sorted) : count_(count), k_(k), sorted_(sorted) {
    few_ =
        k < 4 || std::log2(static_cast<double>(k)) / std::log2(static_cast<double>(count)) < kFew;
  }

  int64_t candidates() const { return few_ ? k_ : count_; }

  // The k best are the first of `room`, which holds `candidates`.
  template <class Column>
  void run(const Column& column, Candidate<Key>* room) const {
    const auto better = [](const auto& a, const auto& b) { return a.beats(b); };
    if (k_ == 1) {
      room[0] = best_of<Column, Key>(column);
    } else if (few_) {
      keep_best<Column, Key>(column, {room, static_cast<size_t>(k_)});
    } else {
      for (int64_t at = 0; at < count_; at++) room[at] = {column.key(at), at};
      std::nth_element(room, room + k_ - 1, room + count_, better);
    }
    if (sorted_) std::sort(room, room + k_, better);
  }

 private:
  const int64_t count_, k_;
  const bool sorted_;
  bool few_;
};

// Keys that were read already.
template <class Read>
struct Same {
  using Storage = Read;
  using Key = Read;
  static Key key(Storage key) { return key; }
};

template <class Keys>
void select(HostFrame& frame, const AroundAxis& around, int64_t k, std::vector<int64_t> shape) {
  using Storage = typename Keys::Storage;
  using Key = typename Keys::Key;
  const Key flip = frame.argument(1) != 0 ? Key{0} : static_cast<Key>(~Key{0});
  auto* const values = frame.give<Storage>(0, frame.operand(0).dtype, shape);
  auto* const indices = frame.give<int64_t>(1, DType::i64, shape);
  if (elements_of(shape) == 0) return;
  const Selection<Keys> selection(around.extent, k, frame.argument(2) != 0);
  const int64_t columns = around.behind == 1 ? 0 : kTile;
  const auto candidate_bytes =
      static_cast<int64_t>(sizeof(Candidate<Key>)) * selection.candidates();
  const auto key_bytes = static_cast<int64_t>(sizeof(Key)) * columns * around.extent;
  std::byte* const memory = frame.scratch(candidate_bytes + key_bytes);
  auto* const best = reinterpret_cast<Candidate<Key>*>(memory);
  auto* const keys = reinterpret_cast<Key*>(memory + candidate_bytes);

  const Storage* x = frame.data<Storage>(0);
  for (int64_t before = 0; before < around.before; before++, x += around.extent * around.behind) {
    const auto store = [&](int64_t column) {
      for (int64_t i = 0; i < k; i++) {
        const int64_t to = (before * k + i) * around.behind + column;
        if (values != nullptr) values[to] = x[best[i].at * around.behind + column];
        if (indices != nullptr) indices[to] = best[i].at;
      }
    };
    if (around.behind == 1) {
      selection.run(Column<Keys>{x, around.extent, flip}, best);
      store(0);
      continue;
    }
    for (int64_t first = 0; first < around.behind; first += kTile) {
      const int64_t end = std::min(first + kTile, around.behind);
      for (int64_t at = 0; at < around.extent; at++) {
        for (int64_t column = first; column < end; column++) {
          keys[(column - first) * around.extent + at] = Keys::key(x[at * around.behind + column]);
        }
      }
      for (int64_t column = first; column < end; column++) {
        const Key* const read = keys + (column - first) * around.extent;
        selection.run(Column<Same<Key>>{read, around.extent, flip}, best);
        store(column);
      }
    }
  }
}

}  // namespace

void top_k(HostFrame& frame) {
  std::vector<int64_t> shape = frame.operand(0).shape;
  const size_t axis = frame.axis(0, shape.size());
  const AroundAxis around(shape, axis);
  const auto k = frame.scalar<int64_t>(1);
  if (k < 0 || k > around.extent) {
    throw ShapeError("k of " + frame.name + " is " + std::to_string(k) + ", but axis " +
                     std::to_string(axis) + " has " + std::to_string(around.extent) + " elements");
  }
  shape[axis] = k;
  with_keys(frame.operand(0).dtype,
            [&]<class Keys>(Keys) { select<Keys>(frame, around, k, shape); });
}

}  // namespace dvm
