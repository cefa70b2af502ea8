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
    {Family::v_erf, "erf", {-4.0f, 4.0f}, true, 4.0f},
    {Family::v_tanh, "tanh", {-9.5f, 9.5f}, true, 10.0f},
    {Family::v_sigmoid, "sigmoid", {-104.5f, 18.0f}, true, 104.5f},
    {Family::v_rsqrt, "rsqrt", {0.1f, 10.0f}},
};

struct Worst {
  double error = 0;
  float at = 0;
};

void measure(Machine& machine, const Function& function, std::vector<float>& values, Worst& worst) {
  const Shape shape{1, 1, static_cast<int64_t>(values.size())};
  const Strides strides{0, 0, 1};
  Array<float> in(shape, strides), out(shape, strides);
  std::memcpy(in.data(), values.data(), values.size() * sizeof(float));
  machine.execute(function.family, DType::f32, shape, {out.place(), in.place()});
  for (size_t i = 0; i < values.size(); i++) {
    const double error = ulp_error(out.data()[i], float_unary(function.family, values[i]));
    if (error > worst.error) worst = {error, values[i]};
    if (function.bounded) CHECK(!(std::fabs(out.data()[i]) > 1));
    if (std::fabs(values[i]) >= function.saturated)
      CHECK(std::fabs(out.data()[i] - 0.5f) == 0.5f || out.data()[i] == -1);
  }
  values.clear();
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
       {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.0f, -1.0f, 1e-45f, -1e-45f, 3.4e38f})
    add(v);
  measure(machine, function, values, worst);
  return worst;
}

}  // namespace
}  // namespace dvm::test

int main(int argc, char** argv) {
  using namespace dvm::test;
  const uint64_t step = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 9973;
  for (const dvm::Level& level : dvm::available_levels()) {
    Machine machine(*level.table);
    for (const Function& function : kFunctions) {
      const Worst worst = measure(machine, function, step);
      std::printf("%-10s %-8s %.2f ulp at %a\n", level.table->name, function.name, worst.error,
                  static_cast<double>(worst.at));
      context = std::string(level.table->name) + " " + function.name;
      CHECK(worst.error <= kLimit);
    }
  }
  return report("math");
}
