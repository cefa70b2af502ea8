// The vector unit's instructions whose inputs and outputs differ in type: tests, comparisons,
// select, casts, narrowing, and the index instructions.
#include "npu/host/rows.h"
#include "npu/host/storage.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

// A comparison's lanes (0 or -1) as b8 lanes (0 or 1).
template <class M>
DVM_INLINE Vec<uint8_t, kLanesOf<M>> as_b8(M mask) {
#if defined(DVM_X86)
  // A few instructions where compilers narrow vectors of 32 bits in a dozen, and those of 64
  // element by element.
  constexpr int kBits = 8 * sizeof(Element<M>);
  if constexpr (kBits >= 32 && sizeof(M) == kVectorBytes) {
    __m128i bytes;
#if defined(DVM_AVX512)
    const auto lanes = bits_as<__m512i>(mask);
    if constexpr (kBits == 64)
      bytes = _mm_maskz_set1_epi8(_mm512_movepi64_mask(lanes), 1);
    else
      bytes = _mm_maskz_set1_epi8(_mm512_movepi32_mask(lanes), 1);
#else
    // Saturating packs; lanes of 64 bits are two of 32 that are alike.
    __m128i packed;
    if constexpr (sizeof(M) == 32)
      packed = _mm_packs_epi32(bits_as<__m128i>(low_half(mask)), bits_as<__m128i>(high_half(mask)));
    else
      packed = _mm_packs_epi32(bits_as<__m128i>(mask), bits_as<__m128i>(mask));
    if constexpr (kBits == 64) packed = _mm_packs_epi32(packed, packed);
    bytes = _mm_and_si128(_mm_packs_epi16(packed, packed), _mm_set1_epi8(1));
#endif
    Vec<uint8_t, kLanesOf<M>> result;
    __builtin_memcpy(&result, &bytes, sizeof result);
    return result;
  }
#endif
  return convert<uint8_t>(bits_as<Vec<std::make_unsigned_t<Element<M>>, kLanesOf<M>>>(mask)) & 1;
}

template <Family F>
struct Test;
#define DVM_TEST(name, expression)                                                              \
  template <>                                                                                   \
  struct Test<Family::name> {                                                                   \
    template <class V>                                                                          \
    DVM_INLINE static auto lanes(V x) {                                                         \
      [[maybe_unused]] const auto magnitude =                                                   \
          bits_as<IntegerVec<V>>(x) & ~bits_as<IntegerVec<V>>(-V{});                            \
      [[maybe_unused]] const auto infinity = bits_as<IntegerVec<V>>(splat<V>(__builtin_inf())); \
      return expression;                                                                        \
    }                                                                                           \
  };
DVM_TEST(v_isnan, magnitude > infinity)
DVM_TEST(v_isinf, magnitude == infinity)
DVM_TEST(v_isfinite, magnitude < infinity)
#undef DVM_TEST

// How vectors are compared: the operation, and the predicates, by the names of x86's header, of
// instructions that give a bit per lane. Those of floats are quiet about NaN.
#if defined(DVM_AVX512)
#define DVM_PREDICATES(integer, floating) \
  static constexpr int kInteger = _MM_CMPINT_##integer, kFloat = _CMP_##floating;
#else
#define DVM_PREDICATES(integer, floating)
#endif
template <Family F>
struct Compare;
#define DVM_COMPARE(name, operation, integer, floating) \
  template <>                                           \
  struct Compare<Family::name> {                        \
    DVM_PREDICATES(integer, floating)                   \
    template <class V>                                  \
    DVM_INLINE static auto lanes(V a, V b) {            \
      return a operation b;                             \
    }                                                   \
  };
DVM_COMPARE(v_eq, ==, EQ, EQ_OQ)
DVM_COMPARE(v_ne, !=, NE, NEQ_UQ)
DVM_COMPARE(v_lt, <, LT, LT_OQ)
DVM_COMPARE(v_le, <=, LE, LE_OQ)
DVM_COMPARE(v_gt, >, NLE, GT_OQ)
DVM_COMPARE(v_ge, >=, NLT, GE_OQ)
#undef DVM_COMPARE
#undef DVM_PREDICATES

