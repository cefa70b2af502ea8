// m_matmul and m_matmul_clamp of every level against long double: every row count around the
// register block, packed and direct B, B with contiguous columns, ragged columns, strided A and C,
// accumulation; addends with rows of their own, with one row for all, and in C itself; endings,
// which NaN passes, and streams; rows and columns enough for tiles, and elements that those do not
// take. What d_prefetch announces must make no difference.
#include "drawn_ending.h"
#include "operands.h"
#include "reference.h"

namespace dvm::test {
namespace {

enum class Addend { none, zero, rows, row, in_place };  // none: m_matmul

struct Layout {
  int64_t m, k, n, nr;
  int64_t a_row, b_row, c_row;  // b_row 0: packed panels
  int64_t b_gap = 0;            // steps of k between packed panels
  bool accumulate;
  Addend addend = Addend::none;
  DrawnEnding ending;
  int64_t b_column = 1;  // not 1: columns of B are contiguous
  bool extreme = false;  // some elements are as large and as small as floats are, or infinite
};

Layout random_layout(Random& random, int64_t nr) {
  Layout x;
  constexpr int64_t kDepths[] = {0, 1, 2, 3, 8, 17, 64, 101, 129, 300};
  x.m = random.chance(0.2) ? 0 + random.integer(0, 2) : random.integer(1, 45);
  x.k = random.pick(kDepths);
  x.n = random.chance(0.5) ? random.integer(0, 3 * nr + 1) : random.integer(0, 9 * nr);
  x.nr = nr;
  // Rows in one or two sets of a cache.
  x.a_row = random.chance(0.3) ? 512 * random.integer(1, 2) : x.k + random.integer(0, 5);
  x.b_gap = random.integer(0, 2);
  x.b_row = random.chance(0.5) ? 0 : x.n + random.integer(0, 5);
  x.c_row = x.n + random.integer(0, 5);
  constexpr Addend kAddends[] = {Addend::none, Addend::zero, Addend::rows, Addend::row,
                                 Addend::in_place};
  x.addend = random.pick(kAddends);
  DrawnEnding& ending = x.ending;
  if (random.chance(0.7)) ending.low = random.chance(0.7) ? 0 : -1.5;
  if (random.chance(0.5)) ending.high = random.chance(0.7) ? 2.25 : std::fmax(ending.low, -1.5);
  if (random.chance(0.3)) {
    ending.slope = random.real(-1, 1);
    ending.offset = random.real(-1, 1);
  }
  x.accumulate = x.addend == Addend::none && random.chance(0.5);
  if (random.chance(0.25)) {
    x.b_row = 1;
    x.b_column = x.k + random.integer(2, 5);
  }
  return x;
}

// Few rows by a direct B no wider than a panel.
Layout narrow_layout(Random& random, int64_t nr) {
  Layout x = random_layout(random, nr);
  x.m = random.integer(1, 4);
  x.n = random.integer(1, nr);
  x.b_row = x.n + random.integer(0, 5);
  x.b_column = 1;
  x.c_row = x.n + random.integer(0, 5);
  return x;
}

// More of A than stays in a cache at once.
Layout large_layout(Random& random, int64_t nr, bool packed) {
  Layout x = random_layout(random, nr);
  x.m = 45;
  x.k = 4001;
  x.n = 2 * nr + 3;
  x.a_row = 4096;
  x.b_row = packed ? 0 : x.n;
  x.b_column = 1;
  x.c_row = x.n;
  return x;
}

// Rows of any number and length, from places that a fetch must not read for good.
void announce(Machine& machine, Random& random, DType dtype, const std::vector<Place>& places) {
  machine.core.laters = 0;
  for (int64_t count = random.integer(0, kMostLater + 2); count > 0; count--) {
    Place place = places[static_cast<size_t>(random.integer(0, 2))];
    place.strides = {0, random.integer(-70, 500), 1};
    Ahead::Stream& ahead = machine.core.ahead.streams[0];
    ahead.tile = machine.core.local;
    ahead.next = ahead.tile + random.integer(0, 1000);
    const Family family = random.chance(0.5) ? Family::d_prefetch : Family::d_prefetch_next;
    const int before = machine.core.laters;
    machine.execute(family, dtype, {1, random_extent(random), random_extent(random)}, {place});
    if (machine.core.laters == before) continue;
    const auto fetched = reinterpret_cast<intptr_t>(machine.core.later[before].at);
    const auto shift = family == Family::d_prefetch ? 0 : ahead.next - ahead.tile;
    CHECK(fetched - reinterpret_cast<intptr_t>(place.at) == shift);
  }
  CHECK(machine.core.laters <= kMostLater);
}

// Rows and columns enough for tiles, of one chunk or several.
Layout many_rows(Random& random, int64_t nr) {
  constexpr int64_t kDepths[] = {32, 33, 64, 101, 300, 640, 641, 1300};
  Layout x = random_layout(random, nr);
  x.m = random.integer(40, 700);
  x.k = random.pick(kDepths);
  x.n = random.integer(nr + 1, 5 * nr);
  x.a_row = random.chance(0.2) ? 2048 : x.k + random.integer(0, 5);
  x.b_row = random.chance(0.6) ? 0 : x.n + random.integer(0, 5);
  x.b_column = 1;
  x.c_row = x.n + random.integer(0, 5);
  x.extreme = random.chance(0.3);
  return x;
}

template <class T>
void test_layout(Machine& machine, Random& random, DType dtype, const Layout& x) {
  const Shape a_shape{1, x.m, x.k}, c_shape{1, x.m, x.n};
  const int64_t panels = (x.n + x.nr - 1) / x.nr;
  const bool packed = x.b_row == 0;
  Array<T> a(a_shape, {0, x.a_row, 1}), c(c_shape, {0, x.c_row, 1});
  // Packed: panels of [k][NR]. Direct: [k, n] rows, so the operand ends at its last element.
  const Shape b_shape = packed ? Shape{panels, x.k, x.nr} : Shape{1, x.k, x.n};
  const Strides b_strides =
      packed ? Strides{(x.k + x.b_gap) * x.nr, x.nr, 1} : Strides{0, x.b_row, x.b_column};
  Array<T> b(b_shape, b_strides);
  Array<T> addend(c_shape, {0, x.addend == Addend::row ? 0 : x.n + 3, 1});
  for (Array<T>* array : {&a, &b, &c, &addend})
    array->fill([&] { return static_cast<T>(random.real(-1, 1)); });
  if (x.m > 0 && x.k > 0 && random.chance(0.3)) {
    a.at(0, random.integer(0, x.m - 1), random.integer(0, x.k - 1)) = std::nan("");
  }
  if (x.extreme) {
    constexpr double kExtremes[] = {1e30, -1e30, 1e-30, 1e-40, HUGE_VAL, -HUGE_VAL, 0};
    for (Array<T>* array : {&a, &b}) {
      if (random.chance(0.3)) continue;
      const Shape& shape = array == &a ? a_shape : b_shape;
      const double extreme = random.pick(kExtremes);
      for (int i = 0; i < 3; i++)
        array->at(random.integer(0, shape.outer - 1), random.integer(0, shape.middle - 1),
                  random.integer(0, shape.inner - 1)) = static_cast<T>(extreme);
    }
  }
  const std::vector<T> before = c.copy();
  Place b_place = b.place();
  b_place.strides.outer = packed ? (x.k + x.b_gap) * x.nr : x.nr * x.b_column;
  const uint8_t flags = x.accumulate ? kAccumulateAlways : 0;
  context += describe({x.m, x.k, x.n}, {a.strides(), b_place.strides, c.strides()});
  announce(machine, random, dtype, {c.place(), a.place(), Place{}});
  const Shape extents{x.m, x.k, x.n};
  const bool in_place = x.addend == Addend::in_place;
  if (x.addend == Addend::none) {
    machine.execute(Family::m_matmul, dtype, extents, {c.place(), a.place(), b_place}, {}, flags);
  } else {
    context += " addend " + std::to_string(static_cast<int>(x.addend));
    const Place zero{nullptr, {}, true, 0};
    machine.execute(Family::m_matmul_clamp, dtype, extents,
                    {c.place(), a.place(), b_place,
                     in_place                   ? c.place()
                     : x.addend == Addend::zero ? zero
                                                : addend.place()},
                    x.ending.words<T>(), random.chance(0.5) ? kStream : uint8_t{0});
  }
  CHECK(machine.core.laters == 0 || x.m == 0 || x.n == 0);
  bool right = true;
  std::vector<T> expected_gaps = before;
  for_each_index(c_shape, [&](int64_t, int64_t m, int64_t n) {
    const size_t at = static_cast<size_t>(c.strides().at(0, m, n));
    Wide sum = x.accumulate || in_place ? before[at] : T{0};
    if (x.addend == Addend::rows || x.addend == Addend::row) sum = addend.at(0, m, n);
    Wide scale = std::fabs(sum);
    for (int64_t k = 0; k < x.k; k++) {
      Wide product =
          static_cast<Wide>(a.at(0, m, k)) * (packed ? b.at(n / x.nr, k, n % x.nr) : b.at(0, k, n));
      if (std::fabs(product) > std::numeric_limits<T>::max())  // of elements that are finite, too
        product = std::copysign(std::numeric_limits<Wide>::infinity(), product);
      sum += product;
      scale += std::fabs(product);
    }
    Wide steepness = 1;
    if (x.addend != Addend::none) {
      steepness = x.ending.steepness(sum);
      sum = x.ending.of(sum);
      if (std::fabs(sum) > std::numeric_limits<T>::max())
        sum = std::copysign(std::numeric_limits<Wide>::infinity(), sum);
    }
    if (std::isnan(sum)) {
      right = right && std::isnan(c.at(0, m, n));
      c.at(0, m, n) = 0;
      expected_gaps[at] = 0;
      return;
    }
    const Wide bound = scale * steepness * std::numeric_limits<T>::epsilon() * (2 + x.k / 8);
    right = right && (c.at(0, m, n) == sum ||
                      (std::isfinite(bound) && std::fabs(c.at(0, m, n) - sum) <= bound));
    expected_gaps[at] = c.at(0, m, n);
  });
  CHECK(right);
  const std::vector<T> after = c.copy();
  CHECK(after == expected_gaps);
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  for (const dvm::Level& level : dvm::available_levels()) {
    Machine machine(*level.table);
    Random random(5);
    for (int i = 0; i < 400; i++) {
      context = std::string(level.table->name) + " m_matmul_f32 ";
      test_layout<float>(machine, random, dvm::DType::f32,
                         random_layout(random, level.table->matmul_nr));
      context = std::string(level.table->name) + " m_matmul_f64 ";
      test_layout<double>(machine, random, dvm::DType::f64,
                          random_layout(random, level.table->matmul_nr / 2));
    }
    for (int i = 0; i < 40; i++) {
      machine.lend_scratch(random.chance(0.9));
      context = std::string(level.table->name) + " m_matmul_f32 of many rows ";
      test_layout<float>(machine, random, dvm::DType::f32,
                         many_rows(random, level.table->matmul_nr));
    }
    for (const bool packed : {true, false}) {
      context = std::string(level.table->name) + " large m_matmul_f32 ";
      test_layout<float>(machine, random, dvm::DType::f32,
                         large_layout(random, level.table->matmul_nr, packed));
    }
    for (int i = 0; i < 100; i++) {
      context = std::string(level.table->name) + " narrow m_matmul_f32 ";
      test_layout<float>(machine, random, dvm::DType::f32,
                         narrow_layout(random, level.table->matmul_nr));
      context = std::string(level.table->name) + " narrow m_matmul_f64 ";
      test_layout<double>(machine, random, dvm::DType::f64,
                          narrow_layout(random, level.table->matmul_nr / 2));
    }
  }
  return report("matmul");
}
