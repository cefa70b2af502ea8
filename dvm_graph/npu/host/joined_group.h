// Groups of joined instructions (vm/strips.h) as steps: how they are decoded.
//
// An instruction becomes one or two steps that change a strip of vectors: load the left operand,
// unless it is what the instruction before has left, and apply the operation with the right one. A
// load that widens halves is no step where the next instruction alone reads it: that one's step
// reads the 16-bit row. A store that narrows is how the step before it keeps what it leaves. Where
// instructions compute on i32, the strip holds their bits.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/fetch_ahead.h"
#include "npu/host/folds.h"
#include "npu/host/functions.h"
#include "npu/host/storage.h"
#include "vm/strips.h"

namespace dvm::DVM_LEVEL {
namespace {

// How a step changes the strip x. Binary operations come in fives: the other operand y is a row,
// one value for the whole row, x itself, or a row of f16 or bf16.
#define DVM_BINARY_STEPS(STEP)                                                                \
  STEP(load, y)                                                                               \
  STEP(add, x + y)                                                                            \
  STEP(subtract, x - y)                                                                       \
  STEP(subtract_from, y - x)                                                                  \
  STEP(multiply, x* y)                                                                        \
  STEP(divide, x / y)                                                                         \
  STEP(divide_into, y / x)                                                                    \
  STEP(least, x != x ? x : lesser_lanes(x, y))                                                \
  STEP(greatest, x != x ? x : greater_lanes(x, y))                                            \
  STEP(add_i32, on_bits<U>(x, y, [](U a, U b) DVM_LAMBDA_INLINE { return a + b; }))           \
  STEP(subtract_i32, on_bits<U>(x, y, [](U a, U b) DVM_LAMBDA_INLINE { return a - b; }))      \
  STEP(subtract_from_i32, on_bits<U>(y, x, [](U a, U b) DVM_LAMBDA_INLINE { return a - b; })) \
  STEP(multiply_i32, on_bits<U>(x, y, [](U a, U b) DVM_LAMBDA_INLINE { return a * b; }))      \
  STEP(least_i32, on_bits<I>(x, y, [](I a, I b) DVM_LAMBDA_INLINE { return a < b ? a : b; })) \
  STEP(greatest_i32, on_bits<I>(x, y, [](I a, I b) DVM_LAMBDA_INLINE { return a > b ? a : b; }))
#define DVM_UNARY_STEPS(STEP)                                      \
  STEP(hold, x)                                                    \
  STEP(round_f16, rounded_to<Half>(x))                             \
  STEP(round_bf16, rounded_to<BFloat>(x))                          \
  STEP(wrap_i8, bits_as<F>(bits_as<I>(bits_as<U>(x) << 24) >> 24)) \
  STEP(wrap_u8, bits_as<F>(bits_as<U>(x) & 0xff))                  \
  STEP(round, round_lanes(x))                                      \
  STEP(from_i32, convert<float>(bits_as<I>(x)))                    \
  STEP(to_i32, bits_as<F>(convert<int32_t>(x)))                    \
  STEP(absolute, absolute(x))                                      \
  STEP(negate, -x)                                                 \
  STEP(sqrt, sqrt_lanes(x))                                        \
  STEP(rsqrt, splat<F>(1.0f) / sqrt_lanes(x))                      \
  STEP(reciprocal, splat<F>(1.0f) / x)                             \
  STEP(log, log_lanes(x))
// Rows of bytes, as i32.
#define DVM_BYTE_STEPS(STEP) STEP(load_i8, int8_t) STEP(load_u8, uint8_t)
// Functions that take a strip as a whole.
#define DVM_STRIP_STEPS(STEP) STEP(exp) STEP(erf) STEP(tanh) STEP(sigmoid)

// Runs of steps between which nothing is kept: what quantises whole numbers ends and begins with,
// and what follows convolutions. They are looked up as one, which takes as long as what a step
// does.
#define DVM_RUNS(RUN)                                                                    \
  RUN(quantize, divide_value, round, add_value, least_value, to_i32, greatest_i32_value) \
  RUN(quantize_around_0, divide_value, round, least_value, to_i32, greatest_i32_value)   \
  RUN(saturate, round, add_value, least_value, to_i32, greatest_i32_value)               \
  RUN(saturate_around_0, round, least_value, to_i32, greatest_i32_value)                 \
  RUN(dequantize, from_i32, subtract_value, multiply_value)                              \
  RUN(dequantize_around_0, from_i32, multiply_value)                                     \
  RUN(bounded, greatest_value, least_value)                                              \
  RUN(hard_sigmoid, multiply_value, add_value, greatest_value, least_value)              \
  RUN(shifted_relu, add_row, greatest_value)                                             \
  RUN(batch_norm_relu, subtract_row, multiply_row, add_row, greatest_value)

enum class Do : uint8_t {
#define DVM_STEP(name, expression) name##_row, name##_value, name##_self, name##_f16, name##_bf16,
  DVM_BINARY_STEPS(DVM_STEP)
#undef DVM_STEP
#define DVM_STEP(name, expression) name,
      DVM_UNARY_STEPS(DVM_STEP)
#undef DVM_STEP
#define DVM_STEP(name, type) name,
          DVM_BYTE_STEPS(DVM_STEP)
#undef DVM_STEP
#define DVM_STEP(name) name,
              DVM_STRIP_STEPS(DVM_STEP)
#undef DVM_STEP
#define DVM_RUN(name, ...) name,
                  DVM_RUNS(DVM_RUN)
#undef DVM_RUN
};
static_assert(static_cast<int>(Do::batch_norm_relu) < 0x80);  // room for a mark, see joined_steps.h

// Of the i32 whose bits strips hold; sums wrap.
template <class V, class Body>
DVM_INLINE F on_bits(F x, F y, Body body) {
  return bits_as<F>(body(bits_as<V>(x), bits_as<V>(y)));
}

template <class S>
DVM_INLINE F rounded_to(F x) {
  return convert_lanes<float, S, kF>(convert_lanes<S, float, kF>(x));
}

enum class Keep : uint8_t { nothing, store, stream };

struct Step {
  Do what;
  Keep keep;
  DType kept_as;        // f32 (or the bits of i32), f16, bf16, i8, u8
  const std::byte* in;  // of the current row
  std::byte* out;
};

// What a step reads: y of a binary one in the order of the steps; bytes are loaded only.
enum class From : uint8_t { row, value, self, f16, bf16, i8, u8 };

// Where the rows of a step's operands begin, with strides in bytes; `outer` is the one between runs
// of rows.
struct Place {
  Tile<const std::byte> in;
  Tile<std::byte> out;
  Keep keep;                   // as the step's, but for rows where a stream is not aligned
  From from;                   // what `in` is, also of a step by which a run begins
  uint16_t in_word, out_word;  // which of the group's words say where these are; 0: none
};

struct Group {
  Step steps[2 * kMostJoined];  // without addresses
  Place places[2 * kMostJoined];
  int count = 0;
  bool streams = false;
  Family fold = Family::count_;  // of the reduction at the end
  Tile<float> folded{};
  bool accumulate = false;
  Extents extents{};
  bool goes_on = false;  // by rows, with the group that follows
  uint16_t words = 0;
  uint16_t folded_word = 0;  // as of a place

