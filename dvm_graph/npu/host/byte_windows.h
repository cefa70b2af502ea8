// Convolutions of channels by themselves over channels-last images of bytes, summed in 32 bits, and
// the levels that such sums are rounded to while they are in registers.
//
// The taps of a row go four at a time, as one word for each channel: four vectors of channels are
// interleaved, and multiplied by weights that were interleaved alike. Where they share most of
// their taps, two neighbouring windows do so with the same words, by weights that are moved by the
// stride. Where a tap is outside of the image, a line of that byte is read in its place.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/rounding.h"
#include "npu/host/transpose.h"
#include "npu/host/window_loops.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int kTapsOfWord = 4;
constexpr int kWordVectors = 4;  // of words, in which the channels of a vector of bytes are

// Elements of the low, or the high, halves of each 16 bytes of a and b, by turns.
template <bool High, class V, int... I>
DVM_INLINE V zip(V a, V b, std::integer_sequence<int, I...>) {
  constexpr int L = kLanesOf<V>, P = 16 / static_cast<int>(sizeof(Element<V>));
  return __builtin_shufflevector(
      a, b, (I / P * P + I % P / 2 + (High ? P / 2 : 0) + (I % 2 != 0 ? L : 0))...);
}
template <bool High, class V>
DVM_INLINE V zip(V a, V b) {
  return zip<High>(a, b, std::make_integer_sequence<int, kLanesOf<V>>{});
}

// Bytes i of four vectors are a word. Of each 16 bytes of vector j of words are the channels that
// follow 4 * j of each 16.
DVM_INLINE void interleave(const Full<uint8_t> (&taps)[kTapsOfWord],
                           Full<uint32_t> (&words)[kWordVectors]) {
  using Pairs = Full<uint16_t>;
  const auto first = [&]<bool High>(std::bool_constant<High>)
                         DVM_LAMBDA_INLINE { return bits_as<Pairs>(zip<High>(taps[0], taps[1])); };
  const auto second = [&]<bool High>(std::bool_constant<High>)
                          DVM_LAMBDA_INLINE { return bits_as<Pairs>(zip<High>(taps[2], taps[3])); };
  const auto pairs = [&]<bool High>(std::bool_constant<High> half) DVM_LAMBDA_INLINE {
    const Pairs a = first(half), b = second(half);
    words[2 * High] = bits_as<Full<uint32_t>>(zip<false>(a, b));
    words[2 * High + 1] = bits_as<Full<uint32_t>>(zip<true>(a, b));
  };
  pairs(std::false_type{});
  pairs(std::true_type{});
}

// The way back, of sums: vector i becomes the i-th part of the channels.
template <class V>
DVM_INLINE void in_order(V (&sums)[kWordVectors]) {
  constexpr auto kLane = std::make_integer_sequence<int, kLanesOf<V>>{};
  const auto merge = [&]<int Block>(std::integral_constant<int, Block>, int i, int j)
                         DVM_LAMBDA_INLINE {
                           const V low = merge_low<Block>(sums[i], sums[j], kLane);
                           sums[j] = merge_high<Block>(sums[i], sums[j], kLane);
                           sums[i] = low;
                         };
  if constexpr (kLanesOf<V> == 16) {
    constexpr std::integral_constant<int, 8> kTwo{};
    merge(kTwo, 0, 2);
    merge(kTwo, 1, 3);
  }
  if constexpr (kLanesOf<V> >= 8) {
    constexpr std::integral_constant<int, 4> kOne{};
    merge(kOne, 0, 1);
    merge(kOne, 2, 3);
  }
  if constexpr (kLanesOf<V> == 8) std::swap(sums[1], sums[2]);
}

// Of sums of a vector of bytes' channels, where they are words as `interleave` makes them.
constexpr int64_t channel_of(int64_t vector, int64_t lane) {
  return lane / 4 * 16 + vector * 4 + lane % 4;
}

