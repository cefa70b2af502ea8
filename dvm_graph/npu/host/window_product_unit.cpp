// The cube unit's products of windows over images that are read where they lie: from their taps, or
// by transforms.
#include "npu/host/group_windows.h"
#include "npu/host/transformed_windows.h"
#include "npu/host/units.h"
#include "npu/host/window_products.h"

namespace dvm::DVM_LEVEL {
namespace {

// Sums of columns, to which a row for all windows is added.
template <class T>
class ToProduct {
 public:
  explicit ToProduct(const Product<InRuns<T>>& x)
      : c_(x.c), row_(x.c_row), bias_(x.accumulate ? x.from : nullptr), ending_(x.ending) {}

  DVM_INLINE void advance(int64_t windows) { c_ += windows * row_; }
  template <bool Partial>
  DVM_INLINE void store(int64_t window, int64_t c, Full<T> sum, int64_t lanes) const {
    using V = Full<T>;
    if (bias_ != nullptr) sum += load_some<V, Partial>(bias_ + c, lanes);
    store_some<Partial>(c_ + window * row_ + c, ending_.end(sum), lanes);
  }

 private:
  T* c_;
  int64_t row_;
  const T* bias_;
  Ending<T> ending_;
};

// Whether the columns are a vector at most, as a group's results: by so few, windows that see each
// other's pixels pass in longer blocks, those at the borders among them.
template <class T>
bool is_group(const Product<InRuns<T>>& x, const Window& w, int64_t columns) {
  const bool adds_row = !x.accumulate || x.from_row == 0;
  return x.b_step != 1 && columns <= kLanes<T> && w.is_flat() && adds_row &&
         are_neighbours(w.kernel_width, w.stride_width, w.dilation_width);
}

template <class T>
void matmul_windows_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.outer <= 0 || e.inner <= 0) return;
  const Tile<const T> images = tile_at<const T>(core, operand_words(words, 1));
  Product<InRuns<T>> x{};
  read_operands(x, core, words, 3);
  read_ending(x, core, words, Form::matmul_windows, 4);
  FetchLater later(core, bursts_of(e.outer, e.inner, e.middle, x.kColumns));
  if (later.any()) x.later = &later;
  Window window = window_at(words, 5);
  const int64_t first = first_number(numbers_at(core, words));
  if (is_group(x, window, e.inner)) {
    window.weights = static_cast<int32_t>(x.b_step);
    return reduce_group_series(window, Splat<T>{window.channels, e.inner}, images.at, x.b,
                               ToProduct<T>(x), first, e.outer, e.inner);
  }
  Convolution<T>(x, images.at, window, first, e.outer).multiply(e.inner);
}

void matmul_transformed_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.outer <= 0 || e.inner <= 0) return;
  const Tile<const float> images = tile_at<const float>(core, operand_words(words, 1));
  const Window window = window_at(words, 5);
  const int64_t first = first_number(numbers_at(core, words));
  Product<InRuns<float>> x{};
  read_operands(x, core, words, 3);
  read_ending(x, core, words, Form::matmul_transformed, 4);
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
