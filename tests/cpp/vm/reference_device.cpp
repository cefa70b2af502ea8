#include "reference_device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "scalar.h"

namespace dvm::reference {
namespace {

struct Tile {
  std::byte* at;
  int64_t outer, middle, inner;
  DType dtype;

  std::byte* element(int64_t o, int64_t m, int64_t i) const {
    return at + (o * outer + m * middle + i * inner) * static_cast<int64_t>(size_of(dtype));
  }
  Scalar get(int64_t o, int64_t m, int64_t i) const { return read(dtype, element(o, m, i)); }
  void set(int64_t o, int64_t m, int64_t i, Scalar value) const {
    write(dtype, element(o, m, i), value);
  }
};

// One instruction, decoded.
struct Decoded {
  Head head;
  Form form;
  PlanOp op;
  DType dtype;
  int64_t e0, e1, e2;
  Tile tiles[kMostOperands];
  const uint64_t* extra;
};

PlanOp operator_of(Family family) {
  const std::string name = std::string(name_of(family)).substr(2);
  for (int op = 0; op < static_cast<int>(PlanOp::count_); ++op) {
    if (name == name_of(static_cast<PlanOp>(op))) return static_cast<PlanOp>(op);
  }
  return PlanOp::count_;
}

Tile tile_at(const Core& core, const uint64_t* words, DType dtype) {
  Operand operand;
  std::memcpy(&operand, words, sizeof operand);
  if (operand.space() == Space::immediate) return {resolve(core, words), 0, 0, 0, dtype};
  return {resolve(core, words), operand.outer_stride, operand.middle_stride, operand.inner_stride,
          dtype};
}

Decoded decode(const Core& core, const uint64_t* words) {
  Decoded d;
  std::memcpy(&d.head, words, sizeof d.head);
  const auto family = static_cast<Family>(d.head.opcode / 16);
  d.form = info_of(family).form;
  d.op = operator_of(family);
  d.dtype = static_cast<DType>(d.head.opcode % 16);
  d.e0 = core.extents[d.head.e0];
  d.e1 = core.extents[d.head.e1];
  d.e2 = core.extents[d.head.e2];
  const FormInfo info = form_info(d.form);
  for (int i = 0; i < info.outputs + info.inputs; ++i) {
    d.tiles[i] = tile_at(core, words + 1 + 2 * i, operand_dtype(d.form, d.dtype, i));
  }
  d.extra = words + 1 + 2 * (info.outputs + info.inputs);
  return d;
}

template <typename Body>
void for_each(const Decoded& d, Body body) {
  for (int64_t o = 0; o < d.e0; ++o) {
    for (int64_t m = 0; m < d.e1; ++m) {
      for (int64_t i = 0; i < d.e2; ++i) body(o, m, i);
    }
  }
}

bool accumulates(const Core& core, uint8_t flags) {
  return (flags & kAccumulateAlways) || ((flags & kAccumulate) && !core.first_chunk);
}

void trap(Core& core, int64_t value, int64_t limit) {
  if (core.trap.kind != TrapKind::none) return;
  core.trap.kind = TrapKind::index_out_of_range;
  core.trap.value = value;
  core.trap.limit = limit;
}

void run_gather(Core& core, const Decoded& d) {
  const auto stride = static_cast<int64_t>(d.extra[0]), limit = static_cast<int64_t>(d.extra[1]);
  for_each(d, [&](int64_t o, int64_t m, int64_t i) {
    int64_t index = d.tiles[2].get(o, m, i).integer;
    if (index < 0) index += limit;
    if (index < 0 || index >= limit) return trap(core, index, limit);
    const std::byte* from =
        d.tiles[1].element(o, m, i) + index * stride * static_cast<int64_t>(size_of(d.dtype));
    d.tiles[0].set(o, m, i, read(d.dtype, from));
  });
}

void run_lookup(const Decoded& d) {
  for_each(d, [&](int64_t o, int64_t m, int64_t i) {
    const int64_t entry = d.tiles[2].get(o, m, i).integer & (kTableEntries - 1);
    d.tiles[0].set(o, m, i, read(d.dtype, d.tiles[1].element(o, m, i) + entry));
  });
}

int64_t panel_width(DType dtype) {
  return register_dtype(dtype) == DType::f64 ? kColumnsPerPanel / 2 : kColumnsPerPanel;
}

void run_pack_b(const Decoded& d) {
  const int64_t width = panel_width(d.dtype);
  const int64_t panels = (d.e2 + width - 1) / width;
  const Tile& out = d.tiles[0];
  for (int64_t p = 0; p < panels; ++p) {
    for (int64_t k = 0; k < d.e1; ++k) {
      for (int64_t c = 0; c < width; ++c) {
        const int64_t n = p * width + c;
        const Scalar value = n < d.e2 ? d.tiles[1].get(0, k, n) : Scalar{};
        write(out.dtype,
              out.at + (p * out.outer + k * width + c) * static_cast<int64_t>(size_of(out.dtype)),
              value);
      }
    }
  }
}

// The bundle that elements from step `first` on make: of bf16, or of bytes.
template <typename Element>
int32_t bundle_of(DType dtype, int64_t first, int64_t k, Element element) {
  const int64_t steps = bundle_steps(dtype), size = 4 / steps;
  std::byte bundle[4] = {};
  for (int64_t i = 0; i < steps && first + i < k; ++i)
    write(steps == 2 ? DType::bf16 : DType::u8, bundle + i * size, element(first + i));
  int32_t word;
  std::memcpy(&word, bundle, sizeof word);
  return word;
}

void run_pack_b_bundles(const Decoded& d) {
  constexpr int64_t width = kColumnsPerPanel;
  const int64_t steps = bundle_steps(d.dtype);
  const Tile &out = d.tiles[0], &in = d.tiles[1];
  for (int64_t p = 0; p * width < d.e2; ++p) {
    for (int64_t k = 0; k < d.e1; k += steps) {
      for (int64_t c = 0; c < width; ++c) {
        const int64_t n = p * width + c;
        const int32_t bundle = bundle_of(
            d.dtype, k, d.e1, [&](int64_t at) { return n < d.e2 ? in.get(0, at, n) : Scalar{}; });
        std::memcpy(out.at + (p * out.outer + k / steps * width + c) * 4, &bundle, sizeof bundle);
      }
    }
  }
}

void run_pack_a_bundles(const Decoded& d) {
  const Tile &out = d.tiles[0], &in = d.tiles[1];
  const int64_t steps = bundle_steps(d.dtype);
  for (int64_t m = 0; m < d.e1; ++m) {
    for (int64_t k = 0; k < d.e2; k += steps) {
      const int32_t bundle =
          bundle_of(d.dtype, k, d.e2, [&](int64_t at) { return in.get(0, m, at); });
      std::memcpy(out.element(0, m, k / steps), &bundle, sizeof bundle);
    }
  }
}

void run_matmul_bundles(const Core& core, const Decoded& d) {
  constexpr int64_t width = kColumnsPerPanel;
  const bool add = accumulates(core, d.head.flags);
  const int64_t steps = bundle_steps(d.dtype), size = 4 / steps;
  for (int64_t m = 0; m < d.e0; ++m) {
    for (int64_t n = 0; n < d.e2; ++n) {
      Scalar sum = add ? d.tiles[0].get(0, m, n) : Scalar{};
      for (int64_t k = 0; k < d.e1; ++k) {
        const std::byte *a = d.tiles[1].element(0, m, k),
                        *b = d.tiles[2].element(n / width, k, n % width);
        for (int64_t i = 0; i < steps; ++i) {
          const Scalar x = read(steps == 2 ? DType::bf16 : DType::u8, a + i * size);
          const Scalar y = read(steps == 2 ? DType::bf16 : DType::i8, b + i * size);
          sum.real += x.real * y.real;
          sum.integer += x.integer * y.integer;
        }
      }
      d.tiles[0].set(0, m, n, sum);
    }
  }
}

void run_matmul_blocks(const Core& core, const Decoded& d) {
  constexpr int64_t width = kColumnsPerPanel;
  const bool add = accumulates(core, d.head.flags);
  const auto block = static_cast<int64_t>(d.extra[0]), bits = static_cast<int64_t>(d.extra[1]);
  const int64_t in_word = word_levels(bits), mask = (int64_t{1} << bits) - 1;
  const Tile& b = d.tiles[2];
  const bool zeros = b.middle / width == block / in_word + 2;
  const bool rounds = static_cast<Family>(d.head.opcode / 16) == Family::m_matmul_rounded_blocks;
  const auto left = [&](int64_t m, int64_t k) {
    const auto element = [&](int64_t i) { return d.tiles[1].get(0, m, i).real; };
    return rounds ? rounded_in_block(k, d.e1, block, element) : element(k);
  };
  for (int64_t m = 0; m < d.e0; ++m) {
    for (int64_t n = 0; n < d.e2; ++n) {
      double sum = add ? d.tiles[0].get(0, m, n).real : 0;
      for (int64_t k = 0; k < d.e1; ++k) {
        const auto row = [&](DType dtype, int64_t at) {
          return read(dtype, b.element(n / width, k / block, at * width + n % width));
        };
        const double zero = zeros ? row(DType::f32, 1).real : 0;
        const int64_t word = row(DType::i32, 1 + zeros + k % block / in_word).integer;
        const int64_t level = (word >> bits * (k % in_word) & mask) - middle_level(bits);
        sum += left(m, k) * (static_cast<double>(level) - zero) * row(DType::f32, 0).real;
      }
      d.tiles[0].set(0, m, n, {sum, 0});
    }
  }
}

void run_matmul_quantize(const Core& core, const Decoded& d) {
  std::vector<int32_t> sums(static_cast<size_t>(d.e0 * d.e2));
  Decoded product = d;
  product.dtype = DType::i8;
  product.head.flags = 0;
  product.tiles[0] = {reinterpret_cast<std::byte*>(sums.data()), 0, d.e2, 1, DType::i32};
  run_matmul_bundles(core, product);
  Levels levels;
  std::memcpy(&levels, d.extra, sizeof levels);
  for (int64_t m = 0; m < d.e0; ++m) {
    for (int64_t n = 0; n < d.e2; ++n) {
      const auto sum = static_cast<uint32_t>(sums[static_cast<size_t>(m * d.e2 + n)]) +
                       static_cast<uint32_t>(d.tiles[3].get(0, 0, n).integer);
      const float factor = static_cast<float>(d.tiles[4].get(0, 0, n).real);
      const float scaled = static_cast<float>(static_cast<int32_t>(sum)) * factor;
      const double level = std::nearbyint(scaled) + static_cast<double>(levels.zero);
      const auto low = static_cast<double>(levels.low), high = static_cast<double>(levels.high);
      const double kept = level > low ? std::min(level, high) : low;
      d.tiles[0].set(0, m, n, {0, static_cast<int64_t>(kept)});
    }
  }
}

// Low, high, slope or offset.
double ending(const Decoded& d, int which) {
  return read(d.dtype, reinterpret_cast<const std::byte*>(&d.extra[which])).real;
}

double ended(const Decoded& d, double sum) {
  const double slope = ending(d, 2);
  double kept = slope == 0 ? sum : sum * slope + ending(d, 3);
  if (kept < ending(d, 0)) kept = ending(d, 0);
  if (kept > ending(d, 1)) kept = ending(d, 1);
  return slope == 0 ? kept : sum * kept;
}

void run_matmul(const Core& core, const Decoded& d) {
  const int64_t width = panel_width(d.dtype);
  const bool ends = d.form == Form::matmul_clamp;
  const Tile& before = d.tiles[ends ? 3 : 0];
  const bool add = ends || accumulates(core, d.head.flags);
  for (int64_t m = 0; m < d.e0; ++m) {
    for (int64_t n = 0; n < d.e2; ++n) {
      double sum = add ? before.get(0, m, n).real : 0;
      for (int64_t k = 0; k < d.e1; ++k) {
        sum += d.tiles[1].get(0, m, k).real * d.tiles[2].get(n / width, k, n % width).real;
      }
      d.tiles[0].set(0, m, n, {ends ? ended(d, sum) : sum, 0});
    }
  }
}

void run_reduce(const Core& core, const Decoded& d) {
  const bool add = accumulates(core, d.head.flags);
  for (int64_t o = 0; o < d.e0; ++o) {
    for (int64_t i = 0; i < d.e2; ++i) {
      Scalar result = add ? d.tiles[0].get(o, 0, i) : identity(d.op, d.dtype);
      for (int64_t m = 0; m < d.e1; ++m) {
        result = combine(d.op, d.dtype, result, d.tiles[1].get(o, m, i));
      }
      d.tiles[0].set(o, 0, i, result);
    }
  }
}

void run_iota(const Core& core, const uint64_t* words, const Decoded& d) {
  Operand base;
  std::memcpy(&base, words + 3, sizeof base);
  const auto first = reinterpret_cast<int64_t>(core.pointers[base.offset()]);
  for_each(d, [&](int64_t o, int64_t m, int64_t i) {
    d.tiles[0].set(
        o, m, i,
        {0, first + o * base.outer_stride + m * base.middle_stride + i * base.inner_stride});
  });
}

void run_check_index(Core& core, const Decoded& d) {
  const auto limit = static_cast<int64_t>(d.extra[0]);
  for_each(d, [&](int64_t o, int64_t m, int64_t i) {
    int64_t index = d.tiles[1].get(o, m, i).integer;
    if (index < 0) index += limit;
    if (index < 0 || index >= limit) return trap(core, index, limit);
    d.tiles[0].set(o, m, i, {0, index});
  });
}

void run_elementwise(const Decoded& d) {
  const int inputs = form_info(d.form).inputs;
  for_each(d, [&](int64_t o, int64_t m, int64_t i) {
    Scalar in[3];
    for (int k = 0; k < inputs; ++k) in[k] = d.tiles[1 + k].get(o, m, i);
    Scalar out = in[0];
    switch (d.form) {
      case Form::load:
      case Form::store:
      case Form::narrow: out = rounded(d.dtype, in[0]); break;
      case Form::cast_f32:
      case Form::cast_f64:
      case Form::cast_i32:
      case Form::cast_i64:
      case Form::cast_b8: out = convert(d.dtype, d.tiles[0].dtype, in[0]); break;
      default:
        if (d.op != PlanOp::count_) out = apply(d.op, d.dtype, in[0], in[1], in[2]);
    }
    d.tiles[0].set(o, m, i, out);
  });
}

void execute(Core& core, const uint64_t* words) {
  const Decoded d = decode(core, words);
  switch (d.form) {
    case Form::sync:
    case Form::prefetch: return;
    case Form::gather: return run_gather(core, d);
    case Form::lookup: return run_lookup(d);
    case Form::pack_b:
    case Form::pack_b_stored: return run_pack_b(d);
    case Form::pack_b_bundles: return run_pack_b_bundles(d);
    case Form::pack_a_bundles: return run_pack_a_bundles(d);
    case Form::matmul:
    case Form::matmul_clamp:
    case Form::matmul_widen: return run_matmul(core, d);
    case Form::matmul_bundles: return run_matmul_bundles(core, d);
    case Form::matmul_blocks: return run_matmul_blocks(core, d);
    case Form::matmul_quantize: return run_matmul_quantize(core, d);
    case Form::reduce: return run_reduce(core, d);
    case Form::iota: return run_iota(core, words, d);
    case Form::check_index: return run_check_index(core, d);
    default: return run_elementwise(d);
  }
}

InstructionTable make_table() {
  InstructionTable table{};
  table.name = "reference";
  table.matmul_nr = kColumnsPerPanel;
  table.matmul_mr = 3;
  for (Handler& handler : table.handlers) handler = execute;
  return table;
}

}  // namespace

const InstructionTable& device() {
  static const InstructionTable table = make_table();
  return table;
}

}  // namespace dvm::reference