template <class T>
DVM_INLINE void store_in_order(T* to, Vec<T, kLanes<int32_t>> (&words)[kWordVectors],
                               int64_t lanes) {
  constexpr int64_t kWords = kLanes<int32_t>;
  in_order(words);
#pragma GCC unroll 4
  for (int j = 0; j < kWordVectors; j++) {
    if (lanes >= (j + 1) * kWords)
      store(to + j * kWords, words[j]);
    else if (lanes > j * kWords)
      store_partial(to + j * kWords, words[j], lanes - j * kWords);
  }
}

// What becomes of sums: nothing.
class AsSums {
 public:
  using Of = Operands<int32_t, uint8_t, int8_t>;
  AsSums(const Of&, bool) {}

  void go_to(int64_t, int64_t) {}
  DVM_INLINE Full<uint32_t> start(int) const { return Full<uint32_t>{}; }
  DVM_INLINE void store(int32_t* to, Full<uint32_t> (&sums)[kWordVectors], int64_t lanes) const {
    store_in_order(reinterpret_cast<uint32_t*>(to), sums, lanes);
  }
};

// Operands of what makes levels of sums, in T.
template <class T>
struct LevelOperands : Operands<T, uint8_t, int8_t> {
  Tile<const int32_t> addends;
  Tile<const float> factors;
  Rounding rounding;

  DVM_INLINE LevelOperands at(int64_t o, int64_t m, int64_t i) const {
    const auto offset = [&](const auto& tile) {
      return o * tile.outer + m * tile.middle + i * tile.inner;
    };
    LevelOperands moved{Operands<T, uint8_t, int8_t>::at(o, m, i), addends, factors, rounding};
    moved.addends.at += offset(addends);
    moved.factors.at += offset(factors);
    return moved;
  }
  DVM_INLINE bool same_along_middle() const {
    return Operands<T, uint8_t, int8_t>::same_along_middle() && addends.middle == 0 &&
           factors.middle == 0;
  }
  DVM_INLINE bool same_along_inner() const {
    return Operands<T, uint8_t, int8_t>::same_along_inner() && addends.inner == 0 &&
           factors.inner == 0;
  }
};

// Of each channel an addend and a factor, arranged as the sums are.
template <class T>
class AsLevels {
 public:
  using Of = LevelOperands<T>;
  AsLevels(const Of& x, bool across)
      : addends_(x.addends.at),
        factors_(x.factors.at),
        addend_step_(across ? x.addends.middle : x.addends.inner),
        factor_step_(across ? x.factors.middle : x.factors.inner),
        rounding_(x.rounding) {}

  void go_to(int64_t first, int64_t lanes) {
    constexpr int64_t kWords = kLanes<int32_t>;
    for (int64_t i = 0; i < kWordVectors * kWords; i++) {
      const int64_t channel = first + lesser(channel_of(i / kWords, i % kWords), lanes - 1);
      addend_[i] = addends_[channel * addend_step_];
      factor_[i] = factors_[channel * factor_step_];
    }
  }
  DVM_INLINE Full<uint32_t> start(int j) const {
    return bits_as<Full<uint32_t>>(load<Full<int32_t>>(addend_ + j * kLanes<int32_t>));
  }
  DVM_INLINE void store(T* to, const Full<uint32_t> (&sums)[kWordVectors], int64_t lanes) const {
    Full<int32_t> levels[kWordVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kWordVectors; j++)
      levels[j] = rounding_.round(bits_as<Full<int32_t>>(sums[j]),
                                  load<Full<float>>(factor_ + j * kLanes<float>));
    if constexpr (sizeof(T) == 1) {
      const Full<uint8_t> bytes = rounding_.levels(levels);
      if (lanes == kLanes<uint8_t>)
        dvm::DVM_LEVEL::store(to, bytes);
      else
        store_partial(to, bytes, lanes);
    } else {
      for (auto& level : levels) level = rounding_.levels<T>(level);
      store_in_order(to, levels, lanes);
    }
  }

 private:
  const int32_t* addends_;
  const float* factors_;
  int64_t addend_step_, factor_step_;
  Rounding rounding_;
  alignas(kVectorBytes) int32_t addend_[kWordVectors * kLanes<int32_t>];
  alignas(kVectorBytes) float factor_[kWordVectors * kLanes<int32_t>];
};

