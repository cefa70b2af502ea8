// TfIdfVectorizer: how often a vector, or each row of a matrix, has each of the n-grams in a pool.
//
//   TfIdfVectorizer   words: the items of the pool, if they are strings. Arguments: what becomes of
//                     counts (`Mode`), the least and the greatest length, the most that is skipped
//                     between items, how many columns the result has, how many lengths there are;
//                     for each length where its items begin in the pool; how many n-grams there
//                     are, and the column of each; then the items, if they are numbers. Operands:
//                     x; float32, the weight of each n-gram, or none.
//
// Items have numbers, and n-grams are the paths of a tree over these, which is a hash table.
#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"
#include "runtime/texts.h"
#include "runtime/vocabulary.h"

namespace dvm {
namespace {

enum class Mode : int64_t { counts, weights, weighted_counts };
constexpr uint32_t kNone = ~uint32_t{0};

struct Node {
  uint32_t gram = kNone;  // that ends here
  bool goes_on = false;
};

// Numbers of keys: of the children of nodes of a tree by the number of an item, or of integers.
class Table {
 public:
  void make_room(size_t count) {
    slots_.assign(std::bit_ceil(2 * count + 1), {});
    mask_ = slots_.size() - 1;
  }
  uint32_t of(uint64_t key) const { return slots_[slot_of(key)].number; }
  void add(uint64_t key, uint32_t number) { slots_[slot_of(key)] = {key, number}; }

  static uint64_t child(uint32_t node, uint32_t item) { return uint64_t{node} << 32 | item; }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t number = kNone;
  };
  uint64_t slot_of(uint64_t key) const {
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
    for (uint64_t slot = hash & mask_;; slot = (slot + 1) & mask_) {
      if (slots_[slot].number == kNone || slots_[slot].key == key) return slot;
    }
  }
  std::vector<Slot> slots_{1};
  uint64_t mask_ = 0;
};

struct Grams {
  Mode mode = Mode::counts;
  int64_t least = 1, most = 1, skipped = 0, columns = 0;
  std::vector<int64_t> column_of;
  std::vector<Vocabulary> words;  // one, or none
  Table integers;
  std::vector<Node> nodes{{}};
  std::vector<uint32_t> first;  // the child of the root by the number of an item
  Table children;

  uint32_t child(uint32_t node, uint32_t item) const {
    if (node == 0) return first[item];
    return nodes[node].goes_on ? children.of(Table::child(node, item)) : kNone;
  }

  void add(std::span<const uint32_t> items, uint32_t gram) {
    uint32_t node = 0;
    for (const uint32_t item : items) {
      uint32_t next = node == 0 ? first[item] : children.of(Table::child(node, item));
      if (next == kNone) {
        next = static_cast<uint32_t>(nodes.size());
        nodes.emplace_back();
        nodes[node].goes_on = true;
        if (node == 0) {
          first[item] = next;
        } else {
          children.add(Table::child(node, item), next);
        }
      }
      node = next;
    }
    nodes[node].gram = gram;
  }

  // Calls `found` with each n-gram of a row of numbers of items.
  template <class Found>
  void find(std::span<const uint32_t> row, const Found& found) const {
    const auto count = static_cast<int64_t>(row.size());
    int64_t shortest = least;
    for (int64_t step = 1; step <= std::min(skipped, count) + 1; step++) {
      for (int64_t start = 0; start < count && (count - 1 - start) / step >= shortest - 1;
           start++) {
        uint32_t node = 0;
        int64_t length = 1;
        for (int64_t at = start; length <= most && at < count; at += step, length++) {
          if (row[static_cast<size_t>(at)] == kNone) break;
          node = child(node, row[static_cast<size_t>(at)]);
          if (node == kNone) break;
          if (length >= shortest && nodes[node].gram != kNone) found(nodes[node].gram);
        }
      }
      // Single items are counted once, whatever is skipped.
      if (shortest == 1 && ++shortest > most) break;
    }
  }
};

// The numbers of items of x, `kNone` for what is none.
std::vector<uint32_t> numbered(const HostFrame& frame, const Grams& known) {
  const Tensor& x = frame.operand(0);
  std::vector<uint32_t> numbers;
  if (const Texts* const texts = texts_in(x)) {
    if (known.words.empty()) return std::vector<uint32_t>(texts->views.size(), kNone);
    numbers.reserve(texts->views.size());
    std::string_view before;  // pads follow each other
    uint32_t number = kNone;
    for (const std::string_view text : texts->views) {
      if (numbers.empty() || text.data() != before.data() || text.size() != before.size()) {
        number = static_cast<uint32_t>(known.words[0].number_of(text, kNone));
        before = text;
      }
      numbers.push_back(number);
    }
    return numbers;
  }
  for (const int64_t item : frame.integers(0)) {
    numbers.push_back(known.integers.of(static_cast<uint64_t>(item)));
  }
  return numbers;
}

[[noreturn]] void refuse() { throw CompileError("arguments of n-grams contradict each other"); }

}  // namespace

