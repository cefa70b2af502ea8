// Element types. A *storage* dtype is how a tensor lies in global memory; a *register* dtype is how
// a tile lies in local memory. Loads and stores convert; other instructions work on register dtypes
// only (f32 f64 i32 i64 b8), but on devices that compute in f16 themselves (Target::computes).
#pragma once

#include <cstddef>
#include <cstdint>

namespace dvm {

enum class DType : uint8_t { f32, f64, i32, i64, b8, f16, bf16, i8, u8, i16, u16, u32, u64 };

inline constexpr int kRegisterDTypes = 5;  // the first five enumerators
inline constexpr int kDTypes = 13;

constexpr size_t size_of(DType dtype) {
  constexpr uint8_t bytes[kDTypes] = {4, 8, 4, 8, 1, 2, 2, 1, 1, 2, 2, 4, 8};
  return bytes[static_cast<int>(dtype)];
}

constexpr const char* name_of(DType dtype) {
  constexpr const char* names[kDTypes] = {"f32", "f64", "i32", "i64", "b8",  "f16", "bf16",
                                          "i8",  "u8",  "i16", "u16", "u32", "u64"};
  return names[static_cast<int>(dtype)];
}

constexpr bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
constexpr bool is_byte(DType dtype) { return dtype == DType::i8 || dtype == DType::u8; }
inline constexpr int64_t kTableEntries = 256;  // of a lookup: one for each byte

// The dtype a tile of this storage dtype has in local memory. u64 has no wider signed type: it is
// carried as i64 bits, which is right for moves, add, sub, mul and equality only; the Python side
// (rules) keeps other u64 arithmetic away from kernels.
constexpr DType register_dtype(DType storage) {
  constexpr DType registers[kDTypes] = {DType::f32, DType::f64, DType::i32, DType::i64, DType::b8,
                                        DType::f32, DType::f32, DType::i32, DType::i32, DType::i32,
                                        DType::i32, DType::i64, DType::i64};
  return registers[static_cast<int>(storage)];
}

}  // namespace dvm