  Group() = default;
  // Without what lies behind its steps.
  Group(const Group& other) { *this = other; }
  Group& operator=(const Group& other) {
    for (int s = 0; s < other.count; s++) steps[s] = other.steps[s];
    for (int s = 0; s < other.count; s++) places[s] = other.places[s];
    count = other.count;
    streams = other.streams;
    fold = other.fold;
    folded = other.folded;
    accumulate = other.accumulate;
    extents = other.extents;
    goes_on = other.goes_on;
    words = other.words;
    folded_word = other.folded_word;
    return *this;
  }
};

constexpr int kMostGroupWords = kMostJoined * (1 + 2 * 3);  // of unary and binary instructions

Do unary_step(Family family, DType dtype) {
  switch (family) {
    case Family::v_narrow:
      return dtype == DType::i8    ? Do::wrap_i8
             : dtype == DType::u8  ? Do::wrap_u8
             : dtype == DType::f16 ? Do::round_f16
                                   : Do::round_bf16;
    case Family::v_cast_to_f32: return Do::from_i32;
    case Family::v_cast_to_i32: return Do::to_i32;
    case Family::v_round: return Do::round;
    case Family::v_abs: return Do::absolute;
    case Family::v_neg: return Do::negate;
    case Family::v_sqrt: return Do::sqrt;
    case Family::v_rsqrt: return Do::rsqrt;
    case Family::v_reciprocal: return Do::reciprocal;
    case Family::v_exp: return Do::exp;
    case Family::v_log: return Do::log;
    case Family::v_erf: return Do::erf;
    case Family::v_tanh: return Do::tanh;
    case Family::v_sigmoid: return Do::sigmoid;
    default: return Do::hold;
  }
}

// `turned`: the strip is the right operand.
Do binary_step(Family family, DType dtype, bool turned) {
  if (dtype == DType::i32) {
    switch (family) {
      case Family::v_add: return Do::add_i32_row;
      case Family::v_sub: return turned ? Do::subtract_from_i32_row : Do::subtract_i32_row;
      case Family::v_mul: return Do::multiply_i32_row;
      case Family::v_min: return Do::least_i32_row;
      default: return Do::greatest_i32_row;
    }
  }
  switch (family) {
    case Family::v_add: return Do::add_row;
    case Family::v_sub: return turned ? Do::subtract_from_row : Do::subtract_row;
    case Family::v_mul: return Do::multiply_row;
    case Family::v_div: return turned ? Do::divide_into_row : Do::divide_row;
    case Family::v_min: return Do::least_row;
    default: return Do::greatest_row;
  }
}

constexpr Do with_source(Do row, From from) {
  if (from == From::i8 || from == From::u8) return from == From::i8 ? Do::load_i8 : Do::load_u8;
  return static_cast<Do>(static_cast<int>(row) + static_cast<int>(from));
}
constexpr From source_of(Do what) {
  if (what == Do::load_i8 || what == Do::load_u8) return what == Do::load_i8 ? From::i8 : From::u8;
  if (what >= Do::hold) return From::self;
  return static_cast<From>(static_cast<int>(what) % (static_cast<int>(From::bf16) + 1));
}
constexpr From from_storage(DType dtype) {
  switch (dtype) {
    case DType::f16: return From::f16;
    case DType::bf16: return From::bf16;
    case DType::i8: return From::i8;
    case DType::u8: return From::u8;
    default: return From::row;
  }
}
// Bytes of an element of a row.
constexpr int64_t element_bytes(From from) {
  if (from == From::i8 || from == From::u8) return 1;
  return from == From::f16 || from == From::bf16 ? 2 : 4;
}

class Decoder {
 public:
  // Of the group that begins there.
  Decoder(const Core& core, Group& group, const uint64_t* words)
      : core_(core), group_(group), begin_(words) {}

