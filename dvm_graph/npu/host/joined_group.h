// Groups of joined instructions (vm/strips.h) as steps: how they are decoded.
//
// An instruction becomes one or two steps that change a strip of vectors: load the left operand,
// unless it is what the instruction before has left, and apply the operation with the right one.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/fetch_ahead.h"
#include "npu/host/folds.h"
#include "npu/host/functions.h"
#include "npu/host/loops.h"
#include "vm/strips.h"

namespace dvm::DVM_LEVEL {
namespace {

// How a step changes the strip x. Binary operations come in threes: the other operand y is a row,
// one value for the whole row, or x itself.
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
  STEP(absolute, absolute(x))                 \
  STEP(negate, -x)                            \
  STEP(sqrt, sqrt_lanes(x))                   \
  STEP(rsqrt, splat<F>(1.0f) / sqrt_lanes(x)) \
  STEP(reciprocal, splat<F>(1.0f) / x)        \
  STEP(exp, exp_lanes(x))                     \
  STEP(log, log_lanes(x))                     \
  STEP(erf, erf_lanes(x))                     \
  STEP(tanh, tanh_lanes(x))                   \
  STEP(sigmoid, sigmoid_lanes(x))

enum class Do : uint8_t {
#define DVM_STEP(name, expression) name##_row, name##_value, name##_self,
  DVM_BINARY_STEPS(DVM_STEP)
#undef DVM_STEP
#define DVM_STEP(name, expression) name,
      DVM_UNARY_STEPS(DVM_STEP)
#undef DVM_STEP
};

enum class Keep : uint8_t { nothing, store, stream };

struct Step {
  Do what;
  Keep keep;
  const float* in;  // of the current row
  float* out;
};

// Where the rows of a step's operands begin; `outer` is their stride between runs of rows.
struct Place {
  Tile<const float> in;
  Tile<float> out;
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

Do unary_step(Family family) {
  switch (family) {
    case Family::v_abs: return Do::absolute;
    case Family::v_neg: return Do::negate;
    case Family::v_sqrt: return Do::sqrt;
    case Family::v_rsqrt: return Do::rsqrt;
    case Family::v_reciprocal: return Do::reciprocal;
    case Family::v_exp: return Do::exp;
    case Family::v_log: return Do::log;
    case Family::v_erf: return Do::erf;
    case Family::v_tanh: return Do::tanh;
    default: return Do::sigmoid;
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

// The step for y that is a row or one value, and for y that is x, from the step for a row.
Do with_source(Do row, const Tile<const float>& y) {
  return static_cast<Do>(static_cast<int>(row) + (y.inner == 0 ? 1 : 0));
}
Do of_itself(Do row) { return static_cast<Do>(static_cast<int>(row) + 2); }

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
  void decode(const uint64_t* words) {
    const Family family = family_of(words);
    const Form form = form_of(family);
    if (form == Form::binary) {
      const bool left = left_behind(words + 3), right = left_behind(words + 5);
      if (!left && !right) load(words + 3, false);
      const bool turned = right && !left;
      const Tile<const float> other = tile_at<const float>(core_, words + (turned ? 3 : 5));
      const Do step = binary_step(family, turned);
      add(left && right ? of_itself(step) : with_source(step, other), other);
    } else {
      if (!left_behind(words + 3)) load(words + 3, form == Form::reduce);
      if (form == Form::unary) add(unary_step(family), {});
    }
    if (form == Form::reduce) {
      finish(family, words);
      return;
    }
    Step& last = group_.steps[group_.count - 1];
    group_.places[group_.count - 1].out = tile_at<float>(core_, words + 1);
    if ((flags_of(words) & kTransient) == 0) {
      last.keep = (flags_of(words) & kStream) != 0 ? Keep::stream : Keep::store;
      group_.places[group_.count - 1].keep = last.keep;
      group_.streams |= last.keep == Keep::stream;
    }
    last_out_ = static_cast<uint32_t>(words[1]);
  }

  static Family family_of(const uint64_t* words) {
    return static_cast<Family>((words[0] & 0xffff) / 16);
  }

  static Form form_of(Family family) {
    if (family >= Family::v_reduce_sum) return Form::reduce;
    return family >= Family::v_add ? Form::binary : Form::unary;
  }

  // The operand is what the instruction before has left in the strip.
  bool left_behind(const uint64_t* word) const {
    return group_.count > 0 && static_cast<uint32_t>(word[0]) == last_out_;
  }

  void load(const uint64_t* word, bool reduces) {
    const Tile<const float> in = tile_at<const float>(core_, word);
    if (reduces)
      add(Do::load_row, {in.at, 0, in.outer, 1});
    else
      add(with_source(Do::load_row, in), in);
  }

  void add(Do what, const Tile<const float>& in) {
    group_.steps[group_.count] = {what, Keep::nothing, nullptr, nullptr};
    group_.places[group_.count++] = {in, {}, Keep::nothing};
  }

  void finish(Family family, const uint64_t* words) {
    const uint8_t flags = flags_of(words);
    const Tile<float> out = tile_at<float>(core_, words + 1);
    group_.fold = family;
    group_.folded = {out.at, 0, out.outer, 0};
    group_.accumulate =
        (flags & kAccumulateAlways) != 0 || ((flags & kAccumulate) != 0 && !core_.first_chunk);
  }

  Core& core_;
  Group& group_;
  uint32_t last_out_ = 0;
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
