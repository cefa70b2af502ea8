#include "random_plan.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "../targets.h"
#include "reference_device.h"

namespace dvm::testing {
namespace {

constexpr int64_t kExtents[] = {1,  2,  3,  4,  5,  7,  8,   9,   13,  15,   16,  17,
                                31, 32, 33, 63, 64, 65, 100, 127, 257, 1009, 4099};
constexpr int64_t kMostPoints = 40000;
constexpr int64_t kIndexLimit = 9;  // indices are drawn from [-8, 8]

int64_t below(Random& random, int64_t bound) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
}
bool chance(Random& random, int percent) { return below(random, 100) < percent; }

template <typename T, size_t N>
T one_of(Random& random, const T (&choices)[N]) {
  return choices[below(random, N)];
}

int64_t random_extent(Random& random, int64_t most) {
  if (chance(random, 2)) return 0;
  for (;;) {
    const int64_t extent = one_of(random, kExtents);
    if (extent <= std::max<int64_t>(most, 1)) return extent;
  }
}

uint32_t random_axes(Random& random, uint32_t axes, int keep_percent) {
  uint32_t result = 0;
  for (int a = 0; a < kMaxDomainRank; ++a) {
    if ((axes >> a & 1) && chance(random, keep_percent)) result |= 1u << a;
  }
  return result;
}

// Some layout of the axes: permuted, shifted, padded, or walking backwards along one axis.
Access random_view(Random& random, PlanBuilder& b, DType dtype, uint32_t axes) {
  std::vector<int> order = b.axis_list(axes);
  if (chance(random, 30)) std::shuffle(order.begin(), order.end(), random);
  const int64_t offset = chance(random, 20) ? 3 : 0;
  const int64_t padding = chance(random, 20) && order.size() > 1 ? 5 : 0;
  Access access = b.dense(dtype, order, offset, padding);
  if (!order.empty() && chance(random, 10)) {
    DimSlot& stride = access.strides[order.back()];
    const int64_t extent = b.extent(order.back());
    if (stride != kNoSlot && extent > 0) {
      access.offset = b.slot(offset + b.dims[stride] * (extent - 1));
      stride = b.slot(-b.dims[stride]);
    }
  }
  return access;
}

struct Pools {
  std::vector<int32_t> by_dtype[kRegisterDTypes];

