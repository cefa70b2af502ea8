#include "cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <string>

#include "../targets.h"
#include "check.h"
#include "common_kernels.h"
#include "random_plan.h"
#include "reference_device.h"
#include "reference_plan.h"
#include "scalar.h"
#include "vm/assemble.h"
#include "vm/disassemble.h"
#include "vm/interpret.h"
#include "vm/verify.h"

namespace dvm::testing {
namespace {

Target small_target(int cores, int64_t local_bytes = 64 << 10) {
  Target target = plain_target();
  target.cores = cores;
  target.local_bytes = local_bytes;
  target.vector_tile_bytes = local_bytes / 2;
  target.matmul_nr = reference::kColumnsPerPanel;
  target.matmul_mr = 3;
  target.matmul_rows = 12;
  target.costs.tile_start = 64 * kVectorElement;
  return target;
}

struct Compiled {
  CompilerScratch scratch;
  CompiledKernel kernel;
  CompileStatus status;

  Compiled(const PlanBuilder& b, const Target& target)
      : status(compile_kernel(b.plan, b.dims.data(), b.values.data(), target, scratch, kernel)) {}
};

float value_at(const Buffers& buffers, const PlanBuilder& b, size_t value, int64_t index) {
  return static_cast<float>(
      reference::read(
          b.values[value].dtype,
          buffers.at(value) + index * static_cast<int64_t>(size_of(b.values[value].dtype)))
          .real);
}

void check_empty_reductions() {
  PlanBuilder b;
  b.axis(3);
  b.axis(0);
  const int32_t x = b.input(DType::f32, 3);
  b.output(b.reduce(PlanOp::reduce_sum_, x, 2), DType::f32);
  b.output(b.reduce(PlanOp::reduce_max_, x, 2), DType::f32);
  b.output(b.map(PlanOp::neg_, {b.reduce(PlanOp::reduce_prod_, x, 2)}), DType::f32);
  Compiled c(b, small_target(2));
  CHECK(c.status == CompileStatus::ok, "status %d", static_cast<int>(c.status));
  Buffers buffers(b.values, 0);
  run_kernel(c.kernel, reference::device(), 2, 64 << 10, buffers.table());
  for (int i = 0; i < 3; ++i) {
    CHECK(value_at(buffers, b, 1, i) == 0, "sum of nothing");
    CHECK(value_at(buffers, b, 2, i) == -INFINITY, "maximum of nothing");
    CHECK(value_at(buffers, b, 3, i) == -1, "product of nothing");
  }
  PlanBuilder nothing;
  nothing.axis(0);
  nothing.output(nothing.map(PlanOp::neg_, {nothing.input(DType::f32, 1)}), DType::f32);
  CHECK(Compiled(nothing, small_target(2)).status == CompileStatus::empty, "a map over nothing");
}

PlanBuilder long_reduction(int64_t rows, int64_t columns, uint32_t reduced) {
  PlanBuilder b;
  b.axis(rows);
  b.axis(columns);
  const int32_t x = b.input(DType::f32, 3);
  const int32_t squares = b.map(PlanOp::mul_, {x, x});
  const int32_t sum = b.reduce(PlanOp::reduce_sum_, squares, reduced);
  const int32_t greatest = b.reduce(PlanOp::reduce_max_, x, reduced);
  b.output(squares, DType::f32);
  b.output(b.map(PlanOp::add_, {b.map(PlanOp::neg_, {sum}), greatest}), DType::f32);
  return b;
}

// Reductions that are split over cores, or walked in chunks: right, and the same bits for every
// number of cores.
void check_long_reductions(int64_t rows, int64_t columns, uint32_t reduced, size_t stages) {
  const PlanBuilder b = long_reduction(rows, columns, reduced);
  Random random(5);
  Buffers want(b.values, 0);
  want.randomise(b.values, random);
  Buffers start(b.values, 0);
  start.copy_from(want, b.values);
  reference::run_plan(b.plan, b.dims.data(), b.values.data(), want.table(), 8);
  const size_t result = b.values.size() - 1;
  for (const int cores : {1, 2, 5}) {
    Compiled c(b, small_target(cores));
    CHECK(c.status == CompileStatus::ok, "[%d, %d]", static_cast<int>(rows),
          static_cast<int>(columns));
    CHECK(c.kernel.stages.size() == stages, "[%d, %d] has %zu stages", static_cast<int>(rows),
          static_cast<int>(columns), c.kernel.stages.size());
    Buffers got(b.values, c.kernel.workspace_bytes);
    got.copy_from(start, b.values);
    for (uint32_t p = 0; p < c.kernel.program_count; ++p) {
      const std::string error = verify(c.kernel.programs[p], b.values.data(), b.values.size(),
                                       c.kernel.workspace_bytes, small_target(cores));
      CHECK(error.empty(), "%s", error.c_str());
    }
    run_kernel(c.kernel, reference::device(), cores, 64 << 10, got.table());
    CHECK(std::memcmp(want.at(result), got.at(result), b.values[result].bytes) == 0,
          "[%d, %d] on %d cores", static_cast<int>(rows), static_cast<int>(columns), cores);
    CHECK(std::memcmp(want.at(1), got.at(1), b.values[1].bytes) == 0, "the map beside it");
  }
}

void check_tiles() {
  Compiled c(exp_and_sum(2048, 32001), small_target(2, 256 << 10));
  const std::span<const GridDim> grid = c.kernel.programs[0].grid();
  CHECK(grid.size() == 1 && grid[0].whole == 2048 && grid[0].tile >= 1, "tiles of whole rows");
  PlanBuilder b;
  b.axis(2);
  b.axis(999983);  // a prime
  b.output(b.map(PlanOp::exp_, {b.input(DType::f32, 1 | 2)}), DType::f32);
  Compiled d(b, small_target(2, 64 << 10));
  CHECK(d.kernel.programs[0].header().tiles < 1000, "a prime extent in %d tiles",
        static_cast<int>(d.kernel.programs[0].header().tiles));
}

PlanBuilder product(int64_t m, int64_t n, int64_t k) {
  PlanBuilder b;
  b.plan.kind = KernelKind::cube;
  b.plan.m_axis = b.axis(m);
  b.plan.n_axis = b.axis(n);
  b.plan.k_axis = b.axis(k);
  const int32_t left = b.input(DType::f32, 0b101);
  const int32_t right = b.load(b.dense(DType::f32, {2, 1}), 0b110);
  b.output(b.matmul(left, right), DType::f32);
  return b;
}

// A core takes tiles that share a kept B together: their number counts for the balance.
void check_balance(int64_t m, int64_t n, int64_t k) {
  Target target = small_target(2, 768 << 10);
  target.matmul_mr = 14;
  target.matmul_nr = 32;
  target.matmul_rows = 126;
  target.matmul_k_block = 1024;
  Compiled c(product(m, n, k), target);
  const ProgramHeader& header = c.kernel.programs[0].header();
  const int64_t claims = (header.tiles + header.preferred_claim - 1) / header.preferred_claim;
  const int64_t busiest = (claims + 1) / 2 * header.preferred_claim;
  CHECK(2 * busiest * 10 <= header.tiles * 11, "%d of %d tiles on one of two cores",
        static_cast<int>(busiest), static_cast<int>(header.tiles));
}

// Beside a constant B every row of A and C is touched by one core only, where there are rows enough
// that each core reads all of B for its own.
void check_rows_stay(int64_t m, int cores, bool stay) {
  constexpr int64_t kColumns = 768, kDepth = 768;
  Target target = small_target(cores, 768 << 10);
  target.matmul_mr = 14;
  target.matmul_nr = 32;
  target.matmul_rows = 126;
  target.matmul_k_block = 1024;
  target.costs.tile_start = 512 * kVectorElement;
  Compiled c(matmul_bias_gelu(m, kColumns, kDepth, target.matmul_nr), target);
  const Program& program = c.kernel.programs[0];
  const int64_t claim = program.header().preferred_claim;
  const int64_t claims = (program.header().tiles + claim - 1) / claim;
  std::vector<int> touching(static_cast<size_t>(m));  // cores, of a row
  for (int64_t core = 0; core < cores; ++core) {
    std::vector<bool> rows(touching.size());
    const int64_t end =
        std::min((claims * (core + 1) + cores - 1) / cores * claim, program.header().tiles);
    for (int64_t tile = (claims * core + cores - 1) / cores * claim; tile < end; ++tile) {
      int64_t first = 0, count = m, rest = tile;
      for (size_t d = program.grid().size(); d-- > 0;) {
        const GridDim& dim = program.grid()[d];
        if (dim.whole == m) {
          first = rest % dim.count * dim.tile;
          count = std::min(dim.tile, m - first);
        }
        rest /= dim.count;
      }
      std::fill_n(rows.begin() + first, count, true);
    }
    for (size_t i = 0; i < rows.size(); ++i) touching[i] += rows[i];
  }
  const auto shared = std::count_if(touching.begin(), touching.end(), [](int n) { return n > 1; });
  CHECK(std::count(touching.begin(), touching.end(), 0) == 0 && (shared == 0) == stay,
        "%d of %d rows are touched by several of %d cores", static_cast<int>(shared),
        static_cast<int>(m), cores);
}

// Split along k where cores would idle and it pays: near a sum in double, and the same bits
// whichever piece is done first.
void check_split_product(int64_t m, int64_t n, int64_t k, int cores, size_t stages) {
  const PlanBuilder b = product(m, n, k);
  Target target = small_target(cores, 768 << 10);
  target.costs.stage_start = 16384 * kVectorElement;
  Compiled c(b, target);
  CHECK(c.kernel.stages.size() == stages, "[%d, %d, %d] on %d cores has %zu stages",
        static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), cores,
        c.kernel.stages.size());
  if (stages != 2 || c.kernel.stages.size() != 2) return;
  int64_t tiles = 0;
  for (uint32_t p = 0; p < c.kernel.program_count; ++p) {
    const Program& program = c.kernel.programs[p];
    const std::string error =
        verify(program, b.values.data(), b.values.size(), c.kernel.workspace_bytes, target);
    CHECK(error.empty(), "%s", error.c_str());
    if (p < c.kernel.stages[1].first_program) tiles += program.header().tiles;
  }
  CHECK(tiles >= cores, "%d pieces for %d cores", static_cast<int>(tiles), cores);
  Random random(9);
  std::normal_distribution<double> normal;
  Buffers got(b.values, c.kernel.workspace_bytes), again(b.values, c.kernel.workspace_bytes);
  for (size_t v = 0; v < 2; ++v) {
    for (int64_t i = 0; i < b.values[v].bytes / 4; ++i) {
      reference::write(DType::f32, got.at(v) + i * 4, {normal(random), 0});
    }
  }
  again.copy_from(got, b.values);
  const auto local = static_cast<size_t>(target.local_bytes);
  run_kernel(c.kernel, reference::device(), cores, local, got.table());
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t column = 0; column < n; ++column) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double term = static_cast<double>(value_at(got, b, 0, row * k + i)) *
                            value_at(got, b, 1, i * n + column);
        sum += term;
        size += std::fabs(term);
      }
      const double error = std::fabs(value_at(got, b, 2, row * n + column) - sum);
      CHECK(error <= 1e-6 * size, "an error of %g", error);
    }
  }
  std::vector<std::byte> memory(local);
  Core core;
  core.local = memory.data();
  core.local_bytes = local;
  for (const CompiledKernel::Stage& stage : c.kernel.stages) {
    for (uint32_t p = stage.program_count; p-- > 0;) {
      const Program& program = c.kernel.programs[stage.first_program + p];
      for (int64_t tile = program.header().tiles; tile-- > 0;) {
        run_tiles(program, reference::device(), core, again.table(), tile, tile + 1);
      }
    }
  }
  CHECK(std::memcmp(got.at(2), again.at(2), b.values[2].bytes) == 0, "the order shows");
}

