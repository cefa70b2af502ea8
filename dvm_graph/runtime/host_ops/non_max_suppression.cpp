// NonMaxSuppression: arguments (center_point_box); operands boxes [batch, n, 4], scores
// [batch, class, n], most boxes of a class, threshold of overlap, threshold of scores. Of each
// class, by falling scores, the boxes that overlap none taken before by more than the threshold; of
// equal scores the first counts more. NaN has no place in that order: it ends wherever a heap of
// the standard library leaves it, which is what onnxruntime has.
//
// Corners and areas of boxes are computed once for a batch. Those taken lie side by side, so that a
// box is compared with a block of them at once; where there may be many, in bands of the first
// axis, and a box is compared with those of the bands that it reaches. Detectors that shift the
// boxes of each class away from all others, to have them suppressed in one go, reach few bands with
// each.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"

namespace dvm {
namespace {

constexpr int64_t kBlock = 8;      // boxes that are compared at once
constexpr int64_t kOneBand = 256;  // so few boxes are compared sooner than put into bands

struct Box {
  float x_min, y_min, x_max, y_max, area;
};

Box from_corners(const float* box) {
  const auto least = [](float a, float b) { return a >= b ? b : a; };
  const auto most = [](float a, float b) { return a >= b ? a : b; };
  return {least(box[1], box[3]), least(box[0], box[2]), most(box[1], box[3]), most(box[0], box[2]),
          0};
}

Box from_center(const float* box) {
  const float half_width = box[2] / 2, half_height = box[3] / 2;
  return {box[0] - half_width, box[1] - half_height, box[0] + half_width, box[1] + half_height, 0};
}

// Others suppress nothing and nothing suppresses them: NaN and what infinity makes of a quotient
// are not above a threshold.
bool has_area(const Box& box) {
  return box.area > 0 && box.area < std::numeric_limits<float>::infinity();
}

// Boxes with an area side by side, up to a whole number of blocks.
class Band {
 public:
  void add(const Box& box) {
    if (count_ % kBlock == 0) blocks_.emplace_back();
    Block& block = blocks_.back();
    const auto at = static_cast<size_t>(count_++ % kBlock);
    block.x_min[at] = box.x_min;
    block.y_min[at] = box.y_min;
    block.x_max[at] = box.x_max;
    block.y_max[at] = box.y_max;
    block.area[at] = box.area;
    x_min_ = std::min(x_min_, box.x_min);
    x_max_ = std::max(x_max_, box.x_max);
  }

  bool suppresses(const Box& box, float threshold) const {
    if (x_min_ >= box.x_max || x_max_ <= box.x_min) return false;
    return std::any_of(blocks_.begin(), blocks_.end(),
                       [&](const Block& block) { return block.suppresses(box, threshold); });
  }

 private:
  struct Block {
    float x_min[kBlock] = {}, y_min[kBlock] = {}, x_max[kBlock] = {}, y_max[kBlock] = {},
          area[kBlock] = {};

    bool suppresses(const Box& box, float threshold) const {
      int any = 0;
      for (int64_t i = 0; i < kBlock; i++) {
        const float left = x_min[i] < box.x_min ? box.x_min : x_min[i];
        const float right = box.x_max < x_max[i] ? box.x_max : x_max[i];
        const float low = y_min[i] < box.y_min ? box.y_min : y_min[i];
        const float high = box.y_max < y_max[i] ? box.y_max : y_max[i];
        const float common = (right - left) * (high - low);
        const float both = area[i] + box.area - common;
        const int apart =
            (right <= left) | (high <= low) | (common <= 0) | (area[i] <= 0) | (both <= 0);
        any |= ~apart & static_cast<int>(common / both > threshold);
      }
      return any != 0;
    }
  };

  std::vector<Block> blocks_;
  int64_t count_ = 0;
  float x_min_ = std::numeric_limits<float>::infinity();
  float x_max_ = -std::numeric_limits<float>::infinity();
};

struct Scored {
  float score;
  int64_t at;
  // As heaps of the standard library have it: the greatest is on top.
  bool operator<(const Scored& other) const {
    return score < other.score || (score == other.score && at > other.at);
  }
};

// Boxes that were taken, in bands between quantiles of where those that may be taken begin. There
// are as many bands as boxes in one, about, so that neither to look through the bands nor to
// compare with the boxes of a few of them takes long.
class Taken {
 public:
  void begin(std::span<const Scored> waiting, std::span<const Box> boxes, int64_t most) {
    limits_.clear();
    const auto many = std::min(most, static_cast<int64_t>(waiting.size()));
    if (many > kOneBand) cut(waiting, boxes, std::sqrt(static_cast<double>(many)));
    bands_.assign(limits_.size() + 1, {});
  }

  void add(const Box& box) {
    const auto limit = std::upper_bound(limits_.begin(), limits_.end(), box.x_min);
    bands_[static_cast<size_t>(limit - limits_.begin())].add(box);
  }

