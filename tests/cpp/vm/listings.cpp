#include "listings.h"

#include <string>

#include "../targets.h"
#include "check.h"
#include "common_kernels.h"
#include "vm/disassemble.h"

namespace dvm::testing {
namespace {

// The vector cores of the paper's example: 40 cores, memory apart, costs counted as it does.
Target paper_target() {
  Target target = plain_target();
  target.name = "paper";
  target.cores = 40;
  target.local_bytes = 192 << 10;
  target.vector_tile_bytes = target.local_bytes;
  target.vector_bytes = 64;  // 16 elements: 32 bytes of f16 in global memory, f32 in registers
  target.unified_memory = false;
  target.joins = target.fetches = false;
  target.costs.tile_start = 2 * kVectorElement;
  return target;
}

void check_listing(const PlanBuilder& b, const Target& target, const std::string& expected) {
  CompilerScratch scratch;
  CompiledKernel kernel;
  const CompileStatus status =
      compile_kernel(b.plan, b.dims.data(), b.values.data(), target, scratch, kernel);
  CHECK(status == CompileStatus::ok, "status %d", static_cast<int>(status));
  std::string text;
  for (uint32_t p = 0; p < kernel.program_count; ++p) text += disassemble(kernel.programs[p]);
  CHECK(text == expected, "%s became\n%s", b.plan.name.c_str(), text.c_str());
}

PlanBuilder add(int64_t rows, int64_t columns) {
  PlanBuilder b;
  b.plan.name = "add";
  b.axis(rows);
  b.axis(columns);
  const int32_t x = b.input(DType::f16, 0b11), y = b.input(DType::f16, 0b11);
  b.output(b.map(PlanOp::add_, {x, y}), DType::f16);
  return b;
}

// Paper, section 4: over 32768 elements the best tile for 40 cores is 820, 832 once it is aligned;
// there are 40 tiles, and the last of them is not padded.
void check_paper_example() {
  check_listing(add(32, 1024), paper_target(), R"(program vector
  grid d0: 40 tiles of 832 in 32768
  tiles 40 per_core 1 group 1 claim 1 chunks 1 local 0x1a00
  e1 = 1 * d0
  p0 = v0 + 0 in [0, 65536) d0: 1664
  p1 = v1 + 0 in [0, 65536) d0: 1664
  p2 = v2 + 0 in [0, 65536) d0: 1664
body
  d_load_f16 [1,1,e1] l:0x0(0,0,1) <- p0(0,0,1)
  d_load_f16 [1,1,e1] l:0xd00(0,0,1) <- p1(0,0,1)
  v_add_f32 [1,1,e1] l:0x0(0,0,1) <- l:0x0(0,0,1), l:0xd00(0,0,1)
  d_store_f16 [1,1,e1] p2(0,0,1) <- l:0x0(0,0,1)
end
)");
}

// The pipes of a core run beside one another: a load waits for the store of the tile before.
void check_flags() {
  Target target = paper_target();
  run_pipes(target, 8);
  check_listing(add(32, 1024), target, R"(program vector
  grid d0: 40 tiles of 832 in 32768
  tiles 40 per_core 1 group 1 claim 1 chunks 1 local 0x2700
  e1 = 1 * d0
  p0 = v0 + 0 in [0, 65536) d0: 1664
  p1 = v1 + 0 in [0, 65536) d0: 1664
  p2 = v2 + 0 in [0, 65536) d0: 1664
body
  s_wait_flag vector -> mte2 event 7 across 1
  d_load_f16 [1,1,e1] l:0x0(0,0,1) <- p0(0,0,1)
  d_load_f16 [1,1,e1] l:0xd00(0,0,1) <- p1(0,0,1)
  s_set_flag mte2 -> vector event 0
  s_wait_flag mte2 -> vector event 0
  s_wait_flag mte3 -> vector event 7 across 1
  v_add_f32 [1,1,e1] l:0x1a00(0,0,1) <- l:0x0(0,0,1), l:0xd00(0,0,1)
  s_set_flag vector -> mte2 event 7 across 1
  s_set_flag vector -> mte3 event 0
  s_wait_flag vector -> mte3 event 0
  d_store_f16 [1,1,e1] p2(0,0,1) <- l:0x1a00(0,0,1)
  s_set_flag mte3 -> vector event 7 across 1
end
)");
}

}  // namespace

void check_listings() {
  check_paper_example();
  check_flags();
}

}  // namespace dvm::testing
