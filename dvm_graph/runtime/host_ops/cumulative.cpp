// CumSum, CumProd: arguments (axis, exclusive, reverse); operands x, axis. Each number is the one
// before, rounded to its type, plus (times) the next element, as the standard's loop has it;
// numbers of 16 bits are kept as floats in between. Integers wrap.
//
// Lanes that are independent of each other advance together: the elements behind the axis, which
// lie side by side or, where there are none, rows. Cores take blocks of lanes.
#include <algorithm>
#include <functional>
#include <type_traits>

#include "kernels/half.h"
#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"

namespace dvm {
namespace {

constexpr int64_t kKept = 1024;  // lanes whose numbers are kept apart, in the first-level cache
// Lanes side by side: the row before is in a second-level cache, and memory gets long runs.
constexpr int64_t kSideBySide = 16384;
constexpr int64_t kRows = 4;  // hide the latency of additions, and fit a set of a cache

// How elements are stored, and the numbers that are added.
template <class T>
struct Plain {
  using Stored = T;
  // Unsigned integers wrap where signed ones must not.
  using Number = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                             std::type_identity<T>>::type;
  static constexpr bool kKeepsNumbers = true;  // what is stored is the number
  static Number read(Stored x) { return static_cast<Number>(x); }
  static Stored write(Number x) { return static_cast<Stored>(x); }
};

template <float (*Read)(uint16_t), uint16_t (*Write)(float)>
struct Half {
  using Stored = uint16_t;
  using Number = float;
  static constexpr bool kKeepsNumbers = false;
  static Number read(Stored x) { return Read(x); }
  static Stored write(Number x) { return Write(x); }
};

struct Walk {
  int64_t steps, step;  // along the axis, and the elements from one to the next
  bool exclusive;
};

template <int64_t N>
using Constant = std::integral_constant<int64_t, N>;

// `lanes` of them, whose elements lie `lane` apart; at most Most.
template <class Type, class Fold, int64_t Most, class Lanes, class Lane>
void advance(const typename Type::Stored* in, typename Type::Stored* out, const Walk& walk,
             Lanes lanes, Lane lane, typename Type::Number unit) {
  typename Type::Number numbers[Most];
  std::fill_n(numbers, lanes, unit);
  const auto write = [&] {
    for (int64_t i = 0; i < lanes; i++) out[i * lane] = Type::write(numbers[i]);
  };
  for (int64_t at = 0; at < walk.steps; at++, in += walk.step, out += walk.step) {
    if (walk.exclusive) write();
    if (at == 0 && !walk.exclusive) {  // not added to the unit, which would take the sign of -0
      for (int64_t i = 0; i < lanes; i++) numbers[i] = Type::read(in[i * lane]);
    } else {
      for (int64_t i = 0; i < lanes; i++) numbers[i] = Fold()(numbers[i], Type::read(in[i * lane]));
    }
    if (!walk.exclusive) write();
  }
}

// Of lanes that lie side by side, each number is added to the one that was stored before.
template <class Type, class Fold>
void advance_stored(const typename Type::Stored* in, typename Type::Stored* out, const Walk& walk,
                    int64_t lanes, typename Type::Number unit) {
  if (walk.exclusive)
    std::fill_n(out, lanes, Type::write(unit));
  else
    std::copy_n(in, lanes, out);
  for (int64_t at = 1; at < walk.steps; at++) {
    const auto* const before = out;
    const auto* const added = walk.exclusive ? in : in + walk.step;
    in += walk.step;
    out += walk.step;
#pragma GCC ivdep
    for (int64_t i = 0; i < lanes; i++)
      out[i] = Type::write(Fold()(Type::read(before[i]), Type::read(added[i])));
  }
}

template <class Type, class Fold>
void fold_along(HostFrame& frame, typename Type::Number unit) {
  const Tensor& x = frame.operand(0);
  const AroundAxis around(x.shape, frame.axis(0, x.shape.size()));
  const auto* in = frame.data<typename Type::Stored>(0);
  auto* out = frame.give<typename Type::Stored>(0, x.dtype, x.shape);
  if (out == nullptr || elements_of(x.shape) == 0) return;
  const bool reverse = frame.argument(2) != 0;
  const Walk walk{around.extent, reverse ? -around.behind : around.behind, frame.argument(1) != 0};
  const int64_t block = around.extent * around.behind, first = reverse ? block - around.behind : 0;
  if (around.behind == 1) {
    const auto take = [&]<int64_t Rows>(Constant<Rows> rows, int64_t row) {
      const int64_t from = row * block + first;
      advance<Type, Fold, Rows>(in + from, out + from, walk, rows, block, unit);
    };
    const auto take_groups = [&](int64_t group, int64_t end, int64_t) {
      int64_t row = group * kRows;
      const int64_t last = std::min(end * kRows, around.before);
      for (; row + kRows <= last; row += kRows) take(Constant<kRows>(), row);
      for (; row < last; row++) take(Constant<1>(), row);
    };
    const int64_t groups = (around.before + kRows - 1) / kRows;
    return frame.spread(groups, around.extent * kRows, take_groups);
  }
  constexpr int64_t kMost = Type::kKeepsNumbers ? kSideBySide : kKept;
  const int64_t blocks = (around.behind + kMost - 1) / kMost;  // side by side
  const auto take_blocks = [&](int64_t number, int64_t end, int64_t) {
    for (; number < end; number++) {
      const int64_t lane = number % blocks * kMost;
      const int64_t from = number / blocks * block + first + lane;
      const int64_t lanes = std::min(kMost, around.behind - lane);
      if constexpr (Type::kKeepsNumbers)
        advance_stored<Type, Fold>(in + from, out + from, walk, lanes, unit);
      else
        advance<Type, Fold, kKept>(in + from, out + from, walk, lanes, Constant<1>(), unit);
    }
  };
  frame.spread(around.before * blocks, around.extent * kMost, take_blocks);
}

template <template <class> class Fold>
void cumulate(HostFrame& frame, int unit) {
  switch (frame.operand(0).dtype) {
    case DType::f32: return fold_along<Plain<float>, Fold<float>>(frame, unit);
    case DType::f64: return fold_along<Plain<double>, Fold<double>>(frame, unit);
    case DType::i32: return fold_along<Plain<int32_t>, Fold<uint32_t>>(frame, unit);
    case DType::i64: return fold_along<Plain<int64_t>, Fold<uint64_t>>(frame, unit);
    case DType::u32: return fold_along<Plain<uint32_t>, Fold<uint32_t>>(frame, unit);
    case DType::u64: return fold_along<Plain<uint64_t>, Fold<uint64_t>>(frame, unit);
    case DType::f16:
      return fold_along<Half<float_of_half, half_of_float>, Fold<float>>(frame, unit);
    case DType::bf16:
      return fold_along<Half<float_of_bfloat, bfloat_of_float>, Fold<float>>(frame, unit);
    default: throw CompileError(frame.name + " does not add elements of this type");
  }
}

}  // namespace

void cumulative_product(HostFrame& frame) { cumulate<std::multiplies>(frame, 1); }

void cumulative_sum(HostFrame& frame) { cumulate<std::plus>(frame, 0); }

}  // namespace dvm
