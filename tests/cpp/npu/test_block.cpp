// Products with levels of a few bits of every level, against double over operands that are exact: A
// and zeros are quarters, scales powers of two. What is rounded has 127 times a power of two as the
// greatest magnitude of each block, so that levels stand for powers of two.
#include <cmath>
#include <cstring>
#include <limits>

#include "operands.h"

namespace dvm::test {
namespace {

struct Sizes {
  int64_t m, n, k, block, bits;
  bool zeros, accumulate;
};

Sizes random_sizes(Random& random, int64_t nr, bool large) {
  constexpr int64_t kDepths[] = {0, 1, 7, 8, 31, 32, 33, 100, 300};
  constexpr int64_t kBlocks[] = {16, 32, 128}, kBits[] = {2, 4, 8};
  const bool zeros = random.chance(0.5), accumulate = random.chance(0.5);
  if (large)
    return {23, 2 * nr + 3, 4001, 32, 4, zeros, accumulate};  // more of k than is unpacked at once
  return {random.integer(0, 40),
          random.integer(0, 3 * nr),
          random.pick(kDepths),
          random.pick(kBlocks),
          random.pick(kBits),
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

// Quarters of levels of blocks, some of which are too small to count, or not finite; and what they
// are rounded to.
std::vector<double> fill_in_levels(Array<float>& a, Random& random, const Sizes& sizes) {
  std::vector<double> rounded(static_cast<size_t>(sizes.m * sizes.k));
  const int64_t most = sizes.k > 1000 ? 40 : 4 * 127;  // sums are exact
  for (int64_t m = 0; m < sizes.m; m++) {
    for (int64_t first = 0; first < sizes.k; first += sizes.block) {
      const int64_t end = std::min(first + sizes.block, sizes.k), kind = random.integer(0, 40);
      const double unit = std::ldexp(1, kind == 0 ? -126 : static_cast<int>(kind % 3) - 1);
      const int64_t odd = random.integer(first, end - 1);
      for (int64_t k = first; k < end; k++) {
        const double level = k == odd ? 127 : static_cast<double>(random.integer(-most, most)) / 4;
        a.at(0, m, k) = static_cast<float>(level * unit);
        rounded[static_cast<size_t>(m * sizes.k + k)] =
            kind == 0 ? 0 : std::nearbyint(level) * unit;
      }
      if (kind == 1) {
        constexpr float kOdd[] = {NAN, INFINITY, -INFINITY};
        a.at(0, m, odd) = random.pick(kOdd);
        for (int64_t k = first; k < end; k++) rounded[static_cast<size_t>(m * sizes.k + k)] = NAN;
      }
    }
  }
  return rounded;
}

bool equal(const std::vector<float>& got, const std::vector<float>& wanted) {
  for (size_t i = 0; i < got.size(); i++) {
    if (got[i] != wanted[i] && !(std::isnan(got[i]) && std::isnan(wanted[i]))) return false;
  }
  return true;
}

void test_blocks(Machine& machine, Random& random, int64_t nr, Family family, bool large) {
  const Sizes sizes = random_sizes(random, nr, large);
  const auto [m, n, k, block, bits, zeros, accumulate] = sizes;
  const int64_t in_word = word_levels(bits), mask = (int64_t{1} << bits) - 1;
  const int64_t panels = (n + nr - 1) / nr, blocks = (k + block - 1) / block;
  const int64_t first = zeros ? 2 : 1, rows = first + block / in_word;
  Array<float> a({1, m, k}, {0, k + random.integer(0, 5), 1}),
      c({1, m, n}, {0, n + random.integer(0, 5), 1});
  for (Array<float>* array : {&a, &c}) array->fill([&] { return quarter(random); });
  Array<uint32_t> b({panels, blocks, rows * nr}, {blocks * rows * nr, rows * nr, 1});
  b.fill([&] { return static_cast<uint32_t>(random.bits()); });
  for_each_index({panels, blocks, nr}, [&](int64_t p, int64_t at, int64_t column) {
    b.at(p, at, column) = bits_of(random.chance(0.5) ? 0.5f : 2);
    if (zeros) b.at(p, at, nr + column) = bits_of(quarter(random));
  });
  std::vector<double> rounded;
  if (family == Family::m_matmul_rounded_blocks) rounded = fill_in_levels(a, random, sizes);
  const std::vector<float> before = c.copy();
  machine.lend_scratch(large || random.chance(0.7));
  context += std::string(name_of(family)) + " " + describe({m, k, n}, {a.strides(), c.strides()});
  machine.execute(family, DType::f32, {m, k, n}, {c.place(), a.place(), b.place()}, {block, bits},
                  accumulate ? kAccumulateAlways : 0);
  std::vector<float> wanted = before;
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      const auto at = static_cast<size_t>(c.strides().at(0, i, j));
      double sum = accumulate ? before[at] : 0;
      for (int64_t step = 0; step < k; step++) {
        const auto row = [&](int64_t r) { return b.at(j / nr, step / block, r * nr + j % nr); };
        const uint32_t word = row(first + step % block / in_word);
        const auto level = static_cast<double>(
            static_cast<int64_t>(word >> bits * (step % in_word) & mask) - middle_level(bits));
        const double zero = zeros ? float_of(row(1)) : 0;
        const double left =
            rounded.empty() ? a.at(0, i, step) : rounded[static_cast<size_t>(i * k + step)];
        sum += left * (level - zero) * float_of(row(0));
      }
      wanted[at] = static_cast<float>(sum);
    }
  }
  CHECK(equal(c.copy(), wanted));
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  for (const dvm::Level& level : dvm::available_levels()) {
    Machine machine(*level.table);
    Random random(17);
    for (int i = 0; i < 600; i++) {
      context = std::string(level.table->name) + " ";
      const auto family =
          i % 2 == 0 ? dvm::Family::m_matmul_blocks : dvm::Family::m_matmul_rounded_blocks;
      test_blocks(machine, random, level.table->matmul_nr, family, i < 4);
    }
  }
  return report("block");
}
