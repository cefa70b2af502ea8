// Every element-wise instruction of every available level against reference.h, over random shapes,
// strides, broadcasts and in-place operands.
#include "operands.h"
#include "reference.h"

namespace dvm::test {
namespace {

constexpr int kCases = 60;

struct Case {
  const Row& row;
  DType dtype;
  Machine& machine;
  Random& random;
};

template <class T>
bool agrees(T got, T expected) {
  if constexpr (kFloating<T>)
    return ulp_error(got, static_cast<Wide>(expected)) == 0;
  else
    return got == expected;
}

// Checks every element of `out` and that the gaps between its rows still hold what they held.
template <class T, class Accepts>
void check_output(const Array<T>& out, const std::vector<T>& before, const Shape& shape,
                  Accepts accepts) {
  std::vector<bool> written(before.size());
  bool right = true;
  for_each_index(shape, [&](int64_t o, int64_t m, int64_t i) {
    written[static_cast<size_t>(out.strides().at(o, m, i))] = true;
    right = right && accepts(out.at(o, m, i), o, m, i);
  });
  CHECK(right);
  bool untouched = true;
  for (size_t i = 0; i < before.size(); i++) {
    if (!written[i])
      untouched = untouched && std::memcmp(&out.data()[i], &before[i], sizeof(T)) == 0;
  }
  CHECK(untouched);
}

template <class T>
bool right_unary(Family family, DType dtype, T got, T x) {
  if constexpr (kFloating<T>)
    return ulp_error(got, float_unary(family, x)) <= tolerance_of(family, dtype);
  else
    return got == integer_unary(family, x);
}

template <class T>
bool right_binary(Family family, DType dtype, T got, T a, T b) {
  if constexpr (kFloating<T>)
    return ulp_error(got, float_binary(family, a, b)) <= tolerance_of(family, dtype);
  else
    return got == integer_binary(family, a, b);
}

template <class T>
void test_unary(const Case& c) {
  const Shape shape = random_shape(c.random);
  Array<T> out(shape, random_output_strides(c.random, shape));
  out.fill_random(c.random);
  const bool in_place = c.random.chance(0.3);
  Array<T> in(shape, in_place ? out.strides() : random_input_strides(c.random, shape));
  in.fill_random(c.random);
  if (in_place) std::memcpy(out.data(), in.data(), in.copy().size() * sizeof(T));
  const std::vector<T> before = out.copy();
  context += describe(shape, {out.strides(), in.strides()});
  c.machine.execute(c.row.family, c.dtype, shape,
                    {out.place(), in_place ? out.place() : in.place()});
  check_output(out, before, shape, [&](T got, int64_t o, int64_t m, int64_t i) {
    return right_unary(c.row.family, c.dtype, got, in.at(o, m, i));
  });
}

template <class T>
void test_binary(const Case& c) {
  const Shape shape = random_shape(c.random);
  Array<T> out(shape, random_output_strides(c.random, shape));
  out.fill_random(c.random);
  const bool in_place = c.random.chance(0.3);
  Array<T> a(shape, in_place ? out.strides() : random_input_strides(c.random, shape));
  Array<T> b(shape, random_input_strides(c.random, shape));
  a.fill_random(c.random);
  b.fill_random(c.random);
  if (c.row.family == Family::v_pow && !kFloating<T>) {
    b.fill([&] { return static_cast<T>(c.random.integer(-3, 40)); });
  }
  if (in_place) std::memcpy(out.data(), a.data(), a.copy().size() * sizeof(T));
  const std::vector<T> before = out.copy();
  Place right = b.place();
  const bool immediate = b.count() > 0 && c.random.chance(0.15);
  if (immediate) {
    right = Place{nullptr, {}, true, 0};
    std::memcpy(&right.immediate, b.data(), sizeof(T));
  }
  context += describe(shape, {out.strides(), a.strides(), b.strides()}) + (immediate ? " imm" : "");
  c.machine.execute(c.row.family, c.dtype, shape,
                    {out.place(), in_place ? out.place() : a.place(), right});
  check_output(out, before, shape, [&](T got, int64_t o, int64_t m, int64_t i) {
    const T y = immediate ? b.data()[0] : b.at(o, m, i);
    return right_binary(c.row.family, c.dtype, got, a.at(o, m, i), y);
  });
}

template <class T>
void test_compare(const Case& c) {
  const Shape shape = random_shape(c.random);
  Array<uint8_t> out(shape, random_output_strides(c.random, shape));
  Array<T> a(shape, random_input_strides(c.random, shape));
  Array<T> b(shape, random_input_strides(c.random, shape));
  const auto small = [&] {
    return c.random.chance(0.5) ? static_cast<T>(c.random.integer(0, 3))
                                : random_value<T>(c.random);
  };
  a.fill(small);
  b.fill(small);
  const std::vector<uint8_t> before = out.copy();
  context += describe(shape, {out.strides(), a.strides(), b.strides()});
  c.machine.execute(c.row.family, c.dtype, shape, {out.place(), a.place(), b.place()});
  check_output(out, before, shape, [&](uint8_t got, int64_t o, int64_t m, int64_t i) {
    return got == static_cast<uint8_t>(compare(c.row.family, a.at(o, m, i), b.at(o, m, i)));
  });
}

template <class T>
void test_select(const Case& c) {
  const Shape shape = random_shape(c.random);
  Array<T> out(shape, random_output_strides(c.random, shape));
  Array<uint8_t> condition(shape, random_input_strides(c.random, shape));
  Array<T> a(shape, random_input_strides(c.random, shape));
  Array<T> b(shape, random_input_strides(c.random, shape));
  condition.fill_random(c.random);
  a.fill_random(c.random);
  b.fill_random(c.random);
  const std::vector<T> before = out.copy();
  context += describe(shape, {out.strides(), condition.strides(), a.strides(), b.strides()});
  c.machine.execute(c.row.family, c.dtype, shape,
                    {out.place(), condition.place(), a.place(), b.place()});
  check_output(out, before, shape, [&](T got, int64_t o, int64_t m, int64_t i) {
    return agrees(got, condition.at(o, m, i) != 0 ? a.at(o, m, i) : b.at(o, m, i));
  });
}

template <class T>
void test_test(const Case& c) {
  if constexpr (kFloating<T>) {
    const Shape shape = random_shape(c.random);
    Array<uint8_t> out(shape, random_output_strides(c.random, shape));
    Array<T> in(shape, random_input_strides(c.random, shape));
    in.fill_random(c.random);
    const std::vector<uint8_t> before = out.copy();
    context += describe(shape, {out.strides(), in.strides()});
    c.machine.execute(c.row.family, c.dtype, shape, {out.place(), in.place()});
    check_output(out, before, shape, [&](uint8_t got, int64_t o, int64_t m, int64_t i) {
      const T x = in.at(o, m, i);
      const bool expected = c.row.family == Family::v_isnan   ? std::isnan(x)
                            : c.row.family == Family::v_isinf ? std::isinf(x)
                                                              : std::isfinite(x);
      return got == static_cast<uint8_t>(expected);
    });
  }
}

template <class To, class From>
void test_cast(const Case& c) {
  const Shape shape = random_shape(c.random);
  Array<To> out(shape, random_output_strides(c.random, shape));
  Array<From> in(shape, random_input_strides(c.random, shape));
  in.fill_random(c.random);
  if constexpr (kFloating<From> && std::is_integral_v<To> && !std::is_same_v<To, uint8_t>) {
    in.fill([&] { return static_cast<From>(c.random.real(-2e9, 2e9)); });  // others are undefined
  }
  const std::vector<To> before = out.copy();
  context += describe(shape, {out.strides(), in.strides()});
  c.machine.execute(c.row.family, c.dtype, shape, {out.place(), in.place()});
  check_output(out, before, shape, [&](To got, int64_t o, int64_t m, int64_t i) {
    const From x = in.at(o, m, i);
    if constexpr (std::is_same_v<To, uint8_t>)
      return got == static_cast<uint8_t>(x != 0);
    else
      return agrees(got, static_cast<To>(x));
  });
}

template <class T>
void test_instruction(const Case& c) {
  switch (c.row.form) {
    case Form::unary: return test_unary<T>(c);
    case Form::binary: return test_binary<T>(c);
    case Form::compare: return test_compare<T>(c);
    case Form::select: return test_select<T>(c);
    case Form::test: return test_test<T>(c);
    case Form::cast_f32: return test_cast<float, T>(c);
    case Form::cast_f64: return test_cast<double, T>(c);
    case Form::cast_i32: return test_cast<int32_t, T>(c);
    case Form::cast_i64: return test_cast<int64_t, T>(c);
    case Form::cast_b8: return test_cast<uint8_t, T>(c);
    default: return;  // the other forms have tests of their own
  }
}

// Rows shorter than a vector: of one value each, elements that are repeated a few times, or the
// same one some times in a row.
template <class T>
void test_repeats(Machine& machine, Random& random, DType dtype) {
  for (int i = 0; i < 200; i++) {
    const bool elements = i % 2 == 0;
    const Shape shape{random.integer(1, 3), random.integer(1, elements ? 70 : 20),
                      random.integer(1, elements ? 9 : 70)};
    const int64_t row = shape.inner + (random.chance(0.3) ? random.integer(1, 3) : 0);
    const int64_t step = !elements ? 0 : random.chance(0.6) ? 1 : random.integer(0, 5);
    Array<T> out(shape, {shape.middle * row + random.integer(0, 4), row, 1});
    Array<T> in(shape, {elements ? shape.middle * step : shape.inner, step, elements ? 0 : 1});
    out.fill_random(random);
    in.fill_random(random);
    const std::vector<T> before = out.copy();
    context = std::string("repeats ") + name_of(dtype) + " " +
              describe(shape, {out.strides(), in.strides()});
    machine.execute(Family::v_broadcast, dtype, shape, {out.place(), in.place()});
    check_output(out, before, shape, [&](T got, int64_t o, int64_t m, int64_t n) {
      const T expected = in.at(o, m, n);
      return std::memcmp(&got, &expected, sizeof(T)) == 0;
    });
  }
}

// Dividends at and next to multiples of the divisor, of sizes in common: where quotients are
// rounded, and where one way to divide takes over from another.
template <class T>
void test_quotients(Machine& machine, Random& random, DType dtype) {
  constexpr int kMost = kFloating<T> ? 60 : std::numeric_limits<T>::digits - 1;
  const Shape shape{1, 1, 67};
  const Strides strides{0, 0, 1};
  Array<T> out(shape, strides), a(shape, strides), b(shape, strides);
  for (int i = 0; i < 400; i++) {
    const int64_t bits = random.integer(0, kMost), divisor_bits = random.integer(0, bits);
    const auto below = [&](int64_t power) { return random.integer(0, (int64_t{1} << power) - 1); };
    for (int64_t n = 0; n < shape.inner; n++) {
      const int64_t divisor = below(divisor_bits) + 1;
      const int64_t dividend = below(bits - divisor_bits) * divisor + random.integer(-1, 1);
      a.data()[n] = static_cast<T>(random.chance(0.5) ? dividend : -dividend);
      b.data()[n] = static_cast<T>(random.chance(0.5) ? divisor : -divisor);
    }
    for (const Family family : {Family::v_div, Family::v_mod, Family::v_fmod}) {
      context = std::string("quotients ") + name_of(dtype) + " of " + std::to_string(bits) +
                " bits by " + std::to_string(divisor_bits);
      machine.execute(family, dtype, shape, {out.place(), a.place(), b.place()});
      for (int64_t n = 0; n < shape.inner; n++)
        CHECK(right_binary(family, dtype, out.data()[n], a.data()[n], b.data()[n]));
    }
  }
}

template <class T>
void test_counted(Machine& machine, Random& random, DType dtype) {
  for (int i = 0; i < 100; i++) {
    const Shape shape = random_shape(random);
    Array<T> out(shape, random_output_strides(random, shape));
    const Strides steps{random.integer(-5, 5), random.integer(-5, 5), random.integer(-5, 5)};
    const int64_t base = random.integer(-1000, 1000);
    const std::vector<T> before = out.copy();
    context =
        std::string("v_iota ") + name_of(dtype) + " " + describe(shape, {out.strides(), steps});
    machine.execute(Family::v_iota, dtype, shape,
                    {out.place(), {reinterpret_cast<std::byte*>(base), steps}});
    check_output(out, before, shape, [&](T got, int64_t o, int64_t m, int64_t n) {
      return got == base + steps.at(o, m, n);
    });
  }
}

void test_indices(Machine& machine, Random& random) {
  for (int i = 0; i < 200; i++) {
    const Shape shape = random_shape(random);
    Array<int64_t> out(shape, random_output_strides(random, shape));
    Array<int64_t> index(shape, random_input_strides(random, shape));
    constexpr int64_t kLimit = 50;
    const bool broken = index.count() > 0 && shape.count() > 0 && random.chance(0.3);
    index.fill([&] { return random.integer(-kLimit, kLimit - 1); });
    const int64_t bad = random.chance(0.5) ? kLimit : -kLimit - 1;
    if (broken) index.at(shape.outer - 1, shape.middle - 1, shape.inner - 1) = bad;
    context = "v_check_index " + describe(shape, {out.strides(), index.strides()});
    const std::vector<int64_t> before = out.copy();
    machine.execute(Family::v_check_index, DType::i64, shape, {out.place(), index.place()},
                    {kLimit});
    if (broken) {
      CHECK(machine.core.trap.kind == TrapKind::index_out_of_range);
      CHECK(machine.core.trap.value == bad && machine.core.trap.limit == kLimit);
      continue;
    }
    CHECK(machine.core.trap.kind == TrapKind::none);
    check_output(out, before, shape, [&](int64_t got, int64_t o, int64_t m, int64_t n) {
      return got == (index.at(o, m, n) + kLimit) % kLimit;
    });
  }
}

void test_level(const Level& level) {
  Machine machine(*level.table);
  Random random(7);
  for_each_instruction([&](const Row& row, DType dtype) {
    for (int i = 0; i < kCases; i++) {
      context = std::string(level.table->name) + " " + row.name + "_" + name_of(dtype) + " ";
      const Case c{row, dtype, machine, random};
      if (row.form == Form::narrow || row.form == Form::lookup) continue;  // test_dma.cpp
      machine.hints = random.chance(0.3) ? kStream : 0;
      with_register_type(dtype, [&](auto element) { test_instruction<decltype(element)>(c); });
    }
  });
  for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::i64, DType::b8}) {
    with_register_type(
        dtype, [&](auto element) { test_repeats<decltype(element)>(machine, random, dtype); });
  }
  for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::i64}) {
    with_register_type(dtype, [&](auto element) {
      using T = decltype(element);
      if constexpr (!std::is_same_v<T, uint8_t>) test_quotients<T>(machine, random, dtype);
    });
  }
  test_counted<int32_t>(machine, random, DType::i32);
  test_counted<int64_t>(machine, random, DType::i64);
  test_indices(machine, random);
}

}  // namespace
}  // namespace dvm::test

int main() {
  for (const dvm::Level& level : dvm::available_levels()) dvm::test::test_level(level);
  return dvm::test::report("elementwise");
}
