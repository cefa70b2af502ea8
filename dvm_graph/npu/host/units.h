// The parts of a level's instruction table. Each part is one source file, compiled once per level;
// every row of isa.def belongs to exactly one part, which fails to compile if it lacks a handler.
#pragma once

#include "npu/host/level_info.h"
#include "vm/core.h"

namespace dvm {

enum class Part : uint8_t {
  none,
  arithmetic,
  math,
  conversion,
  reduce,
  dma,
  cube,
  half,
  integer,
  block,
  rounded,
  window,
  window_product
};

constexpr bool is_math(Family family) {
  return (family >= Family::v_exp && family <= Family::v_sigmoid) || family == Family::v_pow;
}

constexpr Part part_of(Family family, Form form, DType dtype) {
  // The host computes halves as f32. Those that it only moves are f16, whatever they are.
  if (is_in_halves(family, dtype)) {
    if (dtype != DType::f16) return Part::none;
    if (family == Family::v_copy || family == Family::v_broadcast) return Part::arithmetic;
    return info_of(family).queue == Queue::vector ? Part::none : Part::dma;
  }
  switch (form) {
    case Form::sync:     // the host device executes in order
    case Form::load_l1:  // and its cores have one local memory
    case Form::load_l0a:
    case Form::load_l0b:
    case Form::load_bias:
    case Form::mmad:
    case Form::mmad_bias:
    case Form::store_l0c: return Part::none;
    case Form::load:
    case Form::store:
    case Form::gather:
    case Form::prefetch:
    case Form::pack_b:
    case Form::pack_b_transformed: return Part::dma;
    case Form::pack_b_stored:
    case Form::matmul_widen: return Part::half;
    case Form::matmul_blocks:
      return family == Family::m_matmul_blocks ? Part::block : Part::rounded;
    case Form::depthwise_bytes:
    case Form::depthwise_quantize:
    case Form::matmul_quantize: return Part::integer;
    case Form::pack_b_bundles:
    case Form::pack_a_bundles:
    case Form::matmul_bundles:
      return dtype_list::BYTES & dtype_list::bit(dtype) ? Part::integer : Part::half;
    case Form::pack_patches:
    case Form::pool:
    case Form::depthwise: return Part::window;
    case Form::matmul:
    case Form::matmul_clamp: return Part::cube;
    case Form::matmul_windows:
    case Form::matmul_transformed: return Part::window_product;
    case Form::reduce: return Part::reduce;
    case Form::unary:
    case Form::binary: return is_math(family) ? Part::math : Part::arithmetic;
    default: return Part::conversion;
  }
}

// Loops that keep one unit of a core as busy as it can be. `count` is of f32 elements, a multiple
// of 512 bytes in all; `copy` stores around the caches, to addresses aligned to 64 bytes.
struct Limits {
  int64_t (*multiply_add)(int64_t steps);  // returns the f32 operations it did
  void (*copy)(float* to, const float* from, int64_t count);
  void (*read)(const float* from, int64_t count);
};

// What the sources of one level export, in the level's own namespace.
#define DVM_DECLARE_LEVEL(level)                      \
  namespace level {                                   \
  void fill_arithmetic(Handler* handlers);            \
  void fill_math(Handler* handlers);                  \
  void fill_conversion(Handler* handlers);            \
  void fill_reduce(Handler* handlers);                \
  void fill_dma(Handler* handlers);                   \
  void fill_cube(Handler* handlers);                  \
  void fill_half(Handler* handlers);                  \
  void fill_integer(Handler* handlers);               \
  void fill_block(Handler* handlers);                 \
  void fill_rounded(Handler* handlers);               \
  void fill_window(Handler* handlers);                \
  void fill_window_product(Handler* handlers);        \
  const uint64_t* run_joined(Core&, const uint64_t*); \
  extern const LevelInfo level_info;                  \
  extern const Limits limits;                         \
  }

#if defined(__x86_64__)
DVM_DECLARE_LEVEL(x86_64)
DVM_DECLARE_LEVEL(x86_64_v3)
DVM_DECLARE_LEVEL(x86_64_v4)
DVM_DECLARE_LEVEL(x86_64_v4_bf16)  // its half unit is all there is of it
DVM_DECLARE_LEVEL(x86_64_v4_vnni)  // its units of bytes
DVM_DECLARE_LEVEL(x86_64_v4_amx)   // its units of products
#endif
DVM_DECLARE_LEVEL(portable)

}  // namespace dvm
