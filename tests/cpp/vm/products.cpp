#include "products.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "../targets.h"
#include "check.h"
#include "npu/simulator/cube_values.h"
#include "npu/simulator/half_values.h"
#include "npu/simulator/queues.h"
#include "plan_builder.h"
#include "random_plan.h"
#include "reference_device.h"
#include "reference_plan.h"
#include "vm/assemble.h"
#include "vm/disassemble.h"
#include "vm/shares.h"
#include "vm/verify.h"

namespace dvm::testing {
namespace {

// Small memories, so that small products have many chunks and steps.
Target cube_target() {
  Target target = plain_target();
  target.name = "cube";
  target.cores = 4;
  target.cube_cores = 2;
  target.local_bytes = target.vector_tile_bytes = 4096;
  target.l1_bytes = 8192;
  target.l0a_bytes = target.l0b_bytes = 1024;
  target.l0c_bytes = 4096;
  target.bias_bytes = 256;
  target.shared_bytes = 1 << 20;
  target.costs.stage_start = 1e12;  // pairs pay
  target.line_bytes = 16;
  target.matmul_nr = target.matmul_mr = 8;
  target.unified_memory = false;
  run_pipes(target, 8);
  return target;
}

struct Problem {
  int64_t batch, m, n, k;
  DType multiplied, stored;
  bool turned_a, turned_b;  // k outermost in A, innermost in B
  bool one_b;               // for the whole batch
  bool bias, relu;
  bool matrix = false;                        // one is added, and the sum multiplied by a row
  enum { given, mapped, reduced } a = given;  // A is computed, element by element or along its rows

  uint32_t programs() const { return 1u + matrix + (a != given); }

