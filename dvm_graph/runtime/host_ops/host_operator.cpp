#include "runtime/host_ops/host_operator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "runtime/device_pool.h"
#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/value_sizes.h"

namespace dvm {
namespace {

using Learning = Tensor (*)(std::vector<std::string>, std::span<const int64_t>);

struct Entry {
  std::string_view op;
  HostFunction function;
  Learning learns = nullptr;
};

constexpr Entry kTable[] = {
    {"Compress", compress},
    {"ConcatFromSequence", concat_from_sequence},
    {"ConstantOfShapeExtents", constant_extents},
    {"CoupledProbabilities", coupled_probabilities},
    {"CumProd", cumulative_product},
    {"CumSum", cumulative_sum},
    {"ExpandExtents", expand_extents},
    {"KeyPlaces", key_places},
    {"MaxUnpool", max_unpool},
    {"NonMaxSuppression", non_max_suppression},
    {"NonZero", non_zero},
    {"NumberTexts", number_texts},
    {"OneHotExtents", one_hot_extents},
    {"Optional", optional},
    {"OptionalGetElement", optional_get_element},
    {"OptionalHasElement", optional_has_element},
    {"PadExtents", pad_extents},
    {"RangeExtents", range_extents},
    {"RegexFullMatch", regex_full_match, know_pattern},
    {"ReshapeExtents", reshape_extents},
    {"ResizeExtents", resize_extents},
    {"ScatterElements", scatter_elements},
    {"ScatterND", scatter_nd},
    {"SequenceAt", sequence_at},
    {"SequenceConstruct", sequence_construct},
    {"SequenceEmpty", sequence_empty},
    {"SequenceErase", sequence_erase},
    {"SequenceInsert", sequence_insert},
    {"SequenceLength", sequence_length},
    {"SliceExtents", slice_extents},
    {"SplitExtents", split_extents},
    {"SplitToSequence", split_to_sequence},
    {"StringConcat", string_concat},
    {"StringNormalizer", string_normalizer, know_normalizer},
    {"StringSplit", string_split, know_texts},
    {"TextNumbers", text_numbers},
    {"TextRanks", text_ranks},
    {"TextsAt", texts_at, know_texts},
    {"TextsEqual", texts_equal},
    {"TfIdfVectorizer", tf_idf_vectorizer, know_grams},
    {"TileExtents", tile_extents},
    {"Tokenizer", tokenizer, know_tokenizer},
    {"TopK", top_k},
    {"TreeSums", tree_sums},
    {"Unique", unique},
};

const Entry* entry_of(std::string_view op) {
  const auto* const found = std::find_if(std::begin(kTable), std::end(kTable),
                                         [&](const Entry& e) { return e.op == op; });
  return found == std::end(kTable) ? nullptr : found;
}

// What a piece goes over, so that to hand it over takes little of the time that it takes.
constexpr int64_t kPieceElements = 8192;

// Units in pieces, which whoever comes takes one after the other.
class Pieces {
 public:
  Pieces(int64_t units, int64_t units_each, const Piece& piece)
      : units_(units), each_(units_each), piece_(piece) {}

  int64_t count() const { return (units_ + each_ - 1) / each_; }
  // False: there are none left.
  bool run_next(int64_t slot) {
    const int64_t number = next_.fetch_add(1, std::memory_order_relaxed);
    if (number >= count()) return false;
    piece_(number * each_, std::min((number + 1) * each_, units_), slot);
    return true;
  }

 private:
  const int64_t units_, each_;
  const Piece& piece_;
  std::atomic<int64_t> next_{0};
};

// A core at pieces: turns in which no program runs.
class Slot final : public Turns {
 public:
  Slot(Pieces& pieces, int64_t number) : pieces_(&pieces), number_(number) {}
  bool begin() noexcept override { return pieces_->run_next(number_); }

