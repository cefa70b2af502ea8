// Groups of joined instructions at every instruction-set level, drawn at random and those that have
// code of their own: a group leaves in memory what its instructions leave one after the other, up
// to the order in which a reduction adds and to products that are not rounded before they are
// added.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "machine.h"
#include "vm/strips.h"

namespace dvm::test {
namespace {

// Rounded once, so that the same bits come out wherever the compiler put them.
constexpr Family kExact[] = {Family::v_add, Family::v_sub, Family::v_mul,
                             Family::v_div, Family::v_min, Family::v_max,
                             Family::v_abs, Family::v_neg, Family::v_reciprocal};
constexpr Family kFunctions[] = {Family::v_exp, Family::v_log, Family::v_erf, Family::v_tanh,
                                 Family::v_sigmoid};
constexpr Family kFolds[] = {Family::v_reduce_sum, Family::v_reduce_max, Family::v_reduce_min};
constexpr int kInputs = 3, kMostMaps = 6;

bool is_binary(Family family) { return family >= Family::v_add; }

// The sequences of joined.cpp that have code of their own; the last result is stored, and those
// that are kept. Operands: 0 to 2 are the inputs, 3 and on the results.
struct Sequence {
  const char* name;
  std::vector<std::array<int, 3>> maps;  // family, operands
  Family fold = Family::count_;
  bool contracts = false;  // may add a product that is not rounded
  std::vector<size_t> kept = {};
};
constexpr int kSub = static_cast<int>(Family::v_sub), kMul = static_cast<int>(Family::v_mul),
              kAdd = static_cast<int>(Family::v_add), kExp = static_cast<int>(Family::v_exp),
              kTanh = static_cast<int>(Family::v_tanh),
              kSigmoid = static_cast<int>(Family::v_sigmoid);
const Sequence kSequences[] = {
    {"normalise", {{kSub, 0, 1}, {kMul, 3, 1}}},
    {"normalise, scale", {{kSub, 0, 1}, {kMul, 3, 1}, {kMul, 4, 2}}},
    {"normalise, scale, shift",
     {{kSub, 0, 1}, {kMul, 3, 1}, {kMul, 4, 2}, {kAdd, 5, 2}},
     Family::count_,
     true},
    {"scale", {{kMul, 0, 1}, {kMul, 3, 2}}},
    {"sum of squared differences", {{kSub, 0, 1}, {kMul, 3, 3}}, Family::v_reduce_sum},
    {"sum of exponentials", {{kSub, 0, 1}, {kExp, 3, 3}}, Family::v_reduce_sum},
    {"sum of squares", {{kMul, 0, 0}}, Family::v_reduce_sum},
    {"sum of sums", {{kAdd, 0, 2}}, Family::v_reduce_sum},
    {"LSTM",
     {{kTanh, 0, 0},
      {kSigmoid, 2, 2},
      {kMul, 4, 0},
      {kSigmoid, 0, 0},
      {kSigmoid, 2, 2},
      {kMul, 7, 3},
      {kAdd, 5, 8},
      {kTanh, 9, 9},
      {kMul, 6, 10}},
     Family::count_,
     false,
     {0, 2, 3, 6}},
    {"GRU",
     {{kSigmoid, 0, 0}, {kAdd, 2, 0}, {kTanh, 4, 4}, {kSub, 2, 5}, {kMul, 3, 6}, {kAdd, 5, 7}},
     Family::count_,
     false,
     {0, 2}},
};

struct Instruction {
  Family family = Family::v_add;
  int operands[3] = {0, 0, 0};  // buffers: inputs, then the result of each instruction
  uint8_t flags = 0;
};

// Buffers of one row of `inner` elements per middle coordinate, one behind the other where they are
// dense; input 1 is one value per row, input 2 the same row for all that have the same outer one.
class Tester {
 public:
  Tester(const InstructionTable& table, unsigned seed)
      : table_(table), random_(seed), dense_(below(2) == 0) {
    shape_ = {1, 1 + below(4), kExtents[random_() % std::size(kExtents)]};
    draw();
    if (dense_ && !folds_) shape_ = {1 + below(3), 1 + below(40), shape_.inner};
  }
  Tester(const InstructionTable& table, const Sequence& sequence, Shape shape, uint8_t flags,
         bool dense)
      : table_(table), shape_(shape), dense_(dense), contracts_(sequence.contracts) {
    int result = kInputs;
    for (const auto& [family, left, right] : sequence.maps) {
      group_.push_back({static_cast<Family>(family), {result++, left, right}, kJoined});
    }
    folds_ = sequence.fold != Family::count_;
    if (folds_) group_.push_back({sequence.fold, {result, result - 1, 0}, 0});
    for (size_t i = 0; i + 1 < group_.size(); i++) {
      if (std::ranges::find(sequence.kept, i) == sequence.kept.end()) group_[i].flags |= kTransient;
    }
    if (!folds_) group_.back().flags = flags;
  }

