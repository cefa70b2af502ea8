// Groups of joined instructions (vm/strips.h) as steps: how they are decoded.
//
// An instruction becomes one or two steps that change a strip of vectors: load the left operand,
// unless it is what the instruction before has left, and apply the operation with the right one. A
// load that widens is no step where the next instruction alone reads it: that one's step reads the
// 16-bit row. A store that narrows is how the step before it keeps what it leaves.
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
#define DVM_BINARY_STEPS(STEP)                 \
  STEP(load, y)                                \
  STEP(add, x + y)                             \
  STEP(subtract, x - y)                        \
  STEP(subtract_from, y - x)                   \
  STEP(multiply, x* y)                         \
  STEP(divide, x / y)                          \
  STEP(divide_into, y / x)                     \
  STEP(least, x != x ? x : lesser_lanes(x, y)) \
  STEP(greatest, x != x ? x : greater_lanes(x, y))
#define DVM_UNARY_STEPS(STEP)                 \
  STEP(hold, x)                               \
  STEP(round_f16, rounded_to<Half>(x))        \
  STEP(round_bf16, rounded_to<BFloat>(x))     \
  STEP(absolute, absolute(x))                 \
  STEP(negate, -x)                            \
  STEP(sqrt, sqrt_lanes(x))                   \
  STEP(rsqrt, splat<F>(1.0f) / sqrt_lanes(x)) \
  STEP(reciprocal, splat<F>(1.0f) / x)        \
  STEP(log, log_lanes(x))
// Functions that take a strip as a whole.
#define DVM_STRIP_STEPS(STEP) STEP(exp) STEP(erf) STEP(tanh) STEP(sigmoid)

enum class Do : uint8_t {
#define DVM_STEP(name, expression) name##_row, name##_value, name##_self, name##_f16, name##_bf16,
  DVM_BINARY_STEPS(DVM_STEP)
#undef DVM_STEP
#define DVM_STEP(name, expression) name,
      DVM_UNARY_STEPS(DVM_STEP)
#undef DVM_STEP
#define DVM_STEP(name) name,
          DVM_STRIP_STEPS(DVM_STEP)
#undef DVM_STEP
};

template <class S>
DVM_INLINE F rounded_to(F x) {
  return convert_lanes<float, S, kF>(convert_lanes<S, float, kF>(x));
}

enum class Keep : uint8_t { nothing, store, stream };

struct Step {
  Do what;
  Keep keep;
  DType kept_as;        // f32, f16, bf16
  const std::byte* in;  // of the current row
  std::byte* out;
};

// Where the rows of a step's operands begin, with strides in bytes; `outer` is the one between runs
// of rows.
struct Place {
  Tile<const std::byte> in;
  Tile<std::byte> out;
  Keep keep;  // as the step's, but for rows where a stream is not aligned
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
  const uint64_t* end = nullptr;
};

