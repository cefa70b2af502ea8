#include "stream/split.h"

#include <algorithm>

namespace dvm::stream {
namespace {

constexpr bool is_narrow(DType dtype) {
  return dtype == DType::i8 || dtype == DType::u8 || dtype == DType::i16 || dtype == DType::u16;
}

}  // namespace

void Splitter::run(std::span<const int32_t> apart, std::vector<Decision>* decisions) {
  apart_ = apart;
  decisions_ = decisions;
  refused_.clear();
  groups_.build(graph_);
  find_widened();
  load_views();
  load_widened();
  extend_cubes(false);
  merge_vectors();
  extend_cubes(true);
  join_rows(PartKind::cube);
  join_rows(PartKind::vector);
  store_views();
  merge_siblings();
}

// Element-wise operators of narrow integers, or of what such made of them, and of constants.
void Splitter::find_widened() {
  widened_.assign(graph_.nodes.size(), 0);
  for (size_t i = 0; i < graph_.nodes.size(); i++) {
    const Node& node = graph_.nodes[i];
    if (node.kind != Kind::map) continue;
    const GraphValue* source = nullptr;
    int operands = 0;
    for (const int32_t index : graph_.operands(node)) {
      const GraphValue& value = graph_.values[static_cast<size_t>(index)];
      if (value.constant) continue;
      operands++;
      source = &value;
    }
    if (operands != 1) continue;
    const bool casts = is_narrow(source->dtype) && !is_narrow(graph_.result(node).dtype);
    widened_[i] =
        casts || (source->producer >= 0 && widened_[static_cast<size_t>(source->producer)]);
  }
}

bool Splitter::stored(const Group& group) const {
  return std::any_of(group.results.begin(), group.results.end(), [&](int32_t value) {
    return graph_.values[static_cast<size_t>(value)].wanted;
  });
}

bool Splitter::is_apart(const Group& group) const {
  return !apart_.empty() && std::any_of(group.nodes.begin(), group.nodes.end(), [&](int32_t node) {
    return std::find(apart_.begin(), apart_.end(), node) != apart_.end();
  });
}

// Relayouts join the one group that reads them.
void Splitter::load_views() {
  groups_.list(list_);
  for (size_t i = list_.size(); i-- > 0;) {
    const Group& view = group(list_[i]);
    if (view.part.kind == PartKind::view && view.after.size() == 1 && !stored(view)) {
      try_merge(list_[i], view.after.front());
    }
  }
}

// What constants make of narrow integers joins the one group of vector operators that reads it.
void Splitter::load_widened() {
  groups_.list(list_);
  for (size_t i = list_.size(); i-- > 0;) {
    const Group& made = group(list_[i]);
    if (!widened_[static_cast<size_t>(made.nodes.front())] || made.after.size() != 1) continue;
    const int32_t reader = made.after.front();
    if (!stored(made) && group(reader).part.kind == PartKind::vector) try_merge(list_[i], reader);
  }
}

// Element-wise operators after a matrix product become its epilogue; so may reductions, but only
// together with what they were merged with.
void Splitter::extend_cubes(bool reductions) {
  groups_.list(list_);
  for (const int32_t first : list_) {
    if (group(first).part.kind != PartKind::cube || !groups_.alive(first)) continue;
    if (reductions && is_apart(group(first))) continue;
    for (int32_t cube = first; cube >= 0;) cube = extend(cube, reductions);
  }
}

int32_t Splitter::extend(int32_t cube, bool reductions) {
  inner_ = group(cube).after;
  sort_by_position(inner_, false);
  for (const int32_t consumer : inner_) {
    const Part& part = group(consumer).part;
    if (part.kind == PartKind::cube || part.reduces != reductions) continue;
    if (stands_refused(cube, consumer)) continue;
    if (const int32_t merged = try_merge(cube, consumer); merged >= 0) return merged;
  }
  return -1;
}

bool Splitter::stands_refused(int32_t producer, int32_t consumer) const {
  const GroupGraph& groups = groups_;
  for (size_t i = refused_.size(); i-- > 0;) {
    const Refusal& refusal = refused_[i];
    if (refusal.producer != producer || refusal.consumer != consumer) continue;
    return refusal.producer_nodes == groups.group(producer).nodes.size() &&
           refusal.consumer_nodes == groups.group(consumer).nodes.size();
  }
  return false;
}

// Vector operators merge along their edges until nothing changes.
void Splitter::merge_vectors() {
  for (bool changed = true; changed;) {
    changed = false;
    groups_.list(list_);
    for (const int32_t index : list_) {
      const PartKind kind = group(index).part.kind;
      if (kind == PartKind::vector || kind == PartKind::cube) changed |= absorb_producers(index);
    }
  }
}

bool Splitter::absorb_producers(int32_t into) {
  if (!groups_.alive(into)) return false;
  bool changed = false;
  inner_ = group(into).before;
  sort_by_position(inner_, true);
  for (const int32_t producer : inner_) {
    const std::vector<int32_t>& before = group(into).before;
    if (!groups_.alive(producer) || group(producer).part.kind != PartKind::vector) continue;
    if (std::find(before.begin(), before.end(), producer) == before.end()) continue;
    if (group(into).part.kind == PartKind::cube && feeds_matrix(producer, into)) {
      continue;  // what else could take it in comes first
    }
    changed |= try_merge(producer, into) >= 0;
  }
  return changed;
}

// Rows that a matrix product reads stay with it: those of another product, and then those that
// vector operators compute. So do the columns of products of the same rows.
void Splitter::join_rows(PartKind kind) {
  groups_.list(list_);
  for (const int32_t cube : list_) {
    if (!groups_.alive(cube) || group(cube).part.kind != PartKind::cube) continue;
    if (is_apart(group(cube))) continue;
    inner_ = group(cube).before;
    for (const int32_t producer : inner_) {
      const std::vector<int32_t>& before = group(cube).before;
      if (!groups_.alive(producer) || group(producer).part.kind != kind) continue;
      if (std::find(before.begin(), before.end(), producer) == before.end()) continue;
      if (kind == PartKind::vector && !feeds_matrix(producer, cube)) continue;
      if (is_apart(group(producer))) continue;
      try_merge(producer, cube);
    }
  }
}

// What no reader could take in is arranged by the store of its producer.
void Splitter::store_views() {
  groups_.list(list_);
  for (const int32_t view : list_) {
    if (!groups_.alive(view) || group(view).part.kind != PartKind::view) continue;
    inner_ = group(view).before;
    for (const int32_t producer : inner_) {
      const PartKind kind = group(producer).part.kind;
      if (kind == PartKind::vector || kind == PartKind::cube) try_merge(producer, view);
    }
  }
}

// Vector operators merge with others that read the same tensor at the same points.
void Splitter::merge_siblings() {
  readers_.assign(graph_.values.size(), -1);
  groups_.list(list_);
  for (const int32_t index : list_) {
    if (group(index).part.kind != PartKind::vector) continue;
    inner_.clear();
    for (const Input& input : group(index).inputs) inner_.push_back(input.value);
    for (const int32_t value : inner_) {
      const int32_t sibling = readers_[static_cast<size_t>(value)];
      if (sibling < 0 || sibling == index || !groups_.alive(sibling)) continue;
      try_merge(sibling, index, true);
    }
    for (const Input& input : group(index).inputs) {
      if (graph_.values[static_cast<size_t>(input.value)].constant) continue;
      readers_[static_cast<size_t>(input.value)] = index;
    }
  }
}

int32_t Splitter::try_merge(int32_t producer, int32_t consumer, bool siblings) {
  meeting_.meet(producer, consumer, siblings);
  const Ruling ruling = judge(meeting_, siblings ? PatternName::siblings : PatternName::none);
  if (decisions_ != nullptr) {
    decisions_->push_back(
        {stem_of(graph_, group(producer)) + " -> " + stem_of(graph_, group(consumer)),
         ruling.verdict, reason_of(ruling, meeting_)});
  }
  if (ruling.verdict != Verdict::pattern) {
    if (!siblings) {
      refused_.push_back(
          {producer, consumer, group(producer).nodes.size(), group(consumer).nodes.size()});
    }
    return -1;
  }
  meeting_.commit();
  const PartKind from = group(producer).part.kind, into = group(consumer).part.kind;
  if (from == PartKind::view && meeting_.needs_memory()) {
    for (const int32_t node : group(producer).nodes) {
      graph_.memory[graph_.nodes[static_cast<size_t>(node)].first_operand] = 1;
    }
  }
  const bool resides =
      ruling.pattern == PatternName::cube_prologue || ruling.pattern == PatternName::cube_beside;
  groups_.merge(producer, consumer, resides, graph_);
  const bool cube = from == PartKind::cube || into == PartKind::cube;
  Group& merged = group(consumer);
  merged.part.kind = cube ? PartKind::cube : from == PartKind::view ? into : from;
  merged.spaces = meeting_.spaces();
  return consumer;
}

bool Splitter::feeds_matrix(int32_t producer, int32_t consumer) {
  meeting_.meet(producer, consumer, false);
  return meeting_.feeds_matrix();
}

void Splitter::sort_by_position(std::vector<int32_t>& list, bool backwards) {
  std::sort(list.begin(), list.end(), [&](int32_t a, int32_t b) {
    return (groups_.position(a) < groups_.position(b)) != backwards;
  });
}

}  // namespace dvm::stream
