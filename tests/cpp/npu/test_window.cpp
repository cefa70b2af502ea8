// Windows over images on every level: patches, pools and convolutions of groups of drawn sizes
// against their definition, from and to memory that ends at an inaccessible page.
#include <array>
#include <cmath>

#include "drawn_ending.h"
#include "drawn_levels.h"
#include "drawn_windows.h"
#include "reference.h"

namespace dvm::test {
namespace {

void execute(Machine& machine, Family family, DType dtype, const Shape& shape,
             std::initializer_list<Place> places, const Window& w) {
  machine.execute(family, dtype, shape, places, words_of(w));
}
void execute(Machine& machine, Family family, DType dtype, const Shape& shape,
             std::initializer_list<Place> places, const Window& w, const Levels& levels) {
  machine.execute(family, dtype, shape, places,
                  words_of(w, {levels.low, levels.high, levels.zero}));
}

// What follows sums in passing: a row of the inner loop or 0 is added, and the sum ends.
template <class T>
struct Finish {
  Array<T> row;
  bool adds;
  DrawnEnding ending;

  Finish(Random& random, int64_t inner)
      : row({1, 1, inner}, {0, 0, 1}), adds(random.chance(0.6)), ending(random_ending(random)) {
    fill_small(random, row);
  }
  Place addend() const {
    Place zero;
    zero.is_immediate = true;
    return adds ? row.place() : zero;
  }
  T of(T sum, int64_t i) const { return ending.of(adds ? sum + row.data()[i] : sum); }
};

template <class T>
void execute(Machine& machine, Family family, DType dtype, const Shape& shape,
             std::initializer_list<Place> places, const Window& w, const Finish<T>& finish) {
  machine.execute(family, dtype, shape, places, words_of(w, finish.ending.template words<T>()));
}

// Whose neighbours see the same pixels, as most windows of depth-wise convolutions do.
Window random_overlapping(Random& random) {
  constexpr int32_t kTaps[] = {3, 5, 7};
  Window w = random_window(random, true);
  w.kernel_width = random.pick(kTaps);
  w.stride_width = draw(random, 1, 2);
  w.dilation_width = 1;
  return w;
}

// Of one channel, an element apart, with kernels that may reach beyond the image on all sides.
Window random_tall_window(Random& random) {
  Window w = random_window(random, false);
  w.channels = w.pixel = w.stride_width = 1;
  w.kernel_height = draw(random, 1, 40);
  w.kernel_width = draw(random, 1, 5);
  w.width = draw(random, 1, 70);
  w.out_width = draw(random, 1, 70);
  w.pad_top = draw(random, 0, 40);
  w.pad_left = draw(random, 0, 40);
  return w;
}

// Of one channel each, and now and then wider than a block of windows.
Window random_planes(Random& random) {
  Window w = random_window(random, true);
  w.channels = w.pixel = 1;
  w.kernel_height = draw(random, 1, 5);
  w.kernel_width = draw(random, 1, random.chance(0.05) ? 3000 : 9);
  w.stride_width = random.chance(0.7) ? draw(random, 1, 2) : draw(random, 3, 40);
  w.width = draw(random, 1, random.chance(0.1) ? 5000 : 150);
  w.out_width = draw(random, 1, w.width / w.stride_width + 3);
  w.pad_left = draw(random, 0, random.chance(0.2) ? 40 : 3);
  return w;
}

template <class T>
void test_patches(Machine& machine, Random& random, DType dtype) {
  Window w = random.chance(0.5) ? random_window(random, false) : random_tall_window(random);
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
  bool kept = true;  // what lies between the rows
  for (int64_t m = 0; m + 1 < shape.middle; ++m)
    for (int64_t j = shape.inner; j < to.strides().middle; ++j)
      kept = kept && to.data()[m * to.strides().middle + j] == T{99};
  CHECK(kept);
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
      result = std::isnan(x) ? x : std::max(result, x);  // a result that is NaN stays
    } else {
      result += family == Family::d_depthwise ? x * weights[tap * w.weights + channel] : x;
    }
  }
  return result;
}

