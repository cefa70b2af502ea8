// The half unit of every level: what packs operands of 16 bits against an element at a time, and
// its products against long double over operands that are exact.
#include <cmath>
#include <cstring>

#include "operands.h"

namespace dvm::test {
namespace {

using Half = uint16_t;

float from_bf16(Half bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// To nearest even.
Half to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return static_cast<Half>(bits >> 16 | 0x40);
  const uint32_t up = bits >> 16, rest = bits & 0xffff;
  return static_cast<Half>(up + (rest > 0x8000 || (rest == 0x8000 && (up & 1))));
}

float from_f16(Half bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(mantissa, -24)
                           : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                            : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>(bits & 0x8000 ? -magnitude : magnitude);
}

float widened(DType dtype, Half bits) {
  return dtype == DType::f16 ? from_f16(bits) : from_bf16(bits);
}
float widened(DType, float value) { return value; }

// A bf16 as wanted: the hardware may give denormals as zero.
bool same_bf16(float source, Half got) {
  const float want = from_bf16(to_bf16(source)), value = from_bf16(got);
  if (std::isnan(want)) return std::isnan(value);
  return want == value || (std::fabs(want) <= 0x1p-126f && value == 0);
}

float random_float(Random& random) {
  if (!random.chance(0.1)) return static_cast<float>(random.real(-3, 3));
  constexpr float kSpecial[] = {0.0f,   -0.0f,     INFINITY,  -INFINITY,   NAN,
                                1e-40f, 0x1.01p0f, 0x1.03p0f, 0x1.fffp127f};
  return random.pick(kSpecial);
}

void fill(Random& random, Array<float>& array) {
  array.fill([&] { return random_float(random); });
}
void fill(Random& random, Array<Half>& array) {
  array.fill([&] { return static_cast<Half>(random.bits()); });
}

int64_t random_size(Random& random, int64_t lane) {
  const int64_t near[] = {0, 1, 2, lane - 1, lane, lane + 1, 2 * lane - 1, 2 * lane, 2 * lane + 1};
  return random.chance(0.6) ? random.pick(near) : random.integer(0, 5 * lane);
}

// [rows, k] from a matrix whose rows, or columns, are contiguous, or neither.
Strides random_matrix(Random& random, int64_t middle, int64_t inner) {
  const int64_t gap = random.integer(1, 3);
  switch (random.integer(0, 2)) {
    case 0: return {0, inner + gap, 1};
    case 1: return {0, 1, middle + gap};
    default: return {0, inner * 2 + gap, 2};
  }
}

bool pair_matches(DType dtype, auto element, int64_t k, int64_t k_extent, uint32_t pair) {
  const bool low = same_bf16(widened(dtype, element(k)), static_cast<Half>(pair));
  const auto high = static_cast<Half>(pair >> 16);
  return low && (k + 1 < k_extent ? same_bf16(widened(dtype, element(k + 1)), high) : high == 0);
}

template <class S>
void test_pack_a(Machine& machine, Random& random, DType dtype, int64_t lane) {
  const int64_t m = random.integer(0, 5), k = random_size(random, lane), steps = (k + 1) / 2;
  Array<S> from({1, m, k}, random_matrix(random, m, k));
  fill(random, from);
  Array<uint32_t> to({1, m, steps}, {0, steps + random.integer(0, 3), 1});
  to.fill([] { return 0x12345678; });
  context += "pack_a_bundles " + describe({1, m, k}, {from.strides()});
  machine.execute(Family::d_pack_a_bundles, dtype, {1, m, k}, {to.place(), from.place()});
  bool right = true;
  for_each_index({1, m, steps}, [&](int64_t, int64_t row, int64_t step) {
    right = right && pair_matches(
                         dtype, [&](int64_t at) { return from.at(0, row, at); }, 2 * step, k,
                         to.at(0, row, step));
  });
  CHECK(right);
  const std::vector<uint32_t> all = to.copy();
  for (int64_t row = 0; steps > 0 && row + 1 < m; row++)
    for (int64_t gap = steps; gap < to.strides().middle; gap++)
      CHECK(all[static_cast<size_t>(row * to.strides().middle + gap)] == 0x12345678);
}

template <class S>
void test_pack_b(Machine& machine, Random& random, DType dtype, int64_t nr) {
  const int64_t k = random_size(random, nr / 2), n = random_size(random, nr), steps = (k + 1) / 2;
  const int64_t panels = (n + nr - 1) / nr;
  Array<S> from({1, k, n}, random_matrix(random, k, n));
  fill(random, from);
  Array<uint32_t> to({panels, steps, nr}, {steps * nr + random.integer(0, 1) * 8, nr, 1});
  context += "pack_b_bundles " + describe({1, k, n}, {from.strides()});
  machine.execute(Family::d_pack_b_bundles, dtype, {1, k, n}, {to.place(), from.place()});
  bool right = true;
  for_each_index({panels, steps, nr}, [&](int64_t p, int64_t step, int64_t c) {
    const int64_t column = p * nr + c;
    const uint32_t pair = to.at(p, step, c);
    right = right && (column >= n ? pair == 0
                                  : pair_matches(
                                        dtype, [&](int64_t at) { return from.at(0, at, column); },
                                        2 * step, k, pair));
  });
  CHECK(right);
}

void test_pack_b_stored(Machine& machine, Random& random, DType dtype, int64_t nr) {
  const int64_t k = random_size(random, nr), n = random_size(random, nr);
  const int64_t panels = (n + nr - 1) / nr;
  Array<Half> from({1, k, n}, random_matrix(random, k, n));
  fill(random, from);
  Array<Half> to({panels, k, nr}, {k * nr, nr, 1});
  context += "pack_b_stored " + describe({1, k, n}, {from.strides()});
  machine.execute(Family::d_pack_b_stored, dtype, {1, k, n}, {to.place(), from.place()});
  bool right = true;
  for_each_index({panels, k, nr}, [&](int64_t p, int64_t step, int64_t c) {
    const int64_t column = p * nr + c;
    right = right && to.at(p, step, c) == (column < n ? from.at(0, step, column) : 0);
  });
  CHECK(right);
}

// Quarters, which f16 and bf16 hold exactly, as do their products and sums f32.
float quarter(Random& random) { return static_cast<float>(random.integer(-16, 16)) / 4; }

// C after a product of a[m][k] and b[k][n], whichever way they are stored.
void check_product(const Array<float>& c, const std::vector<float>& before, int64_t m, int64_t n,
                   int64_t k, bool accumulate, auto a, auto b) {
  std::vector<float> wanted = before;
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      const auto at = static_cast<size_t>(c.strides().at(0, i, j));
      double sum = accumulate ? before[at] : 0;
      for (int64_t step = 0; step < k; step++) sum += double{a(i, step)} * b(step, j);
      wanted[at] = static_cast<float>(sum);
    }
  }
  CHECK(c.copy() == wanted);
}

