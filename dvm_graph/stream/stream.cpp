#include "stream/stream.h"

#include <algorithm>

#include "runtime/clock.h"
#include "runtime/errors.h"
#include "runtime/tensor.h"

namespace dvm::stream {
namespace {

void row_major(const Shape& shape, int64_t* strides) {
  int64_t step = 1;
  for (int axis = shape.rank - 1; axis >= 0; axis--) {
    strides[axis] = step;
    step *= shape.extents[axis];
  }
}

}  // namespace

// -- the buffer

ValueRef Stream::append(Op op, std::span<const ValueRef> operands, std::span<const int64_t> attrs,
                        const DType* dtype) {
  for (const ValueRef& operand : operands) {
    if (operand->error) std::rethrow_exception(operand->error);
  }
  DType result = DType::f32;
  Shape shape;
  infer(op, operands, attrs, dtype, result, shape);
  if (ValueRef known = without_work(op, operands, shape, attrs)) return known;
  reserve_dropped(operands.size());
  auto value = std::make_shared<Value>();
  value->dtype = result;
  value->shape = shape;
  value->stream = this;
  Operator made;
  made.op = op;
  made.first_operand = static_cast<uint32_t>(operands_.size());
  made.operands = static_cast<uint32_t>(operands.size());
  made.first_attr = static_cast<uint32_t>(attrs_.size());
  made.attrs = static_cast<uint32_t>(attrs.size());
  made.result = value;
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  attrs_.insert(attrs_.end(), attrs.begin(), attrs.end());
  buffer_.push_back(std::move(made));
  if (is_view(op)) compose(buffer_.back(), operands[0], shape);
  value->pending = static_cast<int32_t>(buffer_.size() - 1);
  statistics_.operators++;
  return value;
}

void Stream::make_room() {
  try {
    flush("full");
  } catch (...) {  // its values keep it
  }
}

// What ends a flush, however it went, takes no memory.
void Stream::reserve_dropped(size_t operands) {
  const size_t needed =
      dropped_.size() + buffer_.size() + views_.size() + 2 * (operands_.size() + operands) + 2;
  if (dropped_.capacity() < needed) dropped_.reserve(2 * needed);
}

// Views that change nothing.
ValueRef Stream::without_work(Op op, std::span<const ValueRef> operands, const Shape& shape,
                              std::span<const int64_t> attrs) {
  if (!is_view(op)) return nullptr;
  const ValueRef& source = operands[0];
  bool same = shape == source->shape;
  if (op == Op::transpose) same = same && std::is_sorted(attrs.begin(), attrs.end());
  if (op == Op::slice) {
    for (int axis = 0; axis < shape.rank; axis++) {
      same =
          same && (shape.extents[axis] == 1 || attrs[static_cast<size_t>(shape.rank + axis)] == 1);
    }
  }
  return same ? source : nullptr;
}

// The view as one of the buffer below other views, where strides can say it.
void Stream::compose(Operator& op, const ValueRef& operand, const Shape& shape) {
  Strided view;
  Shape below = operand->shape;
  const bool of_view = waits(*operand) && operator_of(*operand).view >= 0;
  if (of_view) {
    view = views_[static_cast<size_t>(operator_of(*operand).view)];
  } else {
    view.base = operand;
    row_major(below, view.strides);
  }
  const std::span<const int64_t> attrs = attributes(op);
  int64_t strides[kMaxRank] = {};
  switch (op.op) {
    case Op::transpose:
      for (int i = 0; i < shape.rank; i++) strides[i] = view.strides[attrs[static_cast<size_t>(i)]];
      break;
    case Op::broadcast_to:
      for (int i = 0; i < below.rank; i++) {
        const int axis = shape.rank - below.rank + i;
        if (below.extents[i] == shape.extents[axis]) strides[axis] = view.strides[i];
      }
      break;
    case Op::slice:
      for (int i = 0; i < shape.rank; i++) {
        const auto axis = static_cast<size_t>(i);
        view.offset += view.strides[i] * attrs[axis];
        strides[i] = view.strides[i] * attrs[axis + static_cast<size_t>(shape.rank)];
      }
      view.sliced = true;
      break;
    default:
      if (!compose_reshape(below, shape, view)) return;
      std::copy(view.strides, view.strides + kMaxRank, strides);
  }
  std::copy(strides, strides + kMaxRank, view.strides);
  op.view = static_cast<int32_t>(views_.size());
  views_.push_back(std::move(view));
}

// Matches groups of axes with equal products, innermost first, as numpy does.
bool Stream::compose_reshape(const Shape& below, const Shape& shape, Strided& view) {
  int64_t strides[kMaxRank] = {};
  if (shape.elements() == 0) return false;
  int inner = below.rank - 1, outer = shape.rank - 1;
  while (inner >= 0 || outer >= 0) {
    int i = std::max(inner, 0), j = std::max(outer, 0);
    int64_t mine = inner >= 0 ? below.extents[i] : 1, its = outer >= 0 ? shape.extents[j] : 1;
    while (mine != its) {
      if (mine < its ? i == 0 : j == 0) return false;
      if (mine < its) {
        mine *= below.extents[--i];
      } else {
        its *= shape.extents[--j];
      }
    }
    int64_t step = 1, next = 0;
    bool found = false;
    for (int axis = inner; axis >= i; axis--) {
      if (below.extents[axis] == 1) continue;
      if (!found) step = view.strides[axis];
      if (found && view.strides[axis] != next) return false;
      next = view.strides[axis] * below.extents[axis];
      found = true;
    }
    for (int axis = outer; axis >= j; axis--) {
      strides[axis] = step;
      step *= shape.extents[axis];
    }
    inner = i - 1;
    outer = j - 1;
  }
  std::copy(strides, strides + kMaxRank, view.strides);
  return true;
}

void Stream::require(Value& value) {
  if (waits(value)) flush("value");
  if (value.error) std::rethrow_exception(value.error);
}

void Stream::record(bool on) {
  records_ = on;
  if (!on) record_.clear();
}

std::vector<FlushRecord> Stream::take_record() {
  std::vector<FlushRecord> taken(std::make_move_iterator(record_.begin()),
                                 std::make_move_iterator(record_.end()));
  record_.clear();
  return taken;
}

// -- a flush

void Stream::flush(const char* reason) {
  if (buffer_.empty()) return;
  const int64_t start = now_ns();
  try {
    run(reason);
  } catch (...) {
    drop_all(std::current_exception());
    throw;
  }
  drop_all(nullptr);
  statistics_.flushes++;
  statistics_.run_ns += now_ns() - start;
}

void Stream::run(const char* reason) {
  find_alive();
  apart_.clear();
  do {
    fuse();
  } while (take_apart(execution_.compile_weighed(graph_, statistics_)));
  place_memory();
  execution_.run(graph_, buffers_, statistics_);
  commit();
  if (records_) take_note(reason);
}

void Stream::fuse() {
  build_graph();
  decisions_.clear();
  splitter_.run(apart_, records_ ? &decisions_ : nullptr);
  place();
  make_kernels();
}

// Has a kernel keep no rows in local memory: the graph is made anew, and numbers its operators as
// it does now. False: there is none to take apart.
bool Stream::take_apart(int kernel) {
  if (kernel < 0) return false;
  const Group& group = splitter_.groups().group(kernel_groups_[static_cast<size_t>(kernel)]);
  for (const int32_t node : group.nodes) {
    if (graph_.nodes[static_cast<size_t>(node)].op == Op::matmul) apart_.push_back(node);
  }
  return true;
}

// What somebody holds, and what that needs.
void Stream::find_alive() {
  dead_ = 0;
  for (Operator& op : buffer_) {
    op.alive = false;
    op.uses = 0;
    op.in_graph = -1;
  }
  for (size_t i = buffer_.size(); i-- > 0;) {
    Operator& op = buffer_[i];
    op.wanted = op.result->handles.load() > 0;
    op.alive = op.uses > 0 || op.wanted;
    if (!op.alive) {
      dead_++;
    } else if (op.view >= 0 && views_[static_cast<size_t>(op.view)].sliced) {
      need(views_[static_cast<size_t>(op.view)].base);
    } else {
      for (const ValueRef& operand : operands(op)) need(operand);
    }
  }
  statistics_.dead += dead_;
}

void Stream::need(const ValueRef& value) {
  if (waits(*value)) operator_of(*value).uses++;
}

void Stream::build_graph() {
  graph_.clear();
  given_.clear();
  given_values_.clear();
  size_t slots = 16;
  while (slots < 2 * operands_.size() + 2) slots *= 2;
  given_table_.assign(slots, 0);
  for (Operator& op : buffer_) {
    if (op.alive) add_operator(op);
  }
}

void Stream::add_operator(Operator& op) {
  if (op.op == Op::concat) {
    add_join(op);
  } else if (is_view(op.op)) {
    if (op.wanted) op.in_graph = view_of(op);  // readers have views of their own
  } else {
    int32_t uses[3];
    for (uint32_t i = 0; i < op.operands; i++) uses[i] = use_of(operands(op)[i]);
    graph_.uses.insert(graph_.uses.end(), uses, uses + op.operands);
    op.in_graph =
        graph_.add_node(op.op, op.operands, attributes(op), op.result->dtype, op.result->shape);
  }
  if (op.in_graph >= 0) graph_.values[static_cast<size_t>(op.in_graph)].wanted = op.wanted;
}

// Each operand of a concat has a place of its own in the result, but for one that is a concat
// itself, for this place alone.
void Stream::add_join(Operator& op) {
  order_.clear();
  for (const ValueRef& operand : operands(op)) {
    const bool joins = waits(*operand) && operator_of(*operand).op == Op::concat &&
                       operator_of(*operand).uses == 1 && !operator_of(*operand).wanted;
    const int32_t use = use_of(operand);
    if (joins) {
      order_.push_back(use);
      continue;
    }
    graph_.uses.push_back(use);
    order_.push_back(
        graph_.add_node(Op::reshape, 1, operand->shape.all(), operand->dtype, operand->shape));
  }
  graph_.uses.insert(graph_.uses.end(), order_.begin(), order_.end());
  op.in_graph = graph_.add_node(Op::concat, static_cast<uint32_t>(order_.size()), attributes(op),
                                op.result->dtype, op.result->shape);
}

// A value as an operand of the graph: views anew for every reader.
int32_t Stream::use_of(const ValueRef& value) {
  if (!waits(*value)) return given(value);
  const Operator& op = operator_of(*value);
  return is_view(op.op) ? view_of(op) : op.in_graph;
}

int32_t Stream::view_of(const Operator& op) {
  const Value& result = *op.result;
  if (op.view >= 0 && views_[static_cast<size_t>(op.view)].sliced) {
    const Strided& view = views_[static_cast<size_t>(op.view)];
    const int32_t base = use_of(view.base);
    graph_.uses.push_back(base);
    int64_t attrs[2 * kMaxRank + 1];
    const auto rank = static_cast<size_t>(result.shape.rank);
    std::copy_n(result.shape.extents, rank, attrs);
    std::copy_n(view.strides, rank, attrs + rank);
    attrs[2 * rank] = view.offset;
    return graph_.add_node(Op::view, 1, {attrs, 2 * rank + 1}, result.dtype, result.shape);
  }
  const int32_t source = use_of(operands(op)[0]);
  graph_.uses.push_back(source);
  return graph_.add_node(op.op, 1, attributes(op), result.dtype, result.shape);
}

// A value that is in memory, or a number.
int32_t Stream::given(const ValueRef& value) {
  const size_t mask = given_table_.size() - 1;
  size_t at = (reinterpret_cast<uintptr_t>(value.get()) >> 4) * 0x9E3779B97F4A7C15U >> 20 & mask;
  for (; given_table_[at] != 0; at = (at + 1) & mask) {
    const size_t known = given_table_[at] - 1;
    if (given_[known] == value) return given_values_[known];
  }
  const int32_t made = graph_.add_value(value->dtype, value->shape);
  GraphValue& info = graph_.values.back();
  info.constant = value->constant;
  info.scalar = value->scalar;
  info.integer = value->integer;
  info.given = static_cast<int32_t>(given_.size());
  given_.push_back(value);
  given_values_.push_back(made);
  given_table_[at] = static_cast<uint32_t>(given_.size());
  return made;
}

// Reshapes of what is in memory cost nothing, and operands of concats lie inside of the results.
void Stream::place() {
  places_.clear(graph_);
  for (const Node& node : graph_.nodes) {
    if (node.op != Op::concat) continue;
    const auto axis = static_cast<int>(graph_.attributes(node)[0]);
    int64_t start = 0;
    for (const int32_t value : graph_.operands(node)) {
      places_.join(value, node.value, axis, start);
      start += graph_.values[static_cast<size_t>(value)].shape.extents[axis];
    }
  }
  splitter_.groups().list(order_);
  for (const int32_t index : order_) {
    const Group& group = splitter_.groups().group(index);
    if (!is_alias(group)) continue;
    for (const int32_t node : group.nodes) {
      places_.alias(graph_.nodes[static_cast<size_t>(node)].value, group.inputs.front().value);
    }
  }
}

bool Stream::is_alias(const Group& group) const {
  if (group.part.kind != PartKind::view) return false;
  for (const int32_t index : group.nodes) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    if (node.op != Op::reshape || places_.is_placed(node.value)) return false;
  }
  return true;
}