  void add(const PlanBuilder& b, int32_t node) {
    by_dtype[static_cast<int>(b.plan.nodes[node].dtype)].push_back(node);
  }
  int32_t pick(Random& random, DType dtype) const {
    const auto& pool = by_dtype[static_cast<int>(dtype)];
    return pool.empty() ? -1 : pool[below(random, static_cast<int64_t>(pool.size()))];
  }
};

DType random_storage(Random& random, DType dtype) {
  if (chance(random, 70)) return dtype;
  constexpr DType reals[] = {DType::f16, DType::bf16};
  constexpr DType narrow[] = {DType::i8, DType::u8, DType::i16, DType::u16};
  constexpr DType wide[] = {DType::u32, DType::u64};
  switch (dtype) {
    case DType::f32: return one_of(random, reals);
    case DType::i32: return one_of(random, narrow);
    case DType::i64: return one_of(random, wide);
    default: return dtype;
  }
}

int32_t random_map(Random& random, PlanBuilder& b, const Pools& pools, int& products) {
  constexpr DType registers[] = {DType::f32, DType::f32, DType::f32, DType::i32,
                                 DType::i64, DType::f64, DType::b8};
  constexpr PlanOp unary[] = {PlanOp::neg_, PlanOp::abs_, PlanOp::sign_};
  constexpr PlanOp binary[] = {PlanOp::add_, PlanOp::sub_, PlanOp::min_, PlanOp::max_,
                               PlanOp::mul_};
  constexpr PlanOp compare[] = {PlanOp::lt_, PlanOp::ge_, PlanOp::ne_};
  constexpr PlanOp logic[] = {PlanOp::bitwise_and_, PlanOp::bitwise_or_, PlanOp::bitwise_xor_};
  const DType dtype = one_of(random, registers);
  const int32_t x = pools.pick(random, dtype), y = pools.pick(random, dtype);
  if (x < 0) return -1;
  const int choice = static_cast<int>(below(random, 100));
  if (choice < 12) return b.cast(x, one_of(random, registers));
  if (dtype == DType::b8) return b.map(one_of(random, logic), {x, y});
  if (choice < 25) return b.map(one_of(random, compare), {x, y});
  if (choice < 37) {
    const int32_t condition = pools.pick(random, DType::b8);
    if (condition >= 0) return b.map(PlanOp::select_, {condition, x, y});
  }
  if (choice < 45) {
    const int32_t constant = b.fill(dtype, 2);
    return chance(random, 50) ? b.map(PlanOp::sub_, {constant, x})
                              : b.map(PlanOp::max_, {x, constant});
  }
  if (choice < 60) return b.map(one_of(random, unary), {x});
  PlanOp op = one_of(random, binary);
  if (op == PlanOp::mul_ && ++products > 2) op = PlanOp::add_;
  return b.map(op, {x, y});
}

int32_t random_reduction(Random& random, PlanBuilder& b, const Pools& pools, uint32_t preferred) {
  constexpr DType dtypes[] = {DType::f32, DType::f32, DType::i32, DType::i64, DType::f64};
  constexpr PlanOp ops[] = {PlanOp::reduce_sum_, PlanOp::reduce_max_, PlanOp::reduce_min_};
  const int32_t x = pools.pick(random, one_of(random, dtypes));
  if (x < 0) return -1;
  const uint32_t axes = b.plan.nodes[x].axes;
  uint32_t reduced = axes & preferred;
  if (chance(random, 20)) reduced = random_axes(random, axes, 50);
  return reduced == 0 ? -1 : b.reduce(one_of(random, ops), x, reduced);
}

int32_t random_gather(Random& random, PlanBuilder& b, uint32_t axes) {
  const uint32_t index_axes = random_axes(random, axes, 50);
  int32_t index = b.load(random_view(random, b, DType::i64, index_axes), index_axes);
  if (chance(random, 30)) {
    index = b.map(PlanOp::check_index_, {index});
    b.plan.nodes[index].limit = b.slot(kIndexLimit);
  }
  const uint32_t table_axes = random_axes(random, axes & ~index_axes, 70);
  Access table = b.dense(DType::f32, b.axis_list(table_axes));
  const int64_t row = b.value_elements[table.value];
  table.value = b.value(DType::f32, row * kIndexLimit);
  return b.gather(index, table, kIndexLimit, row, index_axes | table_axes);
}

// From a flat table, by a checked index and what is counted along some of the axes.
int32_t random_points(Random& random, PlanBuilder& b, uint32_t axes) {
  const uint32_t index_axes = random_axes(random, axes, 60),
                 counted = random_axes(random, axes, 60);
  int32_t index = b.load(random_view(random, b, DType::i64, index_axes), index_axes);
  index = b.map(PlanOp::check_index_, {index});
  b.plan.nodes[index].limit = b.slot(kIndexLimit);
  std::vector<int64_t> strides(b.plan.extents.size(), 0);
  int64_t row = 1;
  for (size_t a = strides.size(); a-- > 0;) {
    if (!(counted >> a & 1)) continue;
    strides[a] = row;
    row *= std::max<int64_t>(b.extent(static_cast<int>(a)), 1);
  }
  const int64_t before = below(random, 3), behind = below(random, 3);
  index = b.map(PlanOp::mul_, {index, b.fill(DType::i64, static_cast<double>(row))});
  index = b.map(PlanOp::add_, {b.iota(before, strides, counted), index});
  const int64_t elements = before + row * kIndexLimit + behind;
  Access table = b.dense(DType::f32, {});
  table.value = b.value(DType::f32, elements);
  return b.gather(index, table, elements, 1, index_axes | counted);
}

// Of bytes that were loaded, or of the low bytes of numbers.
int32_t random_lookup(Random& random, PlanBuilder& b, const Pools& pools) {
  constexpr DType bytes[] = {DType::u8, DType::i8};
  const int32_t x = pools.pick(random, DType::i32);
  return x < 0 ? -1 : b.lookup(x, one_of(random, bytes));
}

void random_outputs(Random& random, PlanBuilder& b, int count, uint32_t forbidden) {
  const auto nodes = static_cast<int64_t>(b.plan.nodes.size());
  for (int i = 0; i < count; ++i) {
    const int32_t node = static_cast<int32_t>(i == 0 ? nodes - 1 : below(random, nodes));
    if (b.plan.nodes[node].op == PlanOp::store_ || (b.plan.nodes[node].axes & forbidden)) continue;
    uint32_t axes = b.plan.nodes[node].axes;
    if (chance(random, 10)) axes |= random_axes(random, b.all_axes() & ~forbidden, 60);
    const DType dtype = random_storage(random, b.plan.nodes[node].dtype);
    b.store(node, random_view(random, b, dtype, axes), axes);
  }
}

}  // namespace

