#include "vm/cube_problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "kernels/numbers.h"
#include "vm/block_cost.h"
#include "vm/ending.h"
#include "vm/isa.h"
#include "vm/panels.h"
#include "vm/whole_level.h"

namespace dvm {
namespace {

// How often a node is read, at most 3 times, and by which nodes, twice at most: they come behind
// it.
int users_of(const NormalPlan& plan, int32_t node, int32_t (&users)[2]) {
  int count = 0;
  for (size_t i = static_cast<size_t>(node) + 1; i < plan.nodes.size(); ++i) {
    for (const int32_t input : plan.nodes[i].inputs) {
      if (input != node) continue;
      if (count == 2) return 3;
      users[count++] = static_cast<int32_t>(i);
    }
  }
  return count;
}

int32_t other_input(const NormalNode& node, int32_t input) {
  return node.inputs[node.inputs[0] == input ? 1 : 0];
}

// As Ending::follow asks for, over the nodes of a plan.
class NodeWalk {
 public:
  NodeWalk(const NormalPlan& plan, DType dtype, int32_t node)
      : plan_(&plan), dtype_(dtype), node_(node) {}

  int32_t node() const { return node_; }
  int nodes() const { return nodes_; }  // that it has come by

  template <class Take>
  bool next_with_number(Take take) {
    int32_t users[2];
    if (users_of(*plan_, node_, users) != (node_ == fork_ ? 2 : 1)) return false;
    const NormalNode& user = plan_->nodes[users[0]];
    const int32_t other = other_input(user, node_);
    if (other < 0 || plan_->nodes[other].op != PlanOp::fill_) return false;
    const double number = real_of(dtype_, plan_->nodes[other].immediate);
    if (!take(user.op, number, user.inputs[0] == node_)) return false;
    go_on(users[0]);
    return true;
  }

  bool fork() {
    int32_t users[2];
    if (users_of(*plan_, node_, users) != 2) return false;
    fork_ = node_;
    other_ = users[1];
    const PlanOp op = plan_->nodes[other_].op;
    return op == PlanOp::mul_ || op == PlanOp::max_;
  }

  bool join(PlanOp op) {
    const NormalNode& other = plan_->nodes[other_];
    int32_t users[2];
    const bool alone = node_ == fork_ || users_of(*plan_, node_, users) == 1;
    if (other.op != op || !alone || other_input(other, fork_) != node_) return false;
    go_on(other_);
    return true;
  }

 private:
  void go_on(int32_t user) {
    node_ = user;
    ++nodes_;
  }

