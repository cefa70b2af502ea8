// TreeSums: arguments (targets, fold, features, steps down the trees); operands x [rows, features
// or more], nodes, trees [trees, 3], features of columns, what stands for NaN in columns, and
// weights. What the leaves say that a row reaches, one of each tree, folded for each target in the
// order of the trees: a sum (fold 0), the least (1) or the greatest (2). Weights lie in the leaves
// where there is one target; leaf by leaf, one for each target, in an operand of their own; or as
// entries of leaves, whose first ones and targets are further operands.
//
// Nodes are records (`Node`), numbered by the 8 bytes in front of them; a tree is its root and how
// far down the nearest and the farthest of its leaves are. `decompose/trees.py` makes them of every
// kind of comparison.
//
// Which way a row goes nobody can foresee, so no jump hangs on it: rows, or trees where there are
// few rows, go down side by side. Down to the nearest leaf nobody asks who is there. Nodes look at
// columns, which are features with an infinity for NaN: where it leads to either side, there are
// two.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"

namespace dvm {
namespace {

constexpr int64_t kLanes = 16;         // that go down side by side
constexpr int64_t kRows = 8 * kLanes;  // that meet a tree while it is in the caches
constexpr int64_t kBlock = 1 << 17;    // bytes of columns that stay there, too

template <class T>
struct Node {
  // A node is followed by `first` where the column is not above its limit, otherwise by the one
  // behind that. Leaves follow themselves, at an infinite limit.
  T limit;
  int32_t column, first;
  T weight;  // of a leaf, for the one target, or its number among leaves, as an int32
};

struct Tree {
  int32_t root, nearest, farthest;
};

template <class T>
struct Forest {
  const std::byte* nodes;
  std::span<const Tree> trees;
  std::span<const int32_t> features;  // of columns
  const T* nan;                       // of columns
  int64_t targets;
  const T* weights;  // null: in the leaves
  const int32_t *entries, *entry_targets;

