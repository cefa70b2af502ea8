// Row functions of element-wise instructions: an operation applied along one contiguous row, with
// inputs of inner stride 1 or 0 (one value for the whole row).
//
// An operation has `vector(V...)` for the element types it has a SIMD form of, and `scalar(T...)`
// otherwise; scalar forms are auto-vectorised where the level can. Compiled per level: see simd.h.
#pragma once

#include "npu/host/streamed_rows.h"

namespace dvm::DVM_LEVEL {
namespace {

template <class T>
DVM_INLINE void fill_row(T* out, int64_t n, T value, bool stream = false) {
  const Full<T> v = splat<Full<T>>(value);
  store_row(
      out, n, stream, [=](int64_t) DVM_LAMBDA_INLINE { return v; },
      [=](int64_t, int64_t) DVM_LAMBDA_INLINE { return v; });
}

// Negative indices count from the limit.
DVM_INLINE int64_t wrapped_index(int64_t index, int64_t limit) {
  return index + (limit & (index >> 63));
}

// Whether no index leaves [-limit, limit): without a jump, so that vectors of them are looked at.
DVM_INLINE bool all_inside(const int64_t* indices, int64_t n, int64_t limit) {
  uint64_t signs = 0;  // of the distances to both ends
  for (int64_t i = 0; i < n; i++) {
    const auto wrapped = static_cast<uint64_t>(wrapped_index(indices[i], limit));
    signs |= wrapped | (static_cast<uint64_t>(limit) - 1 - wrapped);
  }
  return static_cast<int64_t>(signs) >= 0;
}

// A row of inputs, or one value for all of the row. `whole` and `part` give the lanes from i on.
template <class T, int Stride, int Lanes = kLanes<T>>
struct Input {
  using V = Vec<T, Lanes>;
  const T* at;
  V value;

  DVM_INLINE explicit Input(const T* from) : at(from), value{} {
    if constexpr (Stride == 0) value = splat<V>(*from);
  }
  DVM_INLINE V whole(int64_t i) const {
    if constexpr (Stride == 0)
      return value;
    else
      return load<V>(at + i);
  }
  DVM_INLINE V part(int64_t i, int64_t count) const {
    if constexpr (Stride == 0)
      return value;
    else
      return load_partial<V>(at + i, count);
  }
};

template <class Op, class T>
DVM_INLINE void unary_row(T* out, const T* in, int64_t n, bool stream) {
  using V = Full<T>;
  if constexpr (requires(V v) { Op::vector(v); }) {
    store_row(
        out, n, stream, [=](int64_t i) DVM_LAMBDA_INLINE { return Op::vector(load<V>(in + i)); },
        [=](int64_t i, int64_t count)
            DVM_LAMBDA_INLINE { return Op::vector(load_partial<V>(in + i, count)); });
  } else {
    DVM_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; i++) out[i] = Op::scalar(in[i]);
  }
}

template <class Op, class T, int StrideA, int StrideB>
DVM_INLINE void binary_row(T* out, const T* a, const T* b, int64_t n, bool stream) {
  using V = Full<T>;
  if constexpr (requires(V v) { Op::vector(v, v); }) {
    const Input<T, StrideA> in_a(a);
    const Input<T, StrideB> in_b(b);
    store_row(
        out, n, stream,
        [&](int64_t i) DVM_LAMBDA_INLINE { return Op::vector(in_a.whole(i), in_b.whole(i)); },
        [&](int64_t i, int64_t count)
            DVM_LAMBDA_INLINE { return Op::vector(in_a.part(i, count), in_b.part(i, count)); });
  } else {
    const T a0 = *a, b0 = *b;
    DVM_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; i++) {
      out[i] = Op::scalar(StrideA == 0 ? a0 : a[i], StrideB == 0 ? b0 : b[i]);
    }
  }
}

template <class Op, class T>
void unary_handler(Core& core, const uint64_t* words) {
  Extents e = extents_of(core, words);
  if (e.empty()) return;
  Tile<T> out = tile_at<T>(core, operand_words(words, 0));
  Tile<const T> in = tile_at<const T>(core, operand_words(words, 1));
  merge_loops(e, out, in);
  const bool broadcast = in.inner == 0, stream = streams(words);
  for_rows(
      e,
      [&](T* to, const T* from) {
        if (broadcast) {
          T value;
          unary_row<Op>(&value, from, 1, false);
          fill_row(to, e.inner, value, stream);
        } else {
          unary_row<Op>(to, from, e.inner, stream);
        }
      },
      out, in);
}

template <class Op, class T>
void binary_handler(Core& core, const uint64_t* words) {
  Extents e = extents_of(core, words);
  if (e.empty()) return;
  Tile<T> out = tile_at<T>(core, operand_words(words, 0));
  Tile<const T> a = tile_at<const T>(core, operand_words(words, 1)),
                b = tile_at<const T>(core, operand_words(words, 2));
  merge_loops(e, out, a, b);
  const int64_t n = e.inner;
  const bool stream = streams(words);
  if (a.inner != 0 && b.inner != 0) {
    for_streamed_rows(
        e, stream,
        [=](T* to, bool streams, const T* x, const T* y) {
          binary_row<Op, T, 1, 1>(to, x, y, n, streams);
        },
        out, a, b);
  } else if (a.inner != 0) {
    for_streamed_rows(
        e, stream,
        [=](T* to, bool streams, const T* x, const T* y) {
          binary_row<Op, T, 1, 0>(to, x, y, n, streams);
        },
        out, a, b);
  } else if (b.inner != 0) {
    for_streamed_rows(
        e, stream,
        [=](T* to, bool streams, const T* x, const T* y) {
          binary_row<Op, T, 0, 1>(to, x, y, n, streams);
        },
        out, a, b);
  } else {
    for_streamed_rows(
        e, stream,
        [=](T* to, bool streams, const T* x, const T* y) {
          T value;
          binary_row<Op, T, 1, 1>(&value, x, y, 1, false);
          fill_row(to, n, value, streams);
        },
        out, a, b);
  }
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