struct Sizes {
  int64_t m, n, k;
  bool accumulate;
};

Sizes random_sizes(Random& random, int64_t nr, bool large) {
  constexpr int64_t kDepths[] = {0, 1, 2, 3, 8, 17, 33, 64, 101, 300};
  if (large) return {61, 2 * nr + 3, 4001, random.chance(0.5)};  // more of A than stays in a cache
  const int64_t rows = random.integer(0, 9);
  return {rows < 2   ? random.integer(0, 2)
          : rows < 8 ? random.integer(1, 61)
                     : random.integer(90, 170),
          random_size(random, nr), random.pick(kDepths), random.chance(0.5)};
}

// Elements from row to row of A, 1024: all in one set of a cache.
int64_t random_row(Random& random, int64_t k) {
  return k <= 1024 && random.chance(0.2) ? 1024 : k + random.integer(0, 5);
}

void test_widen(Machine& machine, Random& random, DType dtype, int64_t nr, bool large) {
  const auto [m, n, k, accumulate] = random_sizes(random, nr, large);
  const int64_t panels = (n + nr - 1) / nr;
  Array<float> a({1, m, k}, {0, random_row(random, k), 1}),
      c({1, m, n}, {0, n + random.integer(0, 5), 1});
  Array<Half> b({panels, k, nr}, {k * nr, nr, 1});
  for (Array<float>* array : {&a, &c}) array->fill([&] { return quarter(random); });
  b.fill([&] {
    // Whole and half numbers of both signs.
    constexpr Half kF16[] = {0x0000, 0x3800, 0x3c00, 0xbe00, 0xc000, 0x4200};
    constexpr Half kBf16[] = {0x0000, 0x3f00, 0x3f80, 0xbfc0, 0xc000, 0x4040};
    return dtype == DType::f16 ? random.pick(kF16) : random.pick(kBf16);
  });
  const std::vector<float> before = c.copy();
  machine.lend_scratch(large || random.chance(0.5));
  context += "m_matmul_widen " + describe({m, k, n}, {a.strides(), c.strides()});
  machine.execute(Family::m_matmul_widen, dtype, {m, k, n}, {c.place(), a.place(), b.place()}, {},
                  accumulate ? kAccumulateAlways : 0);
  check_product(
      c, before, m, n, k, accumulate, [&](int64_t i, int64_t step) { return a.at(0, i, step); },
      [&](int64_t step, int64_t j) { return widened(dtype, b.at(j / nr, step, j % nr)); });
}

