// m_matmul_transformed of every level against the definition of a convolution: images of drawn
// sizes, pads and taps apart, ragged channels, any number of windows from any place on, whole rows
// of them or not, few and many squares at a time, ragged columns, addends, some in C itself, and
// bounds; panels that say that they have no transforms; images, weights and scratch memory end at
// inaccessible pages. Transforms
// of the weights are computed here from what they mean: values of polynomials; those of
// d_pack_b_transformed are compared with them.
#include <array>
#include <cmath>
#include <limits>

#include "drawn_ending.h"
#include "drawn_windows.h"
#include "kernels/transforms.h"
#include "reference.h"

namespace dvm::test {
namespace {

constexpr double kPoints[] = {0, 0.75, -0.75, 1.5, -1.5};

// What three taps as a polynomial are at a point, over its distances to the other ones; the last
// point is infinity.
double at_point(const std::array<double, kTransformTaps>& taps, int point) {
  if (point == kTransformPoints - 1) return taps[2];
  double apart = 1;
  for (const double other : kPoints) apart *= other == kPoints[point] ? 1 : kPoints[point] - other;
  return (taps[0] + kPoints[point] * (taps[1] + kPoints[point] * taps[2])) / apart;
}

// Behind the rows of the taps.
void transform(const Array<float>& b, const Window& w, int64_t panel, int64_t lane) {
  const int64_t taps = w.taps() * w.channels;
  for (int64_t channel = 0; channel < w.channels; ++channel) {
    const auto tap = [&](int64_t y, int64_t x) {
      return double{b.at(panel, (y * kTransformTaps + x) * w.channels + channel, lane)};
    };
    for (int i = 0; i < kTransformPoints; ++i) {
      for (int j = 0; j < kTransformPoints; ++j) {
        std::array<double, kTransformTaps> rows;
        for (int64_t y = 0; y < kTransformTaps; ++y)
          rows[y] = at_point({tap(y, 0), tap(y, 1), tap(y, 2)}, j);
        const int64_t row = taps + (i * kTransformPoints + j) * w.channels + channel;
        b.at(panel, row, lane) = static_cast<float>(at_point(rows, i));
      }
    }
  }
}

Window random_image(Random& random) {
  Window w = random_window(random, true);
  w.channels = random.chance(0.5) ? 16 * draw(random, 1, 4) : draw(random, 1, 40);
  w.pixel = w.channels + (random.chance(0.3) ? draw(random, 1, 9) : 0);
  w.height = draw(random, 1, 12);
  w.width = draw(random, 1, 20);
  w.kernel_height = w.kernel_width = kTransformTaps;
  w.stride_height = w.stride_width = w.dilation_height = w.dilation_width = 1;
  if (random.chance(0.5)) {
    w.dilation_height = draw(random, 1, 5);
    w.dilation_width = draw(random, 1, 5);
  }
  w.out_height = draw(random, 1, 11);
  w.out_width = draw(random, 1, 21);
  return w;
}

void test_transformed(Machine& machine, Random& random, int64_t nr) {
  const Window w = random_image(random);
  const Array<float> images({1, w.pixels(), w.channels}, {0, w.pixel, 1});
  fill_small(random, images);
  constexpr double kOutliers[] = {1e2, 1e4, 1e20};
  const double outlier = random.chance(0.3) ? random.pick(kOutliers) : 0;
  if (outlier > 0)
    images.data()[random.integer(0, w.pixels() - 1) * w.pixel] = static_cast<float>(outlier);
  const int64_t all_rows = w.windows() / w.out_width;
  const bool whole = random.chance(0.8);
  const int64_t first_row = random.integer(0, all_rows - 1);
  const int64_t first = whole ? first_row * w.out_width : random.integer(0, w.windows() - 1);
  const int64_t count = whole ? random.integer(1, all_rows - first_row) * w.out_width
                              : random.integer(1, w.windows() - first);
  const Shape shape{1, count, random.integer(1, 2 * nr + 5)};
  const int64_t k = w.taps() * w.channels, rows = kTransformedRows * k;
  const int64_t panels = (shape.inner + nr - 1) / nr;
  const Array<float> b({panels, rows, nr}, {rows * nr, nr, 1});
  fill_small(random, b);
  for (int64_t panel = 0; panel < panels; ++panel) {
    for (int64_t lane = 0; lane < nr; ++lane) transform(b, w, panel, lane);
    if (random.chance(0.2)) b.at(panel, k, 0) = std::nanf("");  // none to transform
  }
  const bool adds = random.chance(0.7), in_place = random.chance(0.3);
  const Array<float> c(shape, {0, shape.inner + random.integer(0, 3), 1});
  const Array<float> addend(shape, {0, random.chance(0.5) ? 0 : shape.inner + 2, 1});
  fill_small(random, c);
  fill_small(random, addend);
  const DrawnEnding ending = random_ending(random);
  const std::vector<float> before = c.copy();
  const Place zero{nullptr, {}, true, 0};
  context += "transformed windows " + describe({shape.middle, k, shape.inner}, {c.strides()});
  machine.execute(Family::m_matmul_transformed, DType::f32, {shape.middle, k, shape.inner},
                  {c.place(), images.place(), number_place(first, {1, 0, 0}), b.place(),
                   adds ? (in_place ? c : addend).place() : zero},
                  words_of(w, ending.words<float>()), random.chance(0.5) ? kStream : uint8_t{0});
  // Rounding errors of a square are some of its largest sum of products.
  const double bound = 3e-6 * 64 * static_cast<double>(k);
  const std::vector<float> found = c.copy();
  std::vector<float> between = before;
  for_each_index(shape, [&](int64_t, int64_t m, int64_t n) {
    const auto at = static_cast<size_t>(c.strides().at(0, m, n));
    double sum = adds ? double{in_place ? before[at] : addend.at(0, m, n)} : 0;
    bool huge = false;
    for (int64_t tap = 0; tap < w.taps(); ++tap) {
      const int64_t place = place_of_tap(w, first + m, tap);
      for (int64_t channel = 0; place >= 0 && channel < w.channels; ++channel) {
        const double pixel = images.data()[place + channel];
        huge |= pixel == static_cast<float>(outlier) && outlier > 0;
        sum += pixel * b.at(n / nr, tap * w.channels + channel, n % nr);
      }
    }
    const double error = huge ? 1e-6 * std::abs(sum) + bound : bound;
    CHECK(std::abs(found[at] - ending.of(sum)) <= error * ending.steepness(sum));
    between[at] = found[at];
  });
  CHECK(found == between);
}

// Weights given at run time: any channels, ragged columns, rows with gaps. Some are too large to be
// transformed, or no numbers, which the panel that holds them says.
void test_packing(Machine& machine, Random& random, int64_t nr) {
  Window w{};
  w.kernel_depth = 1;
  w.kernel_height = w.kernel_width = kTransformTaps;
  w.channels = draw(random, 1, 70);
  const int64_t taps = w.taps(), k = taps * w.channels, rows = kTransformedRows * k;
  const int64_t columns = random.integer(1, 3 * nr + 3), panels = (columns + nr - 1) / nr;
  const Array<float> from({1, k, columns}, {0, columns + random.integer(0, 3), 1});
  fill_small(random, from);
  int64_t marked = -1;
  if (random.chance(0.4)) {
    constexpr float kNone[] = {0x1p20f, -1e30f, std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()};
    const int64_t column = random.integer(0, columns - 1);
    from.at(0, random.integer(0, k - 1), column) = random.pick(kNone);
    marked = column / nr;
  }
  const Array<float> to({panels, rows, nr}, {rows * nr, nr, 1});
  context += "weights " + describe({1, k, columns}, {from.strides()});
  machine.execute(Family::d_pack_b_transformed, DType::f32, {1, k, columns},
                  {to.place(), from.place()});
  const Array<float> expected({panels, rows, nr}, {rows * nr, nr, 1});
  for (int64_t panel = 0; panel < panels; ++panel) {
    CHECK(std::isnan(to.at(panel, k, 0)) == (panel == marked));
    for (int64_t lane = 0; lane < nr; ++lane) {
      const int64_t column = panel * nr + lane;
      for (int64_t row = 0; row < k; ++row) {
        const float weight = column < columns ? from.at(0, row, column) : 0;
        expected.at(panel, row, lane) = weight;
        CHECK(std::bit_cast<uint32_t>(to.at(panel, row, lane)) == std::bit_cast<uint32_t>(weight));
      }
      transform(expected, w, panel, lane);
      for (int64_t row = k; panel != marked && row < rows; ++row) {
        const float found = to.at(panel, row, lane), wanted = expected.at(panel, row, lane);
        CHECK(std::abs(found - wanted) <= 1e-6F * 64);
      }
    }
  }
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  for (const dvm::Level& level : dvm::available_levels()) {
    Machine machine(*level.table);
    Random random(11);
    for (int i = 0; i < 300; ++i) {
      // Room for all squares, for some, and for less than a row of them.
      constexpr size_t kLocal[] = {768 << 10, 192 << 10, 48 << 10};
      machine.core.local_bytes = random.pick(kLocal);
      machine.lend_scratch(random.chance(0.9));
      context = std::string(level.table->name) + " ";
      test_transformed(machine, random, level.table->matmul_nr);
      context = std::string(level.table->name) + " ";
      test_packing(machine, random, level.table->matmul_nr);
    }
  }
  return report("transformed windows");
}
