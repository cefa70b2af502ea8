// Probabilities of classes that go best with those of pairs of classes, by the second method of Wu,
// Lin and Weng (2004), "Probability estimates for multi-class classification by pairwise coupling":
// the minimum of p' Q p, coordinate by coordinate, to the accuracy and in the order of sums that
// onnxruntime has.
//
//   CoupledProbabilities   classes. Operand: [rows, pairs], float32, the probability of the first
//                          class of each pair. Result: [rows, classes].
#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"

namespace dvm {
namespace {

constexpr int kMostSteps = 100;

// Of the classes of one row.
class Coupling {
 public:
  explicit Coupling(size_t classes) : classes_(classes), q_(classes * classes), qp_(classes) {}

  void solve(const float* pairs, float* p) {
    fill(pairs);
    const auto classes = static_cast<float>(classes_);
    std::fill_n(p, classes_, 1.0F / classes);
    for (int step = 0; step < kMostSteps; step++) {
      float total = multiply(p);
      if (greatest_error(total) < 0.005F / classes) return;
      for (size_t i = 0; i < classes_; i++) total = move(i, total, p);
    }
  }

 private:
  // Q has on its diagonal the sums of squares of what others have against a class.
  void fill(const float* pairs) {
    std::fill(q_.begin(), q_.end(), 0.0F);
    std::vector<float> against(classes_ * classes_);
    for (size_t i = 0; i < classes_; i++) {
      for (size_t j = i + 1; j < classes_; j++, pairs++) {
        against[i * classes_ + j] = *pairs;
        against[j * classes_ + i] = 1 - *pairs;
      }
    }
    for (size_t i = 0; i < classes_; i++) {
      for (size_t j = 0; j < classes_; j++) {
        if (j == i) continue;
        const float of_other = against[j * classes_ + i];
        at(i, i) += of_other * of_other;
        at(i, j) = j < i ? at(j, i) : -of_other * against[i * classes_ + j];
      }
    }
  }

  float& at(size_t row, size_t column) { return q_[row * classes_ + column]; }

  float multiply(const float* p) {
    float total = 0;
    for (size_t i = 0; i < classes_; i++) {
      qp_[i] = 0;
      for (size_t j = 0; j < classes_; j++) qp_[i] += at(i, j) * p[j];
      total += p[i] * qp_[i];
    }
    return total;
  }

  float greatest_error(float total) const {
    float greatest = 0;
    for (const float product : qp_) {
      const float error = std::fabs(product - total);
      if (error > greatest) greatest = error;
    }
    return greatest;
  }

  float move(size_t i, float total, float* p) {
    const float by = (-qp_[i] + total) / at(i, i);
    p[i] += by;
    const float moved = (total + by * (by * at(i, i) + 2 * qp_[i])) / (1 + by) / (1 + by);
    for (size_t j = 0; j < classes_; j++) {
      qp_[j] = (qp_[j] + by * at(i, j)) / (1 + by);
      p[j] /= (1 + by);
    }
    return moved;
  }

  size_t classes_;
  std::vector<float> q_, qp_;
};

}  // namespace

void coupled_probabilities(HostFrame& frame) {
  const std::vector<int64_t>& shape = frame.operand(0).shape;
  const int64_t classes = frame.argument(0);
  if (shape.size() != 2 || classes < 2 || classes > shape[1] + 1 ||
      shape[1] != classes * (classes - 1) / 2) {
    throw CompileError(frame.name + " has other pairs than classes");
  }
  const auto* const pairs = frame.data<float>(0);
  auto* const out = frame.give<float>(0, DType::f32, {shape[0], classes});
  if (out == nullptr) return;
  std::vector<Coupling> couplings(static_cast<size_t>(frame.slots()),
                                  Coupling(static_cast<size_t>(classes)));
  frame.spread(shape[0], classes * classes * kMostSteps / 10,
               [&](int64_t first, int64_t end, int64_t slot) {
                 Coupling& coupling = couplings[static_cast<size_t>(slot)];
                 for (int64_t row = first; row < end; row++) {
                   coupling.solve(pairs + row * shape[1], out + row * classes);
                 }
               });
}

}  // namespace dvm