// Small integers: sums are exact in any order.
template <class T>
void test_reduction(Machine& machine, Random& random, DType dtype, Family family, Window w) {
  const int64_t channels = w.channels;
  w.channels = 1;
  w.weights = static_cast<int32_t>(channels);
  const Array<T> images({1, w.pixels(), channels}, {0, w.pixel, 1});
  fill_small(random, images);
  if (family == Family::d_pool_max && random.chance(0.5))
    for (int i = 0; i < 3; ++i)
      images.data()[random.integer(0, images.count() - 1)] = std::numeric_limits<T>::quiet_NaN();
  Array<T> weights({1, w.taps(), channels}, {0, channels, 1});
  fill_small(random, weights);
  const int64_t channel = random.integer(0, channels - 1);
  const bool by_channels = random.chance(0.8);
  Shape shape{1, random.integer(1, w.windows()), random.integer(1, channels - channel)};
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
  const int64_t row = shape.inner + (random.chance(0.5) ? random.integer(0, 3) : 0);
  Array<T> to(shape, {row * shape.middle, row, 1});
  Place from = images.place(), weight = weights.place();
  from.at += channel * static_cast<int64_t>(sizeof(T));
  weight.at += channel * static_cast<int64_t>(sizeof(T));
  from.strides = weight.strides = along;
  context += std::string(name_of(family)) + " " + describe(shape, {to.strides()});
  const Finish<T> finish(random, shape.inner);
  const bool weighs = family == Family::d_depthwise;
  if (weighs) {
    execute(machine, family, dtype, shape,
            {to.place(), from, number_place(number, numbers), weight, finish.addend()}, w, finish);
  } else {
    execute(machine, family, dtype, shape, {to.place(), from, number_place(number, numbers)}, w);
  }
  bool right = true;
  for_each_index(shape, [&](int64_t o, int64_t m, int64_t i) {
    const T sum = reduced(family, w, images.data(), weights.data(), number + numbers.at(o, m, i),
                          channel + along.at(o, m, i));
    const T expected = weighs ? finish.of(sum, i) : sum;
    const T got = to.at(o, m, i);
    right = right && (got == expected || (std::isnan(got) && std::isnan(expected)));
  });
  CHECK(right);
}

// Convolutions of groups: windows, groups and results of a group are the loops, in any order, and
// some of them in part.
template <class T>
void test_groups(Machine& machine, Random& random, DType dtype) {
  constexpr int32_t kOfGroup[] = {1, 1, 2, 3, 4, 8, 16}, kResults[] = {1, 2, 3, 4, 6, 8, 16, 24};
  Window w = random_window(random, true);
  w.channels = random.pick(kOfGroup);
  if (random.chance(0.5)) w.kernel_width = 3, w.dilation_width = w.stride_width;
  const int64_t of_group = w.channels, groups = random.integer(1, 9);
  const int64_t results = random.chance(0.4) ? of_group : random.pick(kResults);
  w.weights = static_cast<int32_t>(groups * results);
  w.pixel = static_cast<int32_t>(groups * of_group + (random.chance(0.3) ? 5 : 0));
  const Array<T> images({1, w.pixels(), groups * of_group}, {0, w.pixel, 1});
  fill_small(random, images);
  const int64_t rows = w.taps() * of_group;
  Array<T> weights({1, rows, w.weights}, {0, w.weights, 1});
  fill_small(random, weights);

  using Order = std::array<size_t, 3>;
  constexpr Order kOrders[] = {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {1, 0, 2},
                               {1, 2, 0}, {0, 2, 1}, {2, 0, 1}, {2, 1, 0}};
  const Order order = random.pick(kOrders);
  const int64_t whole[3] = {w.windows(), groups, results};
  int64_t first[3], extents[3];
  for (size_t loop = 0; loop < 3; ++loop) {
    const bool all = loop > 0 && random.chance(0.7);
    first[loop] = all ? 0 : random.integer(0, whole[loop] - 1);
    extents[loop] = all ? whole[loop] : random.integer(1, whole[loop] - first[loop]);
  }
  const auto strides = [&](int64_t of_windows, int64_t of_groups, int64_t of_results) {
    const int64_t steps[] = {of_windows, of_groups, of_results};
    return Strides{steps[order[0]], steps[order[1]], steps[order[2]]};
  };
  const Shape shape{extents[order[0]], extents[order[1]], extents[order[2]]};
  const bool turned = order[2] == 0;  // windows lie side by side
  const int64_t row = turned ? extents[0] : extents[1] * extents[2] + random.integer(0, 3);
  const Strides to_strides =
      turned ? strides(1, row * extents[2], row) : strides(row, extents[2], 1);
  Array<T> to(shape, to_strides);
  Place from = images.place(), weight = weights.place();
  constexpr auto kElement = static_cast<int64_t>(sizeof(T));
  from.at += first[1] * of_group * kElement;
  weight.at += (first[1] * results + first[2]) * kElement;
  from.strides = strides(0, of_group, 0);
  weight.strides = strides(0, results, 1);
  machine.lend_scratch(random.chance(0.7));
  context += "groups " + describe(shape, {to.strides()});
  const Finish<T> finish(random, shape.inner);
  execute(machine, Family::d_depthwise, dtype, shape,
          {to.place(), from, number_place(first[0], strides(1, 0, 0)), weight, finish.addend()}, w,
          finish);
  bool right = true;
  for_each_index(shape, [&](int64_t o, int64_t m, int64_t i) {
    const int64_t at[] = {o, m, i};
    int64_t place[3];
    for (size_t loop = 0; loop < 3; ++loop) place[order[loop]] = first[order[loop]] + at[loop];
    T expected{0};
    for (int64_t row_at = 0; row_at < rows; ++row_at) {
      const int64_t tap = place_of_tap(w, place[0], row_at / of_group);
      if (tap < 0) continue;
      const T x = images.data()[tap + place[1] * of_group + row_at % of_group];
      expected += x * weights.data()[row_at * w.weights + place[1] * results + place[2]];
    }
    right = right && to.at(o, m, i) == finish.of(expected, i);
  });
  CHECK(right);
}