// Products of few rows each: tiles of the kernel where B varies along an axis of the batch or not.
void check_gathered_rows(int64_t batch, int64_t rows, uint32_t b_batch, bool epilogue,
                         int64_t tiles) {
  PlanBuilder b;
  b.axis(batch);
  b.axis(2);
  b.plan.kind = epilogue ? KernelKind::mix : KernelKind::cube;
  b.plan.m_axis = b.axis(rows);
  b.plan.n_axis = b.axis(7);
  b.plan.k_axis = b.axis(4);
  int32_t c = b.matmul(b.input(DType::f32, 0b10111), b.input(DType::f32, 0b11000 | b_batch));
  b.plan.nodes[c].axes |= 0b11;
  // No operand of an epilogue varies along an axis of extent 1.
  const uint32_t varies = rows == 1 ? 0b1011 : 0b1111;
  if (epilogue) c = b.map(PlanOp::add_, {c, b.input(DType::f32, varies)});
  b.output(c, DType::f32);
  Compiled compiled(b, small_target(2));
  CHECK(compiled.status == CompileStatus::ok, "status %d", static_cast<int>(compiled.status));
  CHECK(compiled.kernel.programs[0].header().tiles == tiles, "%lld tiles, wants %lld",
        static_cast<long long>(compiled.kernel.programs[0].header().tiles),
        static_cast<long long>(tiles));
  Buffers want(b.values, 0), got(b.values, compiled.kernel.workspace_bytes);
  Random random(b_batch);
  want.randomise(b.values, random);
  got.copy_from(want, b.values);
  reference::run_plan(b.plan, b.dims.data(), b.values.data(), want.table(),
                      reference::kColumnsPerPanel);
  run_kernel(compiled.kernel, reference::device(), 2, 64 << 10, got.table());
  const std::string wrong = difference(b.values, want, got, 1e-5);
  CHECK(wrong.empty(), "%s", wrong.c_str());
}