// Step: what multiplies words of four u8 by such of i8, and adds the products. Results: what
// becomes of the sums.
template <class Step, class Results>
class ByteWindows {
  using Bytes = Full<uint8_t>;
  using Words = Full<uint32_t>;
  using Column = typename Step::Column;
  using Of = typename Results::Of;
  using Result = typename Of::Result;
  static constexpr int64_t L = kLanes<uint8_t>;
  static constexpr int kMostPacked = 65536 / sizeof(Column);  // vectors of weights
  static constexpr int kMostTaps = 512;  // of windows side by side, and what fills their words

  // How many windows are side by side, and of what.
  struct Group {
    int64_t windows, words;  // of a row of taps

    int64_t taps() const { return words * kTapsOfWord; }
    int64_t vectors() const { return windows * words * kWordVectors; }  // of weights of a row
  };

 public:
  // `across`: channels are the middle loop, else the inner one.
  ByteWindows(const Window& w, const Of& x, bool across)
      : w_(w),
        images_(x.images.at),
        weights_(x.weights.at),
        results_(x, across),
        end_((w.pixels() - 1) * w.pixel + 1) {
    const auto words = [](int64_t taps) { return (taps + kTapsOfWord - 1) / kTapsOfWord; };
    single_ = {1, words(w.kernel_width)};
    pair_ = {2, words(w.kernel_width + w.stride_width)};
    pairs_ = w.dilation_width == 1 && pair_.words < 2 * single_.words;
    row_ = int64_t{w.width} * w.pixel;
    for (auto& byte : outside_) byte = static_cast<uint8_t>(w.outside);
  }

  void reduce(Result* out, int64_t out_step, int64_t number, int64_t count, int64_t results) {
    const int64_t vectors = single_.vectors() + (pairs_ ? pair_.vectors() : 0);
    const int64_t taps = (pairs_ ? pair_ : single_).taps();
    const bool packs =
        w_.kernel_height * vectors <= kMostPacked && w_.kernel_height * taps <= kMostTaps;
    lanes_ = lesser(L, results);
    for (int64_t c = 0; c < results; c += L) {
      first_ = lesser(c, results - lanes_);  // the last ones overlap with those before
      results_.go_to(first_, lanes_);
      if (!packs) {
        reduce_taps(out + first_, out_step, Position(w_, number), count);
        continue;
      }
      pack(single_, packed_);
      if (pairs_) pack(pair_, packed_ + w_.kernel_height * single_.vectors());
      reduce_channels(out + first_, out_step, Position(w_, number), count);
    }
  }

 private:
  template <bool Partial>
  DVM_INLINE Bytes load_bytes(const uint8_t* at) const {
    if constexpr (Partial)
      return load_partial<Bytes>(at, lanes_);
    else
      return load<Bytes>(at);
  }

  // Weights row by row, word by word and window by window, of these channels.
  void pack(const Group& of, Column* to) const {
    for (int64_t y = 0; y < w_.kernel_height; y++) {
      for (int64_t word = 0; word < of.words; word++) {
        for (int64_t window = 0; window < of.windows; window++, to += kWordVectors) {
          Bytes taps[kTapsOfWord];
          for (int64_t i = 0; i < kTapsOfWord; i++) {
            const int64_t x = word * kTapsOfWord + i - window * w_.stride_width;
            taps[i] = Bytes{};
            if (x < 0 || x >= w_.kernel_width) continue;
            taps[i] = load_bytes<true>(reinterpret_cast<const uint8_t*>(weights_) + first_ +
                                       (y * w_.kernel_width + x) * int64_t{w_.weights});
          }
          Words words[kWordVectors];
          interleave(taps, words);
          for (int j = 0; j < kWordVectors; j++) {
            alignas(kVectorBytes) uint32_t word_of[kLanesOf<Words>];
            store(word_of, words[j]);
            to[j] = Step::column(word_of);
          }
        }
      }
    }
  }