// Groups are two loops, of one window: as where others split them.
template <class T>
void test_split_groups(Machine& machine, Random& random, DType dtype) {
  constexpr int32_t kOfGroup[] = {1, 2, 4, 8, 16};
  Window w = random_window(random, true);
  w.channels = random.pick(kOfGroup);
  const int64_t of_group = w.channels, outer = random.integer(1, 4), middle = random.integer(1, 4);
  const int64_t results = random.chance(0.6) ? of_group : random.integer(1, 17);
  w.weights = static_cast<int32_t>(outer * middle * results);
  w.pixel = static_cast<int32_t>(outer * middle * of_group);
  const Array<T> images({1, w.pixels(), w.pixel}, {0, w.pixel, 1});
  fill_small(random, images);
  const int64_t rows = w.taps() * of_group;
  Array<T> weights({1, rows, w.weights}, {0, w.weights, 1});
  fill_small(random, weights);
  const Shape shape{outer, middle, results};
  Array<T> to(shape, {middle * results, results, 1});
  const int64_t number = random.integer(0, w.windows() - 1);
  Place from = images.place(), weight = weights.place();
  from.strides = {middle * of_group, of_group, 0};
  weight.strides = {middle * results, results, 1};
  machine.lend_scratch(random.chance(0.7));
  context += "split groups " + describe(shape, {to.strides()});
  const Finish<T> finish(random, shape.inner);
  execute(machine, Family::d_depthwise, dtype, shape,
          {to.place(), from, number_place(number, {0, 0, 0}), weight, finish.addend()}, w, finish);
  bool right = true;
  for_each_index(shape, [&](int64_t o, int64_t m, int64_t i) {
    const int64_t group = o * middle + m;
    T expected{0};
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t tap = place_of_tap(w, number, row / of_group);
      if (tap < 0) continue;
      const T x = images.data()[tap + group * of_group + row % of_group];
      expected += x * weights.data()[row * w.weights + group * results + i];
    }
    right = right && to.at(o, m, i) == finish.of(expected, i);
  });
  CHECK(right);
}

// Channels by themselves, of bytes: windows and channels are the loops, in any order.
struct ByteWindows {
  using Order = std::array<size_t, 3>;
  static constexpr Order kOrders[] = {{2, 0, 1}, {2, 0, 1}, {2, 1, 0},
                                      {0, 2, 1}, {0, 1, 2}, {1, 2, 0}};

  explicit ByteWindows(Random& random)
      : w(drawn_window(random)),
        channels(random.chance(0.3) ? random.integer(60, 200) : w.channels),
        images({1, w.pixels(), channels},
               {0, channels + (random.chance(0.3) ? random.integer(1, 9) : 0), 1}),
        weights({1, w.taps(), channels}, {0, channels, 1}),
        order(random.pick(kOrders)),
        channel(random.integer(0, channels - 1)),
        windows(random.integer(1, w.windows())),
        number(random.integer(0, w.windows() - windows)),
        results(random.integer(1, channels - channel)),
        row(results + random.integer(0, 3)),
        turned(order[2] == 0 && random.chance(0.8)) {
    w.channels = 1;
    w.pixel = static_cast<int32_t>(images.strides().middle);
    w.weights = static_cast<int32_t>(channels);
    images.fill([&] { return static_cast<uint8_t>(random.integer(0, 255)); });
    weights.fill([&] { return static_cast<int8_t>(random.integer(-128, 127)); });
  }

  static Window drawn_window(Random& random) {
    Window w = random_window(random, true);
    if (random.chance(0.5)) w.kernel_width = draw(random, 1, random.chance(0.1) ? 70 : 8);
    if (random.chance(0.7)) w.dilation_width = 1;
    if (random.chance(0.1)) w.kernel_height = 25;
    w.outside = random.chance(0.5) ? 0 : draw(random, 1, 255);
    return w;
  }