  static bool folds(const uint64_t* words) { return form_of(family_of(words)) == Form::reduce; }

  void run() {
    const uint64_t* words = begin_;
    bool joined = true;
    do {
      joined = (flags_of(words) & kJoined) != 0;
      group_.goes_on = (flags_of(words) & kRows) != 0;
      decode(words);
      words += (words[0] >> 16) & 0xff;
    } while (joined && group_.count + 2 <= 2 * kMostJoined);
    group_.words = static_cast<uint16_t>(words - begin_);
    for (int s = 0; s < group_.count; s++) group_.places[s].from = source_of(group_.steps[s].what);
    for (int s = 0; s < group_.count; s++) find_run(s);
    locate();
  }

  // What hangs on the tile: where operands lie, and the loops.
  void locate() {
    const Extents e = extents_of(core_, begin_);
    group_.extents = folds(begin_) ? Extents{1, e.outer, e.middle} : e;
    for (int s = 0; s < group_.count; s++) {
      Place& place = group_.places[s];
      if (place.in_word != 0) place.in.at = at<const std::byte>(place.in_word);
      if (place.out_word != 0) place.out.at = at<std::byte>(place.out_word);
    }
    if (group_.fold == Family::count_) return;
    const uint8_t flags = flags_of(begin_ + group_.folded_word - 1);
    group_.folded.at = at<float>(group_.folded_word);
    group_.accumulate =
        (flags & kAccumulateAlways) != 0 || ((flags & kAccumulate) != 0 && !core_.first_chunk);
  }