 private:
  Pieces* pieces_;
  int64_t number_;
};

}  // namespace

HostFunction find_host_function(std::string_view op) {
  const Entry* const found = entry_of(op);
  return found == nullptr ? nullptr : found->function;
}

Tensor known_by(std::string_view op, std::vector<std::string> words,
                std::span<const int64_t> arguments) {
  const Entry* const found = entry_of(op);
  if (found == nullptr || found->learns == nullptr) return {};
  return found->learns(std::move(words), arguments);
}

std::vector<std::string> host_operators() {
  std::vector<std::string> names;
  for (const Entry& entry : kTable) names.emplace_back(entry.op);
  return names;
}

std::byte* HostFrame::give(size_t result, DType dtype, std::vector<int64_t> shape, int64_t beyond) {
  if (!wants(result)) return nullptr;
  results_[result] = fresh(dtype, std::move(shape), beyond);
  return results_[result].data;
}

std::byte* HostFrame::give_over_bytes(size_t result, size_t index) {
  const Tensor& from = operand(index);
  const auto is_apart = [&](const Tensor& other) {
    return &other == &from || other.absent() || !overlap(other, from);
  };
  if (index < spent_.size() && spent_[index] != 0 && std::ranges::all_of(operands_, is_apart)) {
    give_value(result, from);
    return from.data;
  }
  std::byte* const to = give(result, from.dtype, from.shape);
  if (to != nullptr) std::memcpy(to, from.data, static_cast<size_t>(bytes_of(from)));
  return to;
}

void HostFrame::give_value(size_t result, Tensor value) {
  if (wants(result)) results_[result] = std::move(value);
}

Tensor HostFrame::fresh(DType dtype, std::vector<int64_t> shape, int64_t beyond) {
  Tensor tensor{dtype, std::move(shape), nullptr, nullptr};
  tensor.owner = pool_.take(bytes_of(tensor) + beyond, name.c_str());
  tensor.data = static_cast<std::byte*>(tensor.owner.get());
  return tensor;
}

Tensor HostFrame::keep(size_t index) {
  const Tensor& given = operand(index);
  if (given.kind == ValueKind::object) {
    throw InputError("operand " + std::to_string(index) + " of " + name +
                     " is neither a tensor nor a sequence of tensors");
  }
  if (given.kind != ValueKind::tensor || given.owner != nullptr) return given;
  Tensor copy = fresh(given.dtype, given.shape);
  std::memcpy(copy.data, given.data, static_cast<size_t>(bytes_of(given)));
  return copy;
}

const Sequence& HostFrame::sequence(size_t index) const {
  const Sequence* const found = sequence_in(operand(index));
  if (found != nullptr) return *found;
  throw InputError("operand " + std::to_string(index) + " of " + name +
                   " is no sequence of tensors");
}

const Texts& HostFrame::texts(size_t index) const {
  const Texts* const found = texts_in(operand(index));
  if (found != nullptr) return *found;
  throw CompileError("operand " + std::to_string(index) + " of " + name + " is no text");
}

const void* HostFrame::knowledge() const {
  if (words_.owner == nullptr) throw CompileError(name + " knows nothing of words");
  return words_.owner.get();
}

int64_t HostFrame::integer(size_t index) const {
  operand(index);
  require_one(index);
  return integers(index)[0];
}

std::vector<int64_t> HostFrame::integers(size_t index) const {
  const Tensor& tensor = operand(index);
  const auto count = static_cast<size_t>(elements_of(tensor.shape));
  if (tensor.dtype == DType::i32) {
    const auto* const given = data<int32_t>(index);
    return {given, given + count};
  }
  const auto* const given = data<int64_t>(index);
  return {given, given + count};
}

std::byte* HostFrame::scratch(int64_t bytes) {
  require_memory(bytes - scratch_.capacity(), name.c_str());
  scratch_.reserve(bytes);
  return scratch_.data();
}

int64_t HostFrame::slots() const { return device_.device->cores(); }

void HostFrame::spread(int64_t units, int64_t unit, const Piece& piece) {
  Pieces pieces(units, std::max<int64_t>(kPieceElements / std::max<int64_t>(unit, 1), 1), piece);
  if (pieces.count() <= 1) return piece(0, units, 0);
  std::vector<Slot> slots;
  for (int64_t slot = 0; slot < std::min(this->slots(), pieces.count()); slot++) {
    slots.emplace_back(pieces, slot);
  }
  std::vector<TurnLoop> loops;
  for (Slot& slot : slots) loops.push_back({{}, &slot});
  const std::lock_guard lock(device_.mutex);
  if (device_.device->resting()) device_.device->wake();
  device_.device->run_loops(loops);
}

const Tensor& HostFrame::operand(size_t index) const {
  if (!has(index)) throw CompileError(name + " lacks operand " + std::to_string(index));
  return operands_[index];
}

const Tensor& HostFrame::operand_of(size_t index, size_t element_bytes) const {
  const Tensor& tensor = operand(index);
  if (size_of(tensor.dtype) == element_bytes) return tensor;
  throw CompileError("operand " + std::to_string(index) + " of " + name + " is of another type");
}

int64_t HostFrame::argument(size_t index) const {
  if (index >= arguments_.size()) throw CompileError(name + " lacks an argument");
  return arguments_[index];
}

size_t HostFrame::axis(size_t argument_index, size_t rank) const {
  const int64_t axis = argument(argument_index);
  if (axis < 0 || axis >= static_cast<int64_t>(rank)) {
    throw CompileError(name + " has no axis " + std::to_string(axis));
  }
  return static_cast<size_t>(axis);
}

void HostFrame::require_one(size_t operand) const {
  if (elements_of(operands_[operand].shape) == 1) return;
  throw ShapeError("operand " + std::to_string(operand) + " of " + name + " has shape " +
                   shape_text(operands_[operand].shape) + ", which is not one element");
}

int64_t elements_of(std::span<const int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

AroundAxis::AroundAxis(std::span<const int64_t> shape, size_t axis)
    : before(elements_of(shape.first(axis))),
      extent(shape[axis]),
      behind(elements_of(shape.subspan(axis + 1))) {}

}  // namespace dvm