// Rows stay in local memory where there are enough of them for the cores, and B is not read again
// and again for a few of them; else a weighed plan leaves the work to its fallback.
void check_weighed() {
  Target target = small_target(4, 1 << 20);
  target.costs.stage_start = 64 * kVectorElement;
  const auto status_of = [&](const PlanBuilder& b) { return Compiled(b, target).status; };
  CHECK(status_of(attention(64, 32, 96, 16, true)) == CompileStatus::ok, "many heads");
  CHECK(status_of(attention(1, 3, 4096, 64, true)) == CompileStatus::costs_more, "one tile");
  CHECK(status_of(attention(1, 3, 4096, 64, false)) == CompileStatus::ok, "one tile, not weighed");
  CHECK(status_of(matmul_softmax(4096, 32, 32, true)) == CompileStatus::ok, "many rows");
  CHECK(status_of(matmul_softmax(4, 1024, 512, true)) == CompileStatus::costs_more, "few rows");
  CHECK(status_of(matmul_softmax(4, 1024, 512, false)) == CompileStatus::ok, "few, not weighed");
  target.costs.stage_start = 1e9 * kVectorElement;
  CHECK(status_of(matmul_softmax(4, 1024, 512, true)) == CompileStatus::ok, "dear stages");
}

void check_trap() {
  PlanBuilder b;
  b.axis(5000);
  const int32_t index = b.input(DType::i64, 1);
  Access table;
  table.value = b.value(DType::f32, 10);
  table.strides = {kNoSlot};
  b.output(b.gather(index, table, 10, 1, 1), DType::f32);
  Compiled c(b, small_target(2));
  Buffers buffers(b.values, 0);
  for (int64_t i = 0; i < 5000; ++i) {
    reference::write(DType::i64, buffers.at(0) + i * 8, {0, i == 3057 ? -11 : i % 10});
  }
  const Trap trap = run_kernel(c.kernel, reference::device(), 1, 64 << 10, buffers.table());
  CHECK(trap.kind == TrapKind::index_out_of_range && trap.limit == 10, "no trap");
  const Program& program = c.kernel.programs[0];
  const std::string where = disassemble_instruction(&program.body()[trap.pc]);
  CHECK(where.starts_with("d_gather_f32"), "trapped at %s", where.c_str());
  CHECK(trap.tile == 3057 / program.grid()[0].tile, "trapped in tile %d",
        static_cast<int>(trap.tile));
}