void test_pairs(Machine& machine, Random& random, int64_t nr, bool large) {
  const auto [m, n, k, accumulate] = random_sizes(random, nr, large);
  const int64_t panels = (n + nr - 1) / nr;
  Array<uint32_t> a({1, m, k}, {0, random_row(random, k), 1}), b({panels, k, nr}, {k * nr, nr, 1});
  Array<float> c({1, m, n}, {0, n + random.integer(0, 5), 1});
  const auto pair = [&] {
    return uint32_t{to_bf16(quarter(random))} | uint32_t{to_bf16(quarter(random))} << 16;
  };
  a.fill(pair);
  b.fill(pair);
  c.fill([&] { return quarter(random); });
  const std::vector<float> before = c.copy();
  machine.lend_scratch(large || random.chance(0.7));
  context += "m_matmul_bundles " + describe({m, k, n}, {a.strides(), c.strides()});
  machine.execute(Family::m_matmul_bundles, DType::bf16, {m, k, n},
                  {c.place(), a.place(), b.place()}, {}, accumulate ? kAccumulateAlways : 0);
  const auto half = [](uint32_t both, int64_t step) {
    return from_bf16(static_cast<Half>(step % 2 ? both >> 16 : both));
  };
  check_product(
      c, before, m, n, 2 * k, accumulate,
      [&](int64_t i, int64_t step) { return half(a.at(0, i, step / 2), step); },
      [&](int64_t step, int64_t j) { return half(b.at(j / nr, step / 2, j % nr), step); });
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  using dvm::DType;
  for (const dvm::Level& level : dvm::available_levels()) {
    Machine machine(*level.table);
    Random random(11);
    const int64_t nr = level.table->matmul_nr, lane = level.info->vector_bytes / 4;
    const std::string name = std::string(level.table->name) + " ";
    for (int i = 0; i < 300; i++) {
      for (const DType dtype : {DType::f16, DType::bf16}) {
        context = name + dvm::name_of(dtype) + " ";
        test_pack_a<Half>(machine, random, dtype, lane);
        context = name + dvm::name_of(dtype) + " ";
        test_pack_b<Half>(machine, random, dtype, nr);
        context = name + dvm::name_of(dtype) + " ";
        test_pack_b_stored(machine, random, dtype, nr);
        context = name + dvm::name_of(dtype) + " ";
        test_widen(machine, random, dtype, nr, i == 0);
      }
      context = name + "f32 ";
      test_pack_a<float>(machine, random, DType::f32, lane);
      context = name + "f32 ";
      test_pack_b<float>(machine, random, DType::f32, nr);
      context = name;
      test_pairs(machine, random, nr, i == 0);
    }
  }
  return report("half");
}
