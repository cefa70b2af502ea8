// Decoding of an instruction's operands, and the loops over rows that all units share.
//
// Every data instruction runs e0 x e1 x e2 (outer, middle, inner). `merge_loops` makes the inner
// loop as long as the operands' strides allow, so that row functions see few, long rows.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/simd.h"
#include "vm/core.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int64_t kLineBytes = 64;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

template <DType D>
struct ElementOf;
template <>
struct ElementOf<DType::f32> {
  using type = float;
};
template <>
struct ElementOf<DType::f64> {
  using type = double;
};
template <>
struct ElementOf<DType::i32> {
  using type = int32_t;
};
template <>
struct ElementOf<DType::i64> {
  using type = int64_t;
};
template <>
struct ElementOf<DType::b8> {
  using type = uint8_t;
};
template <>
struct ElementOf<DType::f16> {  // of those that are only moved
  using type = uint16_t;
};
template <>
struct ElementOf<DType::i8> {  // bytes that an instruction takes for signed
  using type = int8_t;
};
template <DType D>
using ElementType = typename ElementOf<D>::type;

template <class T>
constexpr T kInfinite = static_cast<T>(__builtin_inf());

struct Extents {
  int64_t outer, middle, inner;

  DVM_INLINE bool empty() const { return outer <= 0 || middle <= 0 || inner <= 0; }
};

template <class T>
struct Tile {
  T* at;
  int64_t outer, middle, inner;  // strides, in elements
};

DVM_INLINE uint8_t flags_of(const uint64_t* words) { return (words[0] >> 32) & 0xff; }

DVM_INLINE Extents extents_of(const Core& core, const uint64_t* words) {
  const uint64_t head = words[0];
  return {core.extents[(head >> 40) & 0xff], core.extents[(head >> 48) & 0xff],
          core.extents[(head >> 56) & 0xff]};
}

DVM_INLINE bool is_immediate(const uint64_t* word) {
  return static_cast<uint32_t>(word[0]) >> kSpaceShift == static_cast<uint32_t>(Space::immediate);
}

// The operand whose two words start at `word`. An immediate's second word is its value.
template <class T>
DVM_INLINE Tile<T> tile_at(const Core& core, const uint64_t* word) {
  const auto address = static_cast<uint32_t>(word[0]);
  const uint32_t offset = address & kAddressMask;
  if (is_immediate(word)) {
    return {reinterpret_cast<T*>(const_cast<uint64_t*>(word + 1)), 0, 0, 0};
  }
  std::byte* base = address >> kSpaceShift == static_cast<uint32_t>(Space::local)
                        ? core.local + offset
                        : core.pointers[offset];
  return {reinterpret_cast<T*>(base), static_cast<int32_t>(word[1]),
          static_cast<int32_t>(word[1] >> 32), static_cast<int32_t>(word[0] >> 32)};
}

template <class... Tiles>
DVM_INLINE void drop_inner(Tiles&... tiles) {
  ((tiles.inner = tiles.middle, tiles.middle = tiles.outer, tiles.outer = 0), ...);
}

// Merges or drops loops where the order of the elements allows it; a dropped loop leaves extent 1
// outside. A single-element inner loop is replaced by the middle one where the row functions can
// take it (strides 0 or 1, output 1). The first tile is the output.
template <class Out, class... In>
DVM_INLINE void merge_loops(Extents& e, Out& out, In&... in) {
  for (int level = 0; level < 2; level++) {
    const bool mergeable =
        out.middle == e.inner * out.inner && ((in.middle == e.inner * in.inner) && ...);
    if (mergeable) {
      e.inner *= e.middle;
    } else if (e.middle == 1) {
      // nothing to merge: only shift the outer loop inwards
    } else if (e.inner == 1 && out.middle == 1 && ((in.middle == 0 || in.middle == 1) && ...)) {
      drop_inner(out, in...);
      e = {1, e.outer, e.middle};
      continue;
    } else {
      return;
    }
    e.middle = e.outer;
    e.outer = 1;
    ((out.middle = out.outer, out.outer = 0));
    ((in.middle = in.outer, in.outer = 0), ...);
  }
}

// Calls row(output, inputs...) with the addresses of each row's first elements.
template <class Row, class Out, class... In>
DVM_INLINE void for_rows(const Extents& e, Row row, const Tile<Out>& out, const Tile<In>&... in) {
  for (int64_t o = 0; o < e.outer; o++) {
    for (int64_t m = 0; m < e.middle; m++) {
      row(out.at + o * out.outer + m * out.middle, (in.at + o * in.outer + m * in.middle)...);
    }
  }
}

// The first `lanes` elements. A masked store in front of a stream would fetch the line behind,
// which the stream then throws out.
template <class V>
DVM_INLINE void store_lanes(Element<V>* to, V v, int64_t lanes, bool stream) {
  if (!stream) return store_partial(to, v, lanes);
  Element<V> row[kLanesOf<V>];
  store(row, v);
  copy_pieces<kLanesOf<V>>(to, row, lanes);
}

// Stores n elements: whole(i) are the lanes from i on, part(i, count) the first `count` of them.
template <class T, class Whole, class Part>
DVM_INLINE void store_row(T* out, int64_t n, bool stream, Whole whole, Part part) {
  constexpr int L = kLanes<T>;
  int64_t i = 0;
  if (stream) {
    i = to_alignment(out, n);
    if (i > 0) store_lanes(out, part(0, i), i, true);
    for (; i + L <= n; i += L) store_stream(out + i, whole(i));
  } else {
    for (; i + L <= n; i += L) store(out + i, whole(i));
  }
  if (i < n) store_lanes(out + i, part(i, n - i), n - i, stream);
}

DVM_INLINE bool streams(const uint64_t* words) { return (flags_of(words) & kStream) != 0; }

// Fills `handlers` for every row of isa.def whose family `Select` accepts, with
// Select::handler<family, dtype>(). A family without an implementation does not compile there.
template <class Select, Family F, Form Form_, uint16_t DTypes, int... D>
DVM_INLINE void fill_family(Handler* handlers, std::integer_sequence<int, D...>) {
  (
      [&] {
        if constexpr (((DTypes >> D) & 1) != 0) {
          if constexpr (Select::accepts(F, Form_, static_cast<DType>(D))) {
            const auto handler = Select::template handler<F, Form_, static_cast<DType>(D)>();
            static_assert(!std::is_null_pointer_v<decltype(handler)>,
                          "instruction without a handler");
            handlers[static_cast<int>(F) * 16 + D] = handler;
          }
        }
      }(),
      ...);
}

template <class Select>
void fill_handlers(Handler* handlers) {
#define DVM_INSN(name, queue, form, dtypes, meaning)                 \
  fill_family<Select, Family::name, Form::form, dtype_list::dtypes>( \
      handlers, std::make_integer_sequence<int, kDTypes>{});
#include "vm/isa.def"
#undef DVM_INSN
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
