// Tokenizer (com.microsoft): what each string of a vector or a matrix is cut to, along one more
// axis, which is as long as the most that a string has; behind what is shorter stands the pad.
//
//   Tokenizer        words: the pad. Arguments: whether marks of beginning and end surround the
//                    tokens, how many characters a token has at least, what cuts (`Cut`), how many
//                    patterns, and these.
//   RegexFullMatch   Arguments: a pattern. Whether it matches a string as a whole.
//
// Tokens are views of the strings that they were cut from.
#include <algorithm>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"
#include "runtime/host_ops/text_pattern.h"
#include "runtime/texts.h"

namespace dvm {
namespace {

enum class Cut : int64_t { characters, separators, expression };
using Tokens = std::vector<std::string_view>;

struct Tokenizer {
  bool marks = false;
  size_t least = 1;
  Cut cut = Cut::characters;
  std::vector<TextPattern> patterns;
  std::string pad, begin = "\x02", end = "\x03";
};

void cut_characters(std::string_view text, Tokens& tokens) {
  for (size_t at = 0; at < text.size(); at += bytes_behind(text[at])) {
    tokens.push_back(text.substr(at, bytes_behind(text[at])));
  }
}

// A match of fewer characters than a token has is left by one character, as onnxruntime does.
void cut_expression(const Tokenizer& known, std::string_view text, Tokens& tokens) {
  const TextPattern& pattern = known.patterns[0];
  const char *at = text.data(), *const end = at + text.size();
  while (const TextPattern::Match match = pattern.find(at, end)) {
    const std::string_view token(match.begin, static_cast<size_t>(match.end - match.begin));
    if (characters_of(token) >= known.least) {
      tokens.push_back(token);
      at = match.end;
    } else if (match.begin == end) {
      return;
    } else {
      at = match.begin + bytes_behind(*match.begin);
    }
  }
}

// One separator after the other cuts what those before it left.
void cut_separators(const Tokenizer& known, std::string_view text, Tokens& tokens, Tokens& parts,
                    Tokens& cut) {
  parts.assign(1, text);
  const auto keep = [&](const char* from, const char* to) {
    const std::string_view part(from, static_cast<size_t>(to - from));
    if (characters_of(part) >= known.least) cut.push_back(part);
  };
  for (const TextPattern& separator : known.patterns) {
    cut.clear();
    for (const std::string_view part : parts) {
      const char *at = part.data(), *const end = at + part.size();
      while (const TextPattern::Match match = separator.find(at, end)) {
        if (match.begin == match.end) throw CompileError("a separator is empty");
        keep(at, match.begin);
        at = match.end;
      }
      keep(at, end);
    }
    parts.swap(cut);
  }
  tokens.insert(tokens.end(), parts.begin(), parts.end());
}

}  // namespace

Tensor know_tokenizer(std::vector<std::string> words, std::span<const int64_t> arguments) {
  auto known = std::make_shared<Tokenizer>();
  if (words.size() != 1 || arguments.size() < 4) throw CompileError("a tokenizer lacks arguments");
  known->pad = std::move(words[0]);
  known->marks = arguments[0] != 0;
  known->least = static_cast<size_t>(std::max<int64_t>(arguments[1], 1));
  known->cut = static_cast<Cut>(arguments[2]);
  const int64_t count = arguments[3];
  arguments = arguments.subspan(4);
  for (int64_t i = 0; i < count; i++) known->patterns.emplace_back(arguments);
  if (known->cut == Cut::expression && known->patterns.empty()) {
    throw CompileError("a tokenizer lacks its expression");
  }
  return {DType::u8, {}, nullptr, std::move(known), ValueKind::object};
}

void tokenizer(HostFrame& frame) {
  const auto& known = frame.known<Tokenizer>();
  const Texts& x = frame.texts(0);
  std::vector<int64_t> shape = frame.operand(0).shape;
  if (shape.empty() || shape.size() > 2) {
    throw ShapeError(frame.name + " cuts vectors and matrices of strings, and not " +
                     shape_text(shape));
  }
  Tokens tokens, parts, cut;
  std::vector<size_t> ends;
  size_t most = 0;
  for (const std::string_view text : x.views) {
    if (!is_utf8(text)) throw InputError(frame.name + " cuts text, and a string is no UTF-8");
    const size_t before = tokens.size();
    switch (known.cut) {
      case Cut::characters: cut_characters(text, tokens); break;
      case Cut::separators: cut_separators(known, text, tokens, parts, cut); break;
      case Cut::expression: cut_expression(known, text, tokens); break;
    }
    ends.push_back(tokens.size());
    most = std::max(most, tokens.size() - before);
  }
  const size_t width = most == 0 ? 0 : most + (known.marks ? 2 : 0);
  Texts result{{}, x.memory};
  result.memory.push_back(frame.words().owner);
  result.views.reserve(width * ends.size());
  size_t at = 0;
  for (size_t row = 0; width != 0 && row < ends.size(); row++) {
    if (known.marks) result.views.emplace_back(known.begin);
    for (; at < ends[row]; at++) result.views.push_back(tokens[at]);
    if (known.marks) result.views.emplace_back(known.end);
    result.views.resize((row + 1) * width, known.pad);
  }
  shape.push_back(static_cast<int64_t>(width));
  frame.give_value(0, tensor_of(std::move(shape), std::move(result)));
}

Tensor know_pattern(std::vector<std::string> /*words*/, std::span<const int64_t> arguments) {
  return {DType::u8, {}, nullptr, std::make_shared<TextPattern>(arguments), ValueKind::object};
}

void regex_full_match(HostFrame& frame) {
  const auto& pattern = frame.known<TextPattern>();
  const Texts& x = frame.texts(0);
  auto* const matches = frame.give<uint8_t>(0, DType::b8, frame.operand(0).shape);
  if (matches == nullptr) return;
  for (size_t i = 0; i < x.views.size(); i++) {
    const std::string_view text = x.views[i];
    matches[i] = is_utf8(text) && pattern.matches(text) ? 1 : 0;
  }
}

}  // namespace dvm
