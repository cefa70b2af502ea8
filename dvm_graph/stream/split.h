// Splits the operators of a flush into groups, a kernel each: the sweeps of cluster/split.py, over
// meetings on extents. The order of the sweeps is the policy, which that file explains.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "stream/groups.h"
#include "stream/meeting.h"

namespace dvm::stream {

// One verdict, as reports show it.
struct Decision {
  std::string subject;
  Verdict verdict = Verdict::sequence;
  std::string reason;
};

class Splitter {
 public:
  Splitter(Graph& graph, const FusionLimits& limits)
      : graph_(graph), meeting_(graph, groups_, limits) {}

  // Afterwards `groups` are those of the graph's operators. `decisions`: null where nobody asks.
  // Products among the nodes `apart` keep no rows in local memory: neither what computes their A
  // operand nor reductions join their kernels.
  void run(std::span<const int32_t> apart, std::vector<Decision>* decisions);

  GroupGraph& groups() { return groups_; }

 private:
  struct Refusal {
    int32_t producer, consumer;
    size_t producer_nodes, consumer_nodes;  // a group only changes by growing
  };

  void find_widened();
  void load_views();
  void load_widened();
  void extend_cubes(bool reductions);
  int32_t extend(int32_t cube, bool reductions);
  void merge_vectors();
  bool absorb_producers(int32_t group);
  void join_rows(PartKind kind);
  void store_views();
  void merge_siblings();
  int32_t try_merge(int32_t producer, int32_t consumer, bool siblings = false);
  bool stands_refused(int32_t producer, int32_t consumer) const;
  bool feeds_matrix(int32_t producer, int32_t consumer);
  bool stored(const Group& group) const;
  bool is_apart(const Group& group) const;
  Group& group(int32_t index) { return groups_.group(index); }
  void sort_by_position(std::vector<int32_t>& list, bool backwards);

  Graph& graph_;
  GroupGraph groups_;
  GroupMeeting meeting_;
  std::span<const int32_t> apart_;
  std::vector<Decision>* decisions_ = nullptr;
  std::vector<char> widened_;  // by node
  std::vector<Refusal> refused_;
  std::vector<int32_t> list_, inner_;
  std::vector<int32_t> readers_;  // by value
};

}  // namespace dvm::stream