// What a product's epilogue stores is announced before the product, where it is much and the
// product long enough.
void check_prefetches() {
  constexpr int64_t kSizes[][2] = {{96, 8}, {12, 160}, {96, 160}};
  for (const auto [rows, columns] : kSizes) {
    const PlanBuilder b = matmul_bias_gelu(rows, columns, 40, reference::kColumnsPerPanel);
    Target target = small_target(1, 256 << 10);
    target.matmul_rows = 96;
    const Compiled c(b, target);
    const std::string text = disassemble(c.kernel.programs[0]);
    const size_t prefetch = text.find("d_prefetch_f32"), product = text.find("m_matmul_");
    CHECK((prefetch != std::string::npos) == (rows * columns == 96 * 160), "%s", text.c_str());
    if (prefetch == std::string::npos) continue;
    const std::string place = text.substr(text.find("] p", prefetch) + 2, 3);
    const size_t stored = text.find("] " + place, product);
    CHECK(prefetch < product && stored != std::string::npos, "%s", text.c_str());
    CHECK(text.find("d_prefetch_f32", prefetch + 1) == std::string::npos, "%s", text.c_str());
  }
}

// What is packed after a product, also by the next tile, is announced before it where all of B is
// too large for the caches.
void check_prefetches_of_packs() {
  constexpr int64_t kRows = 96, kColumns = 320;
  for (const int64_t depth : {40, 400}) {
    PlanBuilder b;
    b.plan.kind = KernelKind::cube;
    b.plan.m_axis = b.axis(kRows);
    b.plan.n_axis = b.axis(kColumns);
    b.plan.k_axis = b.axis(depth);
    const int32_t left = b.input(DType::f32, 0b101);
    Access rows = b.dense(DType::f32, {2, 1});
    rows.value = b.value(DType::f32, depth * kColumns);
    b.output(b.matmul(left, b.load(rows, 0b110)), DType::f32);
    Target target = small_target(1);
    target.matmul_rows = kRows;
    target.matmul_k_block = 200;
    const Compiled c(b, target);
    const Program& program = c.kernel.programs[0];
    const std::string text = disassemble(program);
    const size_t first = text.find("d_pack_b_f32"), second = text.find("d_pack_b_f32", first + 1);
    const size_t announced = text.find("d_prefetch_f32"), next = text.find("d_prefetch_next_f32");
    CHECK(first != std::string::npos, "%s", text.c_str());
    const bool far = depth * kColumns * 4 >= 4 * target.local_bytes;
    CHECK((next != std::string::npos) == far && (program.header().ahead[0] != 0) == far, "%s",
          text.c_str());
    if (!far) continue;
    // Each under the product that runs just before the packing.
    const size_t last = text.rfind("m_matmul_f32");
    CHECK(first < announced && announced < text.find("m_matmul_f32"), "%s", text.c_str());
    CHECK(second < next && next < last && text.rfind("d_pack_b_f32") < next, "%s", text.c_str());
    const std::string place = " " + text.substr(text.find("] p", next) + 2, 3);
    CHECK(text.find("<-" + place, first) < second, "%s", text.c_str());
    CHECK(assemble(text) == program, "%s", text.c_str());
  }
}

