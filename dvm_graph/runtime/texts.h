// Strings of the host: bytes in UTF-8, and where each string lies in them.
//
// What was fed is read once (`Texts` in bindings_words.h) and needs no interpreter from there on;
// what comes out becomes Python's strings again. Strings share the bytes that they were cut from.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tensor.h"

namespace dvm {

struct Texts {
  std::vector<std::string_view> views;              // row-major
  std::vector<std::shared_ptr<const void>> memory;  // what keeps their bytes
};

// Writes strings one behind the other.
class TextWriter {
 public:
  TextWriter() : bytes_(std::make_shared<std::string>()) {}
  // What is appended to it belongs to the string that ends next.
  std::string& bytes() { return *bytes_; }
  void reserve(size_t strings, size_t bytes) {
    ends_.reserve(strings);
    bytes_->reserve(bytes);
  }
  void end() { ends_.push_back(bytes_->size()); }
  Texts finish();

 private:
  std::shared_ptr<std::string> bytes_;
  std::vector<size_t> ends_;
};

// A value of so many strings, which nobody changes any more.
Tensor tensor_of(std::vector<int64_t> shape, Texts texts);

// Null where the value is none.
const Texts* texts_in(const Tensor& value);

// Whether bytes are UTF-8, and how many characters; of such: the character at the front of what is
// not empty, and where the next begins.
bool is_utf8(std::string_view text);
size_t characters_of(std::string_view text);
char32_t take_character(const char*& at);
void append_character(std::string& text, char32_t character);

// As many bytes as the character has that begins so.
inline size_t bytes_behind(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

inline bool is_ascii(std::string_view text) {
  unsigned char bits = 0;
  for (const char byte : text) bits |= static_cast<unsigned char>(byte);
  return bits < 0x80;
}

}  // namespace dvm
