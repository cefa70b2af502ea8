#include "npu/simulator/cube_values.h"

#include <vector>

#include "npu/simulator/half.h"

namespace dvm {
namespace {

template <class T>
struct Rows {
  T* at;
  int64_t middle, inner;

  T& operator()(int64_t i, int64_t j) const { return at[i * middle + j * inner]; }
};

template <class T>
Rows<T> rows_at(const Core& core, const uint64_t* words, int k) {
  const Operand operand = operand_of(words, k);
  return {reinterpret_cast<T*>(resolve(core, operand_words(words, k))), operand.middle_stride,
          operand.inner_stride};
}

struct Loops {
  int64_t outer, middle, inner;

  Loops(const Core& core, const uint64_t* words) {
    const Head head = head_of(words);
    outer = core.extents[head.e0];
    middle = core.extents[head.e1];
    inner = core.extents[head.e2];
  }
};

template <class T>
void move(Core& core, const uint64_t* words) {
  const Loops e(core, words);
  const auto to = rows_at<T>(core, words, 0);
  const auto from = rows_at<const T>(core, words, 1);
  for (int64_t i = 0; i < e.middle; ++i) {
    for (int64_t j = 0; j < e.inner; ++j) to(i, j) = from(i, j);
  }
}

template <DType D>
void load_bias(Core& core, const uint64_t* words) {
  using Element = CubeElement<D>;
  const Loops e(core, words);
  const auto to = rows_at<float>(core, words, 0);
  const auto from = rows_at<const typename Element::type>(core, words, 1);
  for (int64_t j = 0; j < e.inner; ++j) to(0, j) = Element::wide(from(0, j));
}

template <DType D>
void multiply(Core& core, const uint64_t* words) {
  using Element = CubeElement<D>;
  using T = typename Element::type;
  const Loops e(core, words);  // m, k, n
  const auto c = rows_at<float>(core, words, 0);
  const auto a = rows_at<const T>(core, words, 1), b = rows_at<const T>(core, words, 2);
  const Head head = head_of(words);
  const bool adds = (head.flags & kAccumulateAlways) != 0 ||
                    ((head.flags & kAccumulate) != 0 && !core.first_chunk);
  const bool biased = info_of(family_of(head)).form == Form::mmad_bias;
  thread_local std::vector<float> right, sums;
  right.resize(static_cast<size_t>(e.middle * e.inner));
  sums.resize(static_cast<size_t>(e.inner));
  for (int64_t k = 0; k < e.middle; ++k) {
    for (int64_t n = 0; n < e.inner; ++n) {
      right[static_cast<size_t>(k * e.inner + n)] = Element::wide(b(k, n));
    }
  }
  for (int64_t m = 0; m < e.outer; ++m) {
    for (int64_t n = 0; n < e.inner; ++n) {
      const auto bias = [&] { return biased ? rows_at<const float>(core, words, 3)(0, n) : 0.0f; };
      sums[static_cast<size_t>(n)] = adds ? c(m, n) : bias();
    }
    for (int64_t k = 0; k < e.middle; ++k) {
      const float x = Element::wide(a(m, k));
      const float* const row = right.data() + k * e.inner;
      for (int64_t n = 0; n < e.inner; ++n) sums[static_cast<size_t>(n)] += x * row[n];
    }
    for (int64_t n = 0; n < e.inner; ++n) c(m, n) = sums[static_cast<size_t>(n)];
  }
}

template <DType D, bool Relu>
void store(Core& core, const uint64_t* words) {
  using Element = CubeElement<D>;
  const Loops e(core, words);
  const auto to = rows_at<typename Element::type>(core, words, 0);
  const auto from = rows_at<const float>(core, words, 1);
  for (int64_t i = 0; i < e.middle; ++i) {
    for (int64_t j = 0; j < e.inner; ++j) {
      const float value = from(i, j);
      to(i, j) = Element::narrow(Relu && value < 0 ? 0 : value);
    }
  }
}

template <DType D>
void fill(InstructionTable& table) {
  using T = typename CubeElement<D>::type;
  const auto set = [&](Family family, Handler handler) {
    table.handlers[opcode_of(family, D)] = handler;
  };
  set(Family::d_load_l1, &move<T>);
  set(Family::d_load_l0a, &move<T>);
  set(Family::d_load_l0b, &move<T>);
  set(Family::d_load_bias, &load_bias<D>);
  set(Family::m_mmad, &multiply<D>);
  set(Family::m_mmad_bias, &multiply<D>);
  set(Family::d_store_l0c, &store<D, false>);
  set(Family::d_store_l0c_relu, &store<D, true>);
}

}  // namespace

InstructionTable with_cube_memories(const InstructionTable& base) {
  InstructionTable table = base;
  fill<DType::f32>(table);
  fill<DType::f16>(table);
  fill<DType::bf16>(table);
  return table;
}

}  // namespace dvm
