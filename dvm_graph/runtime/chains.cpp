#include "runtime/chains.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace dvm {
namespace {

// Values that belong together, as a forest.
class Ties {
 public:
  explicit Ties(size_t values) : parents_(values) {
    std::iota(parents_.begin(), parents_.end(), uint32_t{0});
  }
  uint32_t root(uint32_t value) {
    while (parents_[value] != value) value = parents_[value] = parents_[parents_[value]];
    return value;
  }
  void tie(uint32_t a, uint32_t b) { parents_[root(a)] = root(b); }

 private:
  std::vector<uint32_t> parents_;
};

// What a call touches, its fallback included.
void collect(const Model& model, uint32_t index, std::vector<uint32_t>& values) {
  const KernelCall& call = model.calls[index];
  for (const Access& access : model.kernels[call.kernel].plan.accesses) {
    values.push_back(static_cast<uint32_t>(access.value));
  }
  for (const uint32_t fallback : call.fallback) collect(model, fallback, values);
}

void include(const Model& model, uint32_t index, Chain& chain) {
  chain.calls[index] = true;
  for (const uint32_t fallback : model.calls[index].fallback) include(model, fallback, chain);
}

}  // namespace

std::vector<Chain> chains_of(const Model& body, const ControlCall& call) {
  if (call.branches || call.counted) return {};  // the body says whether to go on: to all of it
  std::vector<char> carried(body.values.size(), false);  // from turn to turn, or within one
  for (uint32_t value = 0; value < body.values.size(); value++) {
    const Storage storage = body.values[value].storage;
    carried[value] = storage == Storage::arena || storage == Storage::output;
  }
  Ties ties(body.values.size());
  for (uint32_t state = 0; state < call.states; state++) {
    carried[body.inputs[state]] = true;
    ties.tie(body.inputs[state], body.outputs[state]);
  }
  std::vector<std::pair<uint32_t, uint32_t>> calls;  // with a value that it is known by
  for (const Step& step : body.steps) {
    const auto* const stage = std::get_if<LaunchStage>(&step);
    if (stage == nullptr) return {};
    for (const uint32_t index : stage->calls) {
      std::vector<uint32_t> values;
      collect(body, index, values);
      std::erase_if(values, [&](uint32_t value) { return !carried[value]; });
      if (values.empty()) return {};
      for (const uint32_t value : values) ties.tie(value, values[0]);
      calls.emplace_back(index, values[0]);
    }
  }
  std::map<uint32_t, size_t> numbers;  // of chains, by root
  for (const auto& [_, value] : calls) numbers.try_emplace(ties.root(value), numbers.size());
  if (numbers.size() < 2) return {};
  std::vector<Chain> chains(numbers.size(), {std::vector<char>(body.calls.size(), false),
                                             std::vector<char>(body.outputs.size(), false)});
  for (const auto& [index, value] : calls) include(body, index, chains[numbers[ties.root(value)]]);
  for (size_t i = 0; i < body.outputs.size(); i++) {
    const auto number = numbers.find(ties.root(body.outputs[i]));
    chains[number == numbers.end() ? 0 : number->second].outputs[i] = true;
  }
  return chains;
}

}  // namespace dvm
