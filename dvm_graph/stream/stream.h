// The streaming fuser: basic operators with concrete shapes wait in a buffer until somebody needs a
// value, and are fused then by the rules of the static fuser, on extents (paper, section on dynamic
// graphs).
//
// A flush runs everything that somebody still holds a handle of, and what that needs; what died in
// the buffer is neither computed nor stored. Nothing is cached from flush to flush, no decision and
// no kernel: tables keep their capacity, which the size of the buffer bounds.
//
// Values are immutable. Methods take the stream's lock; a flush may be waited for. Where a flush
// fails, what it should have computed keeps the error, and the stream goes on.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/output_pool.h"
#include "stream/execution.h"
#include "stream/infer.h"
#include "stream/split.h"
#include "stream/value.h"

namespace dvm::stream {

// What a flush did, where somebody records it.
struct FlushRecord {
  struct Kernel {
    std::string name, kind;
    std::vector<std::string> operators;
  };
  std::string reason;
  std::vector<Kernel> kernels;
  std::vector<Decision> decisions;
  int64_t dead = 0;
};

class Stream {
 public:
  Stream(DeviceRequest device, const FusionLimits& limits)
      : limits_(limits),
        splitter_(graph_, limits_),
        lowering_(graph_, places_),
        execution_(std::move(device)) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // To be called under `mutex`, as all that follow:
  //
  // Whether the buffer has to be flushed before it takes another operator. `make_room` does that,
  // and leaves errors to those who ask for the values.
  bool is_full() const { return buffer_.size() >= static_cast<size_t>(limits_.max_operators); }
  void make_room();
  // The result of an operator, which waits from now on. Throws what `infer` throws, or an operand's
  // flush threw, and leaves the buffer as it was then.
  ValueRef append(Op op, std::span<const ValueRef> operands, std::span<const int64_t> attrs,
                  const DType* dtype);
  // Runs what waits. Throws what `Execution::run` throws.
  void flush(const char* reason);
  // Sees that the value is in memory. Throws what its flush threw.
  void require(Value& value);

  void record(bool on);
  std::vector<FlushRecord> take_record();
  const Statistics& statistics() const { return statistics_; }

  // What the last flushes let go of, to be dropped under no lock: arrays may be the caller's.
  // Afterwards the empty table may be given back.
  void take_dropped(std::vector<ValueRef>& out) { dropped_.swap(out); }
  void give_capacity(std::vector<ValueRef>& empty) {
    if (dropped_.empty() && dropped_.capacity() < empty.capacity()) dropped_.swap(empty);
  }

  std::mutex mutex;

  static constexpr size_t kMostRecords = 4096;

 private:
  // What a view reads in the end: a buffer below other views (passes/absorb_views.py).
  struct Strided {
    ValueRef base;
    int64_t strides[kMaxRank] = {};
    int64_t offset = 0;
    bool sliced = false;
  };
  struct Operator {
    Op op = Op::count_;
    uint32_t first_operand = 0, operands = 0;
    uint32_t first_attr = 0, attrs = 0;
    int32_t view = -1;                   // into views_
    bool alive = false, wanted = false;  // at a flush: to be computed; held by somebody
    int32_t uses = 0;                    // by operators that are alive
    int32_t in_graph = -1;               // the value of the graph that it makes
    ValueRef result;
  };

  bool waits(const Value& value) const { return value.pending >= 0 && value.stream == this; }
  Operator& operator_of(const Value& value) { return buffer_[static_cast<size_t>(value.pending)]; }
  std::span<const ValueRef> operands(const Operator& op) const {
    return {operands_.data() + op.first_operand, op.operands};
  }
  std::span<const int64_t> attributes(const Operator& op) const {
    return {attrs_.data() + op.first_attr, op.attrs};
  }

  void reserve_dropped(size_t operands);
  ValueRef without_work(Op op, std::span<const ValueRef> operands, const Shape& shape,
                        std::span<const int64_t> attrs);
  void compose(Operator& op, const ValueRef& operand, const Shape& shape);
  bool compose_reshape(const Shape& below, const Shape& shape, Strided& view);

  void run(const char* reason);
  void fuse();
  bool take_apart(int kernel);
  void find_alive();
  void need(const ValueRef& value);
  void build_graph();
  void add_operator(Operator& op);
  void add_join(Operator& op);
  int32_t use_of(const ValueRef& value);
  int32_t view_of(const Operator& op);
  int32_t given(const ValueRef& value);
  void place();
  bool is_alias(const Group& group) const;
  void make_kernels();
  void outputs_of(const Group& group);
  void place_memory();
  void commit();
  void take_note(const char* reason);
  void drop_all(std::exception_ptr error) noexcept;

  const FusionLimits limits_;
  // The buffer:
  std::vector<Operator> buffer_;
  std::vector<ValueRef> operands_;
  std::vector<int64_t> attrs_;
  std::vector<Strided> views_;
  // Of a flush:
  Graph graph_;
  Splitter splitter_;
  Places places_;
  Lowering lowering_;
  Execution execution_;
  std::vector<ValueRef> given_;         // values in memory that the graph reads
  std::vector<int32_t> given_values_;   // of the graph
  std::vector<uint32_t> given_table_;   // by hash of address: index into given_ plus 1
  std::vector<int32_t> order_;          // groups
  std::vector<int32_t> kernel_groups_;  // by kernel
  std::vector<int32_t> apart_;          // nodes whose products keep no rows
  std::vector<int32_t> outputs_;
  std::vector<int32_t> level_;       // by value of the graph: the first level that can read it
  std::vector<std::byte*> buffers_;  // by value of the graph
  std::vector<int32_t> kept_;        // by value of the graph: 1 where its buffer is given out
  std::vector<BufferRequest> requests_;
  std::vector<int32_t> request_of_;            // by value of the graph
  std::vector<std::shared_ptr<void>> memory_;  // by value of the graph, of those given out
  std::vector<int64_t> scratch_attrs_;
  MemoryPlanner planner_;
  Arena arena_;
  OutputPool pool_;
  std::vector<ValueRef> dropped_;
  bool records_ = false;
  std::deque<FlushRecord> record_;
  std::vector<Decision> decisions_;
  int64_t dead_ = 0;
  Statistics statistics_;
};

}  // namespace dvm::stream
