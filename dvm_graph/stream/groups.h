// Groups of operators on their way to become kernels, and their order: as cluster/groups.py.
//
// Invariants: the quotient graph of the groups is acyclic, and `order` is a topological order of
// it, which every merge keeps. Groups are numbered as their first operators; all tables keep their
// capacity from flush to flush.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rules/rules.h"
#include "stream/graph.h"

namespace dvm::stream {

// Distinct iteration spaces, as flat atoms.
class Spaces {
 public:
  void clear() {
    atoms_.clear();
    ends_.clear();
  }
  void add(const AtomList& space);  // unless it is there
  size_t size() const { return ends_.size(); }
  std::span<const Atom> operator[](size_t i) const {
    const uint32_t first = i == 0 ? 0 : ends_[i - 1];
    return {atoms_.data() + first, ends_[i] - first};
  }
  AtomList all() const;  // distinct ones, in order of appearance

 private:
  std::vector<Atom> atoms_;
  std::vector<uint32_t> ends_;
};

// An operand from outside: operand `index` of `node`.
struct Use {
  int32_t node = -1;
  uint32_t index = 0;
  int32_t next = -1;  // of the same value
};

struct Input {
  int32_t value = -1;
  int32_t first = -1, last = -1;  // uses
};

struct Group {
  Part part;
  std::vector<int32_t> nodes;
  Spaces spaces;
  std::vector<Input> inputs;
  std::vector<int32_t> results;        // those that others use
  std::vector<int32_t> before, after;  // groups
  // Keeps in local memory what could lie in global memory: whole rows that its product reads, or
  // that its reductions fold behind one, or products beside others.
  bool resident = false;

  void reset();
  const Input* find_input(int32_t value) const;
  bool reads(int32_t value) const { return find_input(value) != nullptr; }
};

class GroupGraph {
 public:
  void build(Graph& graph);

  Group& group(int32_t index) { return groups_[static_cast<size_t>(index)]; }
  const Group& group(int32_t index) const { return groups_[static_cast<size_t>(index)]; }
  bool alive(int32_t index) const { return position_[static_cast<size_t>(index)] >= 0; }
  int32_t position(int32_t index) const { return position_[static_cast<size_t>(index)]; }
  const Use& use(int32_t index) const { return uses_[static_cast<size_t>(index)]; }
  size_t count() const { return position_.size(); }

  // All groups in topological order.
  void list(std::vector<int32_t>& out) const;

  // A group on another path from `producer` to `consumer`, which forbids merging them; -1: none.
  int32_t detour(int32_t producer, int32_t consumer);
  bool depends(int32_t first, int32_t second);

  // One group of both, in the place of `consumer`; there must be no detour. The caller sets kind
  // and spaces.
  // `resides`: what one of them reads of the other could lie in global memory.
  void merge(int32_t producer, int32_t consumer, bool resides, const Graph& graph);

 private:
  // A group on a path from `first` to `last` of two steps or more; -1: none.
  int32_t between(int32_t first, int32_t last);
  void mark_between(int32_t producer, int32_t consumer);
  void reorder(int32_t producer, int32_t consumer);
  bool seen(int32_t index) const { return marks_[static_cast<size_t>(index)] == epoch_; }
  void see(int32_t index) { marks_[static_cast<size_t>(index)] = epoch_; }

  std::vector<Group> groups_;  // only the first of them are in use: the rest is capacity
  std::vector<Use> uses_;
  std::vector<int32_t> at_, position_, made_by_;
  // Of a walk:
  std::vector<uint32_t> marks_;
  uint32_t epoch_ = 0;
  std::vector<int32_t> stack_, order_;
};

}  // namespace dvm::stream
