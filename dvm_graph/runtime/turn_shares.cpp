#include "runtime/turn_shares.h"

#include <algorithm>
#include <cmath>

#include "kernels/numbers.h"
#include "runtime/executor.h"
#include "runtime/runner.h"
#include "runtime/value_sizes.h"

namespace dvm {

TurnShares::TurnShares(const ControlCall& call) : body_(&call.bodies[0].program->model()) {
  chains_ = chains_of(*body_, call);
  const auto add_reads = [&](const Chain* chain) {
    const std::vector<char> read = values_read_by(chain);
    std::vector<char>& inputs = reads_.emplace_back();
    for (const uint32_t input : body_->inputs) inputs.push_back(read[input]);
  };
  add_reads(nullptr);
  for (const Chain& chain : chains_) add_reads(&chain);
  if (call.strands == kNoSlot) return;
  const auto axes_of = [&](const std::vector<uint32_t>& values, size_t first) {
    std::vector<int> axes;
    for (size_t i = first; i < values.size(); i++) {
      const std::vector<DimSlot>& shape = body_->values[values[i]].shape;
      const auto at = std::ranges::find(shape, call.strands);
      axes.push_back(at == shape.end() ? -1 : static_cast<int>(at - shape.begin()));
    }
    return axes;
  };
  strand_axes_ = axes_of(body_->inputs, 0);
  row_axes_ = axes_of(body_->outputs, call.states);
  shared_.push_back(shared_by(nullptr));
  for (const Chain& chain : chains_) shared_.push_back(shared_by(&chain));
  const auto has = [](int axis) { return axis >= 0; };
  stranded_ = std::all_of(strand_axes_.begin(), strand_axes_.begin() + call.states, has) &&
              std::ranges::all_of(row_axes_, has);
}

int64_t TurnShares::strands_of(const LoopState& loop) const {
  if (!stranded_) return 1;
  int64_t strands = 0;
  const auto lie_in = [&](const std::vector<int64_t>& shape, int axis) {
    if (axis < 0) return true;
    const auto at = shape.begin() + axis;
    if (strands == 0) strands = *at;
    return *at == strands && std::all_of(shape.begin(), at, [](int64_t e) { return e == 1; });
  };
  for (size_t i = 0; i < loop.operands.size(); i++) {
    if (!lie_in(loop.operands[i].shape, strand_axes_[i])) return 1;
  }
  for (size_t i = 0; i < loop.rows.size(); i++) {
    if (!lie_in(loop.rows[i].shape, row_axes_[i])) return 1;
  }
  return strands;
}

// By all calls of the body, or those of a chain.
std::vector<char> TurnShares::values_read_by(const Chain* chain) const {
  const Model& body = *body_;
  std::vector<char> read(body.values.size(), false);
  for (size_t call = 0; call < body.calls.size(); call++) {
    if (chain != nullptr && chain->calls[call] == 0) continue;
    for (const Access& access : body.kernels[body.calls[call].kernel].plan.accesses) {
      read[static_cast<size_t>(access.value)] = true;
    }
  }
  return read;
}

TurnShares::Shared TurnShares::shared_by(const Chain* chain) const {
  const Model& body = *body_;
  const std::vector<char> read = values_read_by(chain);
  Shared shared;
  for (size_t value = 0; value < read.size(); value++) {
    const Tensor& contents = body.values[value].contents;
    if (read[value] != 0 && contents.data != nullptr) shared.constant_bytes += bytes_of(contents);
  }
  for (size_t i = 0; i < body.inputs.size(); i++) {
    if (strand_axes_[i] < 0 && read[body.inputs[i]] != 0) shared.operands.push_back(i);
  }
  return shared;
}

// In which a core reads what strands share, of the body (0) or a chain: each core that takes some
// of them by itself does so.
double TurnShares::reading_seconds(const LoopState& loop, size_t part, const Target& target) const {
  int64_t bytes = shared_[part].constant_bytes;
  for (const size_t operand : shared_[part].operands) bytes += bytes_of(loop.operands[operand]);
  const Costs& costs = target.costs;
  const double rate = bytes <= target.local_bytes ? costs.private_read : costs.shared_read;
  return static_cast<double>(bytes) / rate;
}

TurnShares::Division TurnShares::divide(const LoopState& loop, int64_t strands, Runner& body,
                                        const RunRequest& request) const {
  const int64_t cores = body.cores();
  if (cores == 1) return {};
  const std::span<const double> seconds = body.predict_turn(loop.operands, request, chains_);
  const double one = seconds[0], evenly = one / static_cast<double>(cores);
  // Strands of the body (0) or a chain by themselves; their cores read beside the multiply-adds.
  const auto apart = [&](size_t part, int64_t shares) {
    if (shares == 1) return seconds[part];
    const auto longest = static_cast<double>(ceil_div(strands, shares));
    return std::max(seconds[part] * longest / static_cast<double>(strands),
                    reading_seconds(loop, part, body.target()));
  };
  const double barriers = body.barriers_of_turn();
  Division best;
  double least = evenly + barriers * static_cast<double>(cores - 1);
  const auto consider = [&](const Division& division, double takes) {
    if (takes > least) return;
    least = takes;
    best = division;
  };
  // Whether sharing turns gains is tried (npu/host/turns.cpp) where it might; more cores take
  // longer to meet.
  if (one <= evenly + barriers * std::log2(cores)) consider({false, 1}, one);
  const int64_t shares = std::min(cores, strands);
  if (shares > 1) consider({false, shares}, apart(0, shares));
  if (chains_.empty()) return best;
  const int64_t most = std::min(cores / static_cast<int64_t>(chains_.size()), strands);
  for (const int64_t of_chain : {int64_t{1}, std::max<int64_t>(most, 1)}) {
    double takes = evenly;
    for (size_t part = 1; part <= chains_.size(); part++) {
      takes = std::max(takes, apart(part, of_chain));
    }
    consider({true, of_chain}, takes);
  }
  return best;
}

}  // namespace dvm