#if defined(DVM_AVX512)
template <class Op, class T>
DVM_INLINE uint64_t compared_bits(Full<T> a, Full<T> b) {
  if constexpr (std::is_same_v<T, float>)
    return _mm512_cmp_ps_mask(bits_as<__m512>(a), bits_as<__m512>(b), Op::kFloat);
  else if constexpr (std::is_same_v<T, double>)
    return _mm512_cmp_pd_mask(bits_as<__m512d>(a), bits_as<__m512d>(b), Op::kFloat);
  else if constexpr (sizeof(T) == 8)
    return _mm512_cmp_epi64_mask(bits_as<__m512i>(a), bits_as<__m512i>(b), Op::kInteger);
  else
    return _mm512_cmp_epi32_mask(bits_as<__m512i>(a), bits_as<__m512i>(b), Op::kInteger);
}

// As many results as bytes of a vector at a time: those of few lanes take as long to spread and to
// store.
template <class Op, class T, class A, class B>
DVM_INLINE void compare_wide_row(uint8_t* out, A in_a, B in_b, int64_t n, bool stream) {
  constexpr int L = kLanes<T>, kVectors = kVectorBytes / L;
  const auto bytes = [](uint64_t bits) DVM_LAMBDA_INLINE {
    return bits_as<Full<uint8_t>>(_mm512_maskz_set1_epi8(bits, 1));
  };
  const auto whole = [&](int64_t i) DVM_LAMBDA_INLINE {
    uint64_t bits = 0;
#pragma GCC unroll 8
    for (int k = 0; k < kVectors; k++) {
      const int64_t at = i + k * L;
      bits |= compared_bits<Op, T>(in_a.whole(at), in_b.whole(at)) << (k * L);
    }
    return bytes(bits);
  };
  const auto part = [&](int64_t i, int64_t count) DVM_LAMBDA_INLINE {
    uint64_t bits = 0;
    int64_t k = 0;
    for (; k + L <= count; k += L)
      bits |= compared_bits<Op, T>(in_a.whole(i + k), in_b.whole(i + k)) << k;
    if (k < count) {
      const int64_t left = count - k;
      bits |= compared_bits<Op, T>(in_a.part(i + k, left), in_b.part(i + k, left)) << k;
    }
    return bytes(bits);
  };
  store_row(out, n, stream, whole, part);
}
#endif

template <class Op, class T>
DVM_INLINE void test_row(uint8_t* out, const T* in, int64_t n) {
  using V = Full<T>;
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) store(out + i, as_b8(Op::lanes(load<V>(in + i))));
  if (i < n) {
    store_partial(out + i, as_b8(Op::lanes(load_partial<V>(in + i, n - i))), n - i);
  }
}

template <class Op, class T, int StrideA, int StrideB>
DVM_INLINE void compare_row(uint8_t* out, const T* a, const T* b, int64_t n,
                            [[maybe_unused]] bool stream) {
  const Input<T, StrideA> in_a(a);
  const Input<T, StrideB> in_b(b);
#if defined(DVM_AVX512)
  if constexpr (sizeof(T) >= 4) return compare_wide_row<Op, T>(out, in_a, in_b, n, stream);
#endif
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) {
    store(out + i, as_b8(Op::lanes(in_a.whole(i), in_b.whole(i))));
  }
  if (i < n) {
    store_partial(out + i, as_b8(Op::lanes(in_a.part(i, n - i), in_b.part(i, n - i))), n - i);
  }
}

template <class T, int StrideA, int StrideB>
DVM_INLINE void select_row(T* out, const uint8_t* condition, const T* a, const T* b, int64_t n,
                           bool stream) {
  using C = Vec<uint8_t, kLanes<T>>;
  using Lane = std::conditional_t<sizeof(T) == 8, int64_t,
                                  std::conditional_t<sizeof(T) == 4, int32_t, int8_t>>;
  const Input<T, StrideA> in_a(a);
  const Input<T, StrideB> in_b(b);
  const auto choose = [](C chosen, Full<T> x, Full<T> y)
                          DVM_LAMBDA_INLINE { return convert<Lane>(chosen) != 0 ? x : y; };
  store_row(
      out, n, stream,
      [&](int64_t i) DVM_LAMBDA_INLINE {
        return choose(load<C>(condition + i), in_a.whole(i), in_b.whole(i));
      },
      [&](int64_t i, int64_t count) DVM_LAMBDA_INLINE {
        return choose(load_partial<C>(condition + i, count), in_a.part(i, count),
                      in_b.part(i, count));
      });
}