PlanBuilder random_vector_plan(Random& random) {
  PlanBuilder b;
  b.plan.name = "random";
  const int rank = static_cast<int>(below(random, 6));
  int64_t points = 1;
  for (int a = 0; a < rank; ++a) {
    const int64_t extent = random_extent(random, kMostPoints / points);
    b.axis(extent);
    points *= std::max<int64_t>(extent, 1);
  }
  Pools pools;
  const uint32_t all = b.all_axes();
  const uint32_t reduced = random_axes(random, all, 40);
  constexpr DType dtypes[] = {DType::f32, DType::f32, DType::i32,
                              DType::i64, DType::b8,  DType::f64};
  const int loads = 1 + static_cast<int>(below(random, 4));
  for (int i = 0; i < loads; ++i) {
    const DType dtype = one_of(random, dtypes);
    const uint32_t axes = random_axes(random, all, i == 0 ? 100 : 70);
    pools.add(b, b.load(random_view(random, b, random_storage(random, dtype), axes), axes));
  }
  if (chance(random, 15)) pools.add(b, random_gather(random, b, all));
  if (chance(random, 10)) pools.add(b, random_points(random, b, all));
  for (int left = 3; left > 0 && chance(random, 15); --left) {
    std::vector<int64_t> strides;
    for (int a = 0; a < rank; ++a) strides.push_back(below(random, 7) - 3);
    pools.add(b, b.iota(below(random, 9) - 4, strides, random_axes(random, all, 80)));
  }
  const int operators = static_cast<int>(below(random, 9));
  int products = 0;
  for (int i = 0; i < operators; ++i) {
    const int32_t node = chance(random, 25)   ? random_reduction(random, b, pools, reduced)
                         : chance(random, 10) ? random_lookup(random, b, pools)
                                              : random_map(random, b, pools, products);
    if (node >= 0) pools.add(b, node);
  }
  random_outputs(random, b, 1 + static_cast<int>(below(random, 3)), 0);
  return b;
}

// Of what products multiply: bytes, where their sums are i32.
DType factor_storage(Random& random, DType dtype) {
  constexpr DType bytes[] = {DType::i32, DType::i8, DType::u8, DType::u8};
  return dtype == DType::i32 ? one_of(random, bytes) : random_storage(random, dtype);
}

// A constant B operand along (some batch, k, n), packed; in bundles, where its product rounds or
// multiplies bytes.
int32_t packed_operand(Random& random, PlanBuilder& b, DType dtype, bool rounds, uint32_t batch,
                       int k_axis, int n_axis, int columns_per_panel) {
  std::vector<int> order = b.axis_list(batch);
  order.push_back(k_axis);
  order.push_back(n_axis);
  Access panels = b.dense(dtype, order);
  const int64_t columns = columns_per_panel / (dtype == DType::f64 ? 2 : 1);
  const int64_t padded = (b.extent(n_axis) + columns - 1) / columns * columns;
  const bool bytes = dtype == DType::i32;
  const DType bundled = bytes ? DType::i8 : DType::bf16;
  const int64_t steps = rounds || bytes ? bundle_steps(bundled) : 1;
  int64_t elements = padded * ((b.extent(k_axis) + steps - 1) / steps * steps);
  for (const int axis : b.axis_list(batch)) elements *= b.extent(axis);
  panels.value = b.value(steps > 1 ? bundled : random_storage(random, dtype), elements);
  panels.packed_panels = true;
  const int32_t load = b.load(panels, batch | 1u << k_axis | 1u << n_axis);
  b.plan.nodes[load].dtype = dtype;
  return load;
}

int32_t random_b_operand(Random& random, PlanBuilder& b, DType dtype, bool rounds, uint32_t batch,
                         int k_axis, int n_axis, int columns_per_panel) {
  const uint32_t axes = random_axes(random, batch, 50);
  if (chance(random, 40)) {
    return packed_operand(random, b, dtype, rounds, axes, k_axis, n_axis, columns_per_panel);
  }
  const uint32_t all = axes | 1u << k_axis | 1u << n_axis;
  return b.load(random_view(random, b, factor_storage(random, dtype), all), all);
}

