// Axis atoms on extents: how the axes of values become the axes of one kernel domain.
//
// As cluster/axes.py, whose words these are, with numbers for dims: an axis is a sequence of
// *atoms*, outermost first, none where its extent is 1; two operators share a kernel where the
// atoms of the value between them unify. Before anything is bound, an axis is one atom or none, so
// a layout keeps an atom for each axis, and `resolve` tells what it stands for.
//
// Invariants: bindings are only ever added, and `rollback` takes back all since a `mark`. A *rigid*
// atom is never split. Keeps its capacity from flush to flush.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace dvm::stream {

using Atom = int32_t;
inline constexpr Atom kNoAtom = -1;  // of an axis of extent 1
inline constexpr int kMaxRank = 8;

// A few atoms, in order. Throws CompileError where there are more than any kernel has.
class AtomList {
 public:
  AtomList() = default;
  AtomList(const AtomList& other) { *this = other; }
  AtomList& operator=(const AtomList& other) {
    count_ = other.count_;
    for (uint32_t i = 0; i < count_; i++) items_[i] = other.items_[i];
    return *this;
  }

  void push_back(Atom atom) {
    if (count_ == kCapacity) refuse();
    items_[count_++] = atom;
  }
  void append(std::span<const Atom> atoms) {
    for (const Atom atom : atoms) push_back(atom);
  }
  void add(Atom atom) {  // unless it is there
    if (!contains(atom)) push_back(atom);
  }
  void pop(bool back) {
    count_--;
    if (!back) {
      for (uint32_t i = 0; i < count_; i++) items_[i] = items_[i + 1];
    }
  }
  void clear() { count_ = 0; }
  void resize(uint32_t count) { count_ = count; }

  bool contains(Atom atom) const {
    for (const Atom item : *this) {
      if (item == atom) return true;
    }
    return false;
  }
  bool includes(const AtomList& others) const {
    for (const Atom other : others) {
      if (!contains(other)) return false;
    }
    return true;
  }
  bool meets(const AtomList& others) const {
    for (const Atom other : others) {
      if (contains(other)) return true;
    }
    return false;
  }
  bool repeats() const {
    for (uint32_t i = 1; i < count_; i++) {
      for (uint32_t j = 0; j < i; j++) {
        if (items_[i] == items_[j]) return true;
      }
    }
    return false;
  }

  Atom& end_of(bool back) { return back ? items_[count_ - 1] : items_[0]; }
  Atom front() const { return items_[0]; }
  Atom back() const { return items_[count_ - 1]; }
  bool empty() const { return count_ == 0; }
  uint32_t size() const { return count_; }
  Atom operator[](size_t i) const { return items_[i]; }
  const Atom* begin() const { return items_.data(); }
  const Atom* end() const { return items_.data() + count_; }
  operator std::span<const Atom>() const { return {begin(), count_}; }
  bool operator==(const AtomList& other) const {
    if (count_ != other.count_) return false;
    for (uint32_t i = 0; i < count_; i++) {
      if (items_[i] != other.items_[i]) return false;
    }
    return true;
  }

 private:
  static constexpr uint32_t kCapacity = 80;
  [[noreturn]] static void refuse();

  uint32_t count_ = 0;
  std::array<Atom, kCapacity> items_;
};

// An atom, or none, for each axis of a value.
struct Layout {
  int8_t rank = -1;  // -1: what is read cannot be said with atoms
  Atom axes[kMaxRank] = {};

  bool known() const { return rank >= 0; }
  std::span<const Atom> all() const { return {axes, static_cast<size_t>(rank)}; }
  Atom back() const { return axes[rank - 1]; }
};

class AxisSpace {
 public:
  struct Binding {
    uint32_t first = 0;
    int32_t count = -1;  // -1: free
  };
  struct Taken {
    Atom atom;
    Binding binding;
  };

  void clear();

  Atom atom(int64_t extent, bool rigid = false);
  Atom axis(int64_t extent) { return extent == 1 ? kNoAtom : atom(extent); }
  Layout layout(std::span<const int64_t> shape);

  int64_t extent(Atom atom) const { return extents_[static_cast<size_t>(atom)]; }
  size_t atoms() const { return extents_.size(); }

  // The free atoms that these stand for, behind those in `out`.
  void resolve(std::span<const Atom> atoms, AtomList& out);
  void resolve(Atom atom, AtomList& out) { resolve({&atom, 1}, out); }
  AtomList resolved(std::span<const Atom> atoms) {
    AtomList out;
    resolve(atoms, out);
    return out;
  }
  AtomList resolved(Atom atom) { return resolved({&atom, 1}); }

  size_t mark() const { return trail_.size(); }
  void rollback(size_t mark, std::vector<Taken>* taken = nullptr);
  void redo(std::span<const Taken> taken);  // what `rollback` took back last

  // Makes two sequences one, given that the products of their extents are equal; false: they cannot
  // be. Bindings made on the way stay until the caller rolls back.
  bool unify(std::span<const Atom> left, std::span<const Atom> right);
  bool unify(Atom left, Atom right) { return unify({&left, 1}, {&right, 1}); }
  bool unify(const Layout& left, const Layout& right);
  // Makes two free atoms of equal extents one, even if both are rigid.
  bool identify(Atom left, Atom right);

 private:
  bool match(AtomList& a, AtomList& b, bool back);
  bool split(AtomList& longer, AtomList& shorter, bool back);
  void bind(Atom atom, std::span<const Atom> to);
  bool is_free(Atom atom) const { return bindings_[static_cast<size_t>(atom)].count < 0; }
  const Atom* bound(const Binding& binding) const { return pool_.data() + binding.first; }
  void follow(Atom atom, AtomList& out);

  std::vector<int64_t> extents_;
  std::vector<Binding> bindings_;
  std::vector<char> rigid_;
  std::vector<Taken> trail_;  // what was bound, and to what before
  std::vector<Atom> pool_;    // what atoms are bound to
};

}  // namespace dvm::stream
