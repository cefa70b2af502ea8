// Tests of the run-time compiler and the virtual machine against the reference evaluation of plans.
//
//   test_vm [first seed] [number of seeds]      random plans; a failure names its seed
//   test_vm bench                               compile times of common kernels
//   test_vm show                                their programs
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bench.h"
#include "cases.h"
#include "check.h"
#include "listings.h"
#include "npu/simulator/flag_audit.h"
#include "pipes.h"
#include "products.h"
#include "random_plan.h"
#include "reference_device.h"
#include "reference_plan.h"
#include "rejections.h"
#include "vm/assemble.h"
#include "vm/disassemble.h"
#include "vm/interpret.h"
#include "vm/resize.h"
#include "vm/verify.h"

namespace dvm::testing {
namespace {

struct Outcome {
  int compiled = 0, empty = 0, unfit = 0, split = 0;
  int resized = 0;            // made for more than there is
  int64_t largest_unfit = 0;  // the largest local memory that a plan did not fit
  FlagCounts flags;
};

void check_text(const Program& program, unsigned seed) {
  static const std::string names[] = {"x", "a; b", "e1 = 7", "body\nend", "encoder/0/weight"};
  const std::string text = disassemble(program), named = disassemble(program, names);
  try {
    CHECK(assemble(text) == program, "seed %u: text does not read back\n%s", seed, text.c_str());
    CHECK(assemble(named) == program, "seed %u: nor with names\n%s", seed, named.c_str());
  } catch (const AssemblyError& error) {
    CHECK(false, "seed %u: %s\n%s", seed, error.what(), text.c_str());
  }
}

constexpr int64_t kQuickTiles = 200, kQuickExtent = 2000;
constexpr int64_t kAuditedTiles = 12;  // flags are left out one by one, over and over
constexpr unsigned kAuditedSeeds = 4;

bool is_quick(const Program& program) {
  int64_t extent = 1;
  for (const ExtentRegister& e : program.extents())
    extent = std::max<int64_t>(extent, e.multiplier);
  return program.header().tiles <= kQuickTiles && extent <= kQuickExtent;
}

// What the verifier lets pass of a program with a flipped bit computes nonsense, but stays inside
// its memory: an address sanitizer watches.
void check_mutations(const PlanBuilder& b, const Program& program, int64_t workspace,
                     const Target& target, const Buffers& data, Random& random) {
  for (int i = 0; i < 8; ++i) {
    Program broken = program;
    const size_t word = random() % broken.words().size();
    broken.mutable_words()[word] ^= uint64_t{1} << (random() % 64);
    if (!verify(broken, b.values.data(), b.values.size(), workspace, target).empty()) continue;
    if (!is_quick(broken)) continue;
    Buffers scrap(b.values, workspace);
    scrap.copy_from(data, b.values);
    std::vector<std::byte> local(static_cast<size_t>(broken.header().local_bytes), std::byte{1});
    Core core;
    core.local = local.data();
    core.local_bytes = local.size();
    run_tiles(broken, reference::device(), core, scrap.table(), 0, broken.header().tiles);
  }
}

void run_out_of_order(const PlanBuilder& b, const CompiledKernel& kernel, const Target& target,
                      const Buffers& want, Buffers& got, Random& random, unsigned seed,
                      Outcome& outcome) {
  std::vector<std::byte> local(static_cast<size_t>(target.local_bytes), std::byte{0x5a});
  for (uint32_t p = 0; p < kernel.program_count; ++p) {
    const Program& program = kernel.programs[p];
    Core core;
    core.local = local.data();
    core.local_bytes = local.size();
    if (seed % kAuditedSeeds == 0 && program.header().tiles <= kAuditedTiles) {
      const Task task{&program, got.table(), program.header().tiles, 1};
      outcome.flags.add(audit_flags({&task, 1}, target, reference::device(), {&core, 1}));
    }
    CHECK(run_tiles_out_of_order(program, reference::device(), core, got.table(), 0,
                                 program.header().tiles, random),
          "seed %u: the pipes block each other\n%s", seed, disassemble(program).c_str());
  }
  const std::string wrong = difference(b.values, want, got, 1e-4);
  CHECK(wrong.empty(), "seed %u, out of order: %s", seed, wrong.c_str());
}

void check_plan(const PlanBuilder& b, const Target& target, unsigned seed, CompilerScratch& scratch,
                CompiledKernel& kernel, Apart apart, Outcome& outcome,
                const int64_t* room = nullptr) {
  Random random(seed * 7919 + 1);
  const CompileStatus status =
      compile_kernel(b.plan, b.dims.data(), b.values.data(), target, scratch, kernel, apart, room);
  if (room != nullptr) resize(kernel, b.plan, b.dims.data(), target);
  outcome.resized += kernel.open.size() > 0;
  if (status == CompileStatus::wants_extents) return;
  if (status == CompileStatus::does_not_fit) {
    ++outcome.unfit;
    outcome.largest_unfit = std::max(outcome.largest_unfit, target.local_bytes);
    return;
  }
  if (status == CompileStatus::costs_more) {  // than a fallback, which random plans have not
    ++outcome.unfit;
    return;
  }
  outcome.split += kernel.stages.size() > 1;
  ++(status == CompileStatus::ok ? outcome.compiled : outcome.empty);
  Buffers want(b.values, 0), got(b.values, kernel.workspace_bytes);
  want.randomise(b.values, random);
  fill_levels(b, reference::kColumnsPerPanel, want, random);
  got.copy_from(want, b.values);
  Buffers again(b.values, kernel.workspace_bytes);
  again.copy_from(want, b.values);
  for (uint32_t p = 0; p < kernel.program_count; ++p) {
    const Program& program = kernel.programs[p];
    const std::string error =
        verify(program, b.values.data(), b.values.size(), kernel.workspace_bytes, target);
    CHECK(error.empty(), "seed %u: %s\n%s", seed, error.c_str(), disassemble(program).c_str());
    if (!error.empty()) return;
    check_text(program, seed);
    check_mutations(b, program, kernel.workspace_bytes, target, again, random);
  }
  reference::run_plan(b.plan, b.dims.data(), b.values.data(), want.table(),
                      reference::kColumnsPerPanel);
  const Trap trap = run_kernel(kernel, reference::device(), target.cores,
                               static_cast<size_t>(target.local_bytes), got.table());
  CHECK(trap.kind == TrapKind::none, "seed %u: trap", seed);
  const std::string wrong = difference(b.values, want, got, 1e-4);
  CHECK(wrong.empty(), "seed %u: %s\n%s", seed, wrong.c_str(),
        kernel.program_count ? disassemble(kernel.programs[0]).c_str() : "");
  if (target.event_flags > 0 && wrong.empty()) {
    run_out_of_order(b, kernel, target, want, again, random, seed, outcome);
  }
}

template <typename Make>
Outcome check_random_plans(unsigned first, unsigned count, Make make, Apart apart = Apart::never) {
  Outcome outcome;
  CompilerScratch scratch;  // shared: earlier kernels must not show in later ones
  CompiledKernel kernel;
  for (unsigned seed = first; seed < first + count; ++seed) {
    Random random(seed);
    const PlanBuilder b = make(random);
    check_plan(b, random_target(random), seed, scratch, kernel, apart, outcome);
  }
  return outcome;
}

// As above, for more elements along some axes than there are.
template <typename Make>
Outcome check_random_room(unsigned first, unsigned count, Make make) {
  Outcome outcome;
  CompilerScratch scratch;
  CompiledKernel kernel;
  for (unsigned seed = first; seed < first + count; ++seed) {
    Random random(seed);
    const PlanBuilder b = make(random);
    std::vector<int64_t> room;
    for (const DimSlot slot : b.plan.extents) {
      const int64_t extent = b.dims[static_cast<size_t>(slot)];
      const bool open = extent > 0 && random() % 2 == 0;
      room.push_back(open ? extent + static_cast<int64_t>(random() % (2 * extent + 20)) : 0);
    }
    check_plan(b, random_target(random), seed, scratch, kernel, Apart::never, outcome, room.data());
  }
  return outcome;
}

void report(const char* what, const Outcome& o) {
  std::printf("%s: %d compiled (%d of them split), ", what, o.compiled, o.split);
  std::printf("%d empty, %d do not fit, the largest memory %d bytes\n", o.empty, o.unfit,
              static_cast<int>(o.largest_unfit));
  const FlagCounts& f = o.flags;
  std::printf("    %d waits: without one %d are unbalanced and, without its set, %d unordered, ",
              static_cast<int>(f.waits), static_cast<int>(f.unbalanced),
              static_cast<int>(f.unordered));
  std::printf("%d of which show in the numbers\n", static_cast<int>(f.seen));
  CHECK(f.unbalanced == f.waits, "%s: a wait is missing and nobody notices", what);
  CHECK(f.mistaken == 0, "%s: %d flags are needed that the verifier takes for spare", what,
        static_cast<int>(f.mistaken));
}

// A valid plan compiles, taken apart if need be, on every device that options allow.
void report_apart(const char* what, const Outcome& o) {
  report(what, o);
  constexpr int64_t kLeastLocalBytes = 4096;  // of Options.local_bytes
  CHECK(o.largest_unfit < kLeastLocalBytes, "%s: one does not fit %d bytes", what,
        static_cast<int>(o.largest_unfit));
}

}  // namespace
}  // namespace dvm::testing