void Stream::make_kernels() {
  execution_.clear();
  kernel_groups_.clear();
  level_.assign(graph_.values.size(), 0);
  const auto level = [&](int32_t value) -> int32_t& { return level_[static_cast<size_t>(value)]; };
  for (const int32_t index : order_) {
    const Group& group = splitter_.groups().group(index);
    int32_t ready = 0;
    for (const Input& input : group.inputs) ready = std::max(ready, level(input.value));
    const bool alias = is_alias(group);
    const bool runs = group.part.kind != PartKind::host && !alias;
    for (const int32_t node : group.nodes) {
      level(graph_.nodes[static_cast<size_t>(node)].value) = runs ? ready + 1 : ready;
    }
    if (!runs) continue;
    outputs_of(group);
    kernel_groups_.push_back(index);
    lowering_.lower(group, outputs_, execution_.add_kernel(ready));
  }
}

void Stream::outputs_of(const Group& group) {
  outputs_.clear();
  for (const int32_t value : group.results) {
    bool used = graph_.values[static_cast<size_t>(value)].wanted;
    for (const int32_t other : group.after) {
      used = used || splitter_.groups().group(other).reads(value);
    }
    if (used) outputs_.push_back(value);
  }
}

// Where everything lies: what somebody wants in memory of its own, the rest in one arena.
void Stream::place_memory() {
  pool_.begin_run();
  const size_t count = graph_.values.size();
  buffers_.assign(count, nullptr);
  kept_.assign(count, 0);
  request_of_.assign(count, -1);
  memory_.assign(count, nullptr);
  requests_.clear();
  for (size_t value = 0; value < count; value++) {
    const GraphValue& info = graph_.values[value];
    if (info.given >= 0) buffers_[value] = given_[static_cast<size_t>(info.given)]->data;
    if (info.wanted) kept_[static_cast<size_t>(places_.buffer(static_cast<int32_t>(value)))] = 1;
  }
  const std::span<const int32_t> levels = execution_.levels();
  for (size_t kernel = 0; kernel < levels.size(); kernel++) {
    for (const int32_t value : execution_.draft(kernel).arguments) {
      const auto at = static_cast<size_t>(value);
      const GraphValue& info = graph_.values[at];
      if (info.given >= 0 || memory_[at] != nullptr) continue;
      const int64_t bytes = info.shape.elements() * static_cast<int64_t>(size_of(info.dtype));
      if (kept_[at] != 0) {
        memory_[at] = pool_.take(bytes, "a result of a stream");
        buffers_[at] = static_cast<std::byte*>(memory_[at].get());
        statistics_.stored++;
      } else if (request_of_[at] < 0) {
        request_of_[at] = static_cast<int32_t>(requests_.size());
        requests_.push_back({bytes, levels[kernel], levels[kernel], 0, -1});
      } else {
        BufferRequest& request = requests_[static_cast<size_t>(request_of_[at])];
        request.first = std::min(request.first, levels[kernel]);
        request.last = std::max(request.last, levels[kernel]);
      }
    }
  }
  if (requests_.empty()) return;
  arena_.reserve(planner_.plan(requests_));
  for (size_t value = 0; value < count; value++) {
    if (request_of_[value] < 0) continue;
    buffers_[value] = arena_.data() + requests_[static_cast<size_t>(request_of_[value])].offset;
  }
}