// A constant B operand in levels of a few bits, each block of k with a scale and maybe a zero.
int32_t levels_operand(Random& random, PlanBuilder& b, int columns_per_panel) {
  constexpr int32_t steps[] = {16, 32, 128}, bits[] = {2, 4, 8};
  Access panels;
  panels.strides.assign(b.plan.extents.size(), kNoSlot);
  panels.packed_panels = true;
  panels.block = one_of(random, steps);
  panels.block_bits = one_of(random, bits);
  const auto words = static_cast<int32_t>(panels.block / word_levels(panels.block_bits));
  panels.block_rows = static_cast<int32_t>(words + 1 + below(random, 2));
  const int64_t columns = (b.extent(b.plan.n_axis) + columns_per_panel - 1) / columns_per_panel;
  const int64_t blocks = (b.extent(b.plan.k_axis) + panels.block - 1) / panels.block;
  panels.value = b.value(DType::u32, columns * columns_per_panel * blocks * panels.block_rows);
  const int32_t load = b.load(panels, 1u << b.plan.k_axis | 1u << b.plan.n_axis);
  b.plan.nodes[static_cast<size_t>(load)].dtype = DType::f32;
  return load;
}

// An A operand that is loaded, or computed along its rows.
int32_t random_a_operand(Random& random, PlanBuilder& b, DType dtype, uint32_t axes, int k_axis) {
  const uint32_t k = 1u << k_axis;
  int32_t a = b.load(random_view(random, b, factor_storage(random, dtype), axes), axes);
  if (chance(random, 60)) return a;
  if (chance(random, 50)) a = b.map(PlanOp::add_, {a, b.input(dtype, k)});
  if (chance(random, 40)) a = b.map(PlanOp::sub_, {a, b.reduce(PlanOp::reduce_max_, a, k)});
  if (chance(random, 50)) a = b.map(PlanOp::max_, {a, b.fill(dtype, -2)});
  return a;
}

// Sums of bytes as one of some levels, which the cube unit may make of them.
int32_t quantised(Random& random, PlanBuilder& b, int32_t sums, int axis) {
  const auto along = [&](DType dtype, double number) {
    return chance(random, 60) ? b.input(dtype, 1u << axis) : b.fill(dtype, number);
  };
  if (chance(random, 60)) sums = b.map(PlanOp::add_, {sums, along(DType::i32, 3)});
  int32_t x = b.map(PlanOp::mul_, {b.cast(sums, DType::f32), along(DType::f32, 0.5)});
  x = b.map(PlanOp::round_, {x});
  if (chance(random, 60)) x = b.map(PlanOp::add_, {x, b.fill(DType::f32, 2)});
  x = b.map(PlanOp::min_, {x, b.fill(DType::f32, 20)});
  return b.map(PlanOp::max_, {b.cast(x, DType::i32), b.fill(DType::i32, -3)});
}

// A product times a line of itself that is kept between numbers, or the greater of it and a part of
// it, which the cube unit may make of it; not where it is an integer.
int32_t gated(Random& random, PlanBuilder& b, DType dtype, int32_t product) {
  if (dtype == DType::i32 || dtype == DType::i64) return product;
  int32_t x = b.map(PlanOp::mul_, {product, b.fill(dtype, chance(random, 70) ? 0.5 : -0.5)});
  if (chance(random, 30)) return b.map(PlanOp::max_, {x, product});
  if (chance(random, 80)) x = b.map(PlanOp::add_, {x, b.fill(dtype, 1)});
  if (chance(random, 60)) x = b.map(PlanOp::max_, {x, b.fill(dtype, 0)});
  if (chance(random, 60)) x = b.map(PlanOp::min_, {b.fill(dtype, 2), x});
  return b.map(PlanOp::mul_, {product, x});
}

