// ScatterElements: arguments (axis, reduction); ScatterND: argument (reduction). Reductions: 0
// none, 1 add, 2 mul, 3 max, 4 min. Elements for one place come there in their order, and a NaN
// that an element meets in a maximum or minimum gives way to it, as in onnxruntime.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"
#include "runtime/value_sizes.h"

namespace dvm {
namespace {

enum class Reduction : uint8_t { none, add, mul, max, min };

Reduction reduction_of(const HostFrame& frame, size_t argument) {
  const int64_t number = frame.argument(argument);
  if (number < 0 || number > 4) throw CompileError(frame.name + " has no such reduction");
  return static_cast<Reduction>(number);
}

// Integers wrap.
template <Reduction kind, class T>
void combine(T& into, T from) {
  if constexpr (kind == Reduction::none) into = from;
  if constexpr (kind == Reduction::max) into = into > from ? into : from;
  if constexpr (kind == Reduction::min) into = into < from ? into : from;
  if constexpr (kind == Reduction::add || kind == Reduction::mul) {
    if constexpr (std::is_integral_v<T>) {
      const auto a = static_cast<uint64_t>(into), b = static_cast<uint64_t>(from);
      into = static_cast<T>(kind == Reduction::add ? a + b : a * b);
    } else {
      into = kind == Reduction::add ? into + from : into * from;
    }
  }
}

[[noreturn]] void refuse(const HostFrame& frame, int64_t index, int64_t extent) {
  throw InputError("index " + std::to_string(index) + " of " + frame.name +
                   " lies outside of an axis of " + std::to_string(extent) + " elements");
}

// The index itself, counted from the end where it is negative.
int64_t inside(const HostFrame& frame, int64_t index, int64_t extent) {
  const int64_t place = index < 0 ? index + extent : index;
  if (place < 0 || place >= extent) refuse(frame, index, extent);
  return place;
}

std::vector<int64_t> strides_of(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

[[noreturn]] void misfit(const HostFrame& frame) {
  throw ShapeError("indices of shape " + shape_text(frame.operand(1).shape) + " and updates of " +
                   shape_text(frame.operand(2).shape) + " do not fit what " + frame.name +
                   " writes them to, " + shape_text(frame.operand(0).shape));
}

// Calls put(place in x, number of the update) for each element that is scattered along an axis.
template <bool along_last, class Index, class Put>
void walk_elements(HostFrame& frame, size_t axis, const Put& put) {
  const std::vector<int64_t>&x = frame.operand(0).shape, &shape = frame.operand(1).shape;
  const std::vector<int64_t> strides = strides_of(x);
  const auto* const indices = frame.data<Index>(1);
  const size_t last = shape.size() - 1;
  std::vector<int64_t> at(shape.size(), 0);
  const int64_t count = elements_of(shape), length = shape[last];
  const int64_t extent = x[axis], stride = strides[axis];
  for (int64_t first = 0; first < count; first += length) {
    int64_t base = 0;
    for (size_t i = 0; i < last; i++) base += i == axis ? 0 : at[i] * strides[i];
    for (int64_t i = 0; i < length; i++) {
      const int64_t place = inside(frame, indices[first + i], extent);
      put(base + (along_last ? place : place * stride + i), first + i);
    }
    for (size_t i = last; i-- > 0;) {
      if (++at[i] < shape[i]) break;
      at[i] = 0;
    }
  }
}

// Calls put(place in x, number of the first update, how many) for each slice.
template <class Index, class Put>
void walk_slices(HostFrame& frame, const Put& put) {
  const std::vector<int64_t>&x = frame.operand(0).shape, &shape = frame.operand(1).shape;
  const std::vector<int64_t> strides = strides_of(x);
  const auto* indices = frame.data<Index>(1);
  const auto depth = static_cast<size_t>(shape.back());
  const int64_t slice = elements_of(std::span(x).subspan(depth));
  const int64_t count = elements_of(std::span(shape).first(shape.size() - 1));
  for (int64_t i = 0; i < count; i++, indices += depth) {
    int64_t place = 0;
    for (size_t axis = 0; axis < depth; axis++) {
      place += inside(frame, indices[axis], x[axis]) * strides[axis];
    }
    put(place, i * slice, slice);
  }
}

// Runs walk(index type) for the type of the indices.
template <class Walk>
void by_index(HostFrame& frame, const Walk& walk) {
  if (frame.operand(1).dtype == DType::i32) return walk(int32_t{});
  walk(int64_t{});
}

template <class T, class Walk>
void scatter_as(HostFrame& frame, Reduction reduction, const Walk& walk) {
  auto* const out = frame.give_over<T>(0, 0);
  if (out == nullptr) return;
  const auto* const updates = frame.data<T>(2);
  const auto put = [&]<Reduction kind>(std::integral_constant<Reduction, kind>) {
    walk([&](int64_t place, int64_t update, int64_t count = 1) {
      if (kind == Reduction::none && count > 1) {
        std::copy_n(updates + update, count, out + place);
        return;
      }
      for (int64_t i = 0; i < count; i++) combine<kind>(out[place + i], updates[update + i]);
    });
  };
  switch (reduction) {
    case Reduction::none: return put(std::integral_constant<Reduction, Reduction::none>{});
    case Reduction::add: return put(std::integral_constant<Reduction, Reduction::add>{});
    case Reduction::mul: return put(std::integral_constant<Reduction, Reduction::mul>{});
    case Reduction::max: return put(std::integral_constant<Reduction, Reduction::max>{});
    case Reduction::min: return put(std::integral_constant<Reduction, Reduction::min>{});
  }
}

// What is only moved is moved by its size.
template <class Walk>
void scatter(HostFrame& frame, Reduction reduction, const Walk& walk) {
  const DType dtype = frame.operand(0).dtype;
  if (reduction == Reduction::none) {
    switch (size_of(dtype)) {
      case 1: return scatter_as<uint8_t>(frame, reduction, walk);
      case 2: return scatter_as<uint16_t>(frame, reduction, walk);
      case 4: return scatter_as<uint32_t>(frame, reduction, walk);
      default: return scatter_as<uint64_t>(frame, reduction, walk);
    }
  }
  switch (dtype) {
    case DType::f32: return scatter_as<float>(frame, reduction, walk);
    case DType::f64: return scatter_as<double>(frame, reduction, walk);
    case DType::i8: return scatter_as<int8_t>(frame, reduction, walk);
    case DType::i16: return scatter_as<int16_t>(frame, reduction, walk);
    case DType::i32: return scatter_as<int32_t>(frame, reduction, walk);
    case DType::i64: return scatter_as<int64_t>(frame, reduction, walk);
    case DType::u8: return scatter_as<uint8_t>(frame, reduction, walk);
    case DType::u16: return scatter_as<uint16_t>(frame, reduction, walk);
    case DType::u32: return scatter_as<uint32_t>(frame, reduction, walk);
    case DType::u64: return scatter_as<uint64_t>(frame, reduction, walk);
    default: throw CompileError(frame.name + " does not combine elements of this type");
  }
}

}  // namespace

void scatter_elements(HostFrame& frame) {
  const std::vector<int64_t>& x = frame.operand(0).shape;
  const std::vector<int64_t>& indices = frame.operand(1).shape;
  const size_t axis = frame.axis(0, x.size());
  if (indices.size() != x.size() || frame.operand(2).shape != indices) misfit(frame);
  for (size_t i = 0; i < x.size(); i++) {
    if (i != axis && indices[i] > x[i]) misfit(frame);
  }
  scatter(frame, reduction_of(frame, 1), [&](const auto& put) {
    by_index(frame, [&]<class Index>(Index) {
      if (axis + 1 == x.size()) return walk_elements<true, Index>(frame, axis, put);
      walk_elements<false, Index>(frame, axis, put);
    });
  });
}

void scatter_nd(HostFrame& frame) {
  const std::vector<int64_t>& x = frame.operand(0).shape;
  const std::vector<int64_t>& indices = frame.operand(1).shape;
  const auto depth = static_cast<size_t>(indices.empty() ? x.size() + 1 : indices.back());
  if (depth > x.size()) misfit(frame);
  std::vector<int64_t> wanted(indices.begin(), indices.end() - 1);
  wanted.insert(wanted.end(), x.begin() + static_cast<std::ptrdiff_t>(depth), x.end());
  if (frame.operand(2).shape != wanted) misfit(frame);
  scatter(frame, reduction_of(frame, 0), [&](const auto& put) {
    by_index(frame, [&]<class Index>(Index) { walk_slices<Index>(frame, put); });
  });
}

}  // namespace dvm
