// Strings that are taken from others, put together, taken apart and told apart.
//
//   TextsAt        words: strings, behind which those of further operands stand. Those at places,
//                  int64.
//   TextRanks      Of each string its place among those that differ, int64: in the order of their
//                  bytes; and where each of these stands first, int64.
//   TextsEqual     Whether strings of two tensors, broadcast, are the same.
//   StringConcat   Strings of two tensors, broadcast, behind each other.
//   StringSplit    words: the delimiter, empty for blanks. Arguments: how often a string is cut at
//                  most, below 0 for ever. Parts along one more axis, and how many each string has.
#include <algorithm>
#include <unordered_map>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"
#include "runtime/texts.h"

namespace dvm {
namespace {

using Views = std::vector<std::string_view>;

// A tensor as one of a higher rank sees it: an index for each element of the shape.
std::vector<size_t> indices_in(std::span<const int64_t> from, std::span<const int64_t> shape) {
  std::vector<size_t> indices{0};
  size_t stride = 1;
  std::vector<size_t> strides(shape.size(), 0);
  for (size_t axis = from.size(); axis-- > 0;) {
    if (from[axis] != 1) strides[axis + shape.size() - from.size()] = stride;
    stride *= static_cast<size_t>(from[axis]);
  }
  for (size_t axis = 0; axis < shape.size(); axis++) {
    std::vector<size_t> longer;
    longer.reserve(indices.size() * static_cast<size_t>(shape[axis]));
    for (const size_t index : indices) {
      for (int64_t i = 0; i < shape[axis]; i++) {
        longer.push_back(index + static_cast<size_t>(i) * strides[axis]);
      }
    }
    indices.swap(longer);
  }
  return indices;
}

std::vector<int64_t> broadcast(const std::string& name, std::span<const int64_t> a,
                               std::span<const int64_t> b) {
  if (a.size() < b.size()) return broadcast(name, b, a);
  std::vector<int64_t> shape(a.begin(), a.end());
  for (size_t i = 0; i < b.size(); i++) {
    int64_t& extent = shape[a.size() - b.size() + i];
    if (extent == 1) extent = b[i];
    if (b[i] != 1 && b[i] != extent) {
      throw ShapeError(name + " has strings of shapes " + shape_text(a) + " and " + shape_text(b));
    }
  }
  return shape;
}

// The elements of two tensors of strings that meet, where each is broadcast to the other.
class Pairs {
 public:
  explicit Pairs(const HostFrame& frame) {
    const std::vector<int64_t>&a = frame.operand(0).shape, &b = frame.operand(1).shape;
    shape_ = broadcast(frame.name, a, b);
    count_ = static_cast<size_t>(elements_of(shape_));
    if (a != shape_) firsts_ = indices_in(a, shape_);
    if (b != shape_) seconds_ = indices_in(b, shape_);
  }
  const std::vector<int64_t>& shape() const { return shape_; }
  size_t count() const { return count_; }
  size_t first(size_t i) const { return firsts_.empty() ? i : firsts_[i]; }
  size_t second(size_t i) const { return seconds_.empty() ? i : seconds_[i]; }

 private:
  std::vector<int64_t> shape_;
  size_t count_ = 0;
  std::vector<size_t> firsts_, seconds_;  // none: the element's own index
};

void split(std::string_view text, std::string_view delimiter, int64_t most, Views& parts) {
  const bool blanks = delimiter.empty();
  if (blanks) {
    delimiter = " ";
    const size_t first = text.find_first_not_of(' ');
    if (first == std::string_view::npos) return;
    text = text.substr(first, text.find_last_not_of(' ') + 1 - first);
  }
  if (text.empty()) return;
  for (int64_t cuts = 0; most < 0 || cuts < most; cuts++) {
    const size_t found = text.find(delimiter);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(0, found));
    text.remove_prefix(found + delimiter.size());
    if (blanks) text.remove_prefix(text.find_first_not_of(' '));
  }
  parts.push_back(text);
}

}  // namespace

Tensor know_texts(std::vector<std::string> words, std::span<const int64_t> /*arguments*/) {
  TextWriter writer;
  for (const std::string& word : words) {
    writer.bytes().append(word);
    writer.end();
  }
  return tensor_of({static_cast<int64_t>(words.size())}, writer.finish());
}

