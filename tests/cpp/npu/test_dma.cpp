// The DMA unit and v_narrow of every level: conversions of every storage dtype against an
// arithmetic definition, moves under random strides and loop orders, gathers, packing.
#include "operands.h"
#include "reference.h"

namespace dvm::test {
namespace {

// --- conversion, one element at a time -----------------------------------------------------------

struct FloatFormat {
  int exponent_bits, mantissa_bits;
};
constexpr FloatFormat kHalf{5, 10}, kBFloat{8, 7};

double decode_float(uint16_t bits, FloatFormat format) {
  const int exponent_mask = (1 << format.exponent_bits) - 1;
  const int exponent = (bits >> format.mantissa_bits) & exponent_mask;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int bias = exponent_mask / 2;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == exponent_mask) return mantissa != 0 ? NAN : sign * INFINITY;
  const double significand = std::ldexp(mantissa, -format.mantissa_bits) + (exponent != 0);
  return sign * std::ldexp(significand, (exponent != 0 ? exponent : 1) - bias);
}

// The value of the format nearest to x, ties to even.
double round_to_format(double x, FloatFormat format) {
  if (std::isnan(x) || std::isinf(x) || x == 0) return x;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  int exponent;
  std::frexp(x, &exponent);
  const int lowest = std::max(exponent - 1, 1 - bias);
  const double ulp = std::ldexp(1.0, lowest - format.mantissa_bits);
  const double rounded = std::nearbyint(x / ulp) * ulp;
  const double largest = std::ldexp(2.0 - std::ldexp(1.0, -format.mantissa_bits), bias);
  return std::fabs(rounded) > largest ? std::copysign(INFINITY, x) : rounded;
}

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

// Whether register value `r` and the storage bytes at `s` mean the same after storage(r) (`rounds`)
// or register(s).
template <class R>
bool converted(DType storage, R r, const std::byte* s, bool rounds) {
  const auto integer = [&](auto element) {
    std::memcpy(&element, s, sizeof element);
    return rounds ? element == static_cast<decltype(element)>(r) : r == static_cast<R>(element);
  };
  uint16_t bits = 0;
  if (size_of(storage) == 2) std::memcpy(&bits, s, 2);
  switch (storage) {
    case DType::f16:
    case DType::bf16: {
      const FloatFormat format = storage == DType::f16 ? kHalf : kBFloat;
      const double decoded = decode_float(bits, format);
      const double value = static_cast<double>(r);
      return same(decoded, rounds ? round_to_format(value, format) : value);
    }
    case DType::i8: return integer(int8_t{});
    case DType::u8: return integer(uint8_t{});
    case DType::i16: return integer(int16_t{});
    case DType::u16: return integer(uint16_t{});
    case DType::u32: return integer(uint32_t{});
    default: return std::memcmp(&r, s, sizeof r) == 0 || (r != r);
  }
}

// --- random operands
// --------------------------------------------------------------------------------

// A tile in row-major order under some order of its loops, possibly padded: one loop is contiguous.
Strides random_view(Random& random, const Shape& shape) {
  int order[3] = {0, 1, 2};
  for (int i = 2; i > 0; i--) std::swap(order[i], order[random.integer(0, i)]);
  const int64_t extents[3] = {shape.outer, shape.middle, shape.inner};
  int64_t strides[3], step = random.chance(0.1) ? 2 : 1;
  for (const int loop : order) {
    strides[loop] = step;
    step = step * std::max<int64_t>(extents[loop], 1) +
           (random.chance(0.3) ? random.integer(1, 5) : 0);
  }
  return {strides[0], strides[1], strides[2]};
}

Shape random_move_shape(Random& random) {
  if (random.chance(0.2))  // columns that are few by themselves, and go on from plane to plane
    return {random.integer(2, 40), random_extent(random), random.integer(2, 4)};
  if (random.chance(0.1))  // squares of bytes, as many as make a run, and what is left of them
    return {1, random.integer(60, 340), random.integer(60, 140)};
  return {random.chance(0.3) ? 3 : 1, random_extent(random), random_extent(random)};
}

// Storage elements as raw bytes.
class Storage {
 public:
  Storage(DType dtype, const Shape& shape, const Strides& strides)
      : dtype_(dtype),
        strides_(strides),
        memory_(static_cast<size_t>(strides.span(shape)) * size_of(dtype)) {}
  std::byte* at(int64_t o, int64_t m, int64_t i) const {
    return memory_.data() + strides_.at(o, m, i) * static_cast<int64_t>(size_of(dtype_));
  }
  Place place() const { return {memory_.data(), strides_}; }
  const Strides& strides() const { return strides_; }
  void fill_random(Random& random) {
    for (size_t i = 0; i < memory_.bytes(); i++) {
      memory_.data()[i] =
          static_cast<std::byte>(dtype_ == DType::b8 ? random.bits() & 1 : random.bits());
    }
  }
  std::vector<std::byte> copy() const { return {memory_.data(), memory_.data() + memory_.bytes()}; }
  std::byte* data() const { return memory_.data(); }