Do unary_step(Family family, DType dtype) {
  switch (family) {
    case Family::v_narrow: return dtype == DType::f16 ? Do::round_f16 : Do::round_bf16;
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
Do binary_step(Family family, bool turned) {
  switch (family) {
    case Family::v_add: return Do::add_row;
    case Family::v_sub: return turned ? Do::subtract_from_row : Do::subtract_row;
    case Family::v_mul: return Do::multiply_row;
    case Family::v_div: return turned ? Do::divide_into_row : Do::divide_row;
    case Family::v_min: return Do::least_row;
    default: return Do::greatest_row;
  }
}

// What y of a binary step is, in the order of the steps.
enum class From : uint8_t { row, value, self, f16, bf16 };

constexpr Do with_source(Do row, From from) {
  return static_cast<Do>(static_cast<int>(row) + static_cast<int>(from));
}

class Decoder {
 public:
  Decoder(Core& core, Group& group) : core_(core), group_(group) {}

  void run(const uint64_t* words) {
    bool joined = true;
    group_.extents = extents_of(core_, words);
    if (form_of(family_of(words)) == Form::reduce) {
      group_.extents = {1, group_.extents.outer, group_.extents.middle};
    }
    do {
      joined = (flags_of(words) & kJoined) != 0;
      group_.goes_on = (flags_of(words) & kRows) != 0;
      decode(words);
      words += (words[0] >> 16) & 0xff;
    } while (joined && group_.count + 2 <= 2 * kMostJoined);
    group_.end = words;
  }

 private:
  // Of an instruction: what is left in the strip, or a row or value in memory.
  struct Source {
    bool left_behind = false;
    From from = From::row;
    Tile<const std::byte> at{};
  };

  void decode(const uint64_t* words) {
    const Family family = family_of(words);
    if (is_load(family)) return decode_load(words);
    const Form form = form_of(family);
    const uint64_t* const last = form == Form::binary ? words + 5 : words + 3;
    const Source x = source(words + 3, form), y = source(last, form);
    const bool alike = words[3] == last[0] && words[4] == last[1];
    const bool turned = form == Form::binary && y.left_behind && !x.left_behind;
    if (!x.left_behind && !turned) load(x);
    loads_ = 0;
    if (form == Form::binary) {
      const Source& other = turned ? x : y;
      add(with_source(binary_step(family, turned), alike ? From::self : other.from), other.at);
    } else if (form == Form::unary) {
      add(unary_step(family, dtype_of(words)), {});
    } else if (form == Form::reduce) {
      return finish(family, words);
    } else if (last_step().keep != Keep::nothing) {
      add(Do::hold, {});
    }
    keep(words, form == Form::store ? dtype_of(words) : DType::f32);
    // A store leaves in the strip what it has read, not what was rounded.
    left_ = static_cast<uint32_t>(words[form == Form::store ? 3 : 1]);
  }

  void decode_load(const uint64_t* words) {
    if ((flags_of(words) & kTransient) != 0 && loads_ < 2) {
      waiting_[loads_++] = words;
      return;
    }
    load(widened(words));
    keep(words, DType::f32);
    left_ = static_cast<uint32_t>(words[1]);
  }

  static Family family_of(const uint64_t* words) {
    return static_cast<Family>((words[0] & 0xffff) / 16);
  }
  static DType dtype_of(const uint64_t* words) { return static_cast<DType>(words[0] & 0xf); }

  static Form form_of(Family family) {
    if (is_store(family)) return Form::store;
    if (family >= Family::v_reduce_sum) return Form::reduce;
    return family >= Family::v_add ? Form::binary : Form::unary;
  }

  Source source(const uint64_t* word, Form form) const {
    const auto address = static_cast<uint32_t>(word[0]);
    if (address == left_) return {true, From::self, {}};
    for (int i = 0; i < loads_; i++) {
      if (static_cast<uint32_t>(waiting_[i][1]) == address) return widened(waiting_[i]);
    }
    Tile<const std::byte> at = bytes_at<const std::byte>(word, sizeof(float));
    if (form == Form::reduce) at = {at.at, 0, at.outer, sizeof(float)};
    return {false, at.inner == 0 ? From::value : From::row, at};
  }

  Source widened(const uint64_t* load) const {
    const From from = dtype_of(load) == DType::f16 ? From::f16 : From::bf16;
    return {false, from, bytes_at<const std::byte>(load + 3, sizeof(Half))};
  }

  template <class Byte>
  Tile<Byte> bytes_at(const uint64_t* word, size_t element) const {
    const auto bytes = static_cast<int64_t>(element);
    const Tile<Byte> tile = tile_at<Byte>(core_, word);
    return {tile.at, tile.outer * bytes, tile.middle * bytes, tile.inner * bytes};
  }

  void load(const Source& source) { add(with_source(Do::load_row, source.from), source.at); }

  void add(Do what, const Tile<const std::byte>& in) {
    group_.steps[group_.count] = {what, Keep::nothing, DType::f32, nullptr, nullptr};
    group_.places[group_.count++] = {in, {}, Keep::nothing};
  }

  Step& last_step() { return group_.steps[group_.count - 1]; }

  // The last step keeps what it leaves at the instruction's output.
  void keep(const uint64_t* words, DType dtype) {
    const size_t element = dtype == DType::f32 ? sizeof(float) : sizeof(Half);
    Place& place = group_.places[group_.count - 1];
    place.out = bytes_at<std::byte>(words + 1, element);
    if ((flags_of(words) & kTransient) != 0) return;
    place.keep = (flags_of(words) & kStream) != 0 ? Keep::stream : Keep::store;
    last_step().keep = place.keep;
    last_step().kept_as = dtype;
    group_.streams |= place.keep == Keep::stream;
  }

  void finish(Family family, const uint64_t* words) {
    const uint8_t flags = flags_of(words);
    const Tile<float> out = tile_at<float>(core_, words + 1);
    group_.fold = family;
    group_.folded = {out.at, 0, out.outer, 0};
    group_.accumulate =
        (flags & kAccumulateAlways) != 0 || ((flags & kAccumulate) != 0 && !core_.first_chunk);
    // Where streams begin would decide in which order the rows are added.
    group_.streams = false;
    for (int s = 0; s < group_.count; s++) {
      if (group_.places[s].keep == Keep::stream) {
        group_.places[s].keep = group_.steps[s].keep = Keep::store;
      }
    }
  }

  static constexpr uint32_t kNothing = ~0u;  // the address of no operand

  Core& core_;
  Group& group_;
  uint32_t left_ = kNothing;         // where the value lies that is in the strip
  const uint64_t* waiting_[2] = {};  // loads that are read where they are used
  int loads_ = 0;
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