void texts_at(HostFrame& frame) {
  const auto* const places = frame.data<int64_t>(0);
  Texts result;
  std::vector<std::span<const std::string_view>> parts;
  if (const Texts* const words = texts_in(frame.words())) {
    parts.push_back(words->views);
    result.memory = words->memory;
  }
  for (size_t i = 1; i < frame.operands(); i++) {
    const Texts& texts = frame.texts(i);
    parts.push_back(texts.views);
    result.memory.insert(result.memory.end(), texts.memory.begin(), texts.memory.end());
  }
  std::ranges::sort(result.memory);  // parts that were cut from the same text share it
  result.memory.erase(std::ranges::unique(result.memory).begin(), result.memory.end());
  const int64_t count = elements_of(frame.operand(0).shape);
  result.views.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; i++) {
    int64_t place = places[i];
    auto part = parts.begin();
    for (; part != parts.end() && place >= static_cast<int64_t>(part->size()); part++) {
      place -= static_cast<int64_t>(part->size());
    }
    if (place < 0 || part == parts.end()) {
      throw ExecutionError(frame.name + " reads a string that is not there");
    }
    result.views.push_back((*part)[static_cast<size_t>(place)]);
  }
  frame.give_value(0, tensor_of(frame.operand(0).shape, std::move(result)));
}

void text_ranks(HostFrame& frame) {
  const Views& views = frame.texts(0).views;
  std::unordered_map<std::string_view, int64_t> firsts;
  firsts.reserve(views.size());
  std::vector<int64_t*> entries;  // of each string
  for (size_t i = 0; i < views.size(); i++) {
    entries.push_back(&firsts.emplace(views[i], static_cast<int64_t>(i)).first->second);
  }
  Views ordered;
  for (const auto& [text, first] : firsts) ordered.push_back(text);
  std::ranges::sort(ordered);
  auto* const stands = frame.give<int64_t>(1, DType::i64, {static_cast<int64_t>(ordered.size())});
  for (size_t rank = 0; rank < ordered.size(); rank++) {
    int64_t& known = firsts[ordered[rank]];
    if (stands != nullptr) stands[rank] = known;
    known = static_cast<int64_t>(rank);
  }
  auto* const ranks = frame.give<int64_t>(0, DType::i64, frame.operand(0).shape);
  for (size_t i = 0; ranks != nullptr && i < views.size(); i++) ranks[i] = *entries[i];
}

void string_concat(HostFrame& frame) {
  const Views &a = frame.texts(0).views, &b = frame.texts(1).views;
  const Pairs pairs(frame);
  TextWriter writer;
  writer.reserve(pairs.count(), 0);
  for (size_t i = 0; i < pairs.count(); i++) {
    writer.bytes().append(a[pairs.first(i)]).append(b[pairs.second(i)]);
    writer.end();
  }
  frame.give_value(0, tensor_of(pairs.shape(), writer.finish()));
}

void texts_equal(HostFrame& frame) {
  const Views &a = frame.texts(0).views, &b = frame.texts(1).views;
  const Pairs pairs(frame);
  auto* const equal = frame.give<uint8_t>(0, DType::b8, pairs.shape());
  for (size_t i = 0; equal != nullptr && i < pairs.count(); i++) {
    equal[i] = a[pairs.first(i)] == b[pairs.second(i)] ? 1 : 0;
  }
}

void string_split(HostFrame& frame) {
  const Texts& x = frame.texts(0);
  const Texts* const delimiter = texts_in(frame.words());
  if (delimiter == nullptr || delimiter->views.size() != 1) {
    throw CompileError(frame.name + " lacks its delimiter");
  }
  std::vector<int64_t> shape = frame.operand(0).shape;
  auto* const counts = frame.give<int64_t>(1, DType::i64, shape);
  Views parts;
  std::vector<size_t> ends;
  size_t most = 0;
  for (const std::string_view text : x.views) {
    const size_t before = parts.size();
    split(text, delimiter->views[0], frame.argument(0), parts);
    const size_t count = parts.size() - before;
    if (counts != nullptr) counts[ends.size()] = static_cast<int64_t>(count);
    ends.push_back(parts.size());
    most = std::max(most, count);
  }
  Texts result{{}, x.memory};
  size_t at = 0;
  for (size_t row = 0; row < ends.size(); row++) {
    for (; at < ends[row]; at++) result.views.push_back(parts[at]);
    result.views.resize((row + 1) * most);
  }
  shape.push_back(static_cast<int64_t>(most));
  frame.give_value(0, tensor_of(std::move(shape), std::move(result)));
}

}  // namespace dvm
