#include "runtime/texts.h"

#include <utility>

namespace dvm {

Texts TextWriter::finish() {
  Texts texts;
  texts.views.reserve(ends_.size());
  size_t start = 0;
  for (const size_t end : ends_) {
    texts.views.emplace_back(bytes_->data() + start, end - start);
    start = end;
  }
  texts.memory.push_back(std::move(bytes_));
  return texts;
}

Tensor tensor_of(std::vector<int64_t> shape, Texts texts) {
  auto kept = std::make_shared<Texts>(std::move(texts));
  Tensor tensor{DType::u8, std::move(shape), nullptr, nullptr, ValueKind::texts};
  tensor.owner = std::move(kept);
  return tensor;
}

const Texts* texts_in(const Tensor& value) {
  return value.kind == ValueKind::texts ? static_cast<const Texts*>(value.owner.get()) : nullptr;
}

bool is_utf8(std::string_view text) {
  if (is_ascii(text)) return true;
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned char lead = byte(i);
    if (lead < 0x80) {
      i++;
      continue;
    }
    const size_t bytes = bytes_behind(text[i]);
    if (lead < 0xc2 || lead > 0xf4 || bytes > text.size() - i) return false;
    for (size_t at = i + 1; at < i + bytes; at++) {
      if ((byte(at) & 0xc0) != 0x80) return false;
    }
    // Longer than they need to be, surrogates, and what lies beyond the last character.
    const unsigned char next = byte(i + 1);
    if ((lead == 0xe0 && next < 0xa0) || (lead == 0xed && next > 0x9f)) return false;
    if ((lead == 0xf0 && next < 0x90) || (lead == 0xf4 && next > 0x8f)) return false;
    i += bytes;
  }
  return true;
}

size_t characters_of(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xc0) != 0x80 ? 1 : 0;
  return count;
}

char32_t take_character(const char*& at) {
  const auto lead = static_cast<unsigned char>(*at);
  const size_t bytes = bytes_behind(*at++);
  if (bytes == 1) return lead;
  char32_t character = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; i++) {
    character = character << 6 | (static_cast<unsigned char>(*at++) & 0x3fu);
  }
  return character;
}

void append_character(std::string& text, char32_t character) {
  const auto add = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (character < 0x80) return add(character);
  if (character < 0x800) {
    add(0xc0 | character >> 6);
  } else if (character < 0x10000) {
    add(0xe0 | character >> 12);
    add(0x80 | (character >> 6 & 0x3f));
  } else {
    add(0xf0 | character >> 18);
    add(0x80 | (character >> 12 & 0x3f));
    add(0x80 | (character >> 6 & 0x3f));
  }
  add(0x80 | (character & 0x3f));
}

}  // namespace dvm
