// Vector and DMA instructions on one core over a tile that fits the first-level cache: elements per
// nanosecond, and as a multiple of the time of v_copy over the same tile.
//
// Usage: bench_vector [level]   level: x86-64, x86-64-v3, x86-64-v4 (default: the best)
#include <cstdio>
#include <cstring>
#include <random>

#include "measure.h"
#include "npu/host/levels.h"

namespace dvm::bench {
namespace {

struct Tile {
  int64_t outer = 0, middle = 0, inner = 1;  // strides
};

struct Case {
  const char* what;
  Family family;
  DType dtype;
  int64_t e0, e1, e2;
  Tile out, a, b;
  int inputs = 1;
};

constexpr int64_t kRow = 4096;
constexpr Tile kFlat{0, 0, 1};

constexpr Case unary(const char* what, Family family) {
  return {what, family, DType::f32, 1, 1, kRow, kFlat, kFlat, kFlat, 1};
}
constexpr Case binary(const char* what, Family family, Tile b) {
  return {what, family, DType::f32, 1, 64, 64, {0, 64, 1}, {0, 64, 1}, b, 2};
}

constexpr Case kCases[] = {
    unary("copy", Family::v_copy),
    unary("exp", Family::v_exp),
    unary("log", Family::v_log),
    unary("tanh", Family::v_tanh),
    unary("erf", Family::v_erf),
    unary("sigmoid", Family::v_sigmoid),
    unary("sin", Family::v_sin),
    unary("sqrt", Family::v_sqrt),
    unary("rsqrt", Family::v_rsqrt),
    unary("cast to i32", Family::v_cast_to_i32),
    binary("add", Family::v_add, {0, 64, 1}),
    binary("add, row broadcast", Family::v_add, {0, 0, 1}),
    binary("add, column broadcast", Family::v_add, {0, 1, 0}),
    binary("max", Family::v_max, {0, 64, 1}),
    binary("less than", Family::v_lt, {0, 64, 1}),
    {"add, rows of 7", Family::v_add, DType::f32, 1, 585, 7, {0, 8, 1}, {0, 8, 1}, {0, 1, 0}, 2},
    {"sum of rows of 4096", Family::v_reduce_sum, DType::f32, 1, kRow, 1, {1, 0, 0}, {0, 1, 0}, {}},
    {"sum of rows of 64", Family::v_reduce_sum, DType::f32, 64, 64, 1, {1, 0, 0}, {64, 1, 0}, {}},
    {"sum of columns, 64x64",
     Family::v_reduce_sum,
     DType::f32,
     1,
     64,
     64,
     {0, 0, 1},
     {0, 64, 1},
     {}},
    {"max of rows of 64", Family::v_reduce_max, DType::f32, 64, 64, 1, {1, 0, 0}, {64, 1, 0}, {}},
    {"load, contiguous", Family::d_load, DType::f32, 1, 1, kRow, kFlat, kFlat, {}},
    {"load, f16", Family::d_load, DType::f16, 1, 1, kRow, kFlat, kFlat, {}},
    {"load, bf16", Family::d_load, DType::bf16, 1, 1, kRow, kFlat, kFlat, {}},
    {"load, 64x64 transposed",
     Family::d_load_view,
     DType::f32,
     1,
     64,
     64,
     {0, 64, 1},
     {0, 1, 64},
     {}},
    {"load, heads 16x4x64",
     Family::d_load_view,
     DType::f32,
     4,
     16,
     64,
     {1024, 64, 1},
     {64, 256, 1},
     {}},
    {"load, stride 3", Family::d_load_view, DType::f32, 1, 1, kRow, kFlat, {0, 0, 3}, {}},
    {"store, f16", Family::d_store, DType::f16, 1, 1, kRow, kFlat, kFlat, {}},
    {"store, 64x64 transposed",
     Family::d_store_view,
     DType::f32,
     1,
     64,
     64,
     {0, 1, 64},
     {0, 64, 1},
     {}},
    {"pack B, rows of n", Family::d_pack_b, DType::f32, 1, 64, 64, {2048, 0, 1}, {0, 64, 1}, {}},
    {"pack B, rows of k", Family::d_pack_b, DType::f32, 1, 64, 64, {2048, 0, 1}, {0, 1, 64}, {}},
};

struct alignas(64) Line {  // local memory is aligned so
  std::byte bytes[64];
};

class Runner {
 public:
  Runner(const InstructionTable& table, const Case& x)
      : table_(table), buffers_(3, std::vector<Line>(2048)) {
    std::mt19937 engine(1);
    std::uniform_real_distribution<float> uniform(0.1f, 3.0f);
    for (auto& buffer : buffers_) {
      auto* data = reinterpret_cast<float*>(buffer.data());
      for (size_t i = 0; i < buffer.size() * sizeof(Line) / sizeof(float); i++)
        data[i] = uniform(engine);
    }
    for (int32_t& extent : core_.extents) extent = 1;
    core_.extents[1] = static_cast<int32_t>(x.e0);
    core_.extents[2] = static_cast<int32_t>(x.e1);
    core_.extents[3] = static_cast<int32_t>(x.e2);
    const Tile tiles[] = {x.out, x.a, x.b};
    words_.push_back(0);
    for (uint32_t i = 0; i <= static_cast<uint32_t>(x.inputs); i++) {
      core_.pointers[i] = reinterpret_cast<std::byte*>(buffers_[i].data());
      const Operand operand{(static_cast<uint32_t>(Space::pointer) << kSpaceShift) | i,
                            static_cast<int32_t>(tiles[i].inner),
                            static_cast<int32_t>(tiles[i].outer),
                            static_cast<int32_t>(tiles[i].middle)};
      uint64_t encoded[2];
      std::memcpy(encoded, &operand, sizeof operand);
      words_.insert(words_.end(), encoded, encoded + 2);
    }
    const Head head{
        opcode_of(x.family, x.dtype), static_cast<uint8_t>(words_.size()), 0, 0, 1, 2, 3};
    std::memcpy(words_.data(), &head, sizeof head);
  }
  void operator()() { table_.handlers[words_[0] & 0xffff](core_, words_.data()); }

 private:
  const InstructionTable& table_;
  std::vector<std::vector<Line>> buffers_;
  std::vector<uint64_t> words_;
  Core core_;
};

void bench(const InstructionTable& table) {
  constexpr int kRounds = 21, kRepeats = 200;
  std::printf("level %s\n%-24s %12s %10s\n", table.name, "instruction", "elements/ns", "of copy");
  for (const Case& x : kCases) {
    Runner runner(table, x), copy(table, kCases[0]);
    runner();
    std::vector<double> times, copies;
    for (int round = 0; round < kRounds; round++) {
      copies.push_back(seconds_of(copy, kRepeats));
      times.push_back(seconds_of(runner, kRepeats));
    }
    const double elements = static_cast<double>(x.e0 * x.e1 * x.e2);
    const double time = median(times);
    std::printf("%-24s %12.2f %9.1fx\n", x.what, elements / time / 1e9,
                time / elements * kRow / median(copies));
  }
}

}  // namespace
}  // namespace dvm::bench

int main(int argc, char** argv) {
  const dvm::InstructionTable* table = argc > 1 ? dvm::table_by_name(argv[1]) : &dvm::best_table();
  if (table == nullptr) {
    std::fprintf(stderr, "level %s is not available here\n", argv[1]);
    return 1;
  }
  dvm::bench::bench(*table);
}