Tensor know_grams(std::vector<std::string> words, std::span<const int64_t> arguments) {
  const auto take = [&](int64_t count) {
    if (count < 0 || count > static_cast<int64_t>(arguments.size())) refuse();
    const auto taken = arguments.first(static_cast<size_t>(count));
    arguments = arguments.subspan(static_cast<size_t>(count));
    return taken;
  };
  auto known = std::make_shared<Grams>();
  const auto about = take(6);
  known->mode = static_cast<Mode>(about[0]);
  known->least = about[1];
  known->most = about[2];
  known->skipped = about[3];
  known->columns = about[4];
  const auto starts = take(about[5]);
  const auto columns = take(take(1)[0]);
  known->column_of.assign(columns.begin(), columns.end());
  for (const int64_t column : columns) {
    if (column < 0 || column >= known->columns) refuse();
  }
  std::vector<uint32_t> pool;
  if (!words.empty()) {
    std::unordered_map<std::string_view, int64_t> numbers;
    std::vector<int64_t> all;
    for (const std::string& word : words) {
      all.push_back(numbers.emplace(word, static_cast<int64_t>(numbers.size())).first->second);
      pool.push_back(static_cast<uint32_t>(all.back()));
    }
    known->words.emplace_back(words, all);
    known->first.assign(numbers.size(), kNone);
  } else {
    known->integers.make_room(arguments.size());
    uint32_t count = 0;
    for (const int64_t item : arguments) {
      const auto key = static_cast<uint64_t>(item);
      if (known->integers.of(key) == kNone) known->integers.add(key, count++);
      pool.push_back(known->integers.of(key));
    }
    known->first.assign(count, kNone);
  }
  known->children.make_room(pool.size());
  size_t gram = 0;
  for (size_t i = 0; i < starts.size(); i++) {
    const auto total = static_cast<int64_t>(pool.size());
    const int64_t end = i + 1 < starts.size() ? starts[i + 1] : total;
    const size_t length = i + 1;
    if (starts[i] < 0 || end < starts[i] || end > total) refuse();
    for (auto at = static_cast<size_t>(starts[i]); at < static_cast<size_t>(end); at += length) {
      if (at + length > static_cast<size_t>(end) || gram >= columns.size()) refuse();
      const auto size = static_cast<int64_t>(length);
      if (size >= known->least && size <= known->most) {
        known->add({pool.data() + at, length}, static_cast<uint32_t>(gram));
      }
      gram++;
    }
  }
  return {DType::u8, {}, nullptr, std::move(known), ValueKind::object};
}

void tf_idf_vectorizer(HostFrame& frame) {
  const auto& known = frame.known<Grams>();
  const std::vector<int64_t>& given = frame.operand(0).shape;
  if (given.size() > 2 || (given.size() == 2 && given[0] < 1)) {
    throw ShapeError(frame.name + " takes [n] or [rows, n], with rows above 0, and not " +
                     shape_text(given));
  }
  const std::vector<uint32_t> numbers = numbered(frame, known);
  const int64_t rows = given.size() == 2 ? given[0] : 1;
  const int64_t width = static_cast<int64_t>(numbers.size()) / rows;
  const float* weights = nullptr;
  if (frame.has(1)) {
    weights = frame.data<float>(1);
    if (elements_of(frame.operand(1).shape) != static_cast<int64_t>(known.column_of.size())) {
      refuse();
    }
  }
  std::vector<int64_t> shape;
  if (given.size() == 2) shape.push_back(rows);
  shape.push_back(known.columns);
  auto* const counts = frame.give<float>(0, DType::f32, std::move(shape));
  if (counts == nullptr) return;
  frame.spread(rows, width + known.columns / 8, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t row = begin; row < end; row++) {
      float* const out = counts + row * known.columns;
      std::memset(out, 0, static_cast<size_t>(known.columns) * sizeof(float));
      const std::span<const uint32_t> items(numbers.data() + row * width,
                                            static_cast<size_t>(width));
      known.find(items, [&](uint32_t gram) {
        float& count = out[known.column_of[gram]];
        switch (known.mode) {
          case Mode::counts: count += 1; break;
          case Mode::weights: count = weights == nullptr ? 1 : weights[gram]; break;
          case Mode::weighted_counts: count += weights == nullptr ? 1 : weights[gram]; break;
        }
      });
    }
  });
}

}  // namespace dvm