int main(int argc, char** argv) {
  using namespace dvm::testing;
  if (argc > 1 && std::strcmp(argv[1], "bench") == 0) return run_bench();
  if (argc > 1 && std::strcmp(argv[1], "show") == 0) return run_show();
  const unsigned first = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 0;
  const unsigned count = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 400;
  check_cases();
  check_rejections();
  check_listings();
  check_products();
  report("vector plans", check_random_plans(first, count, random_vector_plan));
  report("cube plans", check_random_plans(first, count, [](Random& random) {
           return random_cube_plan(random, dvm::reference::kColumnsPerPanel);
         }));
  const Outcome deep = check_random_plans(first, count, [](Random& random) {
    return random_deep_plan(random, dvm::reference::kColumnsPerPanel);
  });
  report("deep plans", deep);
  report_apart("vector plans, apart",
               check_random_plans(first, count, random_vector_plan, dvm::Apart::always));
  report_apart(
      "cube plans, apart",
      check_random_plans(
          first, count,
          [](Random& random) { return random_cube_plan(random, dvm::reference::kColumnsPerPanel); },
          dvm::Apart::always));
  CHECK(deep.split > 0, "no product was split along k");
  const auto report_room = [&](const char* what, const Outcome& o) {
    report(what, o);
    std::printf("    %d for more than there is\n", o.resized);
    CHECK(o.resized > static_cast<int>(count) / 20, "%s: few have room", what);
  };
  report_room("vector plans with room", check_random_room(first, count, random_vector_plan));
  report_room("cube plans with room", check_random_room(first, count, [](Random& random) {
                return random_cube_plan(random, dvm::reference::kColumnsPerPanel);
              }));
  std::printf("%d checks, %d failures\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
