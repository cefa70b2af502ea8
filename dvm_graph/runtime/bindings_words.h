// Operators of the host over strings and maps, which are Python's objects: they need the
// interpreter lock, and take it. Strings of a known vocabulary are numbers everywhere else, so that
// these are where a string comes in or goes out. Called as the functions of runtime/host_ops are;
// what each knows besides, `words`, is made once of text and numbers.
//
//   StringPlaces    words: strings; arguments: a number for each, and for all others, and whether
//                   others are refused. The numbers of strings, int64; or of strings at places,
//                   int64, in the operands behind, one behind the other.
//   StringNumbers   Where each string of a tensor is, int64: row-major.
//   StringsAt       words: strings, behind which those of further operands stand. Those at places,
//                   int64.
//   Maps            words: keys, strings or integers; arguments: how many numbers a row has, and
//                   which of them is whose. A dict for each row of float32, in a list.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/host_ops/host_operator.h"

namespace dvm {

// Null: there is none.
HostFunction find_word_function(std::string_view op);

// What such an operator knows, of a sequence of strings or integers. Throws CompileError where the
// arguments are not those of the words.
Tensor make_words(std::string_view op, nanobind::handle words, std::span<const int64_t> arguments);

}  // namespace dvm