  const Node<T>& node(int32_t place) const {
    return *reinterpret_cast<const Node<T>*>(nodes + int64_t{place} * 8);
  }
};

template <class T>
using Inputs = std::array<const T*, kLanes>;
using Places = std::array<int32_t, kLanes>;

// Whether any moved.
template <class T>
bool step_down(const Forest<T>& forest, const Inputs<T>& x, Places& places) {
  constexpr int32_t kNext = sizeof(Node<T>) / 8;
  int32_t moved = 0;
#pragma GCC unroll 16
  for (size_t i = 0; i < places.size(); i++) {
    const Node<T>& node = forest.node(places[i]);
    const int32_t next = node.first + static_cast<int>(x[i][node.column] > node.limit) * kNext;
    moved |= next ^ places[i];
    places[i] = next;
  }
  return moved != 0;
}

template <class T>
void go_down(const Forest<T>& forest, const Tree& tree, const Inputs<T>& x, Places& places) {
  int32_t level = 0;
  for (; level < tree.nearest; level++) step_down(forest, x, places);
  while (level < tree.farthest && step_down(forest, x, places)) level++;
}

template <class T, class Fold>
void fold_leaf(const Forest<T>& forest, int32_t place, T* scores, Fold fold) {
  const Node<T>& leaf = forest.node(place);
  if (forest.weights == nullptr) {
    *scores = fold(*scores, leaf.weight);
    return;
  }
  int32_t number = 0;
  std::memcpy(&number, &leaf.weight, sizeof number);
  if (forest.entries == nullptr) {
    const T* const weights = forest.weights + number * forest.targets;
    for (int64_t i = 0; i < forest.targets; i++) scores[i] = fold(scores[i], weights[i]);
    return;
  }
  for (int32_t i = forest.entries[number]; i < forest.entries[number + 1]; i++) {
    T& score = scores[forest.entry_targets[i]];
    score = fold(score, forest.weights[i]);
  }
}

// Rows, of which `kLanes` go down a tree at a time.
template <class T, class Fold>
void fold_rows(const Forest<T>& forest, const T* x, T* scores, int64_t rows, Fold fold) {
  const auto columns = static_cast<int64_t>(forest.features.size());
  Inputs<T> inputs;
  Places places;
  for (const Tree& tree : forest.trees) {
    for (int64_t row = 0; row < rows; row += kLanes) {
      for (size_t i = 0; i < inputs.size(); i++) {
        inputs[i] = x + (row + static_cast<int64_t>(i)) * columns;
      }
      places.fill(tree.root);
      go_down(forest, tree, inputs, places);
      T* to = scores + row * forest.targets;
      for (const int32_t place : places) {
        fold_leaf(forest, place, to, fold);
        to += forest.targets;
      }
    }
  }
}

// A row, which goes down `kLanes` trees at a time.
template <class T, class Fold>
void fold_row(const Forest<T>& forest, const T* x, T* scores, Fold fold) {
  Inputs<T> inputs;
  Places places;
  inputs.fill(x);
  for (size_t first = 0; first < forest.trees.size(); first += places.size()) {
    const size_t count = std::min(places.size(), forest.trees.size() - first);
    const auto trees = forest.trees.subspan(first, count);
    Tree all = trees[0];
    for (size_t i = 0; i < places.size(); i++) {
      const Tree& tree = trees[std::min(i, count - 1)];
      places[i] = tree.root;
      all.nearest = std::min(all.nearest, tree.nearest);
      all.farthest = std::max(all.farthest, tree.farthest);
    }
    go_down(forest, all, inputs, places);
    for (size_t i = 0; i < count; i++) fold_leaf(forest, places[i], scores, fold);
  }
}

template <class T>
void read_columns(const Forest<T>& forest, const T* x, int64_t step, int64_t rows, T* to) {
  for (int64_t row = 0; row < rows; row++, x += step) {
    const T* nan = forest.nan;
    for (const int32_t feature : forest.features) {
      const T number = x[feature];
      *to++ = std::isnan(number) ? *nan : number;
      nan++;
    }
  }
}

template <class T, class Fold>
void fold_all(HostFrame& frame, const Forest<T>& forest, T start, Fold fold) {
  const std::vector<int64_t>& shape = frame.operand(0).shape;
  const int64_t rows = shape[0], step = shape[1], targets = forest.targets;
  const auto columns = static_cast<int64_t>(forest.features.size());
  const auto* const x = frame.data<T>(0);
  auto* const scores = reinterpret_cast<T*>(frame.give(0, frame.operand(0).dtype, {rows, targets}));
  if (scores == nullptr) return;
  std::fill(scores, scores + rows * targets, start);
  const int64_t share = (rows + frame.slots() - 1) / frame.slots();
  const int64_t row_bytes = columns * static_cast<int64_t>(sizeof(T));
  const int64_t most = std::min({share, kRows, kBlock / row_bytes});
  const int64_t block = std::max((most + kLanes - 1) / kLanes, int64_t{1}) * kLanes;
  const int64_t block_bytes = block * row_bytes;
  std::byte* const memory = frame.scratch(frame.slots() * block_bytes);
  const auto fold_blocks = [&](int64_t first, int64_t end, int64_t slot) {
    auto* const read = reinterpret_cast<T*>(memory + slot * block_bytes);
    for (int64_t begin = first * block; begin < std::min(end * block, rows); begin += block) {
      const int64_t count = std::min(block, rows - begin), together = count / kLanes * kLanes;
      T* const to = scores + begin * targets;
      read_columns(forest, x + begin * step, step, count, read);
      fold_rows(forest, read, to, together, fold);
      for (int64_t row = together; row < count; row++) {
        fold_row(forest, read + row * columns, to + row * targets, fold);
      }
    }
  };
  frame.spread((rows + block - 1) / block, block * frame.argument(3), fold_blocks);
}

template <class T>
std::span<const T> all_of(const HostFrame& frame, size_t operand) {
  const auto count = static_cast<size_t>(elements_of(frame.operand(operand).shape));
  return {reinterpret_cast<const T*>(frame.data<int32_t>(operand)),
          count * sizeof(int32_t) / sizeof(T)};
}

template <class T>
void fold_trees(HostFrame& frame) {
  const size_t operands = frame.operands();
  const Forest<T> forest{
      reinterpret_cast<const std::byte*>(frame.data<int32_t>(1)),
      all_of<Tree>(frame, 2),
      all_of<int32_t>(frame, 3),
      frame.data<T>(4),
      frame.argument(0),
      operands > 5 ? frame.data<T>(5) : nullptr,
      operands > 6 ? frame.data<int32_t>(6) : nullptr,
      operands > 6 ? frame.data<int32_t>(7) : nullptr,
  };
  const T most = std::numeric_limits<T>::infinity();
  switch (frame.argument(1)) {
    case 0: return fold_all<T>(frame, forest, 0, [](T a, T b) { return a + b; });
    case 1: return fold_all<T>(frame, forest, most, [](T a, T b) { return b < a ? b : a; });
    default: return fold_all<T>(frame, forest, -most, [](T a, T b) { return b > a ? b : a; });
  }
}

}  // namespace

void tree_sums(HostFrame& frame) {
  const Tensor& x = frame.operand(0);
  if (x.shape.size() != 2 || x.shape[1] < frame.argument(2)) {
    throw ShapeError("trees of " + frame.name + " look at " + std::to_string(frame.argument(2)) +
                     " features, but x has shape " + shape_text(x.shape));
  }
  if (x.dtype == DType::f64) return fold_trees<double>(frame);
  fold_trees<float>(frame);
}

}  // namespace dvm