  // Also of a last tile, of other memory, which the same words may be decoded for.
  void run(const std::string& what) {
    const std::vector<uint64_t> words = encode();
    const auto less = [](int64_t extent) { return std::max<int64_t>(extent - 1, 1); };
    run(what, words, shape_);
    run("last tile of " + what, words,
        {less(shape_.outer), less(shape_.middle), less(shape_.inner)});
  }

 private:
  void run(const std::string& what, const std::vector<uint64_t>& words, const Shape& tile) {
    const auto joined = results(true, words, tile), apart = results(false, words, tile);
    for (size_t b = 0; b < joined.size(); b++) {
      const bool folded = folds_ && b + 1 == joined.size();
      if (!folded && b >= kInputs && (group_[b - kInputs].flags & kTransient)) continue;
      for (size_t i = 0; i < joined[b].size(); i++) {
        const float got = joined[b][i], want = apart[b][i];
        const bool same =
            std::isnan(want)                ? std::isnan(got)
            : folded && std::isfinite(want) ? std::fabs(got - want) <= 1e-5f * magnitude(apart, i)
            : contracts_ && b + 1 == joined.size() ? std::fabs(got - want) <= unrounded(apart, i)
            : is_function(b) ? std::fabs(got - want) <= 1e-6f * std::fabs(want) || got == want
            : follows_function(b) && std::isfinite(want) ? std::fabs(got - want) <= kOfFunctions
                                                         : got == want;
        context = std::string(table_.name) + " " + what + " buffer " + std::to_string(b) +
                  " element " + std::to_string(i) + ": " + std::to_string(got) + " instead of " +
                  std::to_string(want);
        CHECK(same);
      }
    }
  }

  static constexpr float kOfFunctions = 1e-5f;  // of a few sums and products of them and of inputs
  static constexpr int64_t kExtents[] = {1,  7,   15,  16,  17,  63,   64,
                                         65, 127, 128, 129, 300, 2049, 5000};

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  void draw() {
    const int64_t maps = 1 + below(kMostMaps);
    folds_ = below(2) == 0 || maps == 1;
    for (int64_t i = 0; i < maps; i++) {
      Instruction& next = group_.emplace_back();
      next.family = kExact[random_() % std::size(kExact)];
      if (i + 1 == maps && below(3) == 0) {
        next.family = kFunctions[random_() % std::size(kFunctions)];
      }
      const int results = kInputs + static_cast<int>(i);
      next.operands[0] = results;
      next.operands[1] = static_cast<int>(below(results));
      next.operands[2] = static_cast<int>(below(results));
      // Mostly a chain, on either side.
      if (i > 0 && below(4) != 0) next.operands[1 + below(2)] = results - 1;
      next.flags = kJoined | (below(2) == 0 ? kStream : 0);
    }
    if (folds_) {
      Instruction& fold = group_.emplace_back();
      fold.family = kFolds[random_() % std::size(kFolds)];
      fold.operands[0] = kInputs + static_cast<int>(maps);
      fold.operands[1] = fold.operands[0] - 1;
      fold.flags = below(2) == 0 ? kAccumulateAlways : 0;
    } else {
      group_.back().flags &= static_cast<uint8_t>(~kJoined);
    }
    for (size_t i = 0; i + 1 < group_.size(); i++) mark_transient(i);
  }