  // Addresses of the taps of windows side by side, row by row: those that only fill words are the
  // last column's.
  DVM_INLINE void place_taps(const Group& of, const uint8_t* image, int64_t top, int64_t left) {
    const int64_t last = (of.windows - 1) * w_.stride_width + w_.kernel_width - 1;
    uintptr_t* place = places_;
    for (int64_t y = 0; y < w_.kernel_height; y++) {
      const int64_t row = top + y * w_.dilation_height;
      const bool inside = row >= 0 && row < w_.height;
      for (int64_t x = 0; x < of.taps(); x++) {
        const int64_t column = left + lesser(x, last) * w_.dilation_width;
        const bool taken = inside && column >= 0 && column < w_.width;
        const uint8_t* at = taken ? image + row * row_ + column * w_.pixel + first_ : outside_;
        *place++ = reinterpret_cast<uintptr_t>(at);
      }
    }
  }

  template <bool Partial, int Windows>
  DVM_INLINE void reduce_windows(const Group& of, uintptr_t moved, const Column* weights,
                                 Result* out, int64_t out_step) const {
    Words sums[Windows][kWordVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kWordVectors; j++)
      for (int i = 0; i < Windows; i++) sums[i][j] = results_.start(j);
    const uintptr_t* place = places_;
    for (int64_t word = w_.kernel_height * of.words; word > 0; word--, place += kTapsOfWord) {
      Bytes taps[kTapsOfWord];
#pragma GCC unroll 4
      for (int i = 0; i < kTapsOfWord; i++)
        taps[i] = load_bytes<Partial>(reinterpret_cast<const uint8_t*>(place[i] + moved));
      Words words[kWordVectors];
      interleave(taps, words);
#pragma GCC unroll 4
      for (int j = 0; j < kWordVectors; j++) {
        const auto spread = Step::spread(words[j]);
#pragma GCC unroll 2
        for (int i = 0; i < Windows; i++)
          sums[i][j] = Step::multiply_add(sums[i][j], spread, weights[i * kWordVectors + j]);
      }
      weights += Windows * kWordVectors;
    }
    for (int i = 0; i < Windows; i++, out += out_step) results_.store(out, sums[i], lanes_);
  }

  // A series of windows, output row by output row.
  void reduce_channels(Result* out, int64_t out_step, Position at, int64_t count) {
    const Column* const of_pairs = packed_ + w_.kernel_height * single_.vectors();
    while (count > 0) {
      const int64_t row = lesser(w_.out_width - at.x, count);
      const int64_t image = at.image * w_.height * row_;
      const int64_t top = at.y * w_.stride_height - w_.pad_top;
      const bool rows_inside =
          top >= 0 && top + int64_t{w_.kernel_height - 1} * w_.dilation_height < w_.height;
      const int64_t reach = ((w_.kernel_height - 1) * int64_t{w_.dilation_height} + 1) * row_;
      int64_t placed = -1;  // column of the windows whose taps, all inside, these have, but moved
      for (int64_t i = 0; i < row;) {
        const bool two = pairs_ && row - i >= 2;
        const Group& of = two ? pair_ : single_;
        const int64_t left = (at.x + i) * w_.stride_width - w_.pad_left;
        const int64_t last = left + ((of.windows - 1) * w_.stride_width +
                                     int64_t{w_.kernel_width - 1} * w_.dilation_width);
        const bool inside = rows_inside && left >= 0 && last < w_.width;
        const bool moves = inside && placed >= 0 && (two || !pairs_);
        if (!moves) {
          place_taps(of, images_ + image, top, left);
          placed = inside ? left : -1;
        }
        const uintptr_t moved = moves ? (left - placed) * w_.pixel : 0;
        // Whole vectors of fewer channels are read where they end within the images.
        const int64_t read = image + top * row_ + left * w_.pixel + first_;
        const bool whole = lanes_ == L || (inside && read + reach + L <= end_);
        if (two && whole)
          reduce_windows<false, 2>(of, moved, of_pairs, out, out_step);
        else if (two)
          reduce_windows<true, 2>(of, moved, of_pairs, out, out_step);
        else if (whole)
          reduce_windows<false, 1>(of, moved, packed_, out, out_step);
        else
          reduce_windows<true, 1>(of, moved, packed_, out, out_step);
        i += of.windows;
        out += of.windows * out_step;
      }
      count -= row;
      at.x += row - 1;
      at.advance(w_);
    }
  }

