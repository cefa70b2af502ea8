// Operators of the host over strings and maps, which are Python's objects: they need the
// interpreter lock, and take it, but for strings that the host keeps. Strings of a known vocabulary
// are numbers everywhere else, so that these are where a string comes in or goes out. Called as the
// functions of runtime/host_ops are; what each knows besides, `words`, is made once of text and
// numbers.
//
//   StringPlaces    words: strings. Arguments and operands: for each result, how many operands are
//                   its; which column of a sole one is the first, how many, 0 for one without its
//                   axis or -1 for all, and how many there have to be, or -1; how many words, a
//                   number for each, one for all other strings, and whether others are refused. The
//                   numbers of strings, int64; or of strings at places, int64, in the operands
//                   behind, one behind the other.
//   Texts           Strings as the host keeps them (runtime/texts.h).
//   StringNumbers   Where each string of a tensor is, int64: row-major.
//   StringsAt       words: strings, behind which those of further operands stand. Those at places,
//                   int64.
//   Maps            words: keys, strings or integers; arguments: how many numbers a row has, and
//                   which of them is whose. A dict for each row of float32, in a list.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/host_ops/host_operator.h"

namespace dvm {

// Null: there is none.
HostFunction find_word_function(std::string_view op);

// Of a sequence of strings. Throws CompileError where something else is in it.
std::vector<std::string> words_in(nanobind::handle words);

// What such an operator knows, of a sequence of strings or integers. Throws CompileError where the
// arguments are not those of the words.
Tensor make_words(std::string_view op, nanobind::handle words, std::span<const int64_t> arguments);

}  // namespace dvm