  void mark_transient(size_t i) {
    const int result = group_[i].operands[0];
    const auto reads = [&](const Instruction& other) {
      return other.operands[1] == result ||
             (is_map(other) && is_binary(other.family) && other.operands[2] == result);
    };
    for (size_t j = i + 2; j < group_.size(); j++) {
      if (reads(group_[j])) return;
    }
    if (reads(group_[i + 1])) group_[i].flags |= kTransient;
  }

  bool is_function(size_t buffer) const {
    if (buffer < kInputs) return false;
    const Family family = group_[buffer - kInputs].family;
    return std::find(std::begin(kFunctions), std::end(kFunctions), family) != std::end(kFunctions);
  }

  bool follows_function(size_t buffer) const {
    for (size_t b = kInputs; b < buffer; b++) {
      if (is_function(b)) return true;
    }
    return false;
  }

  bool is_map(const Instruction& instruction) const {
    return !(folds_ && &instruction == &group_.back());
  }

  Strides strides_of(int buffer) const {
    const bool outer = shape_.outer > 1;
    if (buffer == 1) return {outer ? shape_.middle : 0, 1, 0};
    if (buffer == 2) return {outer ? shape_.inner : 0, 0, 1};
    const int64_t row = shape_.inner + (dense_ ? 0 : buffer % 3);
    return {outer ? shape_.middle * row : 0, row, 1};
  }

  // What every buffer holds after the group, run as one or one by one, from the same start.
  std::vector<std::vector<float>> results(bool together, const std::vector<uint64_t>& words,
                                          const Shape& tile) {
    std::vector<std::unique_ptr<Guarded>> memory;
    Core core;
    for (int32_t& extent : core.extents) extent = 1;
    core.extents[2] = static_cast<int32_t>(tile.middle);
    core.extents[3] = static_cast<int32_t>(tile.inner);
    core.extents[4] = static_cast<int32_t>(tile.outer);
    std::mt19937 values(7);
    std::uniform_real_distribution<float> uniform(-4, 4);
    const int buffers = kInputs + static_cast<int>(group_.size());
    for (int b = 0; b < buffers; b++) {
      const bool folded = folds_ && b + 1 == buffers;
      const int64_t count = folded ? shape_.middle : strides_of(b).span(shape_);
      memory.push_back(std::make_unique<Guarded>(static_cast<size_t>(count) * sizeof(float)));
      auto* data = reinterpret_cast<float*>(memory.back()->data());
      for (int64_t i = 0; i < count; i++) data[i] = uniform(values);
      core.pointers[b] = memory.back()->data();
    }
    const uint64_t* const end = words.data() + words.size();
    if (together && group_.size() > 1) {
      context = std::string(table_.name) + ": where the group ends";
      CHECK(table_.joined(core, words.data()) == end);
    } else {
      for (const uint64_t* at = words.data(); at < end; at += at[0] >> 16 & 0xff) {
        table_.handlers[at[0] & 0xffff](core, at);
      }
    }
    std::vector<std::vector<float>> result;
    for (const auto& block : memory) {
      const auto* data = reinterpret_cast<const float*>(block->data());
      result.emplace_back(data, data + block->bytes() / sizeof(float));
    }
    return result;
  }

