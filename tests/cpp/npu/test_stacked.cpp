// Programs stacked to one give back each program, its buffers and the table of what cores run;
// programs that are the same lie there once.
#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "npu/simulator/stacked_program.h"

namespace dvm::test {
namespace {

Program random_program(Random& random) {
  std::vector<GridDim> grid(static_cast<size_t>(random.integer(0, 3)));
  for (GridDim& dim : grid) dim.count = random.integer(1, 9);
  const std::vector<ExtentRegister> extents(static_cast<size_t>(random.integer(0, 4)));
  const std::vector<PointerRegister> pointers(static_cast<size_t>(random.integer(0, 3)));
  std::vector<uint64_t> body(static_cast<size_t>(random.integer(0, 40)));
  for (uint64_t& word : body) word = static_cast<uint64_t>(random.integer(0, 1 << 30));
  Program program;
  program.assign({}, grid, extents, pointers, body);
  return program;
}

std::vector<CoreShares> random_cores(Random& random, int64_t programs) {
  std::vector<CoreShares> cores(static_cast<size_t>(random.integer(0, 6)));
  for (CoreShares& core : cores) {
    for (int64_t n = random.integer(0, 3); n > 0; --n) {
      Share& share = core.emplace_back();
      share.program = static_cast<uint32_t>(random.integer(0, programs - 1));
      for (int64_t r = random.integer(1, 3); r > 0; --r) {
        share.groups.push_back({random.integer(0, 50), random.integer(51, 99)});
      }
    }
  }
  return cores;
}

StackedProgram::Stage random_stage(Random& random, const std::vector<Program>& all,
                                   std::deque<std::vector<CoreShares>>& cores) {
  StackedProgram::Stage stage;
  const int64_t programs = random.integer(1, 4);
  for (int64_t p = 0; p < programs; ++p) {
    stage.programs.push_back(&all[static_cast<size_t>(random.integer(0, 4))]);
    stage.buffers.push_back(static_cast<uint64_t>(random.integer(0, 100)));
  }
  const bool known = !cores.empty() && random.chance(0.3);
  stage.cores = known ? &cores.back() : &cores.emplace_back(random_cores(random, programs));
  return stage;
}

void test_everything_comes_back(Random& random, StackedProgram& stacked) {
  std::vector<Program> all;
  for (int i = 0; i < 5; ++i) all.push_back(random_program(random));
  std::vector<StackedProgram::Stage> stages;
  std::deque<std::vector<CoreShares>> cores;
  std::set<const Program*> different;
  size_t words = 0;
  for (int64_t n = random.integer(1, 4); n > 0; --n) {
    stages.push_back(random_stage(random, all, cores));
    for (const Program* program : stages.back().programs) {
      if (different.insert(program).second) words += program->words().size();
    }
  }
  stacked.assign(stages);
  CHECK(stacked.stages() == stages.size());
  CHECK(stacked.different_programs() == different.size());
  CHECK(stacked.words().size() > words);
  for (size_t s = 0; s < stages.size(); ++s) {
    const StackedProgram::Stage& stage = stages[s];
    const std::vector<ProgramView> found = stacked.programs(s);
    CHECK(found.size() == stage.programs.size());
    for (size_t p = 0; p < found.size(); ++p) {
      CHECK(std::ranges::equal(found[p].words(), stage.programs[p]->words()));
      const uint64_t* const at = found[p].words().data();
      CHECK(at >= stacked.words().data() && at < stacked.words().data() + stacked.words().size());
    }
    CHECK(stacked.buffers(s) == stage.buffers);
    CHECK(stacked.cores(s) == *stage.cores);
  }
  const Program* const one = stages[0].programs[0];
  stages[0].programs.push_back(one);
  stages[0].buffers.push_back(0);
  const size_t before = stacked.words().size();
  stacked.assign(stages);
  CHECK(stacked.words().size() == before + 2);  // its entry
  stages.push_back({{one}, {0}, stages[0].cores});
  stacked.assign(stages);
  CHECK(stacked.words().size() == before + 2 + 2 + 4);  // and a stage
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  dvm::StackedProgram stacked;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    context = "seed " + std::to_string(seed);
    Random random(seed);
    test_everything_comes_back(random, stacked);
  }
  return report("stacked");
}