// Calls row<StrideA, StrideB>() for the inner strides (0 or 1) of two inputs.
template <class Row>
DVM_INLINE void with_strides(int64_t stride_a, int64_t stride_b, Row row) {
  using std::integral_constant;
  using Zero = integral_constant<int, 0>;
  using One = integral_constant<int, 1>;
  if (stride_a != 0) {
    if (stride_b != 0)
      row(One{}, One{});
    else
      row(One{}, Zero{});
  } else {
    if (stride_b != 0)
      row(Zero{}, One{});
    else
      row(Zero{}, Zero{});
  }
}

template <class Op, class T>
void test_handler(Core& core, const uint64_t* words) {
  Extents e = extents_of(core, words);
  if (e.empty()) return;
  Tile<uint8_t> out = tile_at<uint8_t>(core, operand_words(words, 0));
  Tile<const T> in = tile_at<const T>(core, operand_words(words, 1));
  merge_loops(e, out, in);
  for_rows(
      e,
      [&](uint8_t* to, const T* from) {
        test_row<Op>(to, from, in.inner == 0 ? 1 : e.inner);
        if (in.inner == 0) fill_row(to, e.inner, *to);
      },
      out, in);
}

template <class Op, class T>
void compare_handler(Core& core, const uint64_t* words) {
  Extents e = extents_of(core, words);
  if (e.empty()) return;
  Tile<uint8_t> out = tile_at<uint8_t>(core, operand_words(words, 0));
  Tile<const T> a = tile_at<const T>(core, operand_words(words, 1)),
                b = tile_at<const T>(core, operand_words(words, 2));
  merge_loops(e, out, a, b);
  const bool stream = streams(words);
  with_strides(a.inner, b.inner, [&](auto stride_a, auto stride_b) {
    for_rows(
        e,
        [n = e.inner, stream](uint8_t* to, const T* x, const T* y) {
          compare_row<Op, T, decltype(stride_a)::value, decltype(stride_b)::value>(to, x, y, n,
                                                                                   stream);
        },
        out, a, b);
  });
}

template <class T>
void select_handler(Core& core, const uint64_t* words) {
  Extents e = extents_of(core, words);
  if (e.empty()) return;
  Tile<T> out = tile_at<T>(core, operand_words(words, 0));
  Tile<const uint8_t> condition = tile_at<const uint8_t>(core, operand_words(words, 1));
  Tile<const T> a = tile_at<const T>(core, operand_words(words, 2)),
                b = tile_at<const T>(core, operand_words(words, 3));
  merge_loops(e, out, condition, a, b);
  const int64_t n = e.inner;
  const bool stream = streams(words);
  if (condition.inner == 0) {
    for_rows(
        e,
        [&](T* to, const uint8_t* chosen, const T* x, const T* y) {
          const T* from = *chosen ? x : y;
          const int64_t stride = *chosen ? a.inner : b.inner;
          if (stride == 0)
            fill_row(to, n, *from, stream);
          else
            convert_row<T, T>(to, from, n, stream);
        },
        out, condition, a, b);
    return;
  }
  with_strides(a.inner, b.inner, [&](auto stride_a, auto stride_b) {
    for_rows(
        e,
        [=](T* to, const uint8_t* chosen, const T* x, const T* y) {
          select_row<T, decltype(stride_a)::value, decltype(stride_b)::value>(to, chosen, x, y, n,
                                                                              stream);
        },
        out, condition, a, b);
  });
}

template <class To, class From>
struct CastRow {
  DVM_INLINE static void apply(To* to, const From* from, int64_t n, bool stream) {
    convert_row<To, From>(to, from, n, stream);
  }
};
template <class From>
struct CastToB8Row {
  DVM_INLINE static void apply(uint8_t* to, const From* from, int64_t n, bool stream) {
    compare_row<Compare<Family::v_ne>, From, 1, 0>(to, from, &kZero, n, stream);
  }
  static constexpr From kZero = 0;
};
template <class T, class S>
struct NarrowRow {
  DVM_INLINE static void apply(T* to, const T* from, int64_t n, bool stream) {
    constexpr int L = kLanes<T>;
    using V = Vec<T, L>;
    const auto through = [](V v) DVM_LAMBDA_INLINE {
      return convert_lanes<T, S, L>(convert_lanes<S, T, L>(v));
    };
    store_row(
        to, n, stream, [=](int64_t i) DVM_LAMBDA_INLINE { return through(load<V>(from + i)); },
        [=](int64_t i, int64_t count)
            DVM_LAMBDA_INLINE { return through(load_partial<V>(from + i, count)); });
  }
};