// A[batch, m, k] as a product of its own, followed by operators along its rows.
int32_t inner_product(Random& random, PlanBuilder& b, DType dtype, bool rounds, uint32_t batch,
                      int columns_per_panel) {
  const uint32_t m = 1u << b.plan.m_axis, k = 1u << b.plan.k_axis;
  const uint32_t left_axes = random_axes(random, batch, 80) | m | 1u << b.plan.inner_k_axis;
  const int32_t left = random_a_operand(random, b, dtype, left_axes, b.plan.inner_k_axis);
  const int32_t right = random_b_operand(random, b, dtype, rounds, batch, b.plan.inner_k_axis,
                                         b.plan.k_axis, columns_per_panel);
  int32_t x = b.inner_matmul(left, right);
  if (rounds) b.plan.nodes[x].narrow_to = DType::bf16;
  if (chance(random, 20)) b.output(x, dtype);
  if (dtype == DType::i32 && chance(random, 50)) x = quantised(random, b, x, b.plan.k_axis);
  if (chance(random, 50))
    x = b.map(PlanOp::add_, {x, b.input(dtype, random_axes(random, batch, 50) | k)});
  if (chance(random, 50)) {
    x = b.map(PlanOp::sub_, {x, b.reduce(PlanOp::reduce_max_, x, k)});
    x = b.map(PlanOp::max_, {x, b.fill(dtype, -2)});
  }
  if (chance(random, 30)) {
    const int32_t mask = b.input(DType::b8, random_axes(random, batch | m, 50) | k);
    x = b.map(PlanOp::select_, {mask, x, b.fill(dtype, 0.5)});
  }
  if (chance(random, 20)) x = b.map(PlanOp::min_, {x, b.reduce(PlanOp::reduce_sum_, x, k)});
  return x;
}

namespace {

// A B operand that lies as another one does.
int32_t same_operand(PlanBuilder& b, int32_t other) {
  const PlanNode node = b.plan.nodes[static_cast<size_t>(other)];
  Access access = b.plan.accesses[static_cast<size_t>(node.access)];
  const auto value = static_cast<size_t>(access.value);
  access.value = b.value(b.values[value].dtype, b.value_elements[value]);
  const int32_t load = b.load(access, node.axes);
  b.plan.nodes[static_cast<size_t>(load)].dtype = node.dtype;
  return load;
}

PlanBuilder random_product(Random& random, int columns_per_panel, bool deep) {
  PlanBuilder b;
  b.plan.name = "random";
  b.plan.kind = KernelKind::mix;
  constexpr int64_t small[] = {1, 2, 3};
  const int batches = static_cast<int>(below(random, 3));
  uint32_t batch = 0;
  for (int i = 0; i < batches; ++i) batch |= 1u << b.axis(one_of(random, small));
  constexpr int64_t depths[] = {511, 512, 513, 640, 769, 1009, 1024, 1601};
  b.plan.m_axis = b.axis(random_extent(random, deep ? 5 : 40));
  b.plan.n_axis = b.axis(random_extent(random, deep ? 17 : 40));
  b.plan.k_axis = b.axis(deep ? one_of(random, depths) : random_extent(random, 70));
  if (!deep && chance(random, 40)) b.plan.inner_k_axis = b.axis(random_extent(random, 40));
  const uint32_t m = 1u << b.plan.m_axis, n = 1u << b.plan.n_axis, k = 1u << b.plan.k_axis;
  constexpr DType dtypes[] = {DType::f32, DType::f32, DType::f32, DType::f64, DType::i32};
  const DType dtype = one_of(random, dtypes);
  const bool rounds = dtype == DType::f32 && chance(random, 40);
  const uint32_t a_axes = random_axes(random, batch, 80) | m | k;
  int32_t a;
  if (b.plan.inner_k_axis >= 0) {
    a = inner_product(random, b, dtype, rounds, batch, columns_per_panel);
  } else {
    a = deep && chance(random, 75)
            ? b.load(random_view(random, b, factor_storage(random, dtype), a_axes), a_axes)
            : random_a_operand(random, b, dtype, a_axes, b.plan.k_axis);
  }
  const bool levels =
      dtype == DType::f32 && !rounds && b.plan.inner_k_axis < 0 && chance(random, 25);
  const int32_t right = levels ? levels_operand(random, b, columns_per_panel)
                               : random_b_operand(random, b, dtype, rounds, batch, b.plan.k_axis,
                                                  b.plan.n_axis, columns_per_panel);
  int32_t c = b.matmul(a, right);
  if (rounds) b.plan.nodes[c].narrow_to = DType::bf16;
  // What is computed may be rounded to another level.
  const bool in_levels = levels && b.plan.nodes[a].op == PlanOp::load_;
  if (in_levels && chance(random, 50)) b.plan.nodes[c].narrow_to = DType::i8;
  DType stored = dtype;
  if (dtype == DType::i32 && chance(random, 60)) {
    c = quantised(random, b, c, b.plan.n_axis);
    if (chance(random, 60)) stored = chance(random, 50) ? DType::u8 : DType::i8;
  }
  const uint32_t unstored = b.plan.inner_k_axis < 0 ? k : k | 1u << b.plan.inner_k_axis;
  Pools pools;
  pools.add(b, c);
  const bool beside = b.plan.nodes[a].op == PlanOp::load_ && chance(random, 40);
  const int64_t others = beside ? 1 + below(random, kMaxProducts - 1) : 0;
  for (int64_t i = 0; i < others; ++i) {
    const uint32_t axes = b.plan.nodes[right].axes;
    const Access view = random_view(random, b, factor_storage(random, dtype), axes);
    const bool alike = chance(random, 80);
    const int32_t product = b.matmul(a, alike ? same_operand(b, right) : b.load(view, axes));
    if (rounds) b.plan.nodes[product].narrow_to = DType::bf16;
    if (in_levels && alike && chance(random, 50)) b.plan.nodes[product].narrow_to = DType::i8;
    pools.add(b, product);
  }
  const uint32_t c_axes = b.plan.nodes[c].axes;
  const int operators = static_cast<int>(below(random, 5));
  int products = 0;
  if (operators > 0) {
    pools.add(b, b.input(dtype, n));
    pools.add(b, b.load(random_view(random, b, dtype, c_axes), c_axes));
    if (chance(random, 30)) pools.add(b, b.input(DType::b8, (c_axes & batch) | n));
    if (chance(random, 20)) pools.add(b, b.reduce(PlanOp::reduce_max_, c, n));
  }
  for (int i = 0; i < operators; ++i) {
    const int32_t node = random_map(random, b, pools, products);
    if (node >= 0) pools.add(b, node);
  }
  // What is added to a product, and nothing else, the cube unit may add.
  if (operators == 0 && chance(random, 60)) {
    const bool row = chance(random, 30);
    const int32_t addend =
        row ? b.input(dtype, n) : b.load(random_view(random, b, dtype, c_axes), c_axes);
    int32_t sum = b.map(PlanOp::add_, {c, addend});
    if (chance(random, 40)) sum = gated(random, b, dtype, sum);
    b.store(sum, random_view(random, b, dtype, c_axes), c_axes);
    return b;
  }
  const int32_t last = static_cast<int32_t>(b.plan.nodes.size()) - 1;
  if (b.plan.nodes[last].op != PlanOp::matmul_ || chance(random, 50)) {
    random_outputs(random, b, 2, unstored);
  }
  b.store(c, random_view(random, b, stored, c_axes), c_axes);
  return b;
}

}  // namespace