  std::string text() const {
    return std::to_string(batch) + " x [" + std::to_string(m) + ", " + std::to_string(k) + "] x [" +
           std::to_string(k) + ", " + std::to_string(n) + "] " + name_of(multiplied) + " to " +
           name_of(stored) + (turned_a ? ", A turned" : "") + (turned_b ? ", B turned" : "") +
           (one_b ? ", one B" : "") + (bias ? ", bias" : "") + (relu ? ", relu" : "") +
           (matrix ? ", a matrix added" : "") +
           (a == given    ? ""
            : a == mapped ? ", A computed"
                          : ", A computed along its rows");
  }
};

PlanBuilder build(const Problem& p) {
  PlanBuilder b;
  const int batch = b.axis(p.batch), m = b.axis(p.m), n = b.axis(p.n), k = b.axis(p.k);
  const auto set = [](std::initializer_list<int> axes) {
    uint32_t all = 0;
    for (const int axis : axes) all |= 1u << axis;
    return all;
  };
  b.plan.kind =
      p.bias || p.relu || p.matrix || p.a != Problem::given ? KernelKind::mix : KernelKind::cube;
  b.plan.m_axis = m;
  b.plan.n_axis = n;
  b.plan.k_axis = k;
  const Access a = p.turned_a ? b.dense(p.multiplied, {batch, k, m}, 3)
                              : b.dense(p.multiplied, {batch, m, k}, 0, 1);
  std::vector<int> of_b = p.turned_b ? std::vector<int>{n, k} : std::vector<int>{k, n};
  uint32_t b_axes = set({k, n});
  if (!p.one_b) {
    of_b.insert(of_b.begin(), batch);
    b_axes |= set({batch});
  }
  int32_t left = b.load(a, set({batch, m, k}));
  if (p.a == Problem::reduced)
    left = b.map(PlanOp::sub_, {left, b.reduce(PlanOp::reduce_max_, left, set({k}))});
  if (p.a != Problem::given) left = b.map(PlanOp::max_, {left, b.fill(DType::f32, -1)});
  const int32_t right = b.load(b.dense(p.multiplied, of_b), b_axes);
  int32_t c = b.matmul(left, right);
  if (p.bias) {
    c = b.map(PlanOp::add_, {c, b.load(b.dense(p.stored, {n}), set({n}))});
  }
  if (p.relu) c = b.map(PlanOp::max_, {c, b.fill(DType::f32, 0)});
  if (p.matrix) {
    const uint32_t all = set({batch, m, n});
    c = b.map(PlanOp::add_, {c, b.load(b.dense(p.stored, {batch, m, n}), all)});
    c = b.map(PlanOp::mul_, {b.load(b.dense(p.stored, {n}), set({n})), c});
  }
  b.store(c, b.dense(p.stored, {batch, m, n}), set({batch, m, n}));
  return b;
}

const InstructionTable& table() {
  static const InstructionTable made = with_halves(with_cube_memories(reference::device()));
  return made;
}

// A kernel of one program, or of a pair.
using Programs = std::vector<Program>;

// By this order of queues, or in order where there is none; `turn` says which core of a pair comes
// first. False: queues wait for each other.
bool run_shares(const Programs& programs, const Target& target, std::byte* const* buffers,
                const QueueOrder* order, size_t turn) {
  const auto lanes = static_cast<size_t>(programs[0].header().lanes());
  std::vector<std::vector<std::byte>> local(
      1 + lanes, std::vector<std::byte>(static_cast<size_t>(target.memory_end()), std::byte{0x5a}));
  for (int64_t number = 0; number < target.cube_cores; ++number) {
    std::vector<GroupRange> groups;
    share_of(programs[0], number, target.cube_cores, groups);
    std::vector<Core> cores(1 + lanes);
    std::vector<QueuedCore> queued;
    for (size_t place = 0; place <= lanes; ++place) {
      cores[place].local = local[place].data();
      cores[place].local_bytes = local[place].size();
      queued.push_back({&programs[half_of(programs[0].header(), place)], &cores[place], buffers,
                        groups, number, static_cast<int64_t>(place) - 1});
    }
    if (order == nullptr) {
      run_in_order(queued, table());
      continue;
    }
    std::ranges::rotate(queued, queued.begin() + static_cast<std::ptrdiff_t>(turn % queued.size()));
    if (!run_queues(queued, table(), *order)) return false;
  }
  return true;
}

bool equal_bits(const PlanBuilder& b, const Buffers& x, const Buffers& y) {
  for (size_t v = 0; v < b.values.size(); ++v) {
    if (std::memcmp(x.at(v), y.at(v), static_cast<size_t>(b.values[v].bytes)) != 0) return false;
  }
  return true;
}

struct Flags {
  int waits = 0, caught = 0;
};

// Runs the programs by every adversarial order, every core of a pair first; returns whether all
// gave the bits that are wanted.
bool same_for_all_orders(const PlanBuilder& b, const Programs& programs, const Target& target,
                         int64_t workspace, const Buffers& inputs, const Buffers& want) {
  for (const QueueOrder& order : adversarial_orders()) {
    for (size_t turn = 0; turn <= static_cast<size_t>(programs[0].header().lanes()); ++turn) {
      Buffers got(b.values, workspace);
      got.copy_from(inputs, b.values);
      if (!run_shares(programs, target, got.table(), &order, turn) || !equal_bits(b, want, got))
        return false;
    }
  }
  return true;
}

// Leaves out one wait after the other.
void check_missing_flags(const PlanBuilder& b, const CompiledKernel& kernel, const Target& target,
                         const Buffers& inputs, const Buffers& want, const std::string& what,
                         Flags& flags) {
  const Programs whole(kernel.programs.begin(), kernel.programs.begin() + kernel.program_count);
  for (size_t number = 0; number < whole.size(); ++number) {
    const Program& program = whole[number];
    const size_t body = program.words().size() - program.body().size();
    for (size_t pc = 0; pc < program.body().size(); pc += head_of(&program.body()[pc]).words) {
      Head head = head_of(&program.body()[pc]);
      if (family_of(head) != Family::s_wait_flag) continue;
      Programs broken = whole;
      head.opcode = opcode_of(Family::s_barrier, DType::f32);
      std::memcpy(broken[number].mutable_words() + body + pc, &head, sizeof head);
      const std::string wait = disassemble_instruction(&program.body()[pc]);
      CHECK(
          !verify(broken[number], b.values.data(), b.values.size(), kernel.workspace_bytes, target)
               .empty(),
          "%s without %s passes", what.c_str(), wait.c_str());
      const bool same =
          same_for_all_orders(b, broken, target, kernel.workspace_bytes, inputs, want);
      CHECK(!same, "%s without %s at word %zu computes the same\n%s", what.c_str(), wait.c_str(),
            pc, disassemble(program).c_str());
      ++flags.waits;
      flags.caught += !same;
    }
  }
}

// Rings that are not what the halves agree on.
void check_broken_rings(const PlanBuilder& b, const CompiledKernel& kernel, const Target& target,
                        const std::string& what) {
  for (uint32_t number = 0; number < kernel.program_count; ++number) {
    const auto passes = [&](const char* how, auto change) {
      CompiledKernel broken = kernel;
      Program& program = broken.programs[number];
      ProgramHeader header = program.header();
      change(header);
      const std::vector<uint64_t> body(program.body().begin(), program.body().end());
      program.assign(header, kernel.programs[number].grid(), kernel.programs[number].extents(),
                     kernel.programs[number].pointers(), body);
      CHECK(!verify_kernel(broken, b.values.data(), b.values.size(), target).empty(),
            "%s passes with %s in program %u", what.c_str(), how, number);
    };
    for (const Handed handed : kHanded) {
      if (!kernel.programs[number].header().ring(handed).exists()) continue;
      passes("more slots", [&](ProgramHeader& header) { ++header.ring(handed).slots; });
      passes("shorter slots", [&](ProgramHeader& header) { header.ring(handed).bytes -= 64; });
      passes("other lanes", [&](ProgramHeader& header) { ++header.ring(handed).first_lane; });
      passes("no ring", [&](ProgramHeader& header) { header.ring(handed) = {}; });
      if (handed == Handed::rows)
        passes("longer lines", [&](ProgramHeader& header) { ++header.line_blocks; });
    }
    const ProgramHeader& header = kernel.programs[number].header();
    if (header.beside_cube() && header.pieces < header.line_tiles)
      passes("other pieces", [&](ProgramHeader& header) { ++header.pieces; });
  }
  if (kernel.program_count == 1) return;
  CompiledKernel missing = kernel;
  --missing.program_count;
  --missing.stages[0].program_count;
  CHECK(!verify_kernel(missing, b.values.data(), b.values.size(), target).empty(),
        "%s passes without its last half", what.c_str());
}

void check_problem(const Problem& p, unsigned seed, Flags& flags) {
  const PlanBuilder b = build(p);
  const Target target = cube_target();
  const std::string what = p.text();
  CompilerScratch scratch;
  CompiledKernel kernel;
  const CompileStatus status =
      compile_kernel(b.plan, b.dims.data(), b.values.data(), target, scratch, kernel);
  const uint32_t expected = p.programs();
  CHECK(
      status == CompileStatus::ok && kernel.program_count == expected && kernel.stages.size() == 1,
      "%s: status %d, %u programs", what.c_str(), static_cast<int>(status), kernel.program_count);
  if (status != CompileStatus::ok || kernel.program_count != expected) return;
  const Programs programs(kernel.programs.begin(), kernel.programs.begin() + kernel.program_count);
  std::string text;
  for (const Program& program : programs) {
    const std::string listing = disassemble(program);
    text += listing;
    CHECK(assemble(listing) == program, "%s: text does not read back\n%s", what.c_str(),
          listing.c_str());
  }
  CHECK(text.find("m_mmad") != std::string::npos, "%s: not on the cube unit\n%s", what.c_str(),
        text.c_str());
  const std::string error = verify_kernel(kernel, b.values.data(), b.values.size(), target);
  CHECK(error.empty(), "%s: %s\n%s", what.c_str(), error.c_str(), text.c_str());
  if (!error.empty()) return;
  Random random(seed);
  const int64_t workspace = kernel.workspace_bytes;
  Buffers inputs(b.values, 0), want(b.values, 0), got(b.values, workspace);
  inputs.randomise(b.values, random);
  want.copy_from(inputs, b.values);
  got.copy_from(inputs, b.values);
  reference::run_plan(b.plan, b.dims.data(), b.values.data(), want.table(),
                      reference::kColumnsPerPanel);
  run_shares(programs, target, got.table(), nullptr, 0);
  // Quarters, whose sums are exact in f32, are rounded once.
  const std::string wrong = difference(b.values, want, got, 0);
  CHECK(wrong.empty(), "%s: %s\n%s", what.c_str(), wrong.c_str(), text.c_str());
  CHECK(same_for_all_orders(b, programs, target, workspace, inputs, got),
        "%s: an order of queues differs\n%s", what.c_str(), text.c_str());
  check_missing_flags(b, kernel, target, inputs, got, what, flags);
  check_broken_rings(b, kernel, target, what);
}

}  // namespace

void check_products() {
  constexpr DType f16 = DType::f16, bf16 = DType::bf16, f32 = DType::f32;
  const Problem problems[] = {
      {1, 45, 53, 150, f16, f16, false, false, false, false, false},
      {1, 45, 53, 150, f16, f32, false, false, false, true, false},
      {1, 33, 64, 97, bf16, bf16, true, true, false, true, true},
      {3, 20, 17, 64, f32, f32, false, true, false, false, false},
      {3, 20, 40, 77, f16, f16, true, false, true, false, true},
      {3, 1, 100, 40, f16, f16, false, false, false, false, false},
      {1, 7, 5, 1, f16, f16, false, false, false, true, false},
      {1, 150, 170, 40, f16, f16, false, false, false, false, false, true},
      {1, 301, 65, 97, f16, f16, false, false, false, true, false, true},
      {3, 64, 140, 33, f32, f32, false, true, true, false, true, true},
      {1, 150, 170, 40, f16, f16, false, false, false, false, false, false, Problem::mapped},
      {1, 130, 65, 97, f16, f16, false, true, false, true, true, false, Problem::reduced},
      {3, 45, 140, 33, f32, f32, false, true, false, false, false, true, Problem::mapped},
      {3, 100, 17, 50, f32, f32, false, false, true, false, false, true, Problem::reduced},
      {7, 1, 100, 300, f32, f32, false, false, false, false, false, false, Problem::mapped},
  };
  Flags flags;
  unsigned seed = 0;
  for (const Problem& problem : problems) check_problem(problem, seed++, flags);
  std::printf("products: %d waits, %d of them caught when left out\n", flags.waits, flags.caught);
}

}  // namespace dvm::testing
