// Numbers as strings and strings as numbers, as the C library writes and reads them: Cast.
//
//   NumberTexts   Numbers as text: floats to eight digits.
//   TextNumbers   Arguments: which type (`kTypes`). The number at the front of each string, behind
//                 blanks. Integers of fewer bits are the last of those of 64.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
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

template <class T>
T to_integer(T number) {
  return number;
}
int to_integer(bool number) { return number ? 1 : 0; }

void append(std::string& to, double number) {
  std::array<char, 32> text;
  char* end = text.data() + text.size();
  const std::string_view name = std::isnan(number) ? "NaN" : number < 0 ? "-INF" : "INF";
  if (std::isfinite(number)) {
    end = std::to_chars(text.data(), end, number, std::chars_format::general, 8).ptr;
  } else {
    end = std::ranges::copy(name, text.data()).out;
  }
  to.append(text.data(), static_cast<size_t>(end - text.data()));
}

template <class T>
void write_numbers(HostFrame& frame) {
  const auto* const numbers = frame.data<T>(0);
  const int64_t count = elements_of(frame.operand(0).shape);
  TextWriter writer;
  writer.reserve(static_cast<size_t>(count), 0);
  for (int64_t i = 0; i < count; i++) {
    if constexpr (std::is_floating_point_v<T>) {
      append(writer.bytes(), static_cast<double>(numbers[i]));
    } else {
      std::array<char, 24> text;
      const auto number = to_integer(numbers[i]);
      const auto written = std::to_chars(text.data(), text.data() + text.size(), number);
      writer.bytes().append(text.data(), static_cast<size_t>(written.ptr - text.data()));
    }
    writer.end();
  }
  frame.give_value(0, tensor_of(frame.operand(0).shape, writer.finish()));
}

// For messages, which are text.
std::string quoted(std::string text) {
  if (!is_utf8(text)) return "";
  size_t end = std::min<size_t>(text.size(), 40);
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) end--;
  std::string said(": \"");
  said.append(text, 0, end);
  said.push_back('"');
  return said;
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

// Calls use(T{}) for the type of numbers that text stands for. False: it stands for none of it.
template <class Use>
bool by_type(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::f32: return use(float{}), true;
    case DType::f64: return use(double{}), true;
    case DType::b8: return use(bool{}), true;
    case DType::i8: return use(int8_t{}), true;
    case DType::i16: return use(int16_t{}), true;
    case DType::i32: return use(int32_t{}), true;
    case DType::i64: return use(int64_t{}), true;
    case DType::u8: return use(uint8_t{}), true;
    case DType::u16: return use(uint16_t{}), true;
    case DType::u32: return use(uint32_t{}), true;
    case DType::u64: return use(uint64_t{}), true;
    default: return false;
  }
}

}  // namespace

void number_texts(HostFrame& frame) {
  const auto write = [&]<class T>(T) { write_numbers<T>(frame); };
  if (!by_type(frame.operand(0).dtype, write)) {
    throw CompileError(frame.name + " writes numbers of another type");
  }
}

void text_numbers(HostFrame& frame) {
  const int64_t type = frame.argument(0);
  if (type < 0 || type >= static_cast<int64_t>(kTypes.size())) {
    throw CompileError(frame.name + " reads numbers of another type");
  }
  const DType dtype = kTypes[static_cast<size_t>(type)];
  by_type(dtype, [&]<class T>(T) { read_numbers<T>(frame, dtype); });
}

}  // namespace dvm
