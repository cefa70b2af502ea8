#include "vm/bytes.h"

#include <algorithm>

namespace dvm {
namespace {

// What the low byte of a node's result may be taken for, as bits: the number that the result is, if
// it is unsigned, or signed, or either way; or just that byte of it.
constexpr uint8_t kUnsigned = 1, kSigned = 2, kLow = 4;
constexpr uint8_t kNumber = kUnsigned | kSigned;
// Besides: a condition that is made of bytes.
constexpr uint8_t kCondition = 8;

bool orders(PlanOp op) {
  return op == PlanOp::lt_ || op == PlanOp::le_ || op == PlanOp::gt_ || op == PlanOp::ge_;
}
bool compares(PlanOp op) { return orders(op) || op == PlanOp::eq_ || op == PlanOp::ne_; }
bool takes_bits(PlanOp op) {
  return op == PlanOp::bitwise_and_ || op == PlanOp::bitwise_or_ || op == PlanOp::bitwise_xor_;
}
// The low byte of the result depends on those of the operands alone.
bool wraps(PlanOp op) {
  return op == PlanOp::add_ || op == PlanOp::sub_ || op == PlanOp::mul_ || op == PlanOp::neg_ ||
         op == PlanOp::bitwise_not_;
}
bool bounds(PlanOp op) {
  return op == PlanOp::min_ || op == PlanOp::max_ || op == PlanOp::reduce_min_ ||
         op == PlanOp::reduce_max_;
}
bool reads_sign(PlanOp op) {
  return orders(op) || bounds(op) || op == PlanOp::abs_ || op == PlanOp::sign_;
}

class ByteKeeper {
 public:
  ByteKeeper(NormalPlan& plan, const Target& target, BytesScratch& scratch)
      : plan_(plan),
        computes_(target.computes_bytes),
        kinds_(scratch.kinds),
        stand_in_(scratch.stand_in) {}

  void run() {
    if (!moves_any()) return;
    begin();
    while (!settled()) {
    }
    stand_in_.assign(plan_.nodes.size(), -1);
    for (size_t i = 0; i < plan_.nodes.size(); ++i) rewrite(i);
  }

 private:
  NormalAccess& access_of(const NormalNode& node) { return plan_.accesses[node.access]; }

  NormalAccess& table_of(const NormalNode& lookup) { return plan_.accesses[lookup.weights]; }

  static bool is_read(const NormalNode& node) {
    return node.op == PlanOp::load_ || node.op == PlanOp::gather_;
  }
  bool moves_bytes(const NormalNode& node) {
    return (is_read(node) || node.op == PlanOp::store_) && node.dtype == DType::i32 &&
           is_byte(access_of(node).storage);
  }
  bool moves_any() {
    return std::ranges::any_of(plan_.nodes,
                               [this](const NormalNode& node) { return moves_bytes(node); });
  }

  static uint8_t kinds_of(DType storage) {
    return (storage == DType::u8 ? kUnsigned : kSigned) | kLow;
  }

  void begin() {
    kinds_.assign(plan_.nodes.size(), 0);
    for (size_t i = 0; i < plan_.nodes.size(); ++i) kinds_[i] = kinds_by_operands(plan_.nodes[i]);
  }

  // Operands come first.
  uint8_t kinds_by_operands(const NormalNode& node) {
    if (is_read(node)) return moves_bytes(node) ? kinds_of(access_of(node).storage) : 0;
    if (node.op == PlanOp::fill_) return node.dtype == DType::i32 ? kinds_of_number(node) : 0;
    if (node.op == PlanOp::select_ && node.dtype == DType::i32) return common(node, 1);
    if (takes_bits(node.op) && node.dtype == DType::i32) return common(node, 0);
    if (node.op == PlanOp::lookup_)
      return kinds_[node.inputs[0]] != 0 ? kinds_of(table_of(node).storage) : 0;
    if (node.op == PlanOp::cast_) return kinds_of_cast(node);
    if (compares(node.op)) return kinds_of_comparison(node);
    return computes_ && node.dtype == DType::i32 ? kinds_of_computed(node) : 0;
  }

  uint8_t kinds_of_comparison(const NormalNode& node) const {
    const uint8_t numbers = common(node, 0) & kNumber;
    const bool compares_so = !orders(node.op) || computes_ || (numbers & kUnsigned) != 0;
    return numbers != 0 && compares_so ? kCondition : 0;
  }