  // Of large kernels: tap by tap.
  void reduce_taps(Result* out, int64_t out_step, Position at, int64_t count) const {
    constexpr int64_t kWords = kLanesOf<Words>;
    for (; count > 0; count--, at.advance(w_), out += out_step) {
      uint32_t sums[L] = {};  // they wrap
      const int8_t* weight = weights_ + first_;
      for (int64_t tap = 0; tap < w_.taps(); tap++, weight += w_.weights) {
        const int64_t y = along_rows(w_).place(at.y, tap / w_.kernel_width);
        const int64_t x = along_columns(w_).place(at.x, tap % w_.kernel_width);
        const bool inside = y >= 0 && y < w_.height && x >= 0 && x < w_.width;
        if (!inside && w_.outside == 0) continue;
        const int64_t read = (at.image * w_.height + y) * row_ + x * w_.pixel + first_;
        const uint8_t* const from = inside ? images_ + read : outside_;
        for (int64_t c = 0; c < lanes_; c++) sums[c] += static_cast<uint32_t>(from[c] * weight[c]);
      }
      Words words[kWordVectors];
      for (int j = 0; j < kWordVectors; j++) {
        words[j] = results_.start(j);
        for (int64_t i = 0; i < kWords; i++) words[j][i] += sums[channel_of(j, i)];
      }
      results_.store(out, words, lanes_);
    }
  }

  const Window& w_;
  const uint8_t* images_;
  const int8_t* weights_;
  Results results_;
  int64_t end_;  // of the images
  Group single_, pair_;
  bool pairs_;
  int64_t row_;                    // elements of an image's
  int64_t first_ = 0, lanes_ = 0;  // channels at hand
  uintptr_t places_[kMostTaps];
  alignas(kVectorBytes) uint8_t outside_[L];
  alignas(kVectorBytes) Column packed_[kMostPacked];
};

template <class Step, class Results>
struct OfBytes {
  bool across;

  DVM_INLINE void operator()(const Window& w, const typename Results::Of& x,
                             typename Results::Of::Result* out, int64_t out_step, int64_t count,
                             int64_t results) const {
    ByteWindows<Step, Results>(w, x, across)
        .reduce(out, out_step, first_number(x.numbers), count, results);
  }
};

template <class Step, class Results>
void reduce_bytes(const Window& w, const typename Results::Of& x, const Extents& e) {
  const OfBytes<Step, Results> series{false};
  const bool by_windows =  // a loop of one step has whatever strides
      e.inner == 1 || (x.numbers.inner == 1 && x.same_along_inner());
  const bool across = by_windows && x.numbers.middle == 0 && x.images.middle == 1;
  if (across && x.weights.middle == 1 && e.middle > 1) {
    for (int64_t o = 0; o < e.outer; o++)
      reduce_across(w, OfBytes<Step, Results>{true}, x.at(o, 0, 0), e.middle, e.inner);
    return;
  }
  const bool by_results =
      x.numbers.inner == 0 && x.to.inner == 1 && x.images.inner == 1 && x.weights.inner == 1;
  if (by_results || e.inner == 1) return reduce_rows(w, series, x, e);
  if (by_windows) return reduce_single(w, series, x, e);
  reduce_scattered(w, series, x, e);
}

template <class R>
DVM_INLINE Operands<R, uint8_t, int8_t> byte_operands(Core& core, const uint64_t* words) {
  return {tile_at<R>(core, operand_words(words, 0)),
          tile_at<const uint8_t>(core, operand_words(words, 1)),
          tile_at<const int8_t>(core, operand_words(words, 3)), numbers_at(core, words)};
}

template <class Step>
void depthwise_bytes_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  reduce_bytes<Step, AsSums>(window_at(words, 4), byte_operands<int32_t>(core, words), e);
}

template <class Step, class T>
void depthwise_quantize_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  const LevelOperands<T> x{byte_operands<T>(core, words),
                           tile_at<const int32_t>(core, operand_words(words, 4)),
                           tile_at<const float>(core, operand_words(words, 5)),
                           Rounding::to<T>(levels_of(Form::depthwise_quantize, words))};
  reduce_bytes<Step, AsLevels<T>>(window_at(words, 6), x, e);
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