  std::vector<uint64_t> encode() const {
    std::vector<uint64_t> words;
    for (const Instruction& instruction : group_) {
      const bool map = is_map(instruction);
      const int operands = map && is_binary(instruction.family) ? 3 : 2;
      const Head head{opcode_of(instruction.family, DType::f32),
                      static_cast<uint8_t>(1 + 2 * operands),
                      0,
                      instruction.flags,
                      static_cast<uint8_t>(map ? 4 : 2),
                      static_cast<uint8_t>(map ? 2 : 3),
                      static_cast<uint8_t>(map ? 3 : 0)};
      words.push_back(0);
      std::memcpy(&words.back(), &head, sizeof head);
      for (int k = 0; k < operands; k++) {
        const int buffer = instruction.operands[k];
        const Strides strides = strides_of(buffer);
        Operand operand{
            static_cast<uint32_t>(Space::pointer) << kSpaceShift | static_cast<uint32_t>(buffer),
            static_cast<int32_t>(strides.inner), static_cast<int32_t>(strides.outer),
            static_cast<int32_t>(strides.middle)};
        if (!map) {
          operand.outer_stride = k == 0 ? 1 : static_cast<int32_t>(strides.middle);
          operand.middle_stride = k == 0 ? 0 : 1;
          operand.inner_stride = 1;
        }
        uint64_t encoded[2];
        std::memcpy(encoded, &operand, sizeof operand);
        words.insert(words.end(), encoded, encoded + 2);
      }
    }
    return words;
  }

  // Of the terms that were folded into row i.
  float magnitude(const std::vector<std::vector<float>>& apart, size_t i) const {
    const std::vector<float>& terms = apart[apart.size() - 2];
    const auto stride = static_cast<size_t>(strides_of(group_.back().operands[1]).middle);
    float sum = 4;
    for (size_t j = 0; j < static_cast<size_t>(shape_.inner); j++) {
      sum += std::fabs(terms[i * stride + j]);
    }
    return sum;
  }

  // What a sum may differ by if the product it adds is not rounded: half a unit in the last place
  // of the product, and one of the sum, which is rounded either way.
  float unrounded(const std::vector<std::vector<float>>& apart, size_t i) const {
    const float sum = apart.back()[i], product = apart[apart.size() - 2][row_element(i)];
    return 0x1p-24f * std::fabs(product) + 0x1p-23f * std::fabs(sum);
  }

  // Where the element of the last result lies in the one before.
  size_t row_element(size_t i) const {
    const int last = kInputs + static_cast<int>(group_.size()) - 1;
    const auto from = static_cast<size_t>(strides_of(last).middle);
    const auto to = static_cast<size_t>(strides_of(last - 1).middle);
    return std::min(i / from * to + i % from, static_cast<size_t>(to * shape_.middle) - 1);
  }

  const InstructionTable& table_;
  std::mt19937 random_;
  Shape shape_;
  bool dense_ = false;
  std::vector<Instruction> group_;
  bool folds_ = false, contracts_ = false;
};

// Whole rows in passes of their own, as the run-time compiler marks them to run a few rows at a
// time: against the passes one after the other.
class RowTester {
 public:
  RowTester(const InstructionTable& table, int64_t rows, int64_t n)
      : table_(table), rows_(rows), n_(n), gap_(n + 3) {}

  // x to (x - mean) / sqrt(variance + epsilon) * scale + shift.
  void layer_norm() {
    const float mean_of = 1.0f / static_cast<float>(n_);
    fold(Family::v_reduce_sum, kMean, kX);
    along(Family::v_mul, kMean, kMean, mean_of);
    map(Family::v_sub, kT, matrix(kX), value(kMean), kJoined | kTransient);
    map(Family::v_mul, kT, matrix(kT), matrix(kT), kJoined | kTransient);
    fold(Family::v_reduce_sum, kScale, kT);
    along(Family::v_mul, kScale, kScale, mean_of, kJoined | kTransient);
    along(Family::v_add, kScale, kScale, 1e-5f, kJoined | kTransient);
    along(Family::v_rsqrt, kScale, kScale);
    map(Family::v_sub, kT, matrix(kX), value(kMean), kJoined | kTransient);
    map(Family::v_mul, kT, matrix(kT), value(kScale), kJoined | kTransient);
    map(Family::v_mul, kT, matrix(kT), row(kGain), kJoined | kTransient);
    map(Family::v_add, kY, matrix(kT), row(kShift), kStream);
    check("layer norm");
  }