  bool suppress(const Box& box, float threshold) const {
    return std::any_of(bands_.begin(), bands_.end(),
                       [&](const Band& band) { return band.suppresses(box, threshold); });
  }

 private:
  void cut(std::span<const Scored> waiting, std::span<const Box> boxes, double bands) {
    starts_.clear();
    for (const Scored& scored : waiting) {
      const Box& box = boxes[static_cast<size_t>(scored.at)];
      if (has_area(box)) starts_.push_back(box.x_min);
    }
    std::sort(starts_.begin(), starts_.end());
    const auto step = static_cast<size_t>(std::ceil(static_cast<double>(starts_.size()) / bands));
    for (size_t i = step; i < starts_.size(); i += step) limits_.push_back(starts_[i]);
  }

  std::vector<float> starts_;  // of those waiting that have an area
  std::vector<float> limits_;  // ascending; each begins a band behind the first
  std::vector<Band> bands_;
};

struct Request {
  int64_t most;
  float overlap, least_score;
  bool has_least;
};

class Suppression {
 public:
  explicit Suppression(const Request& request) : request_(request) {}

  void read_boxes(const float* boxes, int64_t count, bool center) {
    boxes_.resize(static_cast<size_t>(count));
    for (Box& box : boxes_) {
      box = center ? from_center(boxes) : from_corners(boxes);
      box.area = (box.x_max - box.x_min) * (box.y_max - box.y_min);
      boxes += 4;
    }
  }

  void run(const float* scores, int64_t batch, int64_t label) {
    wait(scores);
    std::make_heap(waiting_.begin(), waiting_.end());
    taken_.begin(waiting_, boxes_, request_.most);
    int64_t count = 0;
    while (!waiting_.empty() && count < request_.most) {
      std::pop_heap(waiting_.begin(), waiting_.end());
      const int64_t at = waiting_.back().at;
      waiting_.pop_back();
      const Box& box = boxes_[static_cast<size_t>(at)];
      if (has_area(box)) {
        if (taken_.suppress(box, request_.overlap)) continue;
        taken_.add(box);
      }
      count++;
      result_.insert(result_.end(), {batch, label, at});
    }
  }

  std::span<const int64_t> result() const { return result_; }

 private:
  // Nobody knows which boxes score enough, so no jump hangs on it.
  void wait(const float* scores) {
    waiting_.resize(boxes_.size());
    size_t count = 0;
    for (size_t i = 0; i < boxes_.size(); i++) {
      waiting_[count] = {scores[i], static_cast<int64_t>(i)};
      count += static_cast<size_t>(!request_.has_least || scores[i] > request_.least_score);
    }
    waiting_.resize(count);
  }

  const Request request_;
  std::vector<Box> boxes_;
  std::vector<Scored> waiting_;
  Taken taken_;
  std::vector<int64_t> result_;
};

void check_shapes(const HostFrame& frame) {
  const std::vector<int64_t>&boxes = frame.operand(0).shape, &scores = frame.operand(1).shape;
  if (boxes.size() == 3 && scores.size() == 3 && boxes[0] == scores[0] && boxes[1] == scores[2] &&
      boxes[2] == 4)
    return;
  throw ShapeError("boxes of " + frame.name + " have shape " + shape_text(boxes) +
                   " and scores have " + shape_text(scores) +
                   ", instead of [batch, n, 4] and [batch, class, n]");
}

}  // namespace

void non_max_suppression(HostFrame& frame) {
  check_shapes(frame);
  const int64_t most = frame.has(2) ? frame.scalar<int64_t>(2) : 0;
  const Request request{most, frame.has(3) ? frame.scalar<float>(3) : 0,
                        frame.has(4) ? frame.scalar<float>(4) : 0, frame.has(4)};
  if (!(request.overlap >= 0 && request.overlap <= 1)) {
    throw InputError("iou_threshold of " + frame.name + " is " + std::to_string(request.overlap) +
                     ", which is not within [0, 1]");
  }
  const std::vector<int64_t>& shape = frame.operand(1).shape;
  const int64_t classes = shape[1], count = shape[2];
  Suppression suppression(request);
  const float *boxes = frame.data<float>(0), *scores = frame.data<float>(1);
  for (int64_t batch = 0; most > 0 && batch < shape[0]; batch++, boxes += 4 * count) {
    suppression.read_boxes(boxes, count, frame.argument(0) != 0);
    for (int64_t label = 0; label < classes; label++, scores += count) {
      suppression.run(scores, batch, label);
    }
  }
  const std::span<const int64_t> found = suppression.result();
  std::byte* const out = frame.give(0, DType::i64, {static_cast<int64_t>(found.size()) / 3, 3});
  if (out != nullptr && !found.empty()) std::memcpy(out, found.data(), found.size_bytes());
}

}  // namespace dvm
