// Which calls of a body know nothing of each other, turn after turn.
#include "checks.h"
#include "models.h"
#include "runtime/chains.h"

namespace dvm::testing {
namespace {

// Two states, a row and what is captured; intermediate values, states and rows of results.
struct Body {
  Model model = empty_model();
  uint32_t s0 = add_vector(model, "s0", Storage::input);
  uint32_t s1 = add_vector(model, "s1", Storage::input);
  uint32_t row = add_vector(model, "row", Storage::input);
  uint32_t captured = add_vector(model, "captured", Storage::input);
  uint32_t a = add_vector(model, "a", Storage::arena);
  uint32_t b = add_vector(model, "b", Storage::arena);
  uint32_t after0 = add_vector(model, "after0", Storage::output);
  uint32_t after1 = add_vector(model, "after1", Storage::output);
  uint32_t out = add_vector(model, "out", Storage::output);

  void map(std::vector<std::vector<uint32_t>> from, const std::vector<uint32_t>& to) {
    std::vector<uint32_t> calls;
    for (size_t i = 0; i < to.size(); i++) {
      from[i].push_back(captured);
      calls.push_back(
          add_map(model, from[i].size() > 1 ? PlanOp::add_ : PlanOp::neg_, from[i], to[i]));
    }
    add_launch(model, calls);
  }
  std::vector<Chain> chains(bool counted = false) const {
    ControlCall call;
    call.states = 2;
    call.counted = counted;
    return chains_of(model, call);
  }
};

using Marks = std::vector<char>;

void test_two_chains() {
  Body body;
  body.map({{body.s0}, {body.s1}}, {body.a, body.b});
  body.map({{body.a}, {body.b}}, {body.after0, body.after1});
  body.map({{body.after1}}, {body.out});
  const std::vector<Chain> chains = body.chains();
  check(chains.size() == 2, "two chains");
  if (chains.size() != 2) return;
  check(chains[0].calls == Marks{1, 0, 1, 0, 0} && chains[1].calls == Marks{0, 1, 0, 1, 1},
        "calls of two chains");
  check(chains[0].outputs == Marks{1, 0, 0} && chains[1].outputs == Marks{0, 1, 1},
        "outputs of two chains");
  check(body.chains(true).empty(), "a body that says whether to go on");
}

void test_states_that_meet() {
  Body crossed;  // each turn makes a state of the other one
  crossed.map({{crossed.s1}, {crossed.s0}}, {crossed.after0, crossed.after1});
  crossed.map({{crossed.row}}, {crossed.out});
  check(crossed.chains().size() == 2, "states that cross are one chain, beside that of a row");

  Body met;  // in what is collected
  met.map({{met.s0}, {met.s1}}, {met.after0, met.after1});
  met.map({{met.after0, met.after1}}, {met.out});
  check(met.chains().empty(), "states that meet in a result");

  Body read;  // the state before the turn
  read.map({{read.s0}, {read.s1, read.s0}}, {read.after0, read.after1});
  read.map({{read.row}}, {read.out});
  const std::vector<Chain> chains = read.chains();
  check(chains.size() == 2 && chains[0].calls == Marks{1, 1, 0}, "a state that both read");
}

// Its fallback ties a call, and goes with it.
void test_fallbacks() {
  Body body;
  const uint32_t fallback =
      add_map(body.model, PlanOp::add_, {body.s0, body.captured}, body.after0);
  const uint32_t first =
      add_map(body.model, PlanOp::add_, {body.row, body.captured}, body.after0, kIsTwo, {fallback});
  const uint32_t second = add_map(body.model, PlanOp::add_, {body.s1, body.captured}, body.after1);
  add_launch(body.model, {first, second});
  const std::vector<Chain> chains = body.chains();
  check(chains.size() == 2, "two chains, one with a fallback");
  if (chains.size() != 2) return;
  check(chains[0].calls == Marks{1, 1, 0} && chains[1].calls == Marks{0, 0, 1},
        "a fallback goes with its call");
  check(chains[0].outputs == Marks{1, 0, 1}, "the first gives what nobody gives");
}

void test_steps_of_others() {
  Body body;
  body.map({{body.s0}, {body.s1}}, {body.after0, body.after1});
  body.model.steps.emplace_back(VendorCall{{{body.row}, {body.out}, "vendor"}, 0});
  check(body.chains().empty(), "a turn that needs the host");
}

}  // namespace
}  // namespace dvm::testing

int main() {
  using namespace dvm::testing;
  test_two_chains();
  test_states_that_meet();
  test_fallbacks();
  test_steps_of_others();
  return report();
}