PlanBuilder random_cube_plan(Random& random, int columns_per_panel) {
  return random_product(random, columns_per_panel, false);
}

PlanBuilder random_deep_plan(Random& random, int columns_per_panel) {
  return random_product(random, columns_per_panel, true);
}

void fill_levels(const PlanBuilder& b, int columns_per_panel, Buffers& buffers, Random& random) {
  for (const Access& access : b.plan.accesses) {
    if (access.block == 0) continue;
    const auto value = static_cast<size_t>(access.value);
    const int64_t numbers = access.block_rows - access.block / word_levels(access.block_bits);
    for (int64_t i = 0; i < b.value_elements[value]; ++i) {
      const int64_t row = i / columns_per_panel % access.block_rows;
      const float scale = chance(random, 50) ? 0.25f : 0.5f;
      const float zero = static_cast<float>(below(random, 17) - 8) * 0.25f;
      const uint32_t word = row < numbers ? std::bit_cast<uint32_t>(row == 0 ? scale : zero)
                                          : static_cast<uint32_t>(random());
      std::memcpy(buffers.at(value) + i * 4, &word, sizeof word);
    }
  }
}

Target random_target(Random& random) {
  constexpr int64_t memories[] = {512, 2048, 8192, 65536, 1 << 20};
  constexpr int rows[] = {0, 3, 6, 12};
  constexpr int depths[] = {0, 8, 24};
  Target target = plain_target();
  target.cores = 1 + static_cast<int>(below(random, 5));
  target.local_bytes = one_of(random, memories);
  target.vector_tile_bytes = target.local_bytes >> below(random, 3);
  target.vector_bytes = 64;
  target.unified_memory = chance(random, 60);
  target.computes_bytes = chance(random, 50);
  if (!target.unified_memory) run_pipes(target, 8);
  target.matmul_nr = reference::kColumnsPerPanel;
  target.matmul_mr = 3;
  target.matmul_rows = one_of(random, rows);
  target.matmul_k_block = one_of(random, depths);
  target.costs.tile_start = static_cast<double>(below(random, 500)) * kVectorElement;
  target.stream_bytes = chance(random, 50) ? 1 << below(random, 12) : 0;
  return target;
}

}  // namespace dvm::testing
