// Which code runs the rows of a group: that of a sequence of steps that is met often, or any.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/quantized_rows.h"

namespace dvm::DVM_LEVEL {
namespace {

using RunRows = void (*)(const Group& group, const Rows& rows, FetchAhead& ahead);

// Sequences cost more time to build than all else: they are left out for x86 without AVX, which
// runs everything but is the best level of no CPU that is still sold.
#if defined(DVM_X86) && !defined(__AVX__)
constexpr bool kKnowsSequences = false;
#else
constexpr bool kKnowsSequences = true;
#endif

// The code for the group: that of one of the sequences if it consists of it.
template <class Op, class... Sequences>
RunRows choose(const Group& group) {
  RunRows run = &run_rows<Op, AnySteps>;
  if constexpr (kKnowsSequences) {
    (void)((Sequences::are(group) && (run = &run_known_rows<Op, Sequences>, true)) || ...);
  }
  return run;
}

// Of a group whose first row comes from there.
template <From from>
RunRows choose_from(const Group& group) {
  using enum Do;
  constexpr Do load = with_source(load_row, from);
  using Load = TheseSteps<load>;
  using Normalise = TheseSteps<load, subtract_value, multiply_value>;
  using NormaliseScale = TheseSteps<load, subtract_value, multiply_value, multiply_row>;
  using NormaliseScaleShift =
      TheseSteps<load, subtract_value, multiply_value, multiply_row, add_row>;
  using Scale = TheseSteps<load, multiply_value, multiply_row>;
  using SquareOfDifference = TheseSteps<load, subtract_value, multiply_self>;
  using ExpOfDifference = TheseSteps<load, subtract_value, exp>;
  using Square = TheseSteps<load, multiply_self>;
  using Add = TheseSteps<load, with_source(add_row, from)>;
  // What is computed first is kept for the last factor.
  using Gelu = TheseSteps<load, multiply_value, erf, add_value, multiply_value, multiply_row>;
  using GeluOfSum =
      TheseSteps<load, kept(add_row), multiply_value, erf, add_value, multiply_value, multiply_row>;
  using GeluOfShifted = TheseSteps<load, kept(add_value), multiply_value, erf, add_value,
                                   multiply_value, multiply_row>;
  using TanhGelu =
      TheseSteps<load, kept(multiply_value), load, multiply_self, multiply_row, multiply_value,
                 add_row, multiply_value, Do::tanh, add_value, multiply_row>;
  using Silu = TheseSteps<load, sigmoid, multiply_row>;
  using SiluOfSum = TheseSteps<load, kept(add_row), sigmoid, multiply_row>;
  using SiluOfShifted = TheseSteps<load, kept(add_value), sigmoid, multiply_row>;
  using SiluTimes = TheseSteps<load, sigmoid, multiply_row, multiply_row>;
  // Behind the products of a step: of an LSTM, whose cell comes before its h, and of a GRU.
  using Lstm =
      TheseSteps<load, kept(Do::tanh), load, sigmoid, kept(multiply_row), load, kept(sigmoid), load,
                 sigmoid, multiply_row, kept(add_row), Do::tanh, multiply_row>;
  using Gru = TheseSteps<load, kept(sigmoid), load, add_row, kept(Do::tanh), subtract_from_row,
                         multiply_row, add_row>;
  switch (group.fold) {
    case Family::v_reduce_sum:
      return choose<Fold<Family::v_reduce_sum>, Load, SquareOfDifference, ExpOfDifference, Square,
                    Add>(group);
    case Family::v_reduce_max: return choose<Fold<Family::v_reduce_max>, Load, Add>(group);
    case Family::v_reduce_min: return choose<Fold<Family::v_reduce_min>>(group);
    default: break;
  }
  // Activations follow products, whose results are f32.
  if constexpr (from == From::row) {
    if (quantizes_rows(group)) return &quantize_rows;
    return choose<NoFold, NormaliseScaleShift, NormaliseScale, Normalise, Scale, Gelu, GeluOfSum,
                  GeluOfShifted, TanhGelu, Silu, SiluOfSum, SiluOfShifted, SiluTimes, Lstm, Gru>(
        group);
  } else {
    return choose<NoFold, NormaliseScaleShift, NormaliseScale, Normalise, Scale>(group);
  }
}

RunRows choose_run(const Group& group) {
  switch (group.steps[0].what) {
    case Do::load_f16: return choose_from<From::f16>(group);
    case Do::load_bf16: return choose_from<From::bf16>(group);
    default: return choose_from<From::row>(group);
  }
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
