// A stream in C++: what it computes, and that a flush takes nothing from the heap but what it gives
// out, once flushes as large have been.
#include <algorithm>
#include <array>
#include <cstdio>
#include <initializer_list>
#include <vector>

#include "../counting_new.h"
#include "../runtime/checks.h"
#include "../targets.h"
#include "stream/stream.h"

namespace dvm::stream {
namespace {

using dvm::testing::allocations;
using dvm::testing::check;

void declare_some() {
  const uint32_t all = (1U << kDTypes) - 1;
  for (const Op op : {Op::add, Op::mul, Op::max})
    declare(op, {true, Kind::map, 2, Result::same, all});
  for (const Op op : {Op::neg, Op::abs}) declare(op, {true, Kind::map, 1, Result::same, all});
  declare(Op::reduce_sum, {true, Kind::reduce, 1, Result::same, all});
  declare(Op::matmul, {true, Kind::matrix, 2, Result::sum, all});
  declare(Op::transpose, {true, Kind::view, 1, Result::same, all});
  declare(Op::slice, {true, Kind::view, 1, Result::same, all});
  declare(Op::concat, {true, Kind::view, -1, Result::same, all});
}

ValueRef given(std::vector<float>& data, std::initializer_list<int64_t> shape) {
  auto value = std::make_shared<Value>();
  value->shape.rank = static_cast<int8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), value->shape.extents);
  value->data = reinterpret_cast<std::byte*>(data.data());
  return value;
}

ValueRef append(Stream& stream, Op op, std::initializer_list<ValueRef> operands,
                std::initializer_list<int64_t> attrs = {}) {
  return stream.append(op, {operands.begin(), operands.size()}, {attrs.begin(), attrs.size()},
                       nullptr);
}

float first_of(const ValueRef& value) { return *reinterpret_cast<const float*>(value->data); }

// Operators, and of them those whose results are held.
constexpr int64_t kOperators = 8, kHeld = 2;

// (x + x) * x, row sums of its negative and of its transpose, joined; and its product with x,
// doubled.
void flush_some(Stream& stream, const ValueRef& x) {
  // Texts are short, so that a check takes nothing from the heap.
  const ValueRef sum = append(stream, Op::add, {x, x});
  const ValueRef product = append(stream, Op::mul, {sum, x});
  const ValueRef turned = append(stream, Op::transpose, {product}, {1, 0});
  const ValueRef rows = append(stream, Op::reduce_sum, {append(stream, Op::neg, {product})}, {1});
  const ValueRef joined = append(stream, Op::concat, {rows, rows}, {1});
  const ValueRef matrix = append(stream, Op::matmul, {product, turned});
  const ValueRef doubled = append(stream, Op::add, {matrix, matrix});
  joined->handles++;
  doubled->handles++;
  stream.flush("flush");
  check(first_of(joined) == -8.0f * 2, "sums");
  check(first_of(doubled) == 2 * 8.0f * 4, "product");
  std::vector<ValueRef> dropped;
  stream.take_dropped(dropped);
  dropped.clear();
  stream.give_capacity(dropped);
}

void test_steady_state() {
  Stream stream({2, "", 0, dvm::testing::plain_machine(), true, {}}, {200, 40, 40, true, 512, 10});
  std::vector<float> data(4 * 8, 1.0f);
  const ValueRef x = given(data, {4, 8});
  flush_some(stream, x);
  flush_some(stream, x);
  const Statistics before = stream.statistics();
  const int64_t taken_before = allocations;
  constexpr int64_t kRounds = 50;
  for (int64_t i = 0; i < kRounds; i++) flush_some(stream, x);
  const int64_t taken = allocations - taken_before;
  check(stream.statistics().stored - before.stored == kRounds * kHeld, "what is stored");
  // A value for each operator, and of a result the memory and who owns it.
  const int64_t most = kRounds * (kOperators + 2 * kHeld);
  check(taken <= most, std::to_string(taken) + " allocations, not " + std::to_string(most));
}

void test_dead_results() {
  Stream stream({1, "", 0, dvm::testing::plain_machine(), true, {}}, {200, 40, 40, true, 512, 10});
  std::vector<float> data(16, 3.0f);
  const ValueRef x = given(data, {16});
  for (int i = 0; i < 5; i++) append(stream, Op::neg, {x});
  const ValueRef kept = append(stream, Op::abs, {append(stream, Op::neg, {x})});
  kept->handles++;
  stream.require(*kept);
  check(first_of(kept) == 3.0f, "the value that is held");
  check(stream.statistics().dead == 5, "dead operators");
  check(stream.statistics().kernels == 1 && stream.statistics().stored == 1,
        "one kernel, one result");
}

}  // namespace
}  // namespace dvm::stream

int main() {
  dvm::stream::declare_some();
  dvm::stream::test_steady_state();
  dvm::stream::test_dead_results();
  return dvm::testing::report();
}