  // x to e^(x - max) / sum; also the maxima that lie in memory between. `once`: with one division
  // for each row.
  void softmax(bool once) {
    fold(Family::v_reduce_max, kMean, kX);
    map(Family::v_sub, kT, matrix(kX), value(kMean), kJoined | kTransient);
    map(Family::v_exp, kT, matrix(kT), {}, kJoined);
    fold(Family::v_reduce_sum, kScale, kT);
    if (once) along(Family::v_reciprocal, kScale, kScale);
    map(once ? Family::v_mul : Family::v_div, kY, matrix(kT), value(kScale), 0);
    check("softmax");
  }

  // x to x / sqrt(mean of squares) * gain.
  void rms_norm() {
    map(Family::v_mul, kT, matrix(kX), matrix(kX), kJoined | kTransient);
    fold(Family::v_reduce_sum, kScale, kT);
    along(Family::v_mul, kScale, kScale, 1.0f / static_cast<float>(n_));
    along(Family::v_sqrt, kScale, kScale);
    along(Family::v_reciprocal, kScale, kScale, 0, kStream);
    map(Family::v_mul, kT, matrix(kX), value(kScale), kJoined | kTransient);
    map(Family::v_mul, kY, matrix(kT), row(kGain), 0);
    check("rms norm");
  }

 private:
  enum Buffer : int { kX, kT, kY, kMean, kScale, kGain, kShift, kBuffers };
  struct Source {
    int buffer = -1;
    int32_t middle = 0, inner = 0;
    float immediate = 0;
  };

  Source matrix(int buffer) const { return {buffer, static_cast<int32_t>(gap_), 1}; }
  static Source value(int buffer) { return {buffer, 1, 0}; }
  static Source row(int buffer) { return {buffer, 0, 1}; }

  void append(const Source& source, int32_t outer = 0) {
    if (source.buffer < 0) {
      words_.push_back(static_cast<uint64_t>(Space::immediate) << kSpaceShift);
      uint64_t bits = 0;
      std::memcpy(&bits, &source.immediate, sizeof source.immediate);
      words_.push_back(bits);
      return;
    }
    const Operand operand{
        static_cast<uint32_t>(Space::pointer) << kSpaceShift | static_cast<uint32_t>(source.buffer),
        source.inner, outer, source.middle};
    uint64_t encoded[2];
    std::memcpy(encoded, &operand, sizeof operand);
    words_.insert(words_.end(), encoded, encoded + 2);
  }

  void head(Family family, int operands, int flags, uint8_t e0, uint8_t e1, uint8_t e2) {
    const Head head{opcode_of(family, DType::f32),
                    static_cast<uint8_t>(1 + 2 * operands),
                    0,
                    static_cast<uint8_t>(flags | kRows),
                    e0,
                    e1,
                    e2};
    last_ = words_.size();
    words_.push_back(0);
    std::memcpy(&words_.back(), &head, sizeof head);
  }

  void map(Family family, int to, const Source& a, const Source& b, int flags) {
    const bool binary = is_binary(family);
    head(family, binary ? 3 : 2, flags, 0, 2, 3);
    append(matrix(to));
    append(a);
    if (binary) append(b);
  }

  // One value per row.
  void along(Family family, int to, int from, float with = 0, int flags = 0) {
    const bool binary = is_binary(family);
    head(family, binary ? 3 : 2, flags, 0, 0, 2);
    append({to, 0, 1});
    append({from, 0, 1});
    if (binary) append({-1, 0, 0, with});
  }

  void fold(Family family, int to, int from) {
    head(family, 2, 0, 2, 3, 0);
    append({to, 0, 1}, 1);
    append({from, 1, 1}, static_cast<int32_t>(gap_));
  }

