// The streaming fuser's answers to the questions of the rules, on extents: as cluster/meeting.py
// answers by proof. There is nothing to speculate about: two extents are equal or not.
#pragma once

#include <string>
#include <vector>

#include "rules/rules.h"
#include "stream/groups.h"

namespace dvm::stream {

// A short name for a group of operators, as cluster/names.py gives.
std::string stem_of(const Graph& graph, const Group& group);

class GroupMeeting final : public Meeting {
 public:
  GroupMeeting(Graph& graph, GroupGraph& groups, const FusionLimits& limits)
      : graph_(graph), space_(graph.space), groups_(groups), limits_(limits) {}

  void meet(int32_t producer, int32_t consumer, bool siblings);

  // Makes the iteration spaces one for good.
  void commit() { space_.redo(merges_); }
  const Spaces& spaces() const { return spaces_; }

  const Part& producer() override { return from().part; }
  const Part& consumer() override { return into().part; }
  const FusionLimits& limits() override { return limits_; }
  bool needs_memory() override;
  bool feeds_matrix() override;
  bool needs_buffer() override;
  bool has_detour() override;
  std::string detour() override;
  bool depends() override { return groups_.depends(from_, into_); }
  int64_t accesses() override;
  bool sole_consumer() override { return from().after.size() == 1; }
  bool is_private() override;
  int64_t products() override;
  int64_t arithmetics() override;
  bool shares_rows() override;
  int64_t operand_width() override;
  Merge merge() override;
  void part() override;
  std::string merge_reason() override { return reason_; }
  bool one_domain() override;
  bool same_domain() override;
  bool recomputes() override;
  int64_t rank() override { return spaces_.all().size(); }
  int64_t most_axes() override { return kMaxAxes; }
  bool feeds_reductions_only() override;
  bool reduces_rows() override;
  bool computes_rows() override;
  bool within_matrix() override;
  bool one_matrix() override;

  // Of the loops of a kernel (ir/operators.py).
  static constexpr int64_t kMaxAxes = 10;

 private:
  struct Edge {
    int32_t value, node;
    uint32_t index;
  };

  Group& from() { return groups_.group(from_); }
  Group& into() { return groups_.group(into_); }
  const Node& node(int32_t index) const { return graph_.nodes[static_cast<size_t>(index)]; }
  const Layout& layout(const Edge& edge) const {
    return graph_.layout(node(edge.node), edge.index);
  }
  const Layout& result_of(int32_t value) const;
  bool wanted(int32_t value) const { return graph_.values[static_cast<size_t>(value)].wanted; }
  const Node& product(const Group& group, bool last) const;
  AtomList contracted(const Node& product) {
    return space_.resolved(graph_.layout(product, 0).back());
  }
  bool is_a_operand(const Edge& edge);
  AtomList columns_of(const Edge& edge);
  bool is_row_value(const Edge& edge, const AtomList& columns);
  bool ends_in_columns(const Layout& operand);
  bool computes_columns(const Node& product, const AtomList& columns, const AtomList& row);
  bool join_rows(const Layout& result, const Layout& operand);
  int32_t outside(const Group& group, int32_t value) const;
  bool lay_beside();
  const Layout& rows_read(const Group& group, const Node& product) const;
  bool make_one(const Layout& left, const Layout& right);
  Merge merge_edges();
  Merge merge_siblings();
  Merge refused(const char* reason);
  void resolve(const Group& group, Spaces& out);
  AtomList atoms_of(const Group& group);
  void collect_spaces();
  bool repeats() const;
  void share_inputs();
  void share_input(const Input& mine, const Input& other);
  bool read_together(const Use& left, const Use& right);
  bool iterate_together();

  Graph& graph_;
  AxisSpace& space_;
  GroupGraph& groups_;
  const FusionLimits& limits_;
  int32_t from_ = -1, into_ = -1, detour_ = -1;
  bool siblings_ = false;
  std::vector<Edge> edges_;
  Spaces spaces_, before_;
  std::vector<AxisSpace::Taken> merges_;
  size_t mark_ = 0;
  const char* reason_ = "";
  std::vector<int32_t> tensors_;
};

}  // namespace dvm::stream