  uint8_t kinds_of_computed(const NormalNode& node) const {
    const uint8_t kinds = common(node, 0);
    if (node.op == PlanOp::narrow_)
      return kinds != 0 && is_byte(node.narrow_to) ? kinds_of(node.narrow_to) : 0;
    if (wraps(node.op)) return kinds & kLow;
    if ((kinds & kNumber) == 0) return 0;
    if (bounds(node.op)) return kinds;
    if (node.op == PlanOp::abs_) return (kinds & kSigned) != 0 ? kUnsigned | kLow : 0;
    if (node.op == PlanOp::sign_) return (kinds & kUnsigned) != 0 ? kNumber | kLow : kinds;
    return 0;
  }

  uint8_t kinds_of_cast(const NormalNode& node) const {
    const DType from = plan_.nodes[node.inputs[0]].dtype;
    if (node.dtype == DType::i32 && from == DType::b8) return kNumber | kLow;  // 0 or 1
    if (node.dtype == DType::b8 && from == DType::i32)
      return (kinds_[node.inputs[0]] & kNumber) != 0 ? kCondition : 0;
    return 0;
  }

  static uint8_t kinds_of_number(const NormalNode& fill) {
    const auto number = static_cast<int32_t>(fill.immediate);
    const bool is_unsigned = number >= 0 && number < 256,
               is_signed = number >= -128 && number < 128;
    return static_cast<uint8_t>((is_unsigned ? kUnsigned : 0) | (is_signed ? kSigned : 0) | kLow);
  }

  // What all operands from `first` on may be taken for.
  uint8_t common(const NormalNode& node, int first) const {
    uint8_t kinds = kNumber | kLow;
    for (int k = first; k < info_of(node.op).arity; ++k) kinds &= kinds_[node.inputs[k]];
    return kinds;
  }

  // Takes back what a node rests on and is read by does not allow. False: something changed.
  bool settled() {
    bool same = true;
    const auto take_back = [&](size_t i) {
      if (kinds_[i] == 0) return;
      kinds_[i] = 0;
      same = false;
    };
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (kinds_[i] != 0 && kinds_by_operands(plan_.nodes[i]) == 0) take_back(i);
    }
    for (size_t i = plan_.nodes.size(); i-- > 0;) {
      const NormalNode& node = plan_.nodes[i];
      for (int k = 0; k < info_of(node.op).arity; ++k) {
        const int32_t input = node.inputs[k];
        if (plan_.nodes[input].dtype == DType::i32 && !takes_bytes(i)) take_back(input);
      }
    }
    return same;
  }

  bool takes_bytes(size_t i) {
    const NormalNode& node = plan_.nodes[i];
    return node.op == PlanOp::store_ ? moves_bytes(node) && kinds_[node.inputs[0]] != 0
                                     : kinds_[i] != 0;
  }

  void rewrite(size_t i) {
    NormalNode& node = plan_.nodes[i];
    const bool is_signed = reads_sign(node.op) && takes_signed(node);
    for (int32_t& input : node.inputs) {
      if (input >= 0 && stand_in_[input] >= 0) input = stand_in_[input];
    }
    if (!(node.op == PlanOp::store_ ? takes_bytes(i) : kinds_[i] != 0)) return;
    if (is_read(node) || node.op == PlanOp::store_) access_of(node).storage = DType::b8;
    if (node.op == PlanOp::lookup_) table_of(node).storage = DType::b8;
    if (node.op == PlanOp::fill_) node.immediate &= 0xff;
    node.signed_bytes = is_signed;
    if (node.op == PlanOp::narrow_) {
      stand_in_[i] = node.inputs[0];
      node = {.op = PlanOp::fill_};  // of no readers
    }
    node.dtype = DType::b8;
  }

  bool takes_signed(const NormalNode& node) const {
    const uint8_t kinds = common(node, 0);
    return node.op == PlanOp::abs_ || (kinds & kUnsigned) == 0;
  }

  NormalPlan& plan_;
  const bool computes_;
  std::vector<uint8_t>& kinds_;
  std::vector<int32_t>& stand_in_;
};

}  // namespace

void keep_bytes(NormalPlan& plan, const Target& target, BytesScratch& scratch) {
  ByteKeeper(plan, target, scratch).run();
}

}  // namespace dvm