 private:
  template <class T>
  T* at(uint16_t word) const {
    return tile_at<T>(core_, begin_ + word).at;
  }
  uint16_t number_of(const uint64_t* word) const { return static_cast<uint16_t>(word - begin_); }

  // Of an instruction: what is left in the strip, or a row or value in memory.
  struct Source {
    bool left_behind = false;
    From from = From::row;
    Tile<const std::byte> at{};
    uint16_t word = 0;
  };

  void decode(const uint64_t* words) {
    const Family family = family_of(words);
    if (is_load(family)) return decode_load(words);
    const Form form = form_of(family);
    const uint64_t* const last =
        form == Form::binary ? operand_words(words, 2) : operand_words(words, 1);
    const Source x = source(operand_words(words, 1), form), y = source(last, form);
    const bool alike =
        operand_words(words, 1)[0] == last[0] && operand_words(words, 1)[1] == last[1];
    const bool turned = form == Form::binary && y.left_behind && !x.left_behind;
    if (!x.left_behind && !turned) load(x);
    loads_ = 0;
    if (form == Form::binary) {
      const Source& other = turned ? x : y;
      add(with_source(binary_step(family, dtype_of(words), turned),
                      alike ? From::self : other.from),
          other);
    } else if (form == Form::unary) {
      add(unary_step(family, dtype_of(words)), {});
    } else if (form == Form::reduce) {
      return finish(family, words);
    } else if (last_step().keep != Keep::nothing) {
      add(Do::hold, {});
    }
    keep(words, form == Form::store ? stored_dtype(words) : DType::f32);
    // A store leaves in the strip what it has read, not what was rounded.
    left_ = static_cast<uint32_t>(*operand_words(words, form == Form::store ? 1 : 0));
  }

  // Marks the step that begins a run as that. The others stay as they are, with what they read: one
  // value for all rows.
  void find_run(int s) {
    using enum Do;
    const Do what = group_.steps[s].what;  // most begin none
#define DVM_RUN(name, first, ...) \
  if (what == first && begins_run(s, {first, __VA_ARGS__})) group_.steps[s].what = name;
    DVM_RUNS(DVM_RUN)
#undef DVM_RUN
  }

  bool begins_run(int s, std::initializer_list<Do> run) const {
    const int end = s + static_cast<int>(run.size());
    if (end > group_.count) return false;
    for (const Do what : run) {
      const Step& step = group_.steps[s];
      const bool value = source_of(what) == From::value;
      if (step.what != what || (value && group_.places[s].in.middle != 0)) return false;
      if (++s < end && step.keep != Keep::nothing) return false;
    }
    return true;
  }

  void decode_load(const uint64_t* words) {
    const bool waits = is_part_of_reader(family_of(words), dtype_of(words));
    if (waits && (flags_of(words) & kTransient) != 0 && loads_ < 2) {
      waiting_[loads_++] = words;
      return;
    }
    load(widened(words));
    keep(words, DType::f32);
    left_ = static_cast<uint32_t>(*operand_words(words, 0));
  }