// Entries of a table of bytes, as 16 bits: what a vector instruction picks from.
template <class S>
class Table {
 public:
  DVM_INLINE explicit Table(const S* from) : from_(from) {
#if defined(DVM_AVX512)
    for (int part = 0; part < kParts; part++) {
      parts_[part] = bits_as<__m512i>(
          convert<Entry>(load<Vec<S, kLanes<Entry>>>(from + part * kLanes<Entry>)));
    }
#endif
  }

  template <class R>
  DVM_INLINE void row(R* to, const R* from, int64_t n) const {
    int64_t i = 0;
#if defined(DVM_AVX512)
    if constexpr (sizeof(R) == 4) {
      for (; i + 2 * kLanes<R> <= n; i += 2 * kLanes<R>) {
        look_up_two(to + i, load<Full<R>>(from + i), load<Full<R>>(from + i + kLanes<R>));
      }
    } else {
      constexpr int kHalf = kLanes<R> / 2;
      for (; i + kHalf <= n; i += kHalf) {
        using Bytes = Vec<R, kHalf>;
        const auto wide = bits_as<__m512i>(convert<uint16_t>(load<Bytes>(from + i)));
        store(to + i, convert<R>(bits_as<Full<uint16_t>>(look_up(wide))));
      }
    }
#endif
#pragma GCC unroll 8  // a loop of so few instructions runs at the pace of its jumps
    for (; i < n; i++) to[i] = convert_one<R>(from_[static_cast<uint8_t>(from[i])]);
  }

 private:
  const S* from_;
#if defined(DVM_AVX512)
  using Entry = std::conditional_t<std::is_signed_v<S>, int16_t, uint16_t>;
  static constexpr int kParts = int{kTableEntries} / kLanes<Entry>;

  // Of the low bytes of 32 indices: each instruction picks from 64 entries by six bits of them.
  DVM_INLINE __m512i look_up(__m512i at) const {
    const __m512i low = pick(at, 0, 1), high = pick(at, 4, 5);
    const __mmask32 odd = _mm512_test_epi16_mask(at, _mm512_set1_epi16(64));
    const __mmask32 upper = _mm512_test_epi16_mask(at, _mm512_set1_epi16(128));
    return _mm512_mask_blend_epi16(upper, _mm512_mask_blend_epi16(odd, low, pick(at, 2, 3)),
                                   _mm512_mask_blend_epi16(odd, high, pick(at, 6, 7)));
  }
  DVM_INLINE __m512i pick(__m512i at, int first, int second) const {
    return _mm512_permutex2var_epi16(parts_[first], at, parts_[second]);
  }
  // Words of the two vectors side by side.
  template <class R>
  DVM_INLINE void look_up_two(R* to, Full<R> even, Full<R> odd) const {
    using Bits = Full<uint32_t>;
    const auto found =
        look_up(bits_as<__m512i>((bits_as<Bits>(odd) << 16) | (bits_as<Bits>(even) & 0xffff)));
    using Wide = Full<std::conditional_t<std::is_signed_v<S>, int32_t, uint32_t>>;
    store(to, bits_as<Full<R>>(bits_as<Wide>(bits_as<Bits>(found) << 16) >> 16));
    store(to + kLanes<R>, bits_as<Full<R>>(bits_as<Wide>(found) >> 16));
  }

  __m512i parts_[kParts];
#endif
};

template <class S, class R>
void lookup_handler(Core& core, const uint64_t* words) {
  Extents e = extents_of(core, words);
  if (e.empty()) return;
  Tile<R> out = tile_at<R>(core, operand_words(words, 0));
  const Table<S> table(tile_at<const S>(core, operand_words(words, 1)).at);
  Tile<const R> in = tile_at<const R>(core, operand_words(words, 2));
  merge_loops(e, out, in);
  for_rows(
      e,
      [&](R* to, const R* from) {
        table.row(to, from, in.inner == 0 ? 1 : e.inner);
        if (in.inner == 0) fill_row(to, e.inner, *to);
      },
      out, in);
}

