// Numbers as strings and strings as numbers, as the C library writes and reads them: Cast.
//
//   NumberTexts   Numbers as text: floats to eight digits.
//   TextNumbers   Arguments: which type (`kTypes`). The number at the front of each string, behind
//                 blanks. Integers of fewer bits are the last of those of 64.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"
#include "runtime/texts.h"

namespace dvm {
namespace {

constexpr std::array kTypes = {DType::f32, DType::f64, DType::i8, DType::i16,
                               DType::i32, DType::i64, DType::u8, DType::u16,
                               DType::u32, DType::u64, DType::b8};

std::string text_of(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-INF" : "INF";
  std::array<char, 32> text;
  const int length = std::snprintf(text.data(), text.size(), "%.8g", number);
  return {text.data(), static_cast<size_t>(length)};
}

template <class T>
void append_texts(const HostFrame& frame, std::vector<std::string>& texts) {
  const auto* const numbers = frame.data<T>(0);
  for (int64_t i = 0; i < elements_of(frame.operand(0).shape); i++) {
    if constexpr (std::is_floating_point_v<T>) {
      texts.push_back(text_of(static_cast<double>(numbers[i])));
    } else {
      texts.push_back(std::to_string(numbers[i]));
    }
  }
}

// For messages, which are text.
std::string quoted(std::string text) {
  if (!is_utf8(text)) return "";
  size_t end = std::min<size_t>(text.size(), 40);
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) end--;
  return ": \"" + text.substr(0, end) + "\"";
}

template <class T>
T number_in(const std::string& text) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(std::stod(text));
  } else if constexpr (std::is_same_v<T, bool>) {
    return std::stoull(text) != 0;
  } else if constexpr (std::is_unsigned_v<T>) {
    return static_cast<T>(std::stoull(text));
  } else {
    return static_cast<T>(std::stoll(text));
  }
}

template <class T>
void read_numbers(HostFrame& frame, DType type) {
  const Texts& x = frame.texts(0);
  auto* const numbers = frame.give<T>(0, type, frame.operand(0).shape);
  std::string text;
  for (size_t i = 0; i < x.views.size(); i++) {
    text = x.views[i];
    try {
      const T number = number_in<T>(text);
      if (numbers != nullptr) numbers[i] = number;
    } catch (const std::logic_error&) {  // it is none, or none of the type
      throw InputError(frame.name + " reads numbers, and a string is none of its type" +
                       quoted(text));
    }
  }
}

}  // namespace

void number_texts(HostFrame& frame) {
  std::vector<std::string> texts;
  switch (frame.operand(0).dtype) {
    case DType::f32: append_texts<float>(frame, texts); break;
    case DType::f64: append_texts<double>(frame, texts); break;
    case DType::b8: append_texts<bool>(frame, texts); break;
    case DType::i8: append_texts<int8_t>(frame, texts); break;
    case DType::i16: append_texts<int16_t>(frame, texts); break;
    case DType::i32: append_texts<int32_t>(frame, texts); break;
    case DType::i64: append_texts<int64_t>(frame, texts); break;
    case DType::u8: append_texts<uint8_t>(frame, texts); break;
    case DType::u16: append_texts<uint16_t>(frame, texts); break;
    case DType::u32: append_texts<uint32_t>(frame, texts); break;
    case DType::u64: append_texts<uint64_t>(frame, texts); break;
    default: throw CompileError(frame.name + " writes numbers of another type");
  }
  Texts result;
  result.add_all(texts);
  frame.give_value(0, tensor_of(frame.operand(0).shape, std::move(result)));
}

void text_numbers(HostFrame& frame) {
  const int64_t type = frame.argument(0);
  if (type < 0 || type >= static_cast<int64_t>(kTypes.size())) {
    throw CompileError(frame.name + " reads numbers of another type");
  }
  const DType dtype = kTypes[static_cast<size_t>(type)];
  switch (dtype) {
    case DType::f32: return read_numbers<float>(frame, dtype);
    case DType::f64: return read_numbers<double>(frame, dtype);
    case DType::i8: return read_numbers<int8_t>(frame, dtype);
    case DType::i16: return read_numbers<int16_t>(frame, dtype);
    case DType::i32: return read_numbers<int32_t>(frame, dtype);
    case DType::i64: return read_numbers<int64_t>(frame, dtype);
    case DType::u8: return read_numbers<uint8_t>(frame, dtype);
    case DType::u16: return read_numbers<uint16_t>(frame, dtype);
    case DType::u32: return read_numbers<uint32_t>(frame, dtype);
    case DType::u64: return read_numbers<uint64_t>(frame, dtype);
    default: return read_numbers<bool>(frame, dtype);
  }
}

}  // namespace dvm