 private:
  DType dtype_;
  Strides strides_;
  Guarded memory_;
};

// --- tests
// --------------------------------------------------------------------------------------------

// What 16 bits are called where they are moved as they are.
DType dtype_for(Family family, DType dtype) {
  const bool stored = family == Family::d_load_stored || family == Family::d_store_stored ||
                      family == Family::d_gather_stored;
  return stored ? DType::f16 : dtype;
}

template <class R>
void test_load(Machine& machine, Random& random, DType dtype, Family family = Family::d_load_view) {
  const Shape shape = random_move_shape(random);
  Strides view = random_view(random, shape);
  if (random.chance(0.2)) view.inner = 0;
  if (random.chance(0.2)) view.middle = 0;
  Storage from(dtype, shape, view);
  Array<R> to(shape, random_output_strides(random, shape));
  from.fill_random(random);
  context += "load " + describe(shape, {to.strides(), view});
  machine.execute(family, dtype_for(family, dtype), shape, {to.place(), from.place()});
  bool right = true;
  for_each_index(shape, [&](int64_t o, int64_t m, int64_t i) {
    right = right && converted(dtype, to.at(o, m, i), from.at(o, m, i), false);
  });
  CHECK(right);
}

template <class R>
void test_store(Machine& machine, Random& random, DType dtype,
                Family family = Family::d_store_view) {
  const Shape shape = random_move_shape(random);
  Storage to(dtype, shape, random_view(random, shape));
  Array<R> from(shape, random_input_strides(random, shape));
  to.fill_random(random);
  from.fill([&] {
    // Around the range of f16, its subnormals included.
    if constexpr (kFloating<R>)
      if (random.chance(0.6))
        return static_cast<R>(random.real(-1, 1) * std::exp2(random.real(-26, 17)));
    return random_value<R>(random);
  });
  std::vector<std::byte> expected = to.copy();
  context += "store " + describe(shape, {to.strides(), from.strides()});
  machine.execute(family, dtype_for(family, dtype), shape, {to.place(), from.place()});
  bool right = true;
  for_each_index(shape, [&](int64_t o, int64_t m, int64_t i) {
    right = right && converted(dtype, from.at(o, m, i), to.at(o, m, i), true);
    std::memcpy(expected.data() + (to.at(o, m, i) - to.data()), to.at(o, m, i), size_of(dtype));
  });
  CHECK(right);
  CHECK(expected == to.copy());
}

template <class R>
void test_narrow(Machine& machine, Random& random, DType dtype) {
  const Shape shape = random_shape(random);
  Array<R> to(shape, random_output_strides(random, shape)),
      from(shape, random_input_strides(random, shape));
  from.fill_random(random);
  context += "narrow " + describe(shape, {to.strides(), from.strides()});
  machine.execute(Family::v_narrow, dtype, shape, {to.place(), from.place()});
  const Shape one{1, 1, 1};
  Storage storage(dtype, one, {0, 0, 1});
  bool right = true;
  for_each_index(shape, [&](int64_t o, int64_t m, int64_t i) {
    Array<R> value(one, {0, 0, 1});
    value.data()[0] = from.at(o, m, i);
    machine.execute(Family::d_store, dtype, one, {storage.place(), value.place()});
    right = right && converted(dtype, to.at(o, m, i), storage.data(), false);
  });
  CHECK(right);
}

template <class R>
void test_lookup(Machine& machine, Random& random, DType dtype) {
  const Shape shape = random_shape(random);
  Storage table(dtype, {1, 1, kTableEntries}, {0, 0, 1});
  table.fill_random(random);
  Array<R> bytes(shape, random_input_strides(random, shape));
  bytes.fill([&] { return static_cast<R>(random.integer(-128, 255)); });
  Array<R> to(shape, random_output_strides(random, shape));
  context += "lookup " + describe(shape, {to.strides(), bytes.strides()});
  Place source = table.place();
  source.strides = {0, 0, 0};
  machine.execute(Family::d_lookup, dtype, shape, {to.place(), source, bytes.place()});
  bool right = true;
  for_each_index(shape, [&](int64_t o, int64_t m, int64_t i) {
    const int64_t entry = static_cast<uint8_t>(bytes.at(o, m, i));
    right = right && converted(dtype, to.at(o, m, i), table.at(0, 0, entry), false);
  });
  CHECK(right);
}

// Any, or such as lie near each other, as those of an image's row that is resized do, up to the
// last.
void fill_indices(Array<int64_t>& index, const Shape& shape, int64_t limit, Random& random) {
  if (random.chance(0.4)) return index.fill([&] { return random.integer(-limit, limit - 1); });
  const double step = random.real(0.1, 2.5);
  const int64_t count = shape.inner > 1 ? shape.inner : shape.middle;
  const double first =
      std::max(0.0, static_cast<double>(limit) - step * static_cast<double>(count));
  const bool backwards = random.chance(0.2);
  const int64_t from_end = random.chance(0.3) ? limit : 0;
  for_each_index(shape, [&](int64_t o, int64_t m, int64_t i) {
    const auto at = static_cast<double>(shape.inner > 1 ? i : m);
    const int64_t place = std::min(static_cast<int64_t>(first + at * step), limit - 1);
    index.at(o, m, i) = (backwards ? limit - 1 - place : place) - from_end;
  });
}

template <class R>
void test_gather(Machine& machine, Random& random, DType dtype, Family family = Family::d_gather) {
  Shape shape = random_shape(random);
  if (random.chance(0.05))
    shape = {1, 2, random.integer(2000, 4200)};  // more than are found at once
  constexpr int64_t kLimits[] = {13, 13, 40, 150, 3000};
  const bool is_far = random.chance(0.05);  // elements further apart than 32 bits count
  const int64_t limit = is_far ? 1 : random.pick(kLimits);
  const Strides out_strides = random_output_strides(random, shape);
  Strides view{0, 0, 1};
  int64_t axis_stride = is_far ? int64_t{1} << 31 : shape.inner;
  if (!is_far && random.chance(0.3)) view = {0, 0, limit}, axis_stride = 1;
  const Shape table{limit, 1, shape.inner};
  Storage from(dtype, table, {axis_stride, 0, view.inner});
  from.fill_random(random);
  Array<int64_t> index(shape, random_input_strides(random, shape));
  fill_indices(index, shape, limit, random);
  Array<R> to(shape, out_strides);
  const bool broken = shape.count() > 0 && random.chance(0.2);
  if (broken) index.at(shape.outer - 1, shape.middle - 1, shape.inner - 1) = limit;
  context += "gather " + describe(shape, {out_strides, view, index.strides()});
  Place source = from.place();
  source.strides = view;
  machine.execute(family, dtype_for(family, dtype), shape, {to.place(), source, index.place()},
                  {axis_stride, limit});
  CHECK((machine.core.trap.kind == TrapKind::index_out_of_range) == broken);
  if (broken) {
    CHECK(machine.core.trap.value == limit && machine.core.trap.limit == limit);
    return;
  }
  bool right = true;
  for_each_index(shape, [&](int64_t o, int64_t m, int64_t i) {
    const int64_t row = (index.at(o, m, i) + limit) % limit;
    right = right && converted(dtype, to.at(o, m, i), from.at(row, 0, i), false);
  });
  CHECK(right);
}

template <class R>
void test_pack_b(Machine& machine, Random& random, DType dtype, int64_t nr) {
  const int64_t k = random_extent(random), n = random_extent(random), panels = (n + nr - 1) / nr;
  const Shape shape{1, k, n};
  Strides view = random_view(random, shape);
  Storage from(dtype, shape, view);
  from.fill_random(random);
  const int64_t panel_stride = k * nr + random.integer(0, 1) * 8;
  Array<R> to({panels, k, nr}, {panel_stride, nr, 1});
  to.fill([] { return R{1}; });
  Place out = to.place();
  context += "pack_b " + describe(shape, {to.strides(), view});
  machine.execute(Family::d_pack_b, dtype, shape, {out, from.place()});
  bool right = true;
  for_each_index({panels, k, nr}, [&](int64_t p, int64_t kk, int64_t c) {
    const int64_t column = p * nr + c;
    right = right && (column < n ? converted(dtype, to.at(p, kk, c), from.at(0, kk, column), false)
                                 : to.at(p, kk, c) == R{0});
  });
  if (k > 0) CHECK(right);
}

template <class R>
void test_storage(const Level& level, Machine& machine, Random& random, DType dtype) {
  const std::string name = std::string(level.table->name) + " " + name_of(dtype) + " ";
  const int64_t nr = level.table->matmul_nr * 4 / static_cast<int64_t>(sizeof(R));
  for (int i = 0; i < 120; i++) {
    context = name;
    machine.hints = random.chance(0.3) ? kStream : 0;
    test_load<R>(machine, random, dtype);
    context = name;
    test_store<R>(machine, random, dtype);
    context = name;
    if ((dtype_list::NARROW >> static_cast<int>(dtype)) & 1) test_narrow<R>(machine, random, dtype);
    context = name;
    if constexpr (std::is_same_v<R, int32_t> || std::is_same_v<R, uint8_t>) {
      if ((dtype_list::TABLED >> static_cast<int>(dtype)) & 1) {
        test_lookup<R>(machine, random, dtype);
      }
    }
    context = name;
    test_gather<R>(machine, random, dtype);
    context = name;
    test_pack_b<R>(machine, random, dtype, nr);
  }
}

void test_moved_as_stored(const Level& level, Machine& machine, Random& random) {
  const std::string name = std::string(level.table->name) + " as stored ";
  for (int i = 0; i < 300; i++) {
    context = name;
    machine.hints = random.chance(0.3) ? kStream : 0;
    test_load<int16_t>(machine, random, DType::i16, Family::d_load_stored);
    context = name;
    test_store<int16_t>(machine, random, DType::i16, Family::d_store_stored);
    context = name;
    test_gather<int16_t>(machine, random, DType::i16, Family::d_gather_stored);
  }
}

// Every half and bfloat there is.
void test_all_narrow_floats(Machine& machine) {
  const Shape shape{1, 1, 1 << 16};
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Storage from(dtype, shape, {0, 0, 1}), back(dtype, shape, {0, 0, 1});
    Array<float> to(shape, {0, 0, 1});
    for (uint32_t i = 0; i < (1u << 16); i++) {
      const auto bits = static_cast<uint16_t>(i);
      std::memcpy(from.at(0, 0, i), &bits, 2);
    }
    context = std::string("all ") + name_of(dtype);
    machine.execute(Family::d_load, dtype, shape, {to.place(), from.place()});
    machine.execute(Family::d_store, dtype, shape, {back.place(), to.place()});
    bool right = true;
    for_each_index(shape, [&](int64_t o, int64_t m, int64_t i) {
      right = right && converted(dtype, to.at(o, m, i), from.at(o, m, i), false) &&
              converted(dtype, to.at(o, m, i), back.at(o, m, i), true);
    });
    CHECK(right);
  }
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  for (const dvm::Level& level : dvm::available_levels()) {
    Machine machine(*level.table);
    Random random(3);
    for (int d = 0; d < dvm::kDTypes; d++) {
      const auto dtype = static_cast<dvm::DType>(d);
      with_register_type(register_dtype(dtype), [&](auto element) {
        test_storage<decltype(element)>(level, machine, random, dtype);
      });
    }
    test_moved_as_stored(level, machine, random);
    test_all_narrow_floats(machine);
  }
  return report("dma");
}
