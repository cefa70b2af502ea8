#include "npu/simulator/half_values.h"

#include <cmath>
#include <type_traits>

#include "npu/simulator/half.h"

namespace dvm {
namespace {

// An operand seen from the loops of its instruction.
template <class T>
struct Tile {
  T* at;
  int64_t outer = 0, middle = 0, inner = 0;

  Tile(const Core& core, const uint64_t* words, int k)
      : at(reinterpret_cast<T*>(resolve(core, operand_words(words, k)))) {
    const Operand operand = operand_of(words, k);
    if (operand.space() == Space::immediate) return;
    outer = operand.outer_stride;
    middle = operand.middle_stride;
    inner = operand.inner_stride;
  }
  T& operator()(int64_t o, int64_t m, int64_t i) const {
    return at[o * outer + m * middle + i * inner];
  }
};

template <class Visit>
void for_each(const Core& core, const uint64_t* words, Visit visit) {
  const Head head = head_of(words);
  for (int64_t o = 0; o < core.extents[head.e0]; ++o) {
    for (int64_t m = 0; m < core.extents[head.e1]; ++m) {
      for (int64_t i = 0; i < core.extents[head.e2]; ++i) visit(o, m, i);
    }
  }
}

void move(Core& core, const uint64_t* words) {
  const Tile<uint16_t> to(core, words, 0);
  const Tile<const uint16_t> from(core, words, 1);
  for_each(core, words, [&](auto... at) { to(at...) = from(at...); });
}

void gather(Core& core, const uint64_t* words) {
  const Tile<uint16_t> to(core, words, 0);
  const Tile<const uint16_t> from(core, words, 1);
  const Tile<const int64_t> index(core, words, 2);
  const uint64_t* const extra = extra_words(Form::gather_stored, words);
  const auto stride = static_cast<int64_t>(extra[0]), limit = static_cast<int64_t>(extra[1]);
  for_each(core, words, [&](int64_t o, int64_t m, int64_t i) {
    if (core.trap.kind != TrapKind::none) return;
    const int64_t given = index(o, m, i), wrapped = given < 0 ? given + limit : given;
    if (wrapped < 0 || wrapped >= limit) {
      core.trap.kind = TrapKind::index_out_of_range;
      core.trap.value = given;
      core.trap.limit = limit;
      return;
    }
    to(o, m, i) = from.at[&from(o, m, i) - from.at + wrapped * stride];
  });
}

template <DType D>
void widen(Core& core, const uint64_t* words) {
  const Tile<float> to(core, words, 0);
  const Tile<const uint16_t> from(core, words, 1);
  for_each(core, words, [&](auto... at) { to(at...) = CubeElement<D>::wide(from(at...)); });
}

template <DType D>
void shorten(Core& core, const uint64_t* words) {
  const Tile<uint16_t> to(core, words, 0);
  const Tile<const float> from(core, words, 1);
  for_each(core, words, [&](auto... at) { to(at...) = CubeElement<D>::narrow(from(at...)); });
}

// A result that is a number is rounded, one that is a condition is 0 or 1.
template <class Result>
auto stored(Result result) {
  if constexpr (std::is_same_v<Result, bool>)
    return static_cast<uint8_t>(result);
  else
    return half_of_float(result);
}

template <auto Operation>
void unary(Core& core, const uint64_t* words) {
  const Tile<uint16_t> to(core, words, 0);
  const Tile<const uint16_t> x(core, words, 1);
  for_each(core, words,
           [&](auto... at) { to(at...) = stored(Operation(float_of_half(x(at...)))); });
}

template <auto Operation>
void binary(Core& core, const uint64_t* words) {
  const Tile<decltype(stored(Operation(0.0f, 0.0f)))> to(core, words, 0);
  const Tile<const uint16_t> x(core, words, 1), y(core, words, 2);
  for_each(core, words, [&](auto... at) {
    to(at...) = stored(Operation(float_of_half(x(at...)), float_of_half(y(at...))));
  });
}

void select(Core& core, const uint64_t* words) {
  const Tile<uint16_t> to(core, words, 0);
  const Tile<const uint8_t> condition(core, words, 1);
  const Tile<const uint16_t> x(core, words, 2), y(core, words, 3);
  for_each(core, words,
           [&](auto... at) { to(at...) = condition(at...) != 0 ? x(at...) : y(at...); });
}

template <auto Operation>
void reduce(Core& core, const uint64_t* words) {
  const Tile<uint16_t> to(core, words, 0);
  const Tile<const uint16_t> from(core, words, 1);
  const uint8_t flags = head_of(words).flags;
  const bool adds =
      (flags & kAccumulateAlways) != 0 || ((flags & kAccumulate) != 0 && !core.first_chunk);
  for_each(core, words, [&](int64_t o, int64_t m, int64_t i) {
    uint16_t& out = to(o, 0, i);
    const float x = float_of_half(from(o, m, i));
    out = half_of_float(m == 0 && !adds ? x : Operation(float_of_half(out), x));
  });
}

float lesser(float x, float y) { return std::isnan(x) || x < y ? x : y; }
float greater(float x, float y) { return std::isnan(x) || x > y ? x : y; }

void fill_f16(Handler* handlers) {
  const auto set = [&](Family family, Handler handler) {
    handlers[opcode_of(family, DType::f16)] = handler;
  };
  set(Family::v_abs, &unary<[](float x) { return std::fabs(x); }>);
  set(Family::v_neg, &unary<[](float x) { return -x; }>);
  set(Family::v_add, &binary<[](float x, float y) { return x + y; }>);
  set(Family::v_sub, &binary<[](float x, float y) { return x - y; }>);
  set(Family::v_mul, &binary<[](float x, float y) { return x * y; }>);
  set(Family::v_min, &binary<lesser>);
  set(Family::v_max, &binary<greater>);
  set(Family::v_eq, &binary<[](float x, float y) { return x == y; }>);
  set(Family::v_ne, &binary<[](float x, float y) { return x != y; }>);
  set(Family::v_lt, &binary<[](float x, float y) { return x < y; }>);
  set(Family::v_le, &binary<[](float x, float y) { return x <= y; }>);
  set(Family::v_gt, &binary<[](float x, float y) { return y < x; }>);
  set(Family::v_ge, &binary<[](float x, float y) { return y <= x; }>);
  set(Family::v_select, &select);
  set(Family::v_reduce_max, &reduce<greater>);
  set(Family::v_reduce_min, &reduce<lesser>);
}

template <DType D>
void fill_held(Handler* handlers) {
  const auto set = [&](Family family, Handler handler) {
    handlers[opcode_of(family, D)] = handler;
  };
  set(Family::d_load_stored, &move);
  set(Family::d_store_stored, &move);
  set(Family::d_gather_stored, &gather);
  set(Family::v_copy, &move);
  set(Family::v_broadcast, &move);
  set(Family::v_cast_to_f32, &widen<D>);
  set(Family::v_cast_from_f32, &shorten<D>);
}

}  // namespace

InstructionTable with_halves(const InstructionTable& base) {
  InstructionTable table = base;
  fill_held<DType::f16>(table.handlers);
  fill_held<DType::bf16>(table.handlers);
  fill_f16(table.handlers);
  return table;
}

}  // namespace dvm