// Rows of A that are packed block by block: the next block is announced under the product of the
// one before, and under the last what the next tile begins with, rather than what an epilogue
// reads.
void check_prefetches_of_rows(bool epilogue) {
  constexpr int64_t kRows = 96;
  PlanBuilder b;
  b.plan.kind = KernelKind::cube;
  b.plan.m_axis = b.axis(2 * kRows);
  b.plan.n_axis = b.axis(24);
  b.plan.k_axis = b.axis(400);
  const int32_t left = b.input(DType::f16, 0b101), right = b.input(DType::f32, 0b110);
  int32_t result = b.matmul(left, right);
  if (epilogue) {
    const int32_t sum = b.map(PlanOp::add_, {result, b.input(DType::f32, 0b011)});
    result = b.map(PlanOp::exp_, {sum});
  }
  b.output(result, DType::f32);
  Target target = small_target(2, 256 << 10);
  target.matmul_rows = kRows;
  target.matmul_k_block = 300;
  const Compiled c(b, target);
  const std::string text = disassemble(c.kernel.programs[0]);
  std::vector<std::string> packed, announced;  // pointers, in the order of the instructions
  size_t products = 0, next = 0;               // so far, and before what is announced of a tile
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string place = line.substr(line.rfind(' ') + 1);
    if (line.find("d_pack_a_f16") != std::string::npos) packed.push_back(place);
    if (line.find("m_matmul_f32") != std::string::npos) products++;
    if (line.find("d_prefetch") == std::string::npos || line.find("_f16") == std::string::npos) {
      continue;
    }
    announced.push_back(place);
    CHECK(announced.size() == products + 1 && packed.size() == products + 1, "%s", text.c_str());
    if (line.find("d_prefetch_next_f16") != std::string::npos) next = announced.size();
  }
  CHECK(packed.size() > 1 && next == packed.size(), "%s", text.c_str());
  CHECK(c.kernel.programs[0].header().ahead_lines == 0, "%s", text.c_str());
  std::rotate(packed.begin(), packed.begin() + 1, packed.end());
  CHECK(announced == packed, "%s", text.c_str());
  CHECK(assemble(text) == c.kernel.programs[0], "%s", text.c_str());
}

