// The cube unit's products of windows over images that are read where they lie: from their taps, or
// by transforms.
#include "npu/host/transformed_windows.h"
#include "npu/host/units.h"
#include "npu/host/window_products.h"

namespace dvm::DVM_LEVEL {
namespace {

template <class T>
void matmul_windows_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.outer <= 0 || e.inner <= 0) return;
  const Tile<const T> images = tile_at<const T>(core, operand_words(words, 1));
  Product<InRuns<T>> x{};
  read_operands(x, core, words, 3);
  read_clamp(x, core, words, Form::matmul_windows, 4);
  FetchLater later(core, bursts_of(e.outer, e.inner, e.middle, x.kColumns));
  if (later.any()) x.later = &later;
  Convolution<T>(x, images.at, window_at(words, 5), first_number(numbers_at(core, words)), e.outer)
      .multiply(e.inner);
}

void matmul_transformed_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.outer <= 0 || e.inner <= 0) return;
  const Tile<const float> images = tile_at<const float>(core, operand_words(words, 1));
  const Window window = window_at(words, 5);
  const int64_t first = first_number(numbers_at(core, words));
  Product<InRuns<float>> x{};
  read_operands(x, core, words, 3);
  read_clamp(x, core, words, Form::matmul_transformed, 4);
  TransformedConvolution convolution(
      x, images.at, window, reinterpret_cast<float*>(core.scratch),
      core.scratch == nullptr ? 0 : transform_bytes(core.local_bytes));
  if (convolution.multiply(first, e.outer, e.inner)) return;
  Convolution<float>(x, images.at, window, first, e.outer).multiply(e.inner);
}

struct WindowProducts {
  static constexpr bool accepts(Family family, Form form, DType dtype) {
    return part_of(family, form, dtype) == Part::window_product;
  }
  template <Family F, Form Form_, DType D>
  static constexpr auto handler() {
    if constexpr (Form_ == Form::matmul_transformed)
      return &matmul_transformed_handler;
    else
      return &matmul_windows_handler<ElementType<D>>;
  }
};

}  // namespace

void fill_window_product(Handler* handlers) { fill_handlers<WindowProducts>(handlers); }

}  // namespace dvm::DVM_LEVEL
