// TopK: arguments (axis, largest, sorted); operands x, k. Of equal elements the first counts more;
// NaN is the largest. Not sorted, elements are as the heap below leaves them, or the selection.
//
// Few of many: the k best so far, a handful of them in their order, more as a heap with the worst
// on top. Blocks of elements none of which beats it are passed over by vector comparisons, but for
// the first ones, where many do.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"
#include "runtime/host_ops/ordered_keys.h"

namespace dvm {
namespace {

constexpr int64_t kBlock = 64;  // elements, compared at once
// Elements that are compared one by one: among the first few the best grow so often that to search
// blocks would find one after the other.
constexpr int64_t kNear = 128;
constexpr int64_t kHandful = 16;  // that take less to be moved up by one than a heap to be mended
constexpr int64_t kTile = 16;     // columns that are read together: a line of memory
constexpr int64_t kLine = 64;

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

// Whether the key of an element may be above a bound: where processors compare elements as they
// are, that takes a fraction of what it takes to make keys of them.
template <class Keys>
auto rough_test(const Column<Keys>& column, typename Keys::Key bound) {
  if constexpr (requires { typename Keys::Real; }) {
    using Key = typename Keys::Key;
    using Real = typename Keys::Real;
    const bool smallest = column.flip != 0;
    const Real sign = smallest ? -1 : 1;
    const Real limit = sign * Keys::real(static_cast<Key>(bound ^ column.flip));
    // NaN passes, on either side.
    return [x = column.x, sign, limit](int64_t at) {
      return !(sign * std::bit_cast<Real>(x[at]) <= limit);
    };
  } else {
    return [&column, bound](int64_t at) { return column.key(at) > bound; };
  }
}

// The first position from `at` on whose key is above a bound.
template <class Keys>
int64_t next_above(const Column<Keys>& column, int64_t at, typename Keys::Key bound) {
  if (at < column.count && column.key(at) > bound) return at;
  const auto may_be_above = rough_test(column, bound);
  while (at < column.count) {
    const int64_t end = std::min(at + kBlock, column.count);
    int above = 0;
    for (int64_t i = at; i < end; i++) above |= may_be_above(i);
    if (above == 0) {
      at = end;
      continue;
    }
    for (; at < end; at++)
      if (may_be_above(at) && column.key(at) > bound) return at;
  }
  return at;
}

// Calls take(at) for elements from `at` on as long as they beat bound(), which grows.
template <class Keys, class Bound, class Take>
void each_above(const Column<Keys>& column, int64_t at, Bound bound, Take take) {
  for (const int64_t near = std::min(column.count, kNear); at < near; at++)
    if (column.key(at) > bound()) take(at);
  for (at = next_above(column, at, bound()); at < column.count;
       at = next_above(column, at + 1, bound()))
    take(at);
}

// The same as keep_best, in order, for a handful.
template <class Keys, class Key>
void insert_best(const Column<Keys>& column, std::span<Candidate<Key>> best) {
  // Behind those that are as good; `end`: the place of the worst one, which it takes.
  const auto insert = [&](size_t end, int64_t at) {
    const Key key = column.key(at);
    for (; end > 0 && best[end - 1].key < key; end--) best[end] = best[end - 1];
    best[end] = {key, at};
  };
  for (size_t at = 0; at < best.size(); at++) insert(at, static_cast<int64_t>(at));
  each_above(
      column, static_cast<int64_t>(best.size()), [&] { return best.back().key; },
      [&](int64_t at) { insert(best.size() - 1, at); });
}

template <class Keys, class Key>
void keep_best(const Column<Keys>& column, std::span<Candidate<Key>> heap) {
  const auto k = static_cast<int64_t>(heap.size());
  for (int64_t at = 0; at < k; at++) {
    const auto place = static_cast<size_t>(k - 1 - at);
    heap[place] = {column.key(at), at};
    sink(heap, place);
  }
  each_above(
      column, k, [&] { return heap[0].key; },
      [&](int64_t at) {
        heap[0] = {column.key(at), at};
        sink(heap, 0);
      });
}

// The first of the best.
template <class Keys>
Candidate<typename Keys::Key> best_of(const Column<Keys>& column) {
  using Key = typename Keys::Key;
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
  void run(const Column<Keys>& column, Candidate<Key>* room) const {
    const auto better = [](const auto& a, const auto& b) { return a.beats(b); };
    if (k_ == 1) {
      room[0] = best_of(column);
    } else if (sorted_ && k_ <= kHandful) {
      return insert_best(column, std::span(room, static_cast<size_t>(k_)));
    } else if (few_) {
      keep_best(column, std::span(room, static_cast<size_t>(k_)));
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

// Rows of `columns` elements, `step` apart, as columns one behind the other, in blocks that stay in
// the first-level cache.
template <class Storage>
void turn_over(Storage* to, const Storage* from, int64_t rows, int64_t step, int64_t columns) {
  for (int64_t first = 0; first < rows; first += kTile) {
    const int64_t end = std::min(first + kTile, rows);
    for (int64_t column = 0; column < columns; column++) {
      for (int64_t row = first; row < end; row++)
        to[column * rows + row] = from[row * step + column];
    }
  }
}

// Bytes of elements, whole lines of memory.
int64_t whole_lines(size_t element_bytes, int64_t elements) {
  return (static_cast<int64_t>(element_bytes) * elements + kLine - 1) / kLine * kLine;
}

template <class Keys>
void select(HostFrame& frame, const AroundAxis& around, int64_t k, std::vector<int64_t> shape) {
  using Storage = typename Keys::Storage;
  using Key = typename Keys::Key;
  const Key flip = frame.argument(1) != 0 ? Key{0} : static_cast<Key>(~Key{0});
  auto* const values = frame.give<Storage>(0, frame.operand(0).dtype, shape);
  auto* const indices = frame.give<int64_t>(1, DType::i64, shape);
  if (elements_of(shape) == 0) return;
  const Selection<Keys> selection(around.extent, k, frame.argument(2) != 0);
  const bool by_columns = around.behind > 1;
  const int64_t columns = by_columns ? std::min(kTile, around.behind) : 0;
  const int64_t candidate_bytes = whole_lines(sizeof(Candidate<Key>), selection.candidates());
  const int64_t tile_bytes = whole_lines(sizeof(Storage), columns * around.extent);
  std::byte* const memory = frame.scratch((candidate_bytes + tile_bytes) * frame.slots());

  const Storage* const all = frame.data<Storage>(0);
  const int64_t tiles = (around.behind + kTile - 1) / kTile;  // beside each other
  const auto do_tile = [&](int64_t number, Candidate<Key>* best, Storage* tile) {
    const int64_t before = number / tiles, first = number % tiles * kTile;
    const int64_t end = std::min(first + kTile, around.behind);
    const Storage* const x = all + before * around.extent * around.behind;
    if (by_columns) turn_over(tile, x + first, around.extent, around.behind, end - first);
    for (int64_t column = first; column < end; column++) {
      const Storage* const read = by_columns ? tile + (column - first) * around.extent : x;
      selection.run(Column<Keys>{read, around.extent, flip}, best);
      for (int64_t i = 0; i < k; i++) {
        const int64_t to = (before * k + i) * around.behind + column;
        if (values != nullptr) values[to] = x[best[i].at * around.behind + column];
        if (indices != nullptr) indices[to] = best[i].at;
      }
    }
  };
  const auto do_tiles = [&](int64_t first, int64_t end, int64_t slot) {
    std::byte* const own = memory + slot * (candidate_bytes + tile_bytes);
    auto* const best = reinterpret_cast<Candidate<Key>*>(own);
    auto* const tile = reinterpret_cast<Storage*>(own + candidate_bytes);
    for (int64_t number = first; number < end; number++) do_tile(number, best, tile);
  };
  frame.spread(around.before * tiles, around.extent * std::max<int64_t>(columns, 1), do_tiles);
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
