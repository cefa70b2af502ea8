#include "vm/verify_extra.h"

#include <algorithm>
#include <cmath>

#include "kernels/transforms.h"
#include "vm/ending.h"
#include "vm/panels.h"

namespace dvm {
namespace {

// Tells elements of a tap apart.
constexpr bool moves_patches(Form form) {
  return form == Form::pack_patches || form == Form::matmul_windows ||
         form == Form::matmul_transformed;
}

}  // namespace

bool check_block(Form form, const uint64_t* words, const Target& target, Fault& fail) {
  const uint64_t* const extra = extra_words(form, words);
  const auto block = static_cast<int64_t>(extra[0]), bits = static_cast<int64_t>(extra[1]);
  if (!are_level_bits(bits)) return fail("no levels");
  if (block <= 0 || block > kMostBlock || block % word_levels(bits) != 0) return fail("no block");
  const int64_t row = panel_columns(kBundle, target), levels = block / word_levels(bits);
  const int64_t middle = operand_of(words, 2).middle_stride;
  return middle == (levels + 1) * row || middle == (levels + 2) * row ||
         fail("a block has other rows than scales, zeros and levels");
}

bool check_ending(Form form, DType dtype, const uint64_t* words, Fault& fail) {
  const int addend = form_info(form).operand_count() - 1;
  const bool number = operand_of(words, addend).space() == Space::immediate;
  if (number && operand_words(words, addend)[1] != 0) return fail("a number added is not 0");
  const uint64_t* const ending = ending_words(form, words);
  const auto real = [=](int word) { return real_of(dtype, ending[word]); };
  if (!(real(0) <= real(1))) return fail("low is not up to high");
  const bool finite = std::isfinite(real(2)) && std::isfinite(real(3));
  return finite || fail("a gate is no line");
}

bool check_levels(const Levels& levels, DType dtype, Fault& fail) {
  for (const int64_t level : {levels.low, levels.high, levels.zero}) {
    if (beyond(level, kFarthestLevel)) return fail("a level too far from 0");
  }
  if (is_byte(dtype) && !are_bytes(levels, dtype)) return fail("a level is no byte");
  return levels.low <= levels.high || fail("low is not up to high");
}

bool check_window_sizes(const Window& w, Fault& fail) {
  for (const int32_t size : {w.images, w.depth, w.height, w.width, w.pixel, w.channels, w.weights,
                             w.out_depth, w.out_height, w.out_width, w.first}) {
    if (size < 0) return fail("a window has a negative size");
  }
  for (const int32_t size :
       {w.kernel_depth, w.kernel_height, w.kernel_width, w.stride_depth, w.stride_height,
        w.stride_width, w.dilation_depth, w.dilation_height, w.dilation_width}) {
    if (size <= 0) return fail("a window needs a kernel, strides and dilations");
  }
  const double elements = static_cast<double>(w.images) * w.depth * w.height * w.width * w.pixel;
  const double patch =
      static_cast<double>(w.kernel_depth) * w.kernel_height * w.kernel_width * w.channels;
  const double windows = static_cast<double>(w.images) * w.out_depth * w.out_height * w.out_width;
  if (elements > kTooFar || patch * std::max(w.weights, 1) > kTooFar || windows > kTooFar) {
    return fail("a window over too many elements");
  }
  return true;
}

bool check_window(const Program& program, const Reaches& reaches, const Head& head,
                  const uint64_t* words, Fault& fail) {
  const Form form = info_of(family_of(head)).form;
  const Window window = window_of(form, words);
  const Operand number = operand_of(words, 2);
  const PointerRegister& base = program.pointers()[number.offset()];
  const Reach reach = reaches.reach_of(
      reaches.loops_of(head),
      reaches.steps_of(form_info(form).operands[2], DType::i64, number, DType::i64), 1, base.steps);
  if (base.base + reach.low < 0 || base.base + reach.high >= window.windows()) {
    return fail("number of a window out of range");
  }
  if (weighs_bytes(form)) {
    if (window.channels != 1) return fail("bytes of groups of channels");
    if (window.outside < 0 || window.outside > 255) return fail("no byte outside of an image");
  }
  if (!moves_patches(form)) return window.is_flat() || fail("a pool over volumes");
  const bool multiplies = form != Form::pack_patches;
  const uint8_t along = multiplies ? head.e1 : head.e2;
  const int64_t depth = along == 0 ? 1 : reaches.widest(along);
  const int64_t patch = window.taps() * window.channels;
  if (window.first + depth > patch) return fail("more elements than a patch has");
  if (!multiplies) return true;
  if (depth != patch || reaches.narrowest(along) != patch)
    return fail("multiplies a part of windows");
  if (form == Form::matmul_transformed && !has_transform(window)) return fail("no transform");
  return number.outer_stride == 1 || fail("windows of a product come in order");
}

}  // namespace dvm
