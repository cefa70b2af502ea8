#include "stream/axes.h"

#include <algorithm>
#include <utility>

#include "runtime/errors.h"

namespace dvm::stream {

void AtomList::refuse() { throw CompileError("a kernel of a stream has too many axes"); }

void AxisSpace::clear() {
  extents_.clear();
  bindings_.clear();
  rigid_.clear();
  trail_.clear();
  pool_.clear();
}

Atom AxisSpace::atom(int64_t extent, bool rigid) {
  extents_.push_back(extent);
  bindings_.push_back({});
  rigid_.push_back(rigid);
  return static_cast<Atom>(extents_.size() - 1);
}

Layout AxisSpace::layout(std::span<const int64_t> shape) {
  Layout layout;
  layout.rank = static_cast<int8_t>(shape.size());
  for (size_t i = 0; i < shape.size(); i++) layout.axes[i] = axis(shape[i]);
  return layout;
}

void AxisSpace::resolve(std::span<const Atom> atoms, AtomList& out) {
  for (const Atom atom : atoms) {
    if (atom == kNoAtom) continue;
    const Binding binding = bindings_[static_cast<size_t>(atom)];
    if (binding.count < 0) {
      out.push_back(atom);
    } else if (binding.count == 1 &&
               bindings_[static_cast<size_t>(*bound(binding))].count < 0) {  // most are
      out.push_back(*bound(binding));
    } else {
      follow(atom, out);
    }
  }
}

// What a bound atom stands for, to which it is bound from now on.
void AxisSpace::follow(Atom atom, AtomList& out) {
  const Binding binding = bindings_[static_cast<size_t>(atom)];
  AtomList free;
  for (int32_t i = 0; i < binding.count; i++) {
    const Atom next = bound(binding)[i];  // the pool may move while this goes on
    resolve({&next, 1}, free);
  }
  const std::span<const Atom> found = free;
  const std::span<const Atom> before(bound(binding), static_cast<size_t>(binding.count));
  if (!std::equal(found.begin(), found.end(), before.begin(), before.end())) bind(atom, found);
  out.append(found);
}

void AxisSpace::rollback(size_t mark, std::vector<Taken>* taken) {
  while (trail_.size() > mark) {
    const auto [atom, before] = trail_.back();
    trail_.pop_back();
    Binding& binding = bindings_[static_cast<size_t>(atom)];
    if (taken != nullptr) taken->push_back({atom, binding});
    binding = before;
  }
}

void AxisSpace::redo(std::span<const Taken> taken) {
  for (size_t i = taken.size(); i-- > 0;) {
    Binding& binding = bindings_[static_cast<size_t>(taken[i].atom)];
    trail_.push_back({taken[i].atom, binding});
    binding = taken[i].binding;
  }
}

bool AxisSpace::unify(std::span<const Atom> left, std::span<const Atom> right) {
  AtomList a = resolved(left), b = resolved(right);
  if (a == b) return true;
  for (const bool back : {true, false}) {
    while (!a.empty() && !b.empty() && match(a, b, back)) continue;
  }
  a = resolved(a);
  b = resolved(b);
  for (AtomList* const rest : {&a, &b}) {
    if (!a.empty() && !b.empty()) break;
    while (!rest->empty() && extent(rest->back()) == 1) {
      const Atom last = rest->back();
      rest->pop(true);
      if (!rigid_[static_cast<size_t>(last)]) bind(last, {});
    }
  }
  return a.empty() && b.empty();
}

bool AxisSpace::unify(const Layout& left, const Layout& right) {
  for (int i = 0; i < left.rank; i++) {
    if (!unify(left.axes[i], right.axes[i])) return false;
  }
  return true;
}

bool AxisSpace::identify(Atom left, Atom right) {
  if (left == right) return true;
  if (extent(left) != extent(right)) return false;
  if (rigid_[static_cast<size_t>(left)]) std::swap(left, right);
  bind(left, {&right, 1});
  return true;
}

// Matches the free atoms at one end of two sequences; false: it cannot.
bool AxisSpace::match(AtomList& a, AtomList& b, bool back) {
  const Atom x = a.end_of(back), y = b.end_of(back);
  if (!is_free(x) || !is_free(y)) {  // by a match before
    a = resolved(a);
    b = resolved(b);
    return true;
  }
  if (x != y) {
    if (extent(x) != extent(y)) return split(a, b, back) || split(b, a, back);
    if (rigid_[static_cast<size_t>(x)] && rigid_[static_cast<size_t>(y)]) return false;
    if (rigid_[static_cast<size_t>(x)]) {
      bind(y, {&x, 1});
    } else {
      bind(x, {&y, 1});
    }
  }
  a.pop(back);
  b.pop(back);
  return true;
}

// Splits the atom at the end of `longer` so that one part is that of `shorter`.
bool AxisSpace::split(AtomList& longer, AtomList& shorter, bool back) {
  const Atom whole = longer.end_of(back), part = shorter.end_of(back);
  if (rigid_[static_cast<size_t>(whole)] || extent(whole) <= 1) return false;
  if (extent(part) == 1) {  // what is left would be as long
    if (rigid_[static_cast<size_t>(part)]) return false;
    bind(part, {});
    shorter.pop(back);
    return true;
  }
  if (extent(part) <= 0 || extent(whole) % extent(part) != 0) return false;
  const Atom rest = atom(extent(whole) / extent(part));
  const Atom parts[] = {back ? rest : part, back ? part : rest};
  bind(whole, parts);
  longer.end_of(back) = rest;
  shorter.pop(back);
  return true;
}

void AxisSpace::bind(Atom atom, std::span<const Atom> to) {
  Binding& binding = bindings_[static_cast<size_t>(atom)];
  trail_.push_back({atom, binding});
  binding = {static_cast<uint32_t>(pool_.size()), static_cast<int32_t>(to.size())};
  for (const Atom part : to) pool_.push_back(part);
}

}  // namespace dvm::stream