  static Family family_of(const uint64_t* words) {
    return static_cast<Family>((words[0] & 0xffff) / 16);
  }
  static DType dtype_of(const uint64_t* words) { return static_cast<DType>(words[0] & 0xf); }

  static Form form_of(Family family) {
    if (is_store(family) || family == Family::d_pack_a_bundles) return Form::store;
    if (family >= Family::v_reduce_sum) return Form::reduce;
    return family >= Family::v_add ? Form::binary : Form::unary;
  }

  static DType stored_dtype(const uint64_t* words) {
    return family_of(words) == Family::d_pack_a_bundles ? DType::u8 : dtype_of(words);
  }

  Source source(const uint64_t* word, Form form) const {
    const auto address = static_cast<uint32_t>(word[0]);
    if (address == left_) return {true, From::self, {}};
    for (int i = 0; i < loads_; i++) {
      if (static_cast<uint32_t>(waiting_[i][1]) == address) return widened(waiting_[i]);
    }
    Tile<const std::byte> at = bytes_at<const std::byte>(word, kLane);
    if (form == Form::reduce) at = {at.at, 0, at.outer, kLane};
    return {false, at.inner == 0 ? From::value : From::row, at, number_of(word)};
  }

  Source widened(const uint64_t* load) const {
    const From from = from_storage(dtype_of(load));
    return {false, from, bytes_at<const std::byte>(load + 3, element_bytes(from)),
            number_of(load + 3)};
  }

  template <class Byte>
  Tile<Byte> bytes_at(const uint64_t* word, int64_t bytes) const {
    const Tile<Byte> tile = tile_at<Byte>(core_, word);
    return {tile.at, tile.outer * bytes, tile.middle * bytes, tile.inner * bytes};
  }

  void load(const Source& source) { add(with_source(Do::load_row, source.from), source); }

  void add(Do what, const Source& in) {
    group_.steps[group_.count] = {what, Keep::nothing, DType::f32, nullptr, nullptr};
    group_.places[group_.count++] = {in.at, {}, Keep::nothing, From::self, in.word, 0};
  }

  Step& last_step() { return group_.steps[group_.count - 1]; }

  // The last step keeps what it leaves at the instruction's output.
  void keep(const uint64_t* words, DType dtype) {
    Place& place = group_.places[group_.count - 1];
    place.out = bytes_at<std::byte>(operand_words(words, 0), element_bytes(from_storage(dtype)));
    place.out_word = number_of(operand_words(words, 0));
    if (family_of(words) == Family::d_pack_a_bundles) {  // whose strides are those of bundles
      place.out.outer *= bundle_steps(DType::i8);
      place.out.middle *= bundle_steps(DType::i8);
    }
    if ((flags_of(words) & kTransient) != 0) return;
    // A vector of bytes is a quarter of one, which would go to memory alone.
    const bool stream = (flags_of(words) & kStream) != 0 && !is_byte(dtype);
    place.keep = stream ? Keep::stream : Keep::store;
    last_step().keep = place.keep;
    last_step().kept_as = dtype;
    group_.streams |= place.keep == Keep::stream;
  }

  void finish(Family family, const uint64_t* words) {
    const Tile<float> out = tile_at<float>(core_, operand_words(words, 0));
    group_.fold = family;
    group_.folded = {out.at, 0, out.outer, 0};
    group_.folded_word = number_of(operand_words(words, 0));
    // Where streams begin would decide in which order the rows are added.
    group_.streams = false;
    for (int s = 0; s < group_.count; s++) {
      if (group_.places[s].keep == Keep::stream) {
        group_.places[s].keep = group_.steps[s].keep = Keep::store;
      }
    }
  }

  static constexpr int64_t kLane = sizeof(float);
  static constexpr uint32_t kNothing = ~0u;  // the address of no operand

  const Core& core_;
  Group& group_;
  const uint64_t* const begin_;
  uint32_t left_ = kNothing;         // where the value lies that is in the strip
  const uint64_t* waiting_[2] = {};  // loads that are read where they are used
  int loads_ = 0;
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
