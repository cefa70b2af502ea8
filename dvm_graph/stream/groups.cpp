#include "stream/groups.h"

#include <algorithm>

namespace dvm::stream {
namespace {

void add(std::vector<int32_t>& items, int32_t item) {
  if (!holds(items, item)) items.push_back(item);
}
void drop(std::vector<int32_t>& items, int32_t item) {
  const auto found = std::find(items.begin(), items.end(), item);
  if (found != items.end()) items.erase(found);
}

PartKind kind_of(const Node& node) {
  if (is_view(node.op)) return PartKind::view;
  if (node.op == Op::matmul) return PartKind::cube;
  return node.op == Op::concat ? PartKind::host : PartKind::vector;
}

}  // namespace

void Spaces::add(const AtomList& space) {
  for (size_t i = 0; i < size(); i++) {
    const std::span<const Atom> known = (*this)[i];
    if (std::equal(known.begin(), known.end(), space.begin(), space.end())) return;
  }
  atoms_.insert(atoms_.end(), space.begin(), space.end());
  ends_.push_back(static_cast<uint32_t>(atoms_.size()));
}

AtomList Spaces::all() const {
  AtomList atoms;
  for (const Atom atom : atoms_) atoms.add(atom);
  return atoms;
}

void Group::reset() {
  part = {};
  nodes.clear();
  spaces.clear();
  inputs.clear();
  results.clear();
  before.clear();
  after.clear();
  resident = false;
}

const Input* Group::find_input(int32_t value) const {
  for (const Input& input : inputs) {
    if (input.value == value) return &input;
  }
  return nullptr;
}

void GroupGraph::build(Graph& graph) {
  const size_t count = graph.nodes.size();
  if (groups_.size() < count) groups_.resize(count);
  uses_.clear();
  at_.resize(count);
  position_.resize(count);
  marks_.assign(count, 0);
  epoch_ = 0;
  made_by_.assign(graph.values.size(), -1);
  for (size_t i = 0; i < count; i++) {
    const auto index = static_cast<int32_t>(i);
    const Node& node = graph.nodes[i];
    Group& group = groups_[i];
    group.reset();
    at_[i] = position_[i] = index;
    group.part.kind = kind_of(node);
    const bool computes = group.part.kind == PartKind::vector || group.part.kind == PartKind::cube;
    group.part.operators = computes ? 1 : 0;
    group.part.reduces = node.kind == Kind::reduce;
    group.part.gathers = node.op == Op::gather;
    group.nodes.push_back(index);
    group.spaces.add(graph.space.resolved(node.iterated()));
    group.results.push_back(node.value);
    made_by_[static_cast<size_t>(node.value)] = index;
    for (uint32_t operand = 0; operand < node.operands; operand++) {
      const int32_t value = graph.operands(node)[operand];
      const auto use = static_cast<int32_t>(uses_.size());
      uses_.push_back({index, operand, -1});
      const auto known = std::find_if(group.inputs.begin(), group.inputs.end(),
                                      [&](const Input& input) { return input.value == value; });
      if (known != group.inputs.end()) {
        uses_[static_cast<size_t>(known->last)].next = use;
        known->last = use;
        continue;
      }
      group.inputs.push_back({value, use, use});
      const int32_t producer = made_by_[static_cast<size_t>(value)];
      if (producer < 0) continue;
      add(groups_[static_cast<size_t>(producer)].after, index);
      add(group.before, producer);
    }
  }
}

void GroupGraph::list(std::vector<int32_t>& out) const {
  out.clear();
  for (const int32_t index : at_) {
    if (index >= 0) out.push_back(index);
  }
}

int32_t GroupGraph::detour(int32_t producer, int32_t consumer) {
  return group(producer).after.size() == 1 ? -1 : between(producer, consumer);
}

bool GroupGraph::depends(int32_t first, int32_t second) {
  if (position(first) > position(second)) std::swap(first, second);
  return holds(group(first).after, second) || between(first, second) >= 0;
}

int32_t GroupGraph::between(int32_t first, int32_t last) {
  epoch_++;
  see(first);
  stack_.clear();
  for (const int32_t next : group(first).after) {
    if (next != last) stack_.push_back(next);
  }
  while (!stack_.empty()) {
    const int32_t at = stack_.back();
    stack_.pop_back();
    if (seen(at) || position(at) > position(last)) continue;
    see(at);
    if (holds(group(at).after, last)) return at;
    stack_.insert(stack_.end(), group(at).after.begin(), group(at).after.end());
  }
  return -1;
}

// Marks groups after `producer` in the graph and before `consumer` in the order.
void GroupGraph::mark_between(int32_t producer, int32_t consumer) {
  epoch_++;
  stack_.clear();
  for (const int32_t next : group(producer).after) {
    if (next != consumer) stack_.push_back(next);
  }
  while (!stack_.empty()) {
    const int32_t at = stack_.back();
    stack_.pop_back();
    if (seen(at) || position(at) >= position(consumer)) continue;
    see(at);
    stack_.insert(stack_.end(), group(at).after.begin(), group(at).after.end());
  }
}

void GroupGraph::merge(int32_t from, int32_t into, bool resides, const Graph& graph) {
  reorder(from, into);
  Group &producer = group(from), &consumer = group(into);
  // Those results of the producer that are still used come first.
  order_.clear();
  for (const int32_t value : producer.results) {
    bool used = graph.values[static_cast<size_t>(value)].wanted;
    for (const int32_t other : producer.after) {
      used = used || (other != into && group(other).reads(value));
    }
    if (used) order_.push_back(value);
  }
  std::erase_if(consumer.inputs,
                [&](const Input& input) { return holds(producer.results, input.value); });
  consumer.results.insert(consumer.results.begin(), order_.begin(), order_.end());
  const bool behind_cube = producer.part.kind == PartKind::cube && consumer.part.reduces;
  consumer.resident = consumer.resident || producer.resident || resides || behind_cube;
  consumer.nodes.insert(consumer.nodes.begin(), producer.nodes.begin(), producer.nodes.end());
  consumer.part.operators += producer.part.operators;
  consumer.part.reduces = consumer.part.reduces || producer.part.reduces;
  consumer.part.gathers = consumer.part.gathers || producer.part.gathers;
  for (const Input& input : producer.inputs) {
    const auto known = std::find_if(consumer.inputs.begin(), consumer.inputs.end(),
                                    [&](const Input& own) { return own.value == input.value; });
    if (known == consumer.inputs.end()) {
      consumer.inputs.push_back(input);
    } else {  // the producer's come first
      uses_[static_cast<size_t>(input.last)].next = known->first;
      known->first = input.first;
    }
  }
  for (const int32_t other : producer.before) {
    drop(group(other).after, from);
    add(group(other).after, into);
    add(consumer.before, other);
  }
  for (const int32_t other : producer.after) {
    drop(group(other).before, from);
    if (other == into) continue;
    add(group(other).before, into);
    add(consumer.after, other);
  }
}

// Moves what depends on `producer` behind `consumer`, and drops `producer`.
void GroupGraph::reorder(int32_t producer, int32_t consumer) {
  mark_between(producer, consumer);
  const auto low = static_cast<size_t>(position(producer)),
             high = static_cast<size_t>(position(consumer));
  order_.clear();
  for (size_t i = low + 1; i < high; i++) {
    if (at_[i] >= 0 && !seen(at_[i])) order_.push_back(at_[i]);
  }
  order_.push_back(consumer);
  for (size_t i = low + 1; i < high; i++) {
    if (at_[i] >= 0 && seen(at_[i])) order_.push_back(at_[i]);
  }
  const size_t start = high + 1 - order_.size();
  for (size_t i = low; i < start; i++) at_[i] = -1;
  for (size_t i = 0; i < order_.size(); i++) {
    at_[start + i] = order_[i];
    position_[static_cast<size_t>(order_[i])] = static_cast<int32_t>(start + i);
  }
  position_[static_cast<size_t>(producer)] = -1;
}

}  // namespace dvm::stream