// A compiler that has compiled other kernels before gives the same words as a new one.
void check_reuse() {
  CompilerScratch scratch;
  CompiledKernel kernel;
  for (unsigned seed = 0; seed < 50; ++seed) {
    Random random(seed);
    const PlanBuilder b = seed % 2 ? random_vector_plan(random)
                                   : random_cube_plan(random, reference::kColumnsPerPanel);
    const Target target = random_target(random);
    const CompileStatus status =
        compile_kernel(b.plan, b.dims.data(), b.values.data(), target, scratch, kernel);
    const Compiled fresh(b, target);
    CHECK(status == fresh.status && kernel.program_count == fresh.kernel.program_count, "seed %u",
          seed);
    for (uint32_t p = 0; p < kernel.program_count; ++p) {
      CHECK(kernel.programs[p] == fresh.kernel.programs[p], "seed %u", seed);
    }
  }
}

}  // namespace

void check_cases() {
  for (const bool epilogue : {false, true}) {
    check_gathered_rows(3, 1, 0b00, epilogue, 2);  // 6 rows on 2 cores
    check_gathered_rows(3, 1, 0b01, epilogue, 3);
    check_gathered_rows(3, 1, 0b10, epilogue, 2);
    check_gathered_rows(3, 1, 0b11, epilogue, 6);
    check_gathered_rows(30, 2, 0b10, epilogue, 4);  // 30 rows, two by two
    check_gathered_rows(3, 2, 0b10, epilogue, 6);   // too few for that
  }
  check_empty_reductions();
  check_long_reductions(1, 300000, 2, 2);
  check_long_reductions(1, 99991, 3, 2);
  check_long_reductions(3, 40009, 2, 2);
  check_long_reductions(40009, 3, 1, 2);
  check_long_reductions(300, 50000, 2, 1);
  check_long_reductions(5000, 700, 1, 2);
  check_long_reductions(500, 7000, 1, 1);
  check_tiles();
  check_split_product(2, 8, 20011, 2, 2);
  check_split_product(1, 1, 150001, 2, 2);
  check_split_product(2, 8, 20011, 1, 1);
  check_split_product(2, 8, 512, 2, 1);      // the second stage would cost more
  check_split_product(6, 20, 20011, 2, 1);   // tiles enough
  check_split_product(6, 20, 20011, 16, 2);  // for more cores not
  check_balance(200, 640, 640);
  check_balance(1000, 512, 512);
  for (const int64_t m : {97, 128, 231, 300, 509}) check_rows_stay(m, 2, true);
  for (const int64_t m : {231, 300}) check_rows_stay(m, 3, true);
  check_rows_stay(97, 3, true);
  check_rows_stay(16, 2, false);
  check_rows_stay(128, 64, false);
  check_weighed();
  check_trap();
  check_prefetches();
  check_prefetches_of_packs();
  for (const bool epilogue : {false, true}) check_prefetches_of_rows(epilogue);
  check_reuse();
}

}  // namespace dvm::testing