  Strides strides(int64_t of_windows, int64_t of_channels) const {
    const int64_t steps[] = {of_windows, of_channels, 0};
    return Strides{steps[order[0]], steps[order[1]], steps[order[2]]};
  }
  Shape shape() const {
    const int64_t extents[] = {windows, results, 1};
    return {extents[order[0]], extents[order[1]], extents[order[2]]};
  }
  Strides result_strides() const { return turned ? strides(1, windows + 1) : strides(row, 1); }
  template <class T>
  Place from_channel(const Array<T>& array) const {
    Place place = array.place();
    place.at += channel * int64_t{sizeof(T)};
    place.strides = strides(0, 1);
    return place;
  }

  // Calls wanted(channel, sum) for each element, and compares.
  template <class T, class Wanted>
  bool are(const Array<T>& to, Wanted wanted) const {
    bool right = true;
    for_each_index(shape(), [&](int64_t o, int64_t m, int64_t i) {
      const int64_t at[] = {o, m, i};
      int64_t place[3];
      for (size_t loop = 0; loop < 3; ++loop) place[order[loop]] = at[loop];
      int32_t sum = 0;
      for (int64_t tap = 0; tap < w.taps(); ++tap) {
        const int64_t read = place_of_tap(w, number + place[0], tap), c = channel + place[1];
        const int32_t x = read < 0 ? w.outside : images.data()[read + c];
        sum += x * weights.data()[tap * channels + c];
      }
      right = right && to.at(o, m, i) == wanted(place[1], sum);
    });
    return right;
  }

  Window w;
  int64_t channels;
  Array<uint8_t> images;
  Array<int8_t> weights;
  Order order;
  int64_t channel, windows, number, results, row;
  bool turned;
};

void test_bytes(Machine& machine, Random& random) {
  const ByteWindows x(random);
  const Array<int32_t> to(x.shape(), x.result_strides());
  context += "bytes " + describe(x.shape(), {to.strides()});
  execute(machine, Family::d_depthwise_bytes, DType::i8, x.shape(),
          {to.place(), x.from_channel(x.images), number_place(x.number, x.strides(1, 0)),
           x.from_channel(x.weights)},
          x.w);
  CHECK(x.are(to, [](int64_t, int32_t sum) { return sum; }));
}

template <class T>
void test_levels(Machine& machine, Random& random, DType dtype) {
  const ByteWindows x(random);
  const Array<T> to(x.shape(), x.result_strides());
  const bool addends = random.chance(0.7), factors = random.chance(0.7);
  Array<int32_t> addend({1, 1, addends ? x.channels : 1}, {0, 0, 1});
  Array<float> factor({1, 1, factors ? x.channels : 1}, {0, 0, 1});
  addend.fill([&] { return static_cast<int32_t>(random.bits()) >> random.integer(0, 31); });
  factor.fill([&] { return random_factor(random); });
  const Levels levels = random_levels(random, dtype == DType::i8);
  context += "levels " + describe(x.shape(), {to.strides()});
  execute(machine, Family::d_depthwise_quantize, dtype, x.shape(),
          {to.place(), x.from_channel(x.images), number_place(x.number, x.strides(1, 0)),
           x.from_channel(x.weights), addends ? x.from_channel(addend) : number_of(addend),
           factors ? x.from_channel(factor) : number_of(factor)},
          x.w, levels);
  CHECK(x.are(to, [&](int64_t c, int32_t sum) {
    const auto total =
        static_cast<int32_t>(static_cast<uint32_t>(sum) +
                             static_cast<uint32_t>(addend.at(0, 0, addends ? x.channel + c : 0)));
    return static_cast<T>(
        level_of(static_cast<float>(total) * factor.at(0, 0, factors ? x.channel + c : 0), levels));
  }));
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  for (const dvm::Level& level : dvm::available_levels()) {
    Machine machine(*level.table);
    Random random(5);
    for (int i = 0; i < 500; ++i) {
      context = std::string(level.table->name) + " ";
      test_bytes(machine, random);
      context = std::string(level.table->name) + " u8 ";
      test_levels<uint8_t>(machine, random, dvm::DType::u8);
      context = std::string(level.table->name) + " i8 ";
      test_levels<int8_t>(machine, random, dvm::DType::i8);
      context = std::string(level.table->name) + " i32 ";
      test_levels<int32_t>(machine, random, dvm::DType::i32);
    }
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
              test_reduction<T>(machine, random, dtype, family, random_window(random, true));
              context = name + "planes ";
              test_reduction<T>(machine, random, dtype, family, random_planes(random));
            }
            context = name + "overlapping ";
            test_reduction<T>(machine, random, dtype, dvm::Family::d_depthwise,
                              random_overlapping(random));
            context = name;
            test_groups<T>(machine, random, dtype);
            context = name;
            test_split_groups<T>(machine, random, dtype);
          }
        }
      });
    }
  }
  return report("window");
}
