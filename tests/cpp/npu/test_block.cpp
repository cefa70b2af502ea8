// Products with levels of 4 bits of every level, against double over operands that are exact: A and
// zeros are quarters, scales powers of two.
#include <cstring>

#include "operands.h"

namespace dvm::test {
namespace {

struct Sizes {
  int64_t m, n, k, block;
  bool zeros, accumulate;
};

Sizes random_sizes(Random& random, int64_t nr, bool large) {
  constexpr int64_t kDepths[] = {0, 1, 7, 8, 31, 32, 33, 100, 300};
  constexpr int64_t kBlocks[] = {8, 16, 32, 128};
  const bool zeros = random.chance(0.5), accumulate = random.chance(0.5);
  if (large)
    return {23, 2 * nr + 3, 4001, 32, zeros, accumulate};  // more of k than is unpacked at once
  return {random.integer(0, 40),
          random.integer(0, 3 * nr),
          random.pick(kDepths),
          random.pick(kBlocks),
          zeros,
          accumulate};
}

float quarter(Random& random) { return static_cast<float>(random.integer(-8, 8)) / 4; }

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void test_blocks(Machine& machine, Random& random, int64_t nr, bool large) {
  const auto [m, n, k, block, zeros, accumulate] = random_sizes(random, nr, large);
  const int64_t panels = (n + nr - 1) / nr, blocks = (k + block - 1) / block;
  const int64_t first = zeros ? 2 : 1, rows = first + block / kWordLevels;
  Array<float> a({1, m, k}, {0, k + random.integer(0, 5), 1}),
      c({1, m, n}, {0, n + random.integer(0, 5), 1});
  for (Array<float>* array : {&a, &c}) array->fill([&] { return quarter(random); });
  Array<uint32_t> b({panels, blocks, rows * nr}, {blocks * rows * nr, rows * nr, 1});
  b.fill([&] { return static_cast<uint32_t>(random.bits()); });
  for_each_index({panels, blocks, nr}, [&](int64_t p, int64_t at, int64_t column) {
    b.at(p, at, column) = bits_of(random.chance(0.5) ? 0.5f : 2);
    if (zeros) b.at(p, at, nr + column) = bits_of(quarter(random));
  });
  const std::vector<float> before = c.copy();
  machine.lend_scratch(large || random.chance(0.7));
  context += "m_matmul_blocks " + describe({m, k, n}, {a.strides(), c.strides()});
  machine.execute(Family::m_matmul_blocks, DType::f32, {m, k, n}, {c.place(), a.place(), b.place()},
                  {block}, accumulate ? kAccumulateAlways : 0);
  std::vector<float> wanted = before;
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      const auto at = static_cast<size_t>(c.strides().at(0, i, j));
      double sum = accumulate ? before[at] : 0;
      for (int64_t step = 0; step < k; step++) {
        const auto row = [&](int64_t r) { return b.at(j / nr, step / block, r * nr + j % nr); };
        const uint32_t word = row(first + step % block / kWordLevels);
        const double level = static_cast<double>(word >> 4 * (step % kWordLevels) & 15) - 8;
        const double zero = zeros ? float_of(row(1)) : 0;
        sum += double{a.at(0, i, step)} * (level - zero) * float_of(row(0));
      }
      wanted[at] = static_cast<float>(sum);
    }
  }
  CHECK(c.copy() == wanted);
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  for (const dvm::Level& level : dvm::available_levels()) {
    Machine machine(*level.table);
    Random random(17);
    for (int i = 0; i < 300; i++) {
      context = std::string(level.table->name) + " ";
      test_blocks(machine, random, level.table->matmul_nr, i < 2);
    }
  }
  return report("block");
}