// Results become values in memory.
void Stream::commit() {
  for (Operator& op : buffer_) {
    if (op.in_graph < 0 || !graph_.values[static_cast<size_t>(op.in_graph)].wanted) continue;
    const auto root = static_cast<size_t>(places_.buffer(op.in_graph));
    Value& value = *op.result;
    const int32_t source = graph_.values[root].given;
    if (source >= 0) {  // a reshape of what was given
      const ValueRef& owner = given_[static_cast<size_t>(source)];
      value.data = owner->data;
      value.memory = owner->constant ? std::shared_ptr<void>(owner) : owner->memory;
    } else {
      if (memory_[root] == nullptr) {  // empty, and no kernel touched it
        memory_[root] = pool_.take(0, "a result of a stream");
      }
      value.data = static_cast<std::byte*>(memory_[root].get());
      value.memory = memory_[root];
    }
  }
  pool_.end_run();
}

void Stream::take_note(const char* reason) {
  FlushRecord note;
  note.reason = reason;
  note.dead = dead_;
  note.decisions = std::move(decisions_);
  decisions_.clear();
  for (const int32_t index : order_) {
    const Group& group = splitter_.groups().group(index);
    if (group.part.kind == PartKind::host || is_alias(group)) continue;
    FlushRecord::Kernel kernel;
    kernel.name = stem_of(graph_, group);
    kernel.kind = group.part.kind != PartKind::cube ? "vector"
                  : group.part.operators > 1        ? "mix"
                                                    : "cube";
    for (const int32_t node : group.nodes) {
      const Node& one = graph_.nodes[static_cast<size_t>(node)];
      kernel.operators.push_back(std::string(name_of(one.op)) + " " +
                                 shape_text(graph_.result(one).shape.all()));
    }
    note.kernels.push_back(std::move(kernel));
  }
  if (record_.size() == kMostRecords) record_.pop_front();
  record_.push_back(std::move(note));
}

// Empties the buffer; what it should have computed keeps the error, if there is one.
void Stream::drop_all(std::exception_ptr error) noexcept {
  for (Operator& op : buffer_) {
    op.result->pending = -1;
    if (op.result->data == nullptr) op.result->error = error;
    dropped_.push_back(std::move(op.result));
  }
  for (ValueRef& operand : operands_) dropped_.push_back(std::move(operand));
  for (Strided& view : views_) dropped_.push_back(std::move(view.base));
  for (ValueRef& value : given_) dropped_.push_back(std::move(value));
  std::fill(memory_.begin(), memory_.end(), nullptr);
  buffer_.clear();
  operands_.clear();
  attrs_.clear();
  views_.clear();
  given_.clear();
}

}  // namespace dvm::stream