template <class Row, class To, class From>
void cast_handler(Core& core, const uint64_t* words) {
  Extents e = extents_of(core, words);
  if (e.empty()) return;
  Tile<To> out = tile_at<To>(core, operand_words(words, 0));
  Tile<const From> in = tile_at<const From>(core, operand_words(words, 1));
  merge_loops(e, out, in);
  const bool repeats = in.inner == 0, stream = streams(words);
  for_rows(
      e,
      [&](To* to, const From* from) {
        Row::apply(to, from, repeats ? 1 : e.inner, stream && !repeats);
        if (repeats) fill_row(to, e.inner, *to, stream);
      },
      out, in);
}

template <class T>
void iota_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  const Tile<T> out = tile_at<T>(core, operand_words(words, 0));
  const Tile<int64_t> source = tile_at<int64_t>(core, operand_words(words, 1));
  const auto address = static_cast<uint32_t>(*operand_words(words, 1));
  // A pointer register over no buffer holds the integer itself.
  const int64_t base = address >> kSpaceShift == static_cast<uint32_t>(Space::pointer)
                           ? reinterpret_cast<int64_t>(source.at)
                           : *source.at;
  for (int64_t o = 0; o < e.outer; o++) {
    for (int64_t m = 0; m < e.middle; m++) {
      T* to = out.at + o * out.outer + m * out.middle;
      const int64_t first = base + o * source.outer + m * source.middle;
      for (int64_t i = 0; i < e.inner; i++) to[i] = static_cast<T>(first + i * source.inner);
    }
  }
}

void check_index_handler(Core& core, const uint64_t* words) {
  Extents e = extents_of(core, words);
  if (e.empty()) return;
  Tile<int64_t> out = tile_at<int64_t>(core, operand_words(words, 0));
  Tile<const int64_t> in = tile_at<const int64_t>(core, operand_words(words, 1));
  const auto limit = static_cast<int64_t>(*extra_words(Form::check_index, words));
  merge_loops(e, out, in);
  for_rows(
      e,
      [&](int64_t* to, const int64_t* from) {
        if (out.inner == 1 && in.inner == 1 && all_inside(from, e.inner, limit)) {
          DVM_INDEPENDENT_ITERATIONS
          for (int64_t i = 0; i < e.inner; i++) to[i] = wrapped_index(from[i], limit);
          return;
        }
        for (int64_t i = 0; i < e.inner; i++) {
          const int64_t index = from[i * in.inner], wrapped = wrapped_index(index, limit);
          if (wrapped < 0 || wrapped >= limit) {
            if (core.trap.kind != TrapKind::none) return;
            core.trap.kind = TrapKind::index_out_of_range;
            core.trap.value = index;
            core.trap.limit = limit;
            return;
          }
          to[i * out.inner] = wrapped;
        }
      },
      out, in);
}

struct Conversion {
  static constexpr bool accepts(Family family, Form form, DType dtype) {
    return part_of(family, form, dtype) == Part::conversion;
  }
  template <DType To, DType From>
  static constexpr auto cast() {
    using T = ElementType<To>;
    using F = ElementType<From>;
    return &cast_handler<CastRow<T, F>, T, F>;
  }
  template <Family F, Form Form_, DType D>
  static constexpr auto handler() {
    using T = RegisterType<D>;
    if constexpr (Form_ == Form::test)
      return &test_handler<Test<F>, T>;
    else if constexpr (Form_ == Form::compare)
      return &compare_handler<Compare<F>, ElementType<D>>;
    else if constexpr (Form_ == Form::select)
      return &select_handler<T>;
    else if constexpr (Form_ == Form::narrow)
      return &cast_handler<NarrowRow<T, StorageType<D>>, T, T>;
    else if constexpr (Form_ == Form::lookup)
      return &lookup_handler<StorageType<D>, T>;
    else if constexpr (Form_ == Form::cast_f32)
      return cast<DType::f32, D>();
    else if constexpr (Form_ == Form::cast_f64)
      return cast<DType::f64, D>();
    else if constexpr (Form_ == Form::cast_i32)
      return cast<DType::i32, D>();
    else if constexpr (Form_ == Form::cast_i64)
      return cast<DType::i64, D>();
    else if constexpr (Form_ == Form::cast_b8)
      return &cast_handler<CastToB8Row<T>, uint8_t, T>;
    else if constexpr (Form_ == Form::iota)
      return &iota_handler<T>;
    else if constexpr (Form_ == Form::check_index)
      return &check_index_handler;
    else
      return nullptr;
  }
};

}  // namespace

void fill_conversion(Handler* handlers) { fill_handlers<Conversion>(handlers); }

}  // namespace dvm::DVM_LEVEL
