// StringNormalizer: a vector of strings, or a row of them, without those that are listed, in upper
// or lower case.
//
//   StringNormalizer   words: a locale, and strings that are left out. Arguments: what becomes of
//                      the case (`Case`), and whether that of strings that are left out is none.
//
// Characters change one by one, as the locale of the C library has it. Where it lacks the default
// one, its own stands for that: both are Unicode's.
#include <clocale>
#include <cwctype>
#include <unordered_set>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"
#include "runtime/texts.h"

namespace dvm {
namespace {

enum class Case : int64_t { none, lower, upper };

struct FreeLocale {
  void operator()(locale_t locale) const { freelocale(locale); }
};
using Locale = std::unique_ptr<std::remove_pointer_t<locale_t>, FreeLocale>;

Locale locale_of(const std::string& name) {
  Locale locale(newlocale(LC_CTYPE_MASK, name.c_str(), nullptr));
  if (locale == nullptr && name == "en_US.UTF-8") {
    locale.reset(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr));
  }
  if (locale == nullptr) throw UnsupportedError("this system has no locale " + name);
  return locale;
}

// Changes the case of text.
class Changer {
 public:
  Changer() = default;
  Changer(const std::string& locale, Case to) : locale_(locale_of(locale)), to_(to) {
    plain_ = true;
    for (char32_t c = 0; c < 128; c++) {
      const char32_t first = to == Case::lower ? U'A' : U'a';
      const bool turns = c >= first && c < first + 26;
      plain_ = plain_ && changed(c) == (turns ? c ^ 0x20 : c);
    }
  }

  void append(std::string& to, std::string_view text) const {
    if (to_ == Case::none) {
      to.append(text);
    } else if (plain_ && is_ascii(text)) {
      append_plain(to, text);
    } else {
      const char *at = text.data(), *const end = at + text.size();
      while (at < end) append_character(to, changed(take_character(at)));
    }
  }

 private:
  char32_t changed(char32_t character) const {
    const auto given = static_cast<wint_t>(character);
    return static_cast<char32_t>(to_ == Case::lower ? towlower_l(given, locale_.get())
                                                    : towupper_l(given, locale_.get()));
  }
  void append_plain(std::string& to, std::string_view text) const {
    const size_t start = to.size();
    to.append(text);
    char* const bytes = to.data() + start;
    const auto first = static_cast<unsigned char>(to_ == Case::lower ? 'A' : 'a');
    for (size_t i = 0; i < text.size(); i++) {
      const auto from_first = static_cast<unsigned char>(bytes[i] - first);
      bytes[i] = static_cast<char>(bytes[i] ^ (from_first < 26 ? 0x20 : 0));
    }
  }

  Locale locale_;
  Case to_ = Case::none;
  bool plain_ = false;  // ASCII changes as it does in English
};

struct Normalizer {
  Changer change, fold;
  std::unordered_set<std::string> left_out;
  bool changes = false;
};

}  // namespace

Tensor know_normalizer(std::vector<std::string> words, std::span<const int64_t> arguments) {
  if (words.empty() || arguments.size() != 2) throw CompileError("a normalizer lacks arguments");
  auto known = std::make_shared<Normalizer>();
  const auto to = static_cast<Case>(arguments[0]);
  known->changes = to != Case::none;
  if (known->changes) known->change = Changer(words[0], to);
  if (arguments[1] != 0 && words.size() > 1) known->fold = Changer(words[0], Case::lower);
  for (size_t i = 1; i < words.size(); i++) {
    std::string word;
    known->fold.append(word, words[i]);
    known->left_out.insert(std::move(word));
  }
  return {DType::u8, {}, nullptr, std::move(known), ValueKind::object};
}

void string_normalizer(HostFrame& frame) {
  const auto& known = frame.known<Normalizer>();
  const Texts& x = frame.texts(0);
  std::vector<int64_t> shape = frame.operand(0).shape;
  const bool is_row = shape.size() == 2 && shape[0] == 1;
  if ((shape.size() != 1 && !is_row) || shape.back() < 1) {
    throw ShapeError(frame.name + " takes strings of shape [n] or [1, n], n above 0, and not " +
                     shape_text(shape));
  }
  std::vector<std::string_view> kept;
  std::string folded;
  size_t bytes = 0;
  for (const std::string_view text : x.views) {
    if (!is_utf8(text)) throw InputError(frame.name + " changes text, and a string is no UTF-8");
    if (!known.left_out.empty()) {
      folded.clear();
      known.fold.append(folded, text);
      if (known.left_out.contains(folded)) continue;
    }
    kept.push_back(text);
    bytes += text.size();
  }
  if (kept.empty()) kept.emplace_back();
  Texts result{{}, x.memory};
  if (known.changes) {
    TextWriter writer;
    writer.reserve(kept.size(), bytes);
    for (const std::string_view text : kept) {
      known.change.append(writer.bytes(), text);
      writer.end();
    }
    result = writer.finish();
  } else {
    result.views = std::move(kept);
  }
  shape.back() = static_cast<int64_t>(result.views.size());
  frame.give_value(0, tensor_of(std::move(shape), std::move(result)));
}

}  // namespace dvm