  std::vector<std::vector<float>> results(bool together) {
    std::vector<std::unique_ptr<Guarded>> memory;
    Core core;
    for (int32_t& extent : core.extents) extent = 1;
    core.extents[2] = static_cast<int32_t>(rows_);
    core.extents[3] = static_cast<int32_t>(n_);
    std::mt19937 random(11);
    std::uniform_real_distribution<float> uniform(-4, 4);
    for (int b = 0; b < kBuffers; b++) {
      const int64_t count = b <= kY                     ? (rows_ - 1) * gap_ + n_
                            : b == kMean || b == kScale ? rows_
                                                        : n_;
      memory.push_back(std::make_unique<Guarded>(static_cast<size_t>(count) * sizeof(float)));
      auto* data = reinterpret_cast<float*>(memory.back()->data());
      for (int64_t i = 0; i < count; i++) data[i] = uniform(random);
      core.pointers[b] = memory.back()->data();
    }
    const uint64_t* const end = words_.data() + words_.size();
    if (together) {
      CHECK(table_.joined(core, words_.data()) == end);
    } else {
      for (const uint64_t* at = words_.data(); at < end; at += at[0] >> 16 & 0xff) {
        table_.handlers[at[0] & 0xffff](core, at);
      }
    }
    std::vector<std::vector<float>> result;
    for (const auto& block : memory) {
      const auto* data = reinterpret_cast<const float*>(block->data());
      result.emplace_back(data, data + block->bytes() / sizeof(float));
    }
    return result;
  }

  // What is folded may be added in another order, with products that are not rounded; both keep to
  // some 64 roundings of the sum of magnitudes, here less than 8 times the result's scale.
  void check(const char* name) {
    uint64_t& head = words_[last_];
    head &= ~(uint64_t{kRows} << 32);
    context = std::string(table_.name) + " " + name + ": where the rows end";
    const auto together = results(true), apart = results(false);
    for (const int buffer : {kX, kY, kMean, kScale, kGain, kShift}) {
      const auto b = static_cast<size_t>(buffer);
      for (size_t i = 0; i < apart[b].size(); i++) {
        const float got = together[b][i], want = apart[b][i];
        context = std::string(table_.name) + " " + name + " rows " + std::to_string(rows_) +
                  " of " + std::to_string(n_) + " buffer " + std::to_string(buffer) + " element " +
                  std::to_string(i) + ": " + std::to_string(got) + " instead of " +
                  std::to_string(want);
        CHECK(std::fabs(got - want) <= 64 * 0x1p-24f * std::max(8.0f, std::fabs(want)));
      }
    }
  }

  const InstructionTable& table_;
  const int64_t rows_, n_, gap_;
  std::vector<uint64_t> words_;
  size_t last_ = 0;  // the head of the last instruction
};

constexpr int64_t kRowExtents[] = {1,  3,  4,  5,   7,   8,   9,   15,  16,  17,   31,  33,
                                   63, 64, 65, 101, 127, 128, 129, 300, 511, 1031, 2049};

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  for (const dvm::Level& level : dvm::available_levels()) {
    for (unsigned seed = 0; seed < 400; seed++) {
      Tester(*level.table, seed).run("seed " + std::to_string(seed));
    }
    for (const int64_t n : kRowExtents) {
      for (const int64_t rows : {1, 2, 5, 17, 37}) {
        for (const Sequence& sequence : kSequences) {
          for (const uint8_t flags : {uint8_t{0}, dvm::kStream}) {
            for (const bool dense : {false, true}) {
              Tester(*level.table, sequence, {1, rows, n}, flags, dense)
                  .run(sequence.name + (" of " + std::to_string(n)));
            }
          }
        }
        RowTester(*level.table, rows, n).layer_norm();
        RowTester(*level.table, rows, n).softmax(false);
        RowTester(*level.table, rows, n).softmax(true);
        RowTester(*level.table, rows, n).rms_norm();
      }
    }
  }
  return report("joined");
}
