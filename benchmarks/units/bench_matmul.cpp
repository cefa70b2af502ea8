// m_matmul and d_pack_b on one core, as shares of the FMA peak and in GFLOP/s.
//
// Usage: bench_matmul [level]   level: x86-64, x86-64-v3, x86-64-v4 (default: the best)
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "measure.h"
#include "npu/host/levels.h"

namespace dvm::bench {
namespace {

using Words = std::vector<uint64_t>;

// Memory as the runtime takes it: in huge pages where the system grants them.
class Array {
 public:
  explicit Array(int64_t size) : size_(static_cast<size_t>(size)) {
    const size_t bytes = (size_ * sizeof(float) + kPage - 1) / kPage * kPage;
    data_ = static_cast<float*>(std::aligned_alloc(kPage, bytes));
    madvise(data_, bytes, MADV_HUGEPAGE);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { std::free(data_); }

  float* data() { return data_; }
  float* begin() { return data_; }
  float* end() { return data_ + size_; }

 private:
  static constexpr size_t kPage = size_t{2} << 20;
  float* data_;
  size_t size_;
};

// The buffers of one C[m,n] = A[m,k] B[k,n], f32.
struct Problem {
  const char* what;
  int64_t m, k, n;
  bool packed = true;  // B in panels, else row-major
  bool packs = false;  // the time includes packing B from [n, k] rows (a transposed operand)
  int64_t k_block = 768;
  int64_t a_padding = 0;  // elements between rows of A
  int64_t copies = 1;     // of B, taken in turn: more than the caches hold
};

uint64_t operand_address(uint32_t reg, int64_t inner) {
  return (uint64_t{static_cast<uint32_t>(inner)} << 32) |
         (static_cast<uint32_t>(Space::pointer) << kSpaceShift) | reg;
}
uint64_t strides_word(int64_t outer, int64_t middle) {
  return (uint64_t{static_cast<uint32_t>(middle)} << 32) | static_cast<uint32_t>(outer);
}
uint64_t head_word(uint16_t opcode, uint8_t words, uint8_t flags) {
  const Head head{opcode, words, 0, flags, 1, 2, 3};
  uint64_t word;
  std::memcpy(&word, &head, sizeof word);
  return word;
}

class Runner {
 public:
  Runner(const InstructionTable& table, const Problem& problem)
      : table_(table),
        x_(problem),
        nr_(table.matmul_nr),
        a_(x_.m * (x_.k + x_.a_padding)),
        c_(x_.m * x_.n),
        copy_((x_.n + nr_ - 1) / nr_ * nr_ * x_.k),
        b_(copy_ * x_.copies),
        packed_(copy_) {
    std::mt19937 engine(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (auto* data : {&a_, &b_, &c_})
      for (float& value : *data) value = uniform(engine);
    for (int32_t& extent : core_.extents) extent = 1;
    core_.local_bytes = size_t{768} << 10;
  }

  void operator()() {
    if (x_.packs) pack();
    turn_ = (turn_ + 1) % x_.copies;
    for (int64_t n = 0; n < x_.n; n += kColumns) {
      for (int64_t k = 0; k < x_.k; k += x_.k_block) {
        multiply(k, std::min(x_.k_block, x_.k - k), n, std::min(kColumns, x_.n - n));
      }
    }
  }

 private:
  static constexpr int64_t kColumns = 384;  // of one instruction

  void pack() {
    const Words words = {head_word(opcode_of(Family::d_pack_b, DType::f32), 5, 0),
                         operand_address(0, 0), strides_word(x_.k * nr_, 0),
                         operand_address(1, x_.k), strides_word(0, 1)};
    run(words, packed_.data(), b_.data(), nullptr, 1, x_.k, x_.n);
  }
  void multiply(int64_t k, int64_t depth, int64_t n, int64_t columns) {
    const bool panels = x_.packed || x_.packs;
    const uint8_t flags = k > 0 ? kAccumulateAlways : 0;
    const float* b = x_.packs ? packed_.data() : b_.data() + turn_ * copy_;
    const float* start = panels ? b + n * x_.k + k * nr_ : b + k * x_.n + n;
    const Words words = {head_word(opcode_of(Family::m_matmul, DType::f32), 7, flags),
                         operand_address(0, 1),
                         strides_word(0, x_.n),
                         operand_address(1, 1),
                         strides_word(0, x_.k + x_.a_padding),
                         operand_address(2, 1),
                         panels ? strides_word(x_.k * nr_, nr_) : strides_word(nr_, x_.n)};
    run(words, c_.data() + n, a_.data() + k, start, x_.m, depth, columns);
  }
  void run(const Words& words, float* p0, const float* p1, const float* p2, int64_t e0, int64_t e1,
           int64_t e2) {
    core_.pointers[0] = reinterpret_cast<std::byte*>(p0);
    core_.pointers[1] = reinterpret_cast<std::byte*>(const_cast<float*>(p1));
    core_.pointers[2] = reinterpret_cast<std::byte*>(const_cast<float*>(p2));
    core_.extents[1] = static_cast<int32_t>(e0);
    core_.extents[2] = static_cast<int32_t>(e1);
    core_.extents[3] = static_cast<int32_t>(e2);
    table_.handlers[words[0] & 0xffff](core_, words.data());
  }

  const InstructionTable& table_;
  Problem x_;
  int64_t nr_, copy_;
  Array a_, c_, b_, packed_;
  int64_t turn_ = 0;
  Core core_;
};

constexpr Problem kProblems[] = {
    {"BERT projection", 128, 768, 768},
    {"BERT up", 128, 768, 3072},
    {"BERT down", 128, 3072, 768},
    {"BERT down, k block 1024", 128, 3072, 768, true, false, 1024},
    {"BERT down, padded rows of A", 128, 3072, 768, true, false, 1024, 16},
    {"BERT up, B from memory", 128, 768, 3072, true, false, 768, 0, 12},
    {"BERT down, padded, from memory", 128, 3072, 768, true, false, 1024, 16, 12},
    {"BERT projection, k block 384", 128, 768, 768, true, false, 384},
    {"Llama, k block 512, padded", 116, 2048, 2048, true, false, 512, 16},
    {"Llama, k block 1024, padded", 116, 2048, 2048, true, false, 1024, 16},
    {"one row", 1, 768, 3072},
    {"one row, from memory", 1, 2048, 2048, true, false, 2048, 0, 12},
    {"one row, row-major, from memory", 1, 2048, 2048, false, false, 2048, 0, 12},
    {"one row, row-major B", 1, 768, 3072, false},
    {"two rows", 2, 768, 3072},
    {"four rows", 4, 768, 3072},
    {"twelve rows", 12, 768, 3072},
    {"scores, packing B", 128, 64, 128, true, true},
    {"scores, packed B", 128, 64, 128},
    {"context, row-major B", 128, 128, 64, false},
    {"context, 77 rows, row-major B", 77, 77, 64, false},
    {"large, row-major B", 128, 768, 768, false},
    {"square", 512, 768, 768},
};

void bench(const InstructionTable& table) {
  constexpr int kRounds = 15;
  std::printf("level %s: register block %dx%d\n", table.name, table.matmul_mr, table.matmul_nr);
  std::printf("%-32s %5s %5s %5s  %8s  %7s  %7s  %8s\n", "problem", "m", "k", "n", "GFLOP/s",
              "of peak", "best", "B GB/s");
  for (const Problem& problem : kProblems) {
    Runner runner(table, problem);
    const double flop = 2.0 * problem.m * problem.k * problem.n;
    const int repeats = static_cast<int>(std::max(1.0, 2e8 / flop));
    runner();
    std::vector<double> rates, peaks;
    for (int round = 0; round < kRounds; round++) {
      peaks.push_back(peak_flops());
      rates.push_back(flop / seconds_of([&] { runner(); }, repeats));
    }
    const double rate = median(rates), share = rate / median(peaks);
    const double best = *std::max_element(rates.begin(), rates.end()) /
                        *std::max_element(peaks.begin(), peaks.end());
    std::printf("%-32s %5ld %5ld %5ld  %8.1f  %6.1f%%  %6.1f%%  %8.1f\n", problem.what,
                static_cast<long>(problem.m), static_cast<long>(problem.k),
                static_cast<long>(problem.n), rate / 1e9, 100 * share, 100 * best,
                rate / 2 / static_cast<double>(problem.m) * 4 / 1e9);
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
  std::printf("peak %.1f GFLOP/s\n", dvm::bench::peak_flops() / 1e9);
  dvm::bench::bench(*table);
}
