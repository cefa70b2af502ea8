// Accuracy of the f32 math functions against long double: bit patterns spread over the whole line,
// and dense ranges where each function is delicate. Prints the largest error per function.
//
// Usage: test_math [step]   step between bit patterns; 1 tests every float and takes hours
#include <cstdlib>

#include "operands.h"
#include "reference.h"

namespace dvm::test {
namespace {

constexpr double kLimit = 4;
constexpr int64_t kBatch = 1 << 14;

struct Range {
  float low, high;
};
struct Function {
  Family family;
  const char* name;
  Range dense;
  bool bounded = false;   // by 1
  float saturated = NAN;  // from here on it is exactly 0, 1 or -1: its factors may be large
};
constexpr Function kFunctions[] = {
    {Family::v_exp, "exp", {-104.5f, 89.0f}},
    {Family::v_log, "log", {0.5f, 2.0f}},
    {Family::v_log1p, "log1p", {-0.9f, 3.0f}},
    {Family::v_sin, "sin", {-40.0f, 40.0f}},
    {Family::v_cos, "cos", {-40.0f, 40.0f}},
    {Family::v_tan, "tan", {-40.0f, 40.0f}},
    {Family::v_asin, "asin", {-1.0f, 1.0f}},
    {Family::v_acos, "acos", {-1.0f, 1.0f}},
    {Family::v_atan, "atan", {-4.0f, 4.0f}},
    {Family::v_sinh, "sinh", {-90.0f, 90.0f}},
    {Family::v_cosh, "cosh", {-90.0f, 90.0f}},
    {Family::v_asinh, "asinh", {-4.0f, 4.0f}},
    {Family::v_acosh, "acosh", {1.0f, 2.0f}},
    {Family::v_atanh, "atanh", {-1.0f, 1.0f}},
    {Family::v_erf, "erf", {-4.0f, 4.0f}, true, 4.0f},
    {Family::v_tanh, "tanh", {-9.5f, 9.5f}, true, 10.0f},
    {Family::v_sigmoid, "sigmoid", {-104.5f, 18.0f}, true, 104.5f},
    {Family::v_rsqrt, "rsqrt", {0.1f, 10.0f}},
};

struct Worst {
  double error = 0;
  float at = 0;
};

std::vector<float> results(Machine& machine, Family family, const std::vector<float>& values) {
  const Shape shape{1, 1, static_cast<int64_t>(values.size())};
  const Strides strides{0, 0, 1};
  Array<float> in(shape, strides), out(shape, strides);
  std::memcpy(in.data(), values.data(), values.size() * sizeof(float));
  machine.execute(family, DType::f32, shape, {out.place(), in.place()});
  return out.copy();
}

void measure(Machine& machine, const Function& function, std::vector<float>& values, Worst& worst) {
  const std::vector<float> got = results(machine, function.family, values);
  for (size_t i = 0; i < values.size(); i++) {
    const Wide expected = float_unary(function.family, values[i]);
    const double error = ulp_error(got[i], expected);
    if (error > worst.error) worst = {error, values[i]};
    if (expected == 0) CHECK(std::signbit(got[i]) == std::signbit(expected));
    if (function.bounded) CHECK(!(std::fabs(got[i]) > 1));
    if (std::fabs(values[i]) >= function.saturated)
      CHECK(std::fabs(got[i] - 0.5f) == 0.5f || got[i] == -1);
  }
  values.clear();
}

// An element has the same result beside those that take another way, such as libm's.
void test_neighbours(Machine& machine, const Function& function) {
  Random random(11);
  std::vector<float> values;
  for (int i = 0; i < 1000; i++)
    values.push_back(static_cast<float>(random.real(function.dense.low, function.dense.high)));
  const std::vector<float> alone = results(machine, function.family, values);
  for (const float other : {NAN, INFINITY, 1e30f}) {
    std::vector<float> mixed = values;
    for (size_t i = 0; i < mixed.size(); i += 3) mixed[i] = other;
    const std::vector<float> got = results(machine, function.family, mixed);
    for (size_t i = 0; i < got.size(); i++)
      CHECK(i % 3 == 0 || std::memcmp(&got[i], &alone[i], sizeof(float)) == 0);
  }
}

Worst measure(Machine& machine, const Function& function, uint64_t step) {
  Worst worst;
  std::vector<float> values;
  const auto add = [&](float value) {
    values.push_back(value);
    if (static_cast<int64_t>(values.size()) == kBatch) measure(machine, function, values, worst);
  };
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += step) {
    const auto pattern = static_cast<uint32_t>(bits);
    float value;
    std::memcpy(&value, &pattern, sizeof value);
    add(value);
  }
  constexpr int kDense = 200000;
  for (int i = 0; i <= kDense; i++) {
    add(function.dense.low +
        (function.dense.high - function.dense.low) * static_cast<float>(i) / kDense);
  }
  for (int i = 1; i < 2000; i++) {  // multiples of pi/2 and their neighbours, for sin and cos
    const auto multiple = static_cast<float>(i * M_PI_2);
    for (const float v : {multiple, std::nextafter(multiple, 0.0f), -multiple}) add(v);
  }
  for (const float v :
       {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.0f, -1.0f, 1e-45f, -1e-45f, 3.4e38f}) {
    add(v);
    for (const float end : {INFINITY, -INFINITY}) add(std::nextafter(v, end));
  }
  measure(machine, function, values, worst);
  return worst;
}

// Of every pair.
std::vector<float> powers(Machine& machine, const std::vector<float>& bases,
                          const std::vector<float>& exponents) {
  const Shape shape{1, static_cast<int64_t>(bases.size()), static_cast<int64_t>(exponents.size())};
  const Strides strides{0, shape.inner, 1};
  Array<float> out(shape, strides), base(shape, {0, 1, 0}), exponent(shape, {0, 0, 1});
  std::memcpy(base.data(), bases.data(), bases.size() * sizeof(float));
  std::memcpy(exponent.data(), exponents.data(), exponents.size() * sizeof(float));
  machine.execute(Family::v_pow, DType::f32, shape, {out.place(), base.place(), exponent.place()});
  return out.copy();
}

// What pow gives of numbers that have a rule of their own, and where the power of whole numbers is
// exact: there casts to integers follow.
void test_exact_powers(Machine& machine) {
  using Limits = std::numeric_limits<float>;
  std::vector<float> numbers = {
      NAN,         INFINITY,     Limits::max(), Limits::min(), Limits::denorm_min(),
      0x1p24f - 1, 0x1p24f,      0x1p24f + 2,   0x1p31f,       0.5f,
      1.5f,        1 + 0x1p-23f, 1 - 0x1p-24f};
  for (int i = 0; i <= 30; i++) numbers.push_back(static_cast<float>(i));
  for (size_t i = 0, count = numbers.size(); i < count; i++) numbers.push_back(-numbers[i]);
  const std::vector<float> got = powers(machine, numbers, numbers);
  for (size_t i = 0; i < got.size(); i++) {
    const float base = numbers[i / numbers.size()], exponent = numbers[i % numbers.size()];
    const Wide expected = std::pow(static_cast<Wide>(base), static_cast<Wide>(exponent));
    const auto nearest = static_cast<float>(expected);
    const bool exact = !(static_cast<Wide>(nearest) != expected) || std::isnan(expected);
    CHECK(ulp_error(got[i], expected) <= (exact ? 0 : kLimit));
    if (!std::isnan(expected)) CHECK(std::signbit(got[i]) == std::signbit(expected));
  }
}

// Powers of all sizes, from denormal to infinite ones.
Worst measure_powers(Machine& machine) {
  Random random(7);
  Worst worst;
  std::vector<float> exponents;
  for (float y = -150; y <= 150; y += 0.5f) exponents.push_back(y);
  for (int i = 0; i < 200; i++) exponents.push_back(static_cast<float>(random.real(-20, 20)));
  std::vector<float> bases;
  for (int i = 0; i < 500; i++) bases.push_back(static_cast<float>(std::exp2(random.real(-6, 6))));
  for (int i = 0; i < 100; i++)
    bases.push_back(static_cast<float>(std::exp2(random.real(-149, 128))));
  for (int i = 0; i < 100; i++) bases.push_back(static_cast<float>(random.real(0.999, 1.001)));
  const std::vector<float> got = powers(machine, bases, exponents);
  for (size_t i = 0; i < got.size(); i++) {
    const float base = bases[i / exponents.size()];
    const double error =
        ulp_error(got[i], float_binary(Family::v_pow, base, exponents[i % exponents.size()]));
    if (error > worst.error) worst = {error, base};
  }
  return worst;
}

void check(const char* level, const char* name, const Worst& worst) {
  std::printf("%-10s %-8s %.2f ulp at %a\n", level, name, worst.error,
              static_cast<double>(worst.at));
  context = std::string(level) + " " + name;
  CHECK(worst.error <= kLimit);
}

}  // namespace
}  // namespace dvm::test

int main(int argc, char** argv) {
  using namespace dvm::test;
  const uint64_t step = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 9973;
  for (const dvm::Level& level : dvm::available_levels()) {
    Machine machine(*level.table);
    const char* const name = level.table->name;
    for (const Function& function : kFunctions) {
      context = std::string(name) + " " + function.name;
      check(name, function.name, measure(machine, function, step));
      test_neighbours(machine, function);
    }
    context = std::string(name) + " exact powers";
    test_exact_powers(machine);
    check(name, "pow", measure_powers(machine));
  }
  return report("math");
}
