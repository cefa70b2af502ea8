#include "stream/meeting.h"

#include <algorithm>

namespace dvm::stream {
namespace {

constexpr const char* kOtherColumns =
    "the columns that it computes are not the one axis that the matrix product contracts";

}  // namespace

void GroupMeeting::meet(int32_t producer, int32_t consumer, bool siblings) {
  from_ = producer;
  into_ = consumer;
  siblings_ = siblings;
  detour_ = -2;
  reason_ = "";
  edges_.clear();
  const auto add_uses = [&](const Input& input) {
    for (int32_t use = input.first; use >= 0; use = groups_.use(use).next) {
      edges_.push_back({input.value, groups_.use(use).node, groups_.use(use).index});
    }
  };
  if (from().results.size() <= into().inputs.size()) {
    for (const int32_t value : from().results) {
      if (const Input* const input = into().find_input(value)) add_uses(*input);
    }
  } else {
    for (const Input& input : into().inputs) {
      if (holds(from().results, input.value)) add_uses(input);
    }
  }
}

const Layout& GroupMeeting::result_of(int32_t value) const {
  return node(graph_.values[static_cast<size_t>(value)].producer).result;
}

bool GroupMeeting::needs_memory() {
  return std::any_of(edges_.begin(), edges_.end(), [&](const Edge& edge) {
    return graph_.from_memory(node(edge.node), edge.index);
  });
}

bool GroupMeeting::feeds_matrix() {
  const auto feeds = [&](const Edge& edge) { return is_a_operand(edge); };
  const auto first = std::find_if(edges_.begin(), edges_.end(), feeds);
  if (first == edges_.end() || std::any_of(first + 1, edges_.end(), feeds)) return false;
  const AtomList columns = columns_of(*first);
  return std::all_of(edges_.begin(), edges_.end(), [&](const Edge& edge) {
    return is_a_operand(edge) || is_row_value(edge, columns);
  });
}

bool GroupMeeting::needs_buffer() {
  return std::any_of(edges_.begin(), edges_.end(),
                     [&](const Edge& edge) { return !layout(edge).known(); });
}

bool GroupMeeting::has_detour() {
  if (detour_ == -2) detour_ = groups_.detour(from_, into_);
  return detour_ >= 0;
}

std::string GroupMeeting::detour() {
  return has_detour() ? stem_of(graph_, groups_.group(detour_)) : "";
}

int64_t GroupMeeting::accesses() {
  tensors_.clear();
  const auto add = [&](int32_t value) {
    if (!holds(tensors_, value)) tensors_.push_back(value);
  };
  for (const Group* const group : {&from(), &into()}) {
    for (const Input& input : group->inputs) add(input.value);
    for (const int32_t value : group->results) {
      bool used = wanted(value);
      for (const int32_t other : group->after) {
        if (other == from_ || other == into_) continue;
        used = used || groups_.group(other).reads(value);
      }
      if (used) add(value);
    }
  }
  return static_cast<int64_t>(tensors_.size());
}

bool GroupMeeting::is_private() {
  return sole_consumer() && std::none_of(from().results.begin(), from().results.end(),
                                         [&](int32_t value) { return wanted(value); });
}

int64_t GroupMeeting::products() {
  int64_t count = 0;
  for (const Group* const group : {&from(), &into()}) {
    for (const int32_t index : group->nodes) count += node(index).op == Op::matmul;
  }
  return count;
}

int64_t GroupMeeting::arithmetics() {
  uint32_t types = 0;
  for (const Group* const group : {&from(), &into()}) {
    for (const int32_t index : group->nodes) {
      if (node(index).op != Op::matmul) continue;
      types |= 1U << static_cast<int>(register_dtype(graph_.result(node(index)).dtype));
    }
  }
  return __builtin_popcount(types);
}

bool GroupMeeting::shares_rows() {
  int32_t shared = -1;
  for (const Group* const group : {&from(), &into()}) {
    for (const int32_t index : group->nodes) {
      if (node(index).op != Op::matmul) continue;
      const int32_t read = outside(*group, graph_.operands(node(index))[0]);
      if (read < 0 || (shared >= 0 && read != shared)) return false;
      shared = read;
    }
  }
  return true;
}

// What a group reads a value of, through relayouts; -1: it computes it.
int32_t GroupMeeting::outside(const Group& group, int32_t value) const {
  for (;;) {
    const int32_t producer = graph_.values[static_cast<size_t>(value)].producer;
    if (producer < 0 || !holds(group.nodes, producer)) return value;
    if (!is_relayout(node(producer).op)) return -1;
    value = graph_.operands(node(producer))[0];
  }
}

int64_t GroupMeeting::operand_width() {
  if (producer().kind != PartKind::cube) return 0;
  int64_t width = 0;
  for (const Atom axis :
       {graph_.layout(product(from(), true), 0).back(), product(into(), true).result.back()}) {
    int64_t extent = 1;
    for (const Atom atom : space_.resolved(axis)) extent *= space_.extent(atom);
    width += extent;
  }
  return width;
}

Merge GroupMeeting::merge() {
  mark_ = space_.mark();
  return siblings_ ? merge_siblings() : merge_edges();
}

void GroupMeeting::part() {
  merges_.clear();
  space_.rollback(mark_, &merges_);
}

Merge GroupMeeting::refused(const char* reason) {
  reason_ = reason;
  return Merge::no;
}

Merge GroupMeeting::merge_edges() {
  const bool feeds = feeds_matrix();
  const bool beside = producer().kind == PartKind::cube && consumer().kind == PartKind::cube;
  if (beside && !feeds && !lay_beside())
    return refused("their matrix products are of other sizes or rows");
  for (const Edge& edge : edges_) {
    const Layout result = result_of(edge.value), operand = layout(edge);
    if (!operand.known()) continue;
    if (feeds && is_a_operand(edge) && ends_in_columns(operand) && !join_rows(result, operand)) {
      return refused(kOtherColumns);
    }
    if (!space_.unify(result, operand)) return refused("iteration spaces do not merge");
  }
  collect_spaces();
  if (!one_domain() && producer().kind != PartKind::cube && !feeds) share_inputs();
  return repeats() ? refused("an axis would meet itself (a diagonal)") : Merge::yes;
}

Merge GroupMeeting::merge_siblings() {
  const size_t mark = space_.mark();
  for (const Input& mine : into().inputs) {
    const Input* const other = from().find_input(mine.value);
    if (other == nullptr) continue;
    for (int32_t left = other->first; left >= 0; left = groups_.use(left).next) {
      for (int32_t right = mine.first; right >= 0; right = groups_.use(right).next) {
        if (read_together(groups_.use(left), groups_.use(right)) && iterate_together()) {
          collect_spaces();
          if (same_domain() && !repeats()) return Merge::yes;
        }
        space_.rollback(mark);
      }
    }
  }
  return refused("they read no tensor at the same points");
}

bool GroupMeeting::one_domain() {
  const size_t atoms = spaces_.all().size();
  for (size_t i = 0; i < spaces_.size(); i++) {
    if (spaces_[i].size() == atoms) return true;
  }
  return false;
}

bool GroupMeeting::same_domain() {
  const size_t atoms = spaces_.all().size();
  return atoms_of(from()).size() == atoms && atoms_of(into()).size() == atoms;
}

bool GroupMeeting::recomputes() { return atoms_of(from()).size() < spaces_.all().size(); }

bool GroupMeeting::feeds_reductions_only() {
  const std::vector<int32_t>& followers = into().after;
  if (followers.empty() || consumer().reduces) return false;
  for (const int32_t follower : followers) {
    if (!groups_.group(follower).part.reduces) return false;
  }
  for (const int32_t other : from().after) {
    if (other == into_) continue;
    for (const Edge& edge : edges_) {
      if (groups_.group(other).reads(edge.value)) return true;
    }
  }
  return false;
}

bool GroupMeeting::reduces_rows() {
  const AtomList row = space_.resolved(product(from(), true).result.back());
  return std::all_of(into().nodes.begin(), into().nodes.end(), [&](int32_t index) {
    const AtomList folded = graph_.reduced_atoms(node(index));
    return folded.empty() || folded == row;
  });
}

bool GroupMeeting::computes_rows() {
  const Node& fed = product(into(), false);
  const AtomList read = space_.resolved(graph_.layout(fed, 0).all());
  const AtomList columns = space_.resolved(graph_.layout(fed, 0).back());
  const std::span<const Atom> result = fed.result.all();
  const AtomList rows = space_.resolved(result[result.size() - 2]);
  AtomList row;
  if (!rows.empty()) row.push_back(rows.back());
  const AtomList written = space_.resolved(result.first(result.size() - 1));
  AtomList folded;
  for (const int32_t index : from().nodes) {
    const Node& one = node(index);
    if (one.op == Op::matmul) {
      for (const Atom atom : contracted(one)) folded.add(atom);
      if (!computes_columns(one, columns, row)) return false;
    } else if (const AtomList rows_of = graph_.reduced_atoms(one);
               !rows_of.empty() && !(rows_of == columns)) {
      return false;
    }
  }
  const AtomList iterated = atoms_of(from());
  if (!read.includes(written) || folded.meets(written)) return false;
  AtomList expected;
  for (const Atom atom : read) expected.add(atom);
  for (const Atom atom : folded) expected.add(atom);
  return iterated.size() == expected.size() && expected.includes(iterated);
}

bool GroupMeeting::within_matrix() {
  const bool first = producer().kind == PartKind::cube;
  const Node& matmul = product(first ? from() : into(), true);
  const AtomList result = space_.resolved(matmul.result.all());
  const AtomList domain = space_.resolved(matmul.iterated());
  return result.includes(atoms_of(first ? into() : from())) && domain.includes(spaces_.all());
}

bool GroupMeeting::one_matrix() {
  const Node& last = product(into(), true);
  const AtomList domain = space_.resolved(last.iterated());
  const AtomList columns = space_.resolved(graph_.layout(last, 1).all());
  for (const Group* const group : {&from(), &into()}) {
    for (const int32_t index : group->nodes) {
      if (node(index).op != Op::matmul) continue;
      if (!(space_.resolved(node(index).iterated()) == domain)) return false;
      if (!(space_.resolved(graph_.layout(node(index), 1).all()) == columns)) return false;
    }
  }
  return domain.includes(spaces_.all());
}

// The first or the last matrix product of a group.
const Node& GroupMeeting::product(const Group& group, bool last) const {
  const Node* found = nullptr;
  for (const int32_t index : group.nodes) {
    if (node(index).op != Op::matmul || (found != nullptr && !last)) continue;
    found = &node(index);
  }
  return *found;
}

// Whether a use, maybe through relayouts of the consumer, is its product's A operand.
bool GroupMeeting::is_a_operand(const Edge& edge) {
  const Node& user = node(edge.node);
  if (user.op == Op::matmul) return edge.index == 0;
  if (!is_relayout(user.op) || !graph_.layout(user, 0).known()) return false;
  bool used = false;
  for (const int32_t index : into().nodes) {
    const std::span<const int32_t> operands = graph_.operands(node(index));
    for (uint32_t i = 0; i < operands.size(); i++) {
      if (operands[i] != user.value) continue;
      used = true;
      if (!is_a_operand({user.value, index, i})) return false;
    }
  }
  return used;
}

// Where a value that is read as the A operand varies along what the product contracts.
AtomList GroupMeeting::columns_of(const Edge& edge) {
  const AtomList k = contracted(product(into(), false));
  const Layout &operand = layout(edge), &result = result_of(edge.value);
  AtomList columns;
  for (int axis = 0; axis < operand.rank; axis++) {
    if (!k.meets(space_.resolved(operand.axes[axis]))) continue;
    for (const Atom atom : space_.resolved(result.axes[axis])) columns.add(atom);
  }
  return columns;
}

// Whether an element-wise operator uses one value for each row of A.
bool GroupMeeting::is_row_value(const Edge& edge, const AtomList& columns) {
  if (graph_.from_memory(node(edge.node), edge.index) || !layout(edge).known()) return false;
  return !columns.meets(space_.resolved(result_of(edge.value).all()));
}

bool GroupMeeting::ends_in_columns(const Layout& operand) {
  return operand.rank > 0 &&
         contracted(product(into(), false)).meets(space_.resolved(operand.back()));
}

bool GroupMeeting::computes_columns(const Node& product, const AtomList& columns,
                                    const AtomList& row) {
  if (!(space_.resolved(product.result.back()) == columns)) return false;
  return space_.resolved(graph_.layout(product, 0).all()).includes(row) &&
         !space_.resolved(graph_.layout(product, 1).all()).meets(row);
}

// Makes the columns of the producer's product the axis that the consumer's contracts.
bool GroupMeeting::join_rows(const Layout& result, const Layout& operand) {
  const AtomList left = space_.resolved(result.back()), right = space_.resolved(operand.back());
  return left.size() == 1 && right.size() == 1 && space_.identify(left[0], right[0]);
}

// Makes the axes of the producer's product those of the consumer's.
bool GroupMeeting::lay_beside() {
  const Node &first = product(from(), true), &second = product(into(), true);
  if (!make_one(first.result, second.result) ||
      !make_one(graph_.layout(first, 0), graph_.layout(second, 0))) {
    return false;
  }
  const Layout &one = rows_read(from(), first), &other = rows_read(into(), second);
  for (int axis = 0; axis < one.rank; axis++) {
    const AtomList mine = space_.resolved(one.axes[axis]), its = space_.resolved(other.axes[axis]);
    if (!(mine == its)) return false;
  }
  return true;
}

// How a product goes through what it reads its rows of, behind relayouts.
const Layout& GroupMeeting::rows_read(const Group& group, const Node& product) const {
  const Node* reader = &product;
  for (;;) {
    const int32_t value = graph_.operands(*reader)[0];
    const int32_t producer = graph_.values[static_cast<size_t>(value)].producer;
    if (producer < 0 || !holds(group.nodes, producer)) return graph_.layout(*reader, 0);
    reader = &node(producer);
  }
}

bool GroupMeeting::make_one(const Layout& left, const Layout& right) {
  if (!left.known() || !right.known() || left.rank != right.rank) return false;
  for (int axis = 0; axis < left.rank; axis++) {
    const AtomList a = space_.resolved(left.axes[axis]), b = space_.resolved(right.axes[axis]);
    const bool one = a.size() == 1 && b.size() == 1;
    if (one ? !space_.identify(a[0], b[0]) : !space_.unify(left.axes[axis], right.axes[axis]))
      return false;
  }
  return true;
}

void GroupMeeting::resolve(const Group& group, Spaces& out) {
  for (size_t i = 0; i < group.spaces.size(); i++) out.add(space_.resolved(group.spaces[i]));
}

AtomList GroupMeeting::atoms_of(const Group& group) {
  AtomList atoms;
  for (size_t i = 0; i < group.spaces.size(); i++) {
    for (const Atom atom : space_.resolved(group.spaces[i])) atoms.add(atom);
  }
  return atoms;
}

void GroupMeeting::collect_spaces() {
  spaces_.clear();
  resolve(into(), spaces_);
  if (!needs_memory() || feeds_matrix()) resolve(from(), spaces_);
}

bool GroupMeeting::repeats() const {
  for (size_t i = 0; i < spaces_.size(); i++) {
    AtomList atoms;
    atoms.append(spaces_[i]);
    if (atoms.repeats()) return true;
  }
  return false;
}

// Reads tensors that both groups load at the same point, where that gives one domain.
void GroupMeeting::share_inputs() {
  for (const Input& mine : into().inputs) {
    const Input* const other = from().find_input(mine.value);
    if (other == nullptr) continue;
    share_input(mine, *other);
    if (one_domain()) return;
  }
}

void GroupMeeting::share_input(const Input& mine, const Input& other) {
  const Use &left = groups_.use(other.first), &right = groups_.use(mine.first);
  const Layout &a = graph_.layout(node(left.node), left.index),
               &b = graph_.layout(node(right.node), right.index);
  if (!a.known() || !b.known()) return;
  const size_t mark = space_.mark();
  std::swap(before_, spaces_);
  const bool unified = space_.unify(a, b);
  collect_spaces();
  if (unified && !repeats()) return;
  space_.rollback(mark);
  std::swap(before_, spaces_);
}

bool GroupMeeting::read_together(const Use& left, const Use& right) {
  const Node &a = node(left.node), &b = node(right.node);
  const Layout &first = graph_.layout(a, left.index), &second = graph_.layout(b, right.index);
  if (first.known() && second.known()) return space_.unify(first, second);
  if (first.known() || second.known() || a.op != b.op) return false;
  const std::span<const int64_t> mine = graph_.attributes(a), others = graph_.attributes(b);
  return std::equal(mine.begin(), mine.end(), others.begin(), others.end()) &&
         space_.unify(a.result, b.result);
}

// Makes the axes one, in order, along which what is shared does not vary: any two of a length would
// do, as the groups do not depend on each other.
bool GroupMeeting::iterate_together() {
  const AtomList mine = atoms_of(from()), others = atoms_of(into());
  AtomList rest, met;
  for (const Atom atom : mine) {
    if (!others.contains(atom)) rest.push_back(atom);
  }
  for (const Atom atom : others) {
    if (!mine.contains(atom)) met.push_back(atom);
  }
  if (rest.size() != met.size()) return false;
  if (!rest.empty() && rest.size() == mine.size()) return false;  // one number is shared
  for (uint32_t i = 0; i < rest.size(); i++) {
    if (!space_.identify(rest[i], met[i])) return false;
  }
  return true;
}

std::string stem_of(const Graph& graph, const Group& group) {
  std::string name;
  std::vector<Op> seen;
  for (const int32_t index : group.nodes) {
    const Op op = graph.nodes[static_cast<size_t>(index)].op;
    if (std::find(seen.begin(), seen.end(), op) != seen.end() || seen.size() == 4) continue;
    seen.push_back(op);
    name += (name.empty() ? "" : "_") + std::string(name_of(op));
  }
  return name;
}

}  // namespace dvm::stream
