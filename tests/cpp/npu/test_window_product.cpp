// m_matmul_windows of every level against its definition: windows of drawn sizes, pads and
// dilations, any number of them from any place on, panels of B and ragged columns or B with
// contiguous columns, addends with rows of their own, with one row for all and in C itself, and
// endings; images end at an inaccessible page.

#include "drawn_ending.h"
#include "drawn_windows.h"
#include "reference.h"

namespace dvm::test {
namespace {

enum class Addend { zero, rows, row, in_place };

// Small integers: sums are exact in any order.
template <class T>
void test_product(Machine& machine, Random& random, DType dtype, int64_t nr) {
  const Window w = random_window(random, false);
  const Array<T> images({1, w.pixels(), w.channels}, {0, w.pixel, 1});
  fill_small(random, images);
  const Shape shape{1, random.integer(1, w.windows()), random.integer(1, 2 * nr + 5)};
  const int64_t number = random.integer(0, w.windows() - shape.middle);
  const int64_t k = w.taps() * w.channels, panels = (shape.inner + nr - 1) / nr;
  const bool by_columns = random.chance(0.3);
  const int64_t column = k + random.integer(2, 5);
  const Array<T> b = by_columns
                         ? Array<T>({1, k, shape.inner}, {0, 1, column})
                         : Array<T>({panels, k, nr}, {(k + random.integer(0, 2)) * nr, nr, 1});
  fill_small(random, b);
  Place b_place = b.place();
  if (by_columns) b_place.strides.outer = nr * column;
  constexpr Addend kAddends[] = {Addend::zero, Addend::rows, Addend::row, Addend::in_place};
  const Addend added = random.pick(kAddends);
  const Array<T> c(shape, {0, shape.inner + random.integer(0, 3), 1});
  const Array<T> addend(shape, {0, added == Addend::row ? 0 : shape.inner + 2, 1});
  fill_small(random, c);
  fill_small(random, addend);
  const DrawnEnding ending = random_ending(random);
  const std::vector<T> before = c.copy();
  const Place zero{nullptr, {}, true, 0};
  const Place from = added == Addend::zero       ? zero
                     : added == Addend::in_place ? c.place()
                                                 : addend.place();
  context += "product of windows " + describe({shape.middle, k, shape.inner}, {c.strides()}) +
             " addend " + std::to_string(static_cast<int>(added));
  machine.execute(Family::m_matmul_windows, dtype, {shape.middle, k, shape.inner},
                  {c.place(), images.place(), number_place(number, {1, 0, 0}), b_place, from},
                  words_of(w, ending.words<T>()), random.chance(0.5) ? kStream : uint8_t{0});
  std::vector<T> expected = before;  // what lies between the rows, too
  for_each_index(shape, [&](int64_t, int64_t m, int64_t n) {
    const auto at = static_cast<size_t>(c.strides().at(0, m, n));
    double sum = added == Addend::zero       ? 0
                 : added == Addend::in_place ? static_cast<double>(before[at])
                                             : static_cast<double>(addend.at(0, m, n));
    for (int64_t tap = 0; tap < w.taps(); ++tap) {
      const int64_t place = place_of_tap(w, number + m, tap);
      for (int64_t channel = 0; place >= 0 && channel < w.channels; ++channel) {
        sum += static_cast<double>(images.data()[place + channel] *
                                   (by_columns ? b.at(0, tap * w.channels + channel, n)
                                               : b.at(n / nr, tap * w.channels + channel, n % nr)));
      }
    }
    expected[at] = static_cast<T>(ending.of(sum));
  });
  CHECK(c.copy() == expected);
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  for (const dvm::Level& level : dvm::available_levels()) {
    Machine machine(*level.table);
    Random random(7);
    const int64_t columns = level.table->matmul_nr;
    for (int i = 0; i < 400; ++i) {
      context = std::string(level.table->name) + " ";
      test_product<float>(machine, random, dvm::DType::f32, columns);
      context = std::string(level.table->name) + " ";
      test_product<double>(machine, random, dvm::DType::f64, columns / 2);
    }
  }
  return report("window product");
}
