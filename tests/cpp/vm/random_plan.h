// Random kernel plans and targets. Data are small multiples of a quarter and the operators keep
// them exact, so that the order of additions does not show.
#pragma once

#include <random>

#include "plan_builder.h"
#include "vm/target.h"

namespace dvm::testing {

using Random = std::mt19937;

PlanBuilder random_vector_plan(Random& random);
// `columns_per_panel` of f32; f64 has half of it.
PlanBuilder random_cube_plan(Random& random, int columns_per_panel);
// Few points of C and a long k, which is worth splitting.
PlanBuilder random_deep_plan(Random& random, int columns_per_panel);
// Levels, scales and zeros for B operands of a few bits, whose words are no numbers.
void fill_levels(const PlanBuilder& b, int columns_per_panel, Buffers& buffers, Random& random);
Target random_target(Random& random);

}  // namespace dvm::testing
