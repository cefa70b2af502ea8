// Reductions of every level against exact accumulation in long double or 128-bit integers; repeated
// runs give the same bits; long float sums stay accurate.
#include "operands.h"
#include "reference.h"

namespace dvm::test {
namespace {

template <class T>
Wide exact_step(Family family, Wide total, T x) {
  switch (family) {
    case Family::v_reduce_sum: return total + static_cast<Wide>(x);
    case Family::v_reduce_prod: return total * static_cast<Wide>(x);
    case Family::v_reduce_max:
      return std::isnan(total) ? total
                               : (static_cast<Wide>(x) <= total ? total : static_cast<Wide>(x));
    default:
      return std::isnan(total) ? total
                               : (static_cast<Wide>(x) >= total ? total : static_cast<Wide>(x));
  }
}

template <class T>
T wrapping_step(Family family, T total, T x) {
  switch (family) {
    case Family::v_reduce_sum: return wrap<T>(static_cast<int128_t>(total) + x);
    case Family::v_reduce_prod: return wrap<T>(static_cast<int128_t>(total) * x);
    case Family::v_reduce_max: return x > total ? x : total;
    default: return x < total ? x : total;
  }
}

template <class T>
T identity(Family family) {
  using Limits = std::numeric_limits<T>;
  constexpr bool kHasInfinity = Limits::has_infinity;
  switch (family) {
    case Family::v_reduce_sum: return 0;
    case Family::v_reduce_prod: return 1;
    case Family::v_reduce_max: return kHasInfinity ? -Limits::infinity() : Limits::lowest();
    default: return kHasInfinity ? Limits::infinity() : Limits::max();
  }
}

// Strides of xn[M, size, N]: rows, columns, transposed, and with broadcast loops.
Strides random_reduce_strides(Random& random, const Shape& shape) {
  if (random.chance(0.3)) {  // M contiguous
    const int64_t row = shape.outer + random.integer(0, 3);
    return {1, row * shape.inner, row};
  }
  Strides strides = random_output_strides(random, shape);
  if (shape.inner == 1 && random.chance(0.6)) strides = {shape.middle + random.integer(0, 2), 1, 0};
  if (random.chance(0.1)) strides.middle = 0;
  if (random.chance(0.1)) strides.inner = 0;
  return strides;
}

template <class T>
void fill_for(Family family, Random& random, Array<T>& in) {
  if constexpr (kFloating<T>) {
    const bool product = family == Family::v_reduce_prod;
    in.fill([&] { return static_cast<T>(product ? random.real(0.8, 1.2) : random.real(-1, 1)); });
    const bool special = !product && family != Family::v_reduce_sum && random.chance(0.3);
    if (special && in.count() > 0) {
      in.data()[random.integer(0, in.count() - 1)] = random.chance(0.5) ? T(NAN) : T(-INFINITY);
    }
  } else {
    in.fill_random(random);
  }
}

template <class T>
bool agrees(Family family, T got, const std::vector<T>& values, bool accumulate, T before) {
  if constexpr (kFloating<T>) {
    Wide total = accumulate ? before : identity<T>(family), magnitude = std::fabs(total);
    for (const T x : values) {
      total = exact_step(family, total, x);
      magnitude += std::fabs(static_cast<Wide>(x));
    }
    if (std::isnan(total)) return std::isnan(got);
    if (family == Family::v_reduce_max || family == Family::v_reduce_min)
      return got == static_cast<T>(total);
    const Wide scale =
        family == Family::v_reduce_prod ? std::fabs(total) * values.size() : magnitude;
    return std::fabs(got - total) <= scale * std::numeric_limits<T>::epsilon() * 8;
  } else {
    T total = accumulate ? before : identity<T>(family);
    for (const T x : values) total = wrapping_step(family, total, x);
    return got == total;
  }
}

template <class T>
void test_reduce(Machine& machine, Random& random, Family family, DType dtype) {
  constexpr int64_t kExtents[] = {0, 1, 2, 3, 7, 16, 17, 33, 64, 65, 130, 700, 2100};
  Shape shape{random.integer(1, 4), random.pick(kExtents),
              random.chance(0.4) ? 1 : random_extent(random)};
  if (shape.outer == 4 && shape.middle < 100) shape.outer = 67;
  const Shape result{shape.outer, 1, shape.inner};
  Strides out_strides{shape.inner + random.integer(0, 2), 0, 1};
  if (shape.inner == 1) out_strides.outer = random.chance(0.7) ? 1 : 3;
  Array<T> in(shape, random_reduce_strides(random, shape)), out(result, out_strides);
  fill_for(family, random, in);
  out.fill([&] { return static_cast<T>(random.integer(0, 1)); });
  const std::vector<T> before = out.copy();
  const bool accumulate_flag = random.chance(0.5), first = random.chance(0.5);
  machine.core.first_chunk = first;
  context += describe(shape, {out_strides, in.strides()});
  const uint8_t flags = accumulate_flag ? kAccumulate : 0;
  machine.execute(family, dtype, shape, {out.place(), in.place()}, {}, flags);
  const std::vector<T> once = out.copy();
  bool right = true;
  for_each_index(result, [&](int64_t o, int64_t, int64_t i) {
    std::vector<T> values;
    for (int64_t s = 0; s < shape.middle; s++) values.push_back(in.at(o, s, i));
    const T held = before[static_cast<size_t>(out_strides.at(o, 0, i))];
    right = right && agrees(family, out.at(o, 0, i), values, accumulate_flag && !first, held);
  });
  CHECK(right);
  if (accumulate_flag) return;
  machine.execute(family, dtype, shape, {out.place(), in.place()}, {}, flags);
  const size_t bytes = once.size() * sizeof(T);
  CHECK(bytes == 0 || std::memcmp(once.data(), out.data(), bytes) == 0);
}

void test_long_sum(Machine& machine) {
  const Shape shape{1, 1 << 20, 1};
  for (const Strides strides : {Strides{0, 1, 0}, Strides{0, 2, 1}}) {
    Array<float> in(shape, strides), out({1, 1, 1}, {0, 0, 1});
    in.fill([] { return 0.1f; });
    machine.execute(Family::v_reduce_sum, DType::f32, shape, {out.place(), in.place()});
    context = "long sum " + std::to_string(out.data()[0]);
    CHECK(std::fabs(out.data()[0] - 0.1f * static_cast<double>(shape.middle)) < 1.0);
  }
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  constexpr int kCases = 150;
  for (const dvm::Level& level : dvm::available_levels()) {
    Machine machine(*level.table);
    Random random(11);
    for_each_instruction([&](const Row& row, dvm::DType dtype) {
      if (row.form != dvm::Form::reduce) return;
      for (int i = 0; i < kCases; i++) {
        context = std::string(level.table->name) + " " + row.name + "_" + name_of(dtype) + " ";
        with_register_type(dtype, [&](auto element) {
          test_reduce<decltype(element)>(machine, random, row.family, dtype);
        });
      }
    });
    test_long_sum(machine);
  }
  return report("reduce");
}
