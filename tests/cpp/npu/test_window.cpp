// Windows over images on every level: patches, pools and depth-wise convolutions of drawn sizes
// against their definition, from and to memory that ends at an inaccessible page.
#include <array>

#include "drawn_windows.h"
#include "reference.h"

namespace dvm::test {
namespace {

void execute(Machine& machine, Family family, DType dtype, const Shape& shape,
             std::initializer_list<Place> places, const Window& w) {
  std::array<int64_t, kWindowWords> e;
  std::memcpy(e.data(), &w, sizeof w);
  machine.execute(family, dtype, shape, places,
                  {e[0], e[1], e[2], e[3], e[4], e[5], e[6], e[7], e[8], e[9], e[10]});
}

template <class T>
void test_patches(Machine& machine, Random& random, DType dtype) {
  Window w = random_window(random, false);
  const Array<T> images({1, w.pixels(), w.channels}, {0, w.pixel, 1});
  fill_small(random, images);
  const int64_t elements = w.taps() * w.channels;
  w.first = static_cast<int32_t>(random.integer(0, elements - 1));
  const Shape shape{1, random.integer(1, w.windows()), random.integer(1, elements - w.first)};
  const int64_t number = random.integer(0, w.windows() - shape.middle);
  Array<T> to(shape, {0, shape.inner + random.integer(0, 3), 1});
  to.fill([] { return T{99}; });
  context += "patches " + describe(shape, {to.strides()});
  execute(machine, Family::d_pack_patches, dtype, shape,
          {to.place(), images.place(), number_place(number, {0, 1, 0})}, w);
  bool right = true;
  for_each_index(shape, [&](int64_t, int64_t m, int64_t j) {
    const int64_t tap = (w.first + j) / w.channels, channel = (w.first + j) % w.channels;
    const int64_t at = place_of_tap(w, number + m, tap);
    right = right && to.at(0, m, j) == (at < 0 ? T{0} : images.data()[at + channel]);
  });
  CHECK(right);
}

template <class T>
T reduced(Family family, const Window& w, const T* images, const T* weights, int64_t number,
          int64_t channel) {
  T result = family == Family::d_pool_max ? -std::numeric_limits<T>::infinity() : T{0};
  for (int64_t tap = 0; tap < w.taps(); ++tap) {
    const int64_t at = place_of_tap(w, number, tap);
    if (at < 0) continue;
    const T x = images[at + channel];
    if (family == Family::d_pool_max) {
      result = std::max(result, x);
    } else {
      result += family == Family::d_depthwise ? x * weights[tap * w.channels + channel] : x;
    }
  }
  return result;
}

// Small integers: sums are exact in any order.
template <class T>
void test_reduction(Machine& machine, Random& random, DType dtype, Family family) {
  const Window w = random_window(random, true);
  const Array<T> images({1, w.pixels(), w.channels}, {0, w.pixel, 1});
  fill_small(random, images);
  Array<T> weights({1, w.taps(), w.channels}, {0, w.channels, 1});
  fill_small(random, weights);
  const int64_t channel = random.integer(0, w.channels - 1);
  const bool by_channels = random.chance(0.8);
  Shape shape{1, random.integer(1, w.windows()), random.integer(1, w.channels - channel)};
  Strides numbers{0, 1, 0}, along{0, 0, 1};
  if (random.chance(0.2) && w.windows() >= 2 * shape.middle) {  // every other window
    shape.outer = 2;
    numbers = {1, 2, 0};
  }
  if (!by_channels) {
    shape = {1, shape.inner, shape.middle};
    numbers = {0, 0, 1};
    along = {0, 1, 0};
  }
  const int64_t count = shape.outer * (by_channels ? shape.middle : shape.inner);
  const int64_t number = random.integer(0, w.windows() - count);
  const int64_t row = shape.inner + random.integer(0, 3);
  Array<T> to(shape, {row * shape.middle, row, 1});
  Place from = images.place(), weight = weights.place();
  from.at += channel * static_cast<int64_t>(sizeof(T));
  weight.at += channel * static_cast<int64_t>(sizeof(T));
  from.strides = weight.strides = along;
  context += std::string(name_of(family)) + " " + describe(shape, {to.strides()});
  if (family == Family::d_depthwise) {
    execute(machine, family, dtype, shape,
            {to.place(), from, number_place(number, numbers), weight}, w);
  } else {
    execute(machine, family, dtype, shape, {to.place(), from, number_place(number, numbers)}, w);
  }
  bool right = true;
  for_each_index(shape, [&](int64_t o, int64_t m, int64_t i) {
    const T expected = reduced(family, w, images.data(), weights.data(),
                               number + numbers.at(o, m, i), channel + along.at(o, m, i));
    right = right && to.at(o, m, i) == expected;
  });
  CHECK(right);
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  for (const dvm::Level& level : dvm::available_levels()) {
    Machine machine(*level.table);
    Random random(5);
    for (const dvm::DType dtype : {dvm::DType::f32, dvm::DType::f64}) {
      dvm::test::with_register_type(dtype, [&](auto element) {
        using T = decltype(element);
        if constexpr (std::is_floating_point_v<T>) {
          for (int i = 0; i < 300; ++i) {
            const std::string name = std::string(level.table->name) + " ";
            context = name;
            test_patches<T>(machine, random, dtype);
            for (const dvm::Family family :
                 {dvm::Family::d_pool_max, dvm::Family::d_pool_sum, dvm::Family::d_depthwise}) {
              context = name;
              test_reduction<T>(machine, random, dtype, family);
            }
          }
        }
      });
    }
  }
  return report("window");
}