  const NormalPlan* plan_;
  DType dtype_;
  int32_t node_;
  int nodes_ = 0;
  int32_t fork_ = -1, other_ = -1;  // the latter reads the former, and what is come to
};

}  // namespace

CubeProblem::CubeProblem(const NormalPlan& plan, const Target& target)
    : plan_(plan), target_(target) {
  find_products();
  dtype_ = plan.nodes[outer().node].dtype;
  const bool rounds = plan.nodes[outer().node].narrow_to == DType::bf16 && dtype_ == DType::f32;
  if (rounds || dtype_ == DType::i32) bundle_ = bundle_steps(multiplied());
  possible_ = rounds_alike(rounds) && describe();
  if (!possible_) return;
  shape_ = choose_block(blocks_, target_, target_.local_bytes);
  if (shape_.rows > 0 && reads_windows()) {
    const Window& window = plan_.windows[plan_.nodes[outer().a].window];
    windows_ = choose_window_tile(window, blocks_, shape_, outer().transformed, target_);
  }
}

void CubeProblem::find_products() {
  blocks_.products = 0;
  for (size_t i = 0; i < plan_.nodes.size(); ++i) {
    const NormalNode& node = plan_.nodes[i];
    if (node.op != PlanOp::matmul_) continue;
    const bool inner = plan_.is_inner(node);
    const bool full = inner ? has_inner() : blocks_.products == kMaxProducts;
    if (full) throw std::invalid_argument("a cube kernel holds too many matmuls");
    Product& product = inner ? inner_ : products_[blocks_.products++];
    product.node = static_cast<int32_t>(i);
    product.a = node.inputs[0];
    product.b = node.inputs[1];
    product.n_axis = inner ? plan_.k_axis : plan_.n_axis;
    product.k_axis = inner ? plan_.inner_k_axis : plan_.k_axis;
  }
  if (blocks_.products == 0) throw std::invalid_argument("a cube kernel holds no matmul");
}

// Bundles are of all products of a kernel or of none.
bool CubeProblem::rounds_alike(bool rounds) const {
  const auto agrees = [&](const Product& product) {
    return (plan_.nodes[product.node].narrow_to == DType::bf16) == rounds;
  };
  return dtype_ != DType::f32 ||
         (std::all_of(products_.begin(), products_.begin() + blocks_.products, agrees) &&
          (!has_inner() || agrees(inner_)));
}

bool CubeProblem::costs_more() const {
  return shape_.rows > 0 && shape_.cost > cost_apart(blocks_, target_);
}

int64_t CubeProblem::piece() const {
  if (!possible_ || has_inner() || plan_.nodes[outer().a].op != PlanOp::load_) return 0;
  if (outer().block > 0) return 0;       // pieces need not be whole blocks
  if (blocks_.prologue_folds) return 0;  // the epilogue wants numbers of whole rows
  if (blocks_.products > 1) return 0;
  return choose_piece(blocks_, target_, shape_.cost);
}

const NormalAccess& CubeProblem::access_of(int32_t node) const {
  return plan_.accesses[plan_.nodes[node].access];
}

bool CubeProblem::storage_is_register(int32_t node) const {
  return access_of(node).storage == dtype_;
}

bool CubeProblem::widens(const Product& product) const {
  return product.panels && product.block == 0 && bundle_ == 1 && !storage_is_register(product.b) &&
         target_.unified_memory;
}

// Where they lie, if that takes less.
bool CubeProblem::reads_windows() const {
  const NormalNode& a = plan_.nodes[outer().a];
  if (a.op != PlanOp::patches_ || bundle_ > 1 || has_inner()) return false;
  if (!outer().panels && !outer().columns_b) return false;
  if (!target_.unified_memory || !storage_is_register(outer().a) || widens(outer())) return false;
  return counts_windows(plan_.accesses[a.numbers], plan_.windows[a.window]);
}

// The m axis goes through the windows of whole images, in order.
bool CubeProblem::counts_windows(const NormalAccess& numbers, const Window& window) const {
  const int64_t image = window.windows_of_image();
  if (numbers.offset != 0 || numbers.step_axis >= 0 || blocks_.m % image != 0) return false;
  for (int axis = 0; axis < plan_.rank; ++axis) {
    const int64_t step = numbers.strides[axis];
    if (axis == plan_.m_axis ? step != 1 : step % image != 0) return false;
  }
  return true;
}

bool CubeProblem::is_computed(int32_t node) const {
  return plan_.nodes[node].op != PlanOp::load_ && plan_.nodes[node].op != PlanOp::patches_;
}

bool CubeProblem::describe() {
  blocks_.m = plan_.extents[plan_.m_axis];
  blocks_.n = plan_.extents[plan_.n_axis];
  blocks_.k = plan_.extents[plan_.k_axis];
  for (int axis = 0; axis < plan_.rank; ++axis) {
    if (!plan_.has_role(axis)) blocks_.batch *= plan_.extents[axis];
  }
  blocks_.element_bytes = static_cast<int64_t>(size_of(dtype_));
  blocks_.columns_per_panel = static_cast<int>(panel_columns(dtype_, target_));
  blocks_.bundle = static_cast<int>(bundle_);
  blocks_.whole_k = is_computed(outer().a);
  if (!describe_operands(outer()) || !describe_beside()) return false;
  blocks_.panels = outer().panels;
  blocks_.panel_bytes = static_cast<double>(panel_bytes(outer()));
  if (outer().block > 0) {
    blocks_.rounds_a = plan_.nodes[outer().node].narrow_to == DType::i8;
    blocks_.unpacks = !blocks_.rounds_a;
    blocks_.panel_bytes *= static_cast<double>(outer().block_rows);
    blocks_.panel_bytes /= static_cast<double>(outer().block);
  }
  // Bundles, and before them the elements.
  if (bundle_ > 1 && plan_.nodes[outer().a].op == PlanOp::patches_ && !bundled_patches(outer().a))
    blocks_.packed_a = static_cast<int>(bundle_) + 1;
  blocks_.pack_a = outer().pack_a;
  // Beside a B that is packed in passing, and so near, the cube unit does without packing.
  const bool in_place = !blocks_.whole_k && !outer().pack_a && !outer().pack_b;
  if (in_place) blocks_.rows_per_set = rows_per_set();
  blocks_.pack_b = outer().pack_b;
  blocks_.readable_b = outer().readable_b;
  blocks_.columns_b = outer().columns_b;
  blocks_.b_batch = batch_of(outer().b);
  if (has_inner()) {
    if (!describe_operands(inner_)) return false;
    blocks_.inner = {inner_.k,
                     inner_.panels,
                     inner_.pack_a,
                     inner_.pack_b,
                     batch_of(inner_.b),
                     is_computed(inner_.a),
                     {}};
  }
  return describe_vector_nodes();
}

// What is said of the first product holds for those beside it.
bool CubeProblem::describe_beside() {
  for (int i = 1; i < blocks_.products; ++i) {
    Product& product = products_[i];
    if (product.a != outer().a || plan_.nodes[product.a].op != PlanOp::load_) return false;
    if (!describe_operands(product)) return false;
    const NormalAccess &b = access_of(product.b), &first = access_of(outer().b);
    const bool alike = product.panels == outer().panels && product.pack_b == outer().pack_b &&
                       product.readable_b == outer().readable_b &&
                       product.columns_b == outer().columns_b && b.storage == first.storage &&
                       product.block == outer().block && product.block_bits == outer().block_bits &&
                       product.block_rows == outer().block_rows &&
                       plan_.nodes[product.b].axes == plan_.nodes[outer().b].axes;
    if (!alike) return false;
  }
  return true;
}

int64_t CubeProblem::batch_of(int32_t node) const {
  int64_t batch = 1;
  for (int axis = 0; axis < plan_.rank; ++axis) {
    if (!plan_.has_role(axis) && (plan_.nodes[node].axes & bit(axis))) batch *= plan_.extents[axis];
  }
  return batch;
}

bool CubeProblem::describe_operands(Product& product) const {
  if (plan_.nodes[product.b].op != PlanOp::load_) return false;
  product.n = plan_.extents[product.n_axis];
  product.k = plan_.extents[product.k_axis];
  product.steps = ceil_div(product.k, bundle_);
  const NormalAccess& b = access_of(product.b);
  product.panels = b.packed_panels;
  product.transformed = product.panels && b.transformed;
  product.block = b.block;
  product.block_bits = b.block_bits;
  product.block_rows = b.block_rows;
  const bool b_rows = b.strides[product.n_axis] == 1 || product.n == 1;
  // Packing a B that can be read in place pays where register blocks read it so often that this
  // costs more.
  const CubeTerms terms(target_);
  const int64_t register_blocks = ceil_div(blocks_.m, std::max<int64_t>(1, target_.matmul_mr));
  const bool few_rows = static_cast<double>(register_blocks) * terms.row_block <= terms.pack;
  const bool in_place = target_.unified_memory && bundle_ == 1 && storage_is_register(product.b);
  product.readable_b = in_place && b_rows;
  product.columns_b = in_place && !product.panels && b.strides[product.k_axis] == 1 &&
                      std::min(blocks_.m, product.n) <= target_.dot_rows;
  product.pack_b = !product.panels && !product.columns_b && !(product.readable_b && few_rows);
  if (is_computed(product.a)) return true;
  product.pack_a = plan_.nodes[product.a].op == PlanOp::patches_;
  if (product.pack_a) return true;
  if (bundle_ > 1) {
    product.pack_a = !bundled_in_place(product);
    return true;
  }
  const NormalAccess& a = access_of(product.a);
  const bool a_rows = a.strides[product.k_axis] == 1 || product.k == 1;
  product.pack_a = !(target_.unified_memory && storage_is_register(product.a) && a_rows);
  return true;
}

// -1: there are several.
int32_t CubeProblem::only_user(int32_t node) const {
  int32_t users[2];
  return users_of(plan_, node, users) == 1 ? users[0] : -1;
}

// Rows of elements as the cube unit reads and writes them.
bool CubeProblem::rows_in_place(int32_t node) const {
  const NormalAccess& access = access_of(node);
  return access.storage == dtype_ && (access.strides[plan_.n_axis] == 1 || blocks_.n == 1);
}

// With an element for each of the product's.
bool CubeProblem::has_all_elements(int32_t node) const {
  return plan_.nodes[node].axes == plan_.nodes[outer().node].axes;
}

// As a bias is, one for each matrix at most.
bool CubeProblem::is_row_for_all(int32_t node) const {
  const uint32_t axes = plan_.nodes[node].axes;
  return axes & bit(plan_.n_axis) && !(axes & bit(plan_.m_axis));
}

// What the product is added to, if the cube unit can do so; else -1.
int32_t CubeProblem::addend_of(int32_t product, int32_t sum) const {
  if (sum < 0 || plan_.nodes[sum].op != PlanOp::add_) return -1;
  const auto& inputs = plan_.nodes[sum].inputs;
  const int32_t addend = inputs[0] == product ? inputs[1] : inputs[0];
  if (plan_.nodes[addend].op != PlanOp::load_ || !rows_in_place(addend)) return -1;
  if (is_row_for_all(addend)) return addend;
  // The sum may lie where it does, and comes first.
  return has_all_elements(addend) && only_user(addend) == sum ? addend : -1;
}

// A product begins with 0 anyhow.
bool CubeProblem::adds_nothing(int32_t product, int32_t sum) const {
  if (sum < 0 || plan_.nodes[sum].op != PlanOp::add_) return false;
  const NormalNode& other = plan_.nodes[other_of(sum, product)];
  return other.op == PlanOp::fill_ && other.immediate == 0;
}

// Instructions over columns of the product up to a node. What the cube unit stores would come
// before theirs, and may lie where they read.
int CubeProblem::vector_nodes_until(int32_t last) const {
  const uint32_t contracted =
      bit(plan_.k_axis) | (has_inner() ? bit(plan_.inner_k_axis) : uint32_t{0});
  int count = 0;
  for (int32_t i = 0; i <= last; ++i) {
    const NormalNode& node = plan_.nodes[i];
    const uint32_t touched = node.axes | node.reduce_axes;
    const bool lazy = node.op == PlanOp::load_ || node.op == PlanOp::fill_;
    count += !lazy && node.op != PlanOp::matmul_ && touched & bit(plan_.n_axis) &&
             (touched & contracted) == 0;
  }
  return count;
}

void CubeProblem::find_finish() {
  for (Product& product : products_) product.finish.node = product.node;
  if (dtype_ != DType::i32) {
    for (int i = 0; i < blocks_.products; ++i) find_sum(products_[i]);
  } else if (blocks_.products == 1) {
    find_levels(outer());
    if (has_inner()) find_levels(inner_);
  }
}

void CubeProblem::find_sum(Product& product) const {
  Ending ending;
  ending.write(dtype_, product.finish.ending);
  // A B that is read in place passes in short pieces of k: C is better off in local memory.
  const bool packed = product.pack_b || (product.panels && storage_is_register(product.b));
  if (!target_.unified_memory || bundle_ > 1 || !packed) return;
  Finish finish = product.finish;
  const int32_t sum = only_user(product.node);
  finish.addend = addend_of(product.node, sum);
  if (finish.addend >= 0 || adds_nothing(product.node, sum)) {
    finish.node = sum;
    finish.nodes++;
  }
  NodeWalk walk(plan_, dtype_, finish.node);
  ending.follow(walk, dtype_);
  finish.node = walk.node();
  finish.nodes += walk.nodes();
  if (finish.nodes == 0) return;
  // Beside others, it goes to local memory, and what is stored comes behind all products.
  const bool beside = blocks_.products > 1;
  if (!beside && finish.nodes < vector_nodes_until(finish.node)) return;
  if (!beside && finish.addend >= 0 && has_all_elements(finish.addend)) {
    const int32_t store = only_user(finish.node);
    if (!stores_rows(store) || access_of(store).storage != dtype_) return;
  }
  ending.write(dtype_, finish.ending);
  product.finish = finish;
}

int32_t CubeProblem::other_of(int32_t user, int32_t node) const {
  return other_input(plan_.nodes[user], node);
}

// Goes on to what alone reads the last node, if it is such an operation.
bool CubeProblem::follow(Finish& finish, PlanOp op) const {
  const int32_t user = only_user(finish.node);
  if (user < 0 || plan_.nodes[user].op != op) return false;
  finish.node = user;
  finish.nodes++;
  return true;
}

// A whole number that is.
bool CubeProblem::is_level(int32_t node, int64_t& level) const {
  const NormalNode& n = plan_.nodes[node];
  if (n.op != PlanOp::fill_ || (n.dtype != DType::f32 && n.dtype != DType::i32)) return false;
  const double number = n.dtype == DType::f32
                            ? real_of(DType::f32, n.immediate)
                            : std::bit_cast<int32_t>(static_cast<uint32_t>(n.immediate));
  const auto whole = whole_level(number);
  if (whole) level = *whole;
  return whole.has_value();
}

// For each element along an axis, side by side, or for all.
bool CubeProblem::is_row_or_number(int32_t node, int axis, DType dtype) const {
  const NormalNode& n = plan_.nodes[node];
  if (n.op == PlanOp::fill_) return n.dtype == dtype;
  if (n.op != PlanOp::load_ || n.axes != bit(axis)) return false;
  const NormalAccess& access = access_of(node);
  return access.storage == dtype && access.strides[axis] == 1;
}

// Of an element for each of the product's.
bool CubeProblem::stores_rows(int32_t store) const {
  if (store < 0 || plan_.nodes[store].op != PlanOp::store_ || !has_all_elements(store))
    return false;
  return access_of(store).strides[plan_.n_axis] == 1 || blocks_.n == 1;
}

// Signed bytes may become unsigned ones.
void CubeProblem::follow_to_bytes(Finish& finish) const {
  const int32_t moved = only_user(finish.node);
  int64_t more = 0;
  if (moved >= 0 && plan_.nodes[moved].op == PlanOp::add_ &&
      is_level(other_of(moved, finish.node), more) &&
      are_bytes(finish.levels.moved(more), DType::u8)) {
    follow(finish, PlanOp::add_);
    finish.levels = finish.levels.moved(more);
  }
  const int32_t narrowed = only_user(finish.node);
  if (narrowed < 0 || plan_.nodes[narrowed].op != PlanOp::narrow_) return;
  const DType dtype = plan_.nodes[narrowed].narrow_to;
  if (is_byte(dtype) && are_bytes(finish.levels, dtype)) follow(finish, PlanOp::narrow_);
}

// How sums of bytes are quantised (decompose/casts.py): plus an i32, as f32, times a factor,
// rounded, plus a zero point, bounded from above, as i32, bounded from below. The levels are whole
// numbers of f32, so that rounding and the bounds may change places; a NaN ends at the lowest.
void CubeProblem::find_levels(Product& product) const {
  if (!target_.unified_memory) return;
  Finish finish;
  finish.node = product.node;
  int32_t before = finish.node;
  if (follow(finish, PlanOp::add_)) {
    finish.addend = other_of(finish.node, before);
    if (!is_row_or_number(finish.addend, product.n_axis, DType::i32)) return;
  }
  if (!follow(finish, PlanOp::cast_) || plan_.nodes[finish.node].dtype != DType::f32) return;
  before = finish.node;
  if (!follow(finish, PlanOp::mul_)) return;
  finish.factor = other_of(finish.node, before);
  if (!is_row_or_number(finish.factor, product.n_axis, DType::f32)) return;
  if (!follow(finish, PlanOp::round_)) return;
  const auto level = [&](PlanOp op, int64_t& to) {
    const int32_t from = finish.node;
    return follow(finish, op) && is_level(other_of(finish.node, from), to);
  };
  const int32_t rounded = only_user(finish.node);
  if (rounded < 0) return;
  Levels& levels = finish.levels;
  if (plan_.nodes[rounded].op == PlanOp::add_ && !level(PlanOp::add_, levels.zero)) return;
  if (!level(PlanOp::min_, levels.high) || !follow(finish, PlanOp::cast_)) return;
  if (plan_.nodes[finish.node].dtype != DType::i32 || !level(PlanOp::max_, levels.low)) return;
  if (levels.low > levels.high) return;
  follow_to_bytes(finish);
  // What is stored as it is, others may read at other times than the product stores it.
  for (size_t i = 0; i < plan_.nodes.size(); ++i) {
    const NormalNode& user = plan_.nodes[i];
    const bool stores = user.op == PlanOp::store_ && user.inputs[0] == finish.node;
    if (stores && access_of(static_cast<int32_t>(i)).storage == dtype_) return;
  }
  const int32_t store = only_user(finish.node);
  const bool at_once = stores_rows(store) && finish.nodes >= vector_nodes_until(finish.node);
  if (at_once && is_byte(access_of(store).storage) && are_bytes(levels, access_of(store).storage))
    finish.store = store;
  finish.bundles = &product == &inner_ && outer().a == finish.node && store == outer().node &&
                   product.n % bundle_ == 0 && are_bytes(levels, DType::u8);
  product.finish = finish;
}

bool CubeProblem::describe_vector_nodes() {
  find_finish();
  int direct_stores = 0, consumers = 0;
  for (size_t i = 0; i < plan_.nodes.size(); ++i) {
    const NormalNode& node = plan_.nodes[i];
    for (const int32_t input : node.inputs) {
      if (input != outer().finish.node) continue;
      ++consumers;
      const auto store = static_cast<int32_t>(i);
      direct_stores +=
          node.op == PlanOp::store_ && (store == outer().finish.store ||
                                        (access_of(store).storage == dtype_ && stores_rows(store)));
    }
    const PlanOpKind kind = info_of(node.op).kind;
    if (static_cast<int32_t>(i) < outer().node) {
      const uint32_t touched = node.axes | node.reduce_axes;
      if (has_inner() && touched & bit(plan_.inner_k_axis)) {
        if (node.reduce_axes & ~bit(plan_.inner_k_axis)) return false;
        if (blocks_.inner.whole_k) extend(blocks_.inner.prologue, node);
        continue;
      }
      if (blocks_.whole_k && touched & bit(plan_.k_axis)) extend(blocks_.prologue, node);
      if (node.reduce_axes != 0 && node.reduce_axes != bit(plan_.k_axis)) return false;
      blocks_.prologue_folds |= node.reduce_axes != 0;
    } else if (node.reduce_axes != 0) {
      if (node.reduce_axes != bit(plan_.n_axis)) return false;
      blocks_.whole_rows = true;
    } else {
      blocks_.epilogue_nodes += kind == PlanOpKind::map && node.axes & bit(plan_.n_axis);
    }
  }
  for (const Product& product : beside()) blocks_.epilogue_nodes -= product.finish.nodes;
  blocks_.prologue.operators -= inner_.finish.nodes;
  blocks_.local_c =
      !target_.unified_memory || blocks_.products > 1 || consumers != 1 || direct_stores != 1;
  // Those of a prologue are not counted, so that what lies apart would seem to have more of them.
  const bool has_prologue = blocks_.whole_k || has_inner();
  blocks_.counts_passes = blocks_.products > 1 || !has_prologue;
  blocks_.equal_panels = blocks_.panels && !target_.unified_memory;
  return true;
}

void CubeProblem::extend(Prologue& prologue, const NormalNode& node) const {
  const PlanOpKind kind = info_of(node.op).kind;
  prologue.operators += kind == PlanOpKind::map || kind == PlanOpKind::reduce;
  if (node.window < 0) return;
  prologue.taps += plan_.windows[node.window].taps();
  prologue.window_rows += plan_.windows[node.window].kernel_height;
}

// Channels of bytes come in fours, wherever a tap lies.
bool CubeProblem::bundled_patches(int32_t node) const {
  const NormalNode& a = plan_.nodes[node];
  const NormalAccess& images = plan_.accesses[a.access];
  if (dtype_ != DType::i32 || images.storage != DType::u8) return false;
  const Window& window = plan_.windows[a.window];
  bool whole =
      images.offset % bundle_ == 0 && window.pixel % bundle_ == 0 && window.channels % bundle_ == 0;
  for (int axis = 0; axis < plan_.rank; ++axis)
    whole = whole && images.strides[axis] % bundle_ == 0;
  return whole;
}

// Rows of bytes that lie as bundles do.
bool CubeProblem::bundled_in_place(const Product& product) const {
  const NormalAccess& a = access_of(product.a);
  if (!target_.unified_memory || a.storage != DType::u8) return false;
  bool whole =
      a.strides[product.k_axis] == 1 && product.k % bundle_ == 0 && a.offset % bundle_ == 0;
  for (int axis = 0; axis < plan_.rank; ++axis)
    whole = whole && (axis == product.k_axis || a.strides[axis] % bundle_ == 0);
  return whole;
}

// Of a register block of the outer product's A that is read in place.
int CubeProblem::rows_per_set() const {
  const int64_t rows = std::min(blocks_.m, std::max<int64_t>(1, target_.matmul_mr));
  const NormalAccess& a = access_of(outer().a);
  const int64_t stride = a.strides[plan_.m_axis] * static_cast<int64_t>(size_of(a.storage));
  return static_cast<int>(rows_in_set(stride, rows, target_));
}

int64_t CubeProblem::panel_bytes(const Product& product) const {
  return static_cast<int64_t>(size_of(access_of(product.b).storage)) * bundle_;
}

}  // namespace dvm
