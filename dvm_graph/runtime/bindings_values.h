// Python values as C++ ones, for arguments that take memory: those of nanobind may not fail there.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/bindings_tensors.h"

namespace dvm {

template <typename T>
struct From {  // numbers and flags
  static T python(nanobind::handle object) { return nanobind::cast<T>(object); }
};

template <>
struct From<std::string> {
  static std::string python(nanobind::handle object) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
    if (text == nullptr) throw nanobind::python_error();
    return {text, static_cast<size_t>(size)};
  }
};

template <typename T>
struct From<std::vector<T>> {
  static std::vector<T> python(nanobind::handle object) {
    const Py_ssize_t size = PySequence_Size(object.ptr());
    if (size < 0) throw nanobind::python_error();
    std::vector<T> values;
    values.reserve(static_cast<size_t>(size));
    for (Py_ssize_t i = 0; i < size; i++) {
      values.push_back(From<T>::python(checked(PySequence_GetItem(object.ptr(), i))));
    }
    return values;
  }
};

template <typename A, typename B>
struct From<std::pair<A, B>> {
  static std::pair<A, B> python(nanobind::handle object) {
    auto [first, second] = From<std::tuple<A, B>>::python(object);
    return {std::move(first), std::move(second)};
  }
};

template <typename... T>
struct From<std::tuple<T...>> {
  static std::tuple<T...> python(nanobind::handle object) {
    return fields(object, std::index_sequence_for<T...>());
  }

 private:
  template <size_t... I>
  static std::tuple<T...> fields(nanobind::handle object, std::index_sequence<I...>) {
    if (PySequence_Size(object.ptr()) != sizeof...(T)) {
      throw nanobind::value_error("a tuple of another size was expected");
    }
    return {From<T>::python(checked(PySequence_GetItem(object.ptr(), I)))...};
  }
};

// What an argument, taken as any object, holds.
template <typename T>
T take(nanobind::handle object) {
  return From<T>::python(object);
}

}  // namespace dvm
