// The integer unit of every level: what packs bytes against an element at a time, and its products
// against int64, over all bytes and, for what saturates on the way, the extreme ones.
#include <algorithm>

#include "drawn_levels.h"
#include "operands.h"

namespace dvm::test {
namespace {

int64_t random_size(Random& random, int64_t lane) {
  const int64_t near[] = {0, 1, 2, 3, 4, 5, lane - 1, lane, lane + 1, 2 * lane, 2 * lane + 1};
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

uint8_t byte_of(uint32_t bundle, int64_t step) {
  return static_cast<uint8_t>(bundle >> 8 * (step % 4));
}

template <class S>
void test_pack_a(Machine& machine, Random& random, DType dtype, int64_t lane) {
  const int64_t m = random.integer(0, 5), k = random_size(random, lane), steps = (k + 3) / 4;
  Array<S> from({1, m, k}, random_matrix(random, m, k));
  from.fill([&] { return static_cast<S>(random.bits()); });
  Array<uint32_t> to({1, m, steps}, {0, steps + random.integer(0, 3), 1});
  to.fill([] { return 0x12345678; });
  context += "pack_a_bundles " + describe({1, m, k}, {from.strides()});
  machine.execute(Family::d_pack_a_bundles, dtype, {1, m, k}, {to.place(), from.place()});
  bool right = true;
  for_each_index({1, m, 4 * steps}, [&](int64_t, int64_t row, int64_t step) {
    const auto wanted = static_cast<uint8_t>(step < k ? from.at(0, row, step) : 0);
    right = right && byte_of(to.at(0, row, step / 4), step) == wanted;
  });
  CHECK(right);
  const std::vector<uint32_t> all = to.copy();
  for (int64_t row = 0; steps > 0 && row + 1 < m; row++)
    for (int64_t gap = steps; gap < to.strides().middle; gap++)
      CHECK(all[static_cast<size_t>(row * to.strides().middle + gap)] == 0x12345678);
}

template <class S>
void test_pack_b(Machine& machine, Random& random, DType dtype, int64_t nr) {
  const int64_t k = random_size(random, nr / 2), n = random_size(random, nr), steps = (k + 3) / 4;
  const int64_t panels = (n + nr - 1) / nr;
  Array<S> from({1, k, n}, random_matrix(random, k, n));
  from.fill([&] { return static_cast<S>(random.bits()); });
  Array<uint32_t> to({panels, steps, nr}, {steps * nr + random.integer(0, 1) * 8, nr, 1});
  context += "pack_b_bundles " + describe({1, k, n}, {from.strides()});
  machine.execute(Family::d_pack_b_bundles, dtype, {1, k, n}, {to.place(), from.place()});
  bool right = true;
  for_each_index({panels, 4 * steps, nr}, [&](int64_t p, int64_t step, int64_t c) {
    const int64_t column = p * nr + c;
    const bool inside = step < k && column < n;
    const auto wanted = static_cast<uint8_t>(inside ? from.at(0, step, column) : 0);
    right = right && byte_of(to.at(p, step / 4, c), step) == wanted;
  });
  CHECK(right);
}

// Operands of a product: of so many rows, bundles of k and columns.
struct Operands {
  int64_t m, n, k;
  Array<uint32_t> a, b;

  Operands(Random& random, int64_t nr, int64_t rows, int64_t columns, int64_t depth)
      : m(rows),
        n(columns),
        k(depth),
        a({1, m, k}, {0, random.chance(0.2) && k <= 1024 ? 1024 : k + 3, 1}),
        b({(n + nr - 1) / nr, k, nr}, {k * nr, nr, 1}),
        nr_(nr) {
    const bool extreme = random.chance(0.3);
    a.fill([&] { return extreme ? 0xffffffff : static_cast<uint32_t>(random.bits()); });
    b.fill([&] { return extreme ? 0x80808080 : static_cast<uint32_t>(random.bits()); });
  }
  int64_t sum(int64_t i, int64_t j) const {
    int64_t sum = 0;
    for (int64_t step = 0; step < 4 * k; step++)
      sum += int64_t{byte_of(a.at(0, i, step / 4), step)} *
             static_cast<int8_t>(byte_of(b.at(j / nr_, step / 4, j % nr_), step));
    return sum;
  }

 private:
  int64_t nr_;
};

// More rows than scratch memory holds what is left of k of, or whole ones as 16 bits.
Operands many_rows(Random& random, int64_t nr) { return {random, nr, 20000, 2 * nr + 3, 17}; }

Operands random_operands(Random& random, int64_t nr, bool large) {
  constexpr int64_t kDepths[] = {0, 1, 2, 3, 8, 17, 33, 64, 101, 300};
  const int64_t m = large ? 61 : random.chance(0.2) ? random.integer(0, 2) : random.integer(1, 61);
  const int64_t n = large ? 2 * nr + 3 : random_size(random, nr);
  const int64_t k = large ? 4001 : random.pick(kDepths);  // more of A than stays in a cache
  return {random, nr, m, n, k};
}

void test_product(Machine& machine, Random& random, const Operands& x) {
  const bool accumulate = random.chance(0.5);
  Array<int32_t> c({1, x.m, x.n}, {0, x.n + random.integer(0, 5), 1});
  c.fill([&] { return static_cast<int32_t>(random.bits()); });
  std::vector<int32_t> wanted = c.copy();
  for_each_index({1, x.m, x.n}, [&](int64_t, int64_t i, int64_t j) {
    int32_t& at = wanted[static_cast<size_t>(c.strides().at(0, i, j))];
    at = static_cast<int32_t>(x.sum(i, j) + (accumulate ? at : 0));
  });
  machine.lend_scratch(x.m > 1000 || random.chance(0.7));
  context += "m_matmul_bundles " + describe({x.m, x.k, x.n}, {x.a.strides(), c.strides()});
  machine.execute(Family::m_matmul_bundles, DType::i8, {x.m, x.k, x.n},
                  {c.place(), x.a.place(), x.b.place()}, {}, accumulate ? kAccumulateAlways : 0);
  CHECK(c.copy() == wanted);
}

template <class T>
void test_quantized(Machine& machine, Random& random, DType dtype, int64_t nr, bool large) {
  const Operands x = random_operands(random, nr, large);
  const bool addends = random.chance(0.7), factors = random.chance(0.7);
  Array<int32_t> addend({1, 1, addends ? x.n : 1}, {0, 0, 1});
  Array<float> factor({1, 1, factors ? x.n : 1}, {0, 0, 1});
  addend.fill([&] { return static_cast<int32_t>(random.bits()) >> random.integer(0, 31); });
  factor.fill([&] { return random_factor(random); });
  const Levels levels = random_levels(random, std::is_same_v<T, int8_t>);
  Array<T> c({1, x.m, x.n}, {0, x.n + random.integer(0, 5), 1});
  c.fill([] { return T{77}; });
  std::vector<T> wanted = c.copy();
  for_each_index({1, x.m, x.n}, [&](int64_t, int64_t i, int64_t j) {
    const auto sum = static_cast<int32_t>(x.sum(i, j) + addend.at(0, 0, addends ? j : 0));
    const float scaled = static_cast<float>(sum) * factor.at(0, 0, factors ? j : 0);
    wanted[static_cast<size_t>(c.strides().at(0, i, j))] = static_cast<T>(level_of(scaled, levels));
  });
  const auto along = [](const auto& array, bool columns) {
    return columns ? array.place() : number_of(array);
  };
  context += "m_matmul_quantize " + describe({x.m, x.k, x.n}, {x.a.strides(), c.strides()});
  machine.execute(
      Family::m_matmul_quantize, dtype, {x.m, x.k, x.n},
      {c.place(), x.a.place(), x.b.place(), along(addend, addends), along(factor, factors)},
      {levels.low, levels.high, levels.zero});
  CHECK(c.copy() == wanted);
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
      context = name + "u8 ";
      test_pack_a<uint8_t>(machine, random, DType::u8, lane);
      context = name + "i32 ";
      test_pack_a<int32_t>(machine, random, DType::i32, lane);
      context = name + "i8 ";
      test_pack_b<int8_t>(machine, random, DType::i8, nr);
      context = name + "i32 ";
      test_pack_b<int32_t>(machine, random, DType::i32, nr);
      context = name;
      test_product(machine, random, random_operands(random, nr, i == 0));
      test_quantized<uint8_t>(machine, random, DType::u8, nr, i == 0);
      context = name;
      test_quantized<int8_t>(machine, random, DType::i8, nr, false);
      context = name;
      test_quantized<int32_t>(machine, random, DType::i32, nr, false);
    }
    context = name;
    machine.core.local_bytes = size_t{1} << 30;
    test_product(machine, random, many_rows(random, nr));
  }
  return report("integer");
}
