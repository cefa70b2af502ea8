// Groups of joined instructions that load and store f16, bf16 and bytes, at every instruction-set
// level: they leave the bits that their instructions leave one after the other (whose conversions
// test_dma.cpp holds against a reference), over values of every exponent and all that is special.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "machine.h"

namespace dvm::test {
namespace {

// Buffers: narrow inputs and outputs, f32 results, a value per row, a row for all rows.
enum Buffer : int { kX, kY, kOut, kOut2, kA, kB, kC, kD, kValue, kRow, kFolded, kBuffers };

class Group {
 public:
  Group(const InstructionTable& table, DType half, int64_t rows, int64_t n, uint8_t store_flags)
      : table_(table), half_(half), rows_(rows), n_(n), store_flags_(store_flags) {}

  void load(int to, int from, int flags = kJoined | kTransient) {
    append(Family::d_load_view, half_, flags, {to, from});
  }
  void map(Family family, int to, int x, int y, int flags = kJoined | kTransient) {
    if (y < 0)
      append(family, DType::f32, flags, {to, x});
    else
      append(family, DType::f32, flags, {to, x, y});
  }
  void whole(Family family, int to, int x, int y, int flags = kJoined | kTransient) {
    append(family, DType::i32, flags, {to, x, y});
  }
  // Between f32 and the i32 that bytes are.
  void to_f32(int to, int x, int flags = kJoined | kTransient) {
    append(Family::v_cast_to_f32, DType::i32, flags, {to, x});
  }
  void to_i32(int to, int x, int flags = kJoined | kTransient) {
    append(Family::v_cast_to_i32, DType::f32, flags, {to, x});
  }
  void narrow(int to, int x) { append(Family::v_narrow, half_, kJoined | kTransient, {to, x}); }
  void store(int to, int from, int flags = 0) {
    append(Family::d_store_view, half_, flags | store_flags_, {to, from});
  }
  void fold(Family family, int from) {
    head(family, DType::f32, 0, 2, 2, 3, 0);
    operand(kFolded, 1, 0, 0);
    operand(from, stride(from), 1, 1);
  }

  // `bounded`: inputs of less than 2; `term`: the largest that is folded then.
  void check(const std::string& name, double term = 0) {
    bounded_ = term > 0;
    term_ = term;
    const auto joined = results(true), apart = results(false);
    for (const int b : {kX, kY, kOut, kOut2, kC, kD, kFolded}) {
      context = std::string(table_.name) + " " + name_of(half_) + " " + name + ", " +
                std::to_string(rows_) + " rows of " + std::to_string(n_) + ", buffer " +
                std::to_string(b);
      const auto& got = joined[static_cast<size_t>(b)];
      const auto& want = apart[static_cast<size_t>(b)];
      if (b == kFolded)
        check_folded(got, want);
      else if (is_narrow(b) && size_of(half_) == 1)
        CHECK(got == want);
      else if (is_narrow(b))
        check_alike<uint16_t>(got, want, half_ == DType::f16 ? 0x7c00 : 0x7f80);
      else
        check_alike<uint32_t>(got, want, 0x7f800000);
    }
  }

 private:
  static bool is_narrow(int b) { return b <= kOut2; }
  int32_t stride(int b) const {
    if (b == kValue) return 1;
    return b == kRow ? 0 : static_cast<int32_t>(n_ + b % 3);
  }

  void head(Family family, DType dtype, int flags, int operands, uint8_t e0, uint8_t e1,
            uint8_t e2) {
    const Head head{opcode_of(family, dtype),
                    static_cast<uint8_t>(1 + 2 * operands),
                    0,
                    static_cast<uint8_t>(flags),
                    e0,
                    e1,
                    e2};
    words_.push_back(0);
    std::memcpy(&words_.back(), &head, sizeof head);
  }
  void operand(int b, int32_t outer, int32_t middle, int32_t inner) {
    const Operand operand{
        static_cast<uint32_t>(Space::pointer) << kSpaceShift | static_cast<uint32_t>(b), inner,
        outer, middle};
    uint64_t encoded[2];
    std::memcpy(encoded, &operand, sizeof operand);
    words_.insert(words_.end(), encoded, encoded + 2);
  }
  void append(Family family, DType dtype, int flags, std::initializer_list<int> buffers) {
    head(family, dtype, flags, static_cast<int>(buffers.size()), 0, 2, 3);
    for (const int b : buffers) operand(b, 0, stride(b), b == kValue ? 0 : 1);
  }

  // Narrow inputs hold every bit pattern once there are enough of them.
  std::vector<std::vector<std::byte>> results(bool together) {
    std::vector<std::unique_ptr<Guarded>> memory;
    Core core;
    for (int32_t& extent : core.extents) extent = 1;
    core.extents[2] = static_cast<int32_t>(rows_);
    core.extents[3] = static_cast<int32_t>(n_);
    Random random(3);
    for (int b = 0; b < kBuffers; b++) {
      const int64_t count = b == kValue || b == kFolded ? rows_ : (rows_ - 1) * stride(b) + n_;
      const size_t element = is_narrow(b) ? size_of(half_) : 4;
      memory.push_back(std::make_unique<Guarded>(static_cast<size_t>(count) * element));
      std::byte* const data = memory.back()->data();
      for (int64_t i = 0; i < count; i++) {
        const auto any = static_cast<uint16_t>(b == kX ? i * 40503 : random.bits());
        const auto pattern = static_cast<uint16_t>(bounded_ ? any & 0xbfff : any);
        const auto real = static_cast<float>(random.real(-3, 3));
        if (element < 4)
          std::memcpy(data + static_cast<int64_t>(element) * i, &pattern, element);
        else
          std::memcpy(data + 4 * i, &real, 4);
      }
      core.pointers[b] = data;
    }
    const uint64_t* const end = words_.data() + words_.size();
    if (together) {
      CHECK(table_.joined(core, words_.data()) == end);
    } else {
      for (const uint64_t* at = words_.data(); at < end; at += at[0] >> 16 & 0xff) {
        table_.handlers[at[0] & 0xffff](core, at);
      }
    }
    std::vector<std::vector<std::byte>> result;
    for (const auto& block : memory) {
      result.emplace_back(block->data(), block->data() + block->bytes());
    }
    return result;
  }

  // The same bits; of two NaN that meet, either may be the one that is left.
  template <class T>
  static void check_alike(const std::vector<std::byte>& got, const std::vector<std::byte>& want,
                          T infinity) {
    for (size_t i = 0; i < got.size(); i += sizeof(T)) {
      T a, b;
      std::memcpy(&a, &got[i], sizeof(T));
      std::memcpy(&b, &want[i], sizeof(T));
      constexpr T kMagnitude = std::numeric_limits<T>::max() / 2;
      CHECK(a == b || ((a & kMagnitude) > infinity && (b & kMagnitude) > infinity));
    }
  }

  // Added in another order, each within 64 roundings of the sum of magnitudes.
  void check_folded(const std::vector<std::byte>& got, const std::vector<std::byte>& want) const {
    for (size_t i = 0; i < got.size(); i += 4) {
      float a, b;
      std::memcpy(&a, &got[i], 4);
      std::memcpy(&b, &want[i], 4);
      const double bound = 64 * 0x1p-24 * term_ * static_cast<double>(n_);
      CHECK(std::isnan(b) ? std::isnan(a) : a == b || std::fabs(a - b) <= bound);
    }
  }

  const InstructionTable& table_;
  const DType half_;
  const int64_t rows_, n_;
  const uint8_t store_flags_;
  bool bounded_ = false;
  double term_ = 0;
  std::vector<uint64_t> words_;
};

void check_all(const InstructionTable& table, DType half, int64_t rows, int64_t n, uint8_t flags) {
  using enum Family;
  const auto group = [&] { return Group(table, half, rows, n, flags); };
  {
    Group g = group();
    g.load(kA, kX);
    g.store(kOut, kA);
    g.check("copy");
  }
  {
    Group g = group();
    g.load(kA, kX);
    g.load(kB, kY);
    g.map(v_add, kA, kA, kB);
    g.store(kOut, kA);
    g.check("sum of two");
  }
  {
    Group g = group();
    g.load(kA, kX);
    g.map(v_mul, kA, kA, kA);
    g.narrow(kA, kA);
    g.load(kB, kY);
    g.map(v_sub, kB, kB, kA);  // the strip is the right operand
    g.map(v_max, kB, kB, kValue);
    g.map(v_add, kB, kB, kRow);
    g.store(kOut, kB);
    g.check("chain");
  }
  {
    Group g = group();
    g.load(kC, kX, kJoined);  // kept as f32, too
    g.map(v_abs, kD, kC, -1, kJoined);
    g.store(kOut, kD, kJoined);
    g.map(v_neg, kD, kD, -1, kJoined | kTransient);
    g.map(v_min, kD, kD, kC, kJoined);
    g.store(kOut2, kD);
    g.check("two stores");
  }
  {
    Group g = group();
    g.map(v_mul, kA, kRow, kValue);
    g.load(kB, kX);
    g.map(v_add, kC, kB, kA, 0);
    g.check("to f32");
  }
  {
    Group g = group();
    g.load(kA, kX);
    g.fold(v_reduce_max, kA);
    g.check("maximum");
  }
}

// Among them those with code of their own.
void check_sums(const InstructionTable& table, DType half, int64_t rows, int64_t n) {
  using enum Family;
  struct Sum {
    const char* name;
    bool of_two, centred;
    Family then;
    double term;
  };
  const Sum sums[] = {{"sum", false, false, v_copy, 2},
                      {"sum of squares", false, false, v_mul, 4},
                      {"sum of squared differences", false, true, v_mul, 25},
                      {"sum of exponentials", false, true, v_exp, 149},
                      {"sum of sums", true, false, v_copy, 4}};
  for (const Sum& sum : sums) {
    Group g(table, half, rows, n, 0);
    g.load(kA, kX);
    if (sum.of_two) {
      g.load(kB, kY);
      g.map(v_add, kA, kA, kB);
    }
    if (sum.centred) g.map(v_sub, kA, kA, kValue);
    if (sum.then == v_mul) g.map(v_mul, kA, kA, kA);
    if (sum.then == v_exp) g.map(v_exp, kA, kA, -1);
    g.fold(v_reduce_sum, kA);
    g.check(sum.name, sum.term);
  }
}

// Normalisations with code of their own.
void check_normalised(const InstructionTable& table, DType half, int64_t rows, int64_t n,
                      uint8_t flags) {
  using enum Family;
  for (const int steps : {1, 2, 3}) {
    Group g(table, half, rows, n, flags);
    g.load(kA, kX);
    g.map(v_sub, kA, kA, kValue);
    g.map(v_mul, kA, kA, kValue);
    if (steps > 1) g.map(v_mul, kA, kA, kRow);
    if (steps > 2) g.map(v_max, kA, kA, kRow);
    g.store(kOut, kA);
    g.check("normalise " + std::to_string(steps));
  }
}

// Bytes that are dequantised, computed on and quantised again.
void check_bytes(const InstructionTable& table, DType byte, int64_t rows, int64_t n,
                 uint8_t flags) {
  using enum Family;
  const auto group = [&] { return Group(table, byte, rows, n, flags); };
  {
    Group g = group();
    g.load(kA, kX);
    g.store(kOut, kA);
    g.check("copy");
  }
  {
    Group g = group();
    g.load(kA, kX);
    g.to_f32(kA, kA);
    g.map(v_sub, kA, kA, kValue);
    g.map(v_mul, kA, kA, kRow, kJoined);
    g.load(kB, kY);  // what lies in the strip is read later
    g.to_f32(kB, kB);
    g.map(v_add, kB, kB, kA);
    g.map(v_round, kB, kB, -1);
    g.to_i32(kB, kB);
    g.store(kOut, kB);
    g.check("sum of two");
  }
  {
    Group g = group();
    g.load(kC, kX, kJoined);  // kept as i32, too
    g.to_f32(kD, kC, kJoined);
    g.map(v_mul, kA, kD, kD);
    g.map(v_min, kA, kA, kRow);
    g.to_i32(kA, kA);
    g.store(kOut, kA, kJoined);
    g.to_f32(kB, kA, kJoined);
    g.map(v_round, kB, kB, -1);
    g.to_i32(kB, kB);
    g.store(kOut2, kB);
    g.check("two stores");
  }
  for (const Family family : {v_add, v_min, v_max}) {
    Group g = group();  // the bits of rows and values are any i32
    g.load(kA, kX);
    g.whole(family, kA, kA, kRow);
    g.whole(family, kA, kValue, kA, kJoined);
    g.load(kB, kY);
    g.whole(family, kB, kB, kA, kJoined);
    g.to_f32(kC, kB, kJoined);
    g.store(kOut, kB);
    g.check("whole numbers");
  }
  {
    Group g = group();
    g.load(kA, kX);
    g.to_f32(kA, kA);
    g.fold(v_reduce_max, kA);
    g.check("maximum");
  }
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  for (const dvm::Level& level : dvm::available_levels()) {
    for (const dvm::DType half : {dvm::DType::f16, dvm::DType::bf16}) {
      for (const int64_t n : {1,  2,  3,  4,  5,   7,   8,   9,   15,  16,   17,   31,   32,
                              33, 63, 64, 65, 127, 128, 129, 131, 257, 1021, 2049, 65537}) {
        for (const int64_t rows : {1, 2, 5}) {
          for (const uint8_t flags : {uint8_t{0}, dvm::kStream}) {
            check_all(*level.table, half, rows, n, flags);
            check_normalised(*level.table, half, rows, n, flags);
          }
          check_sums(*level.table, half, rows, n);
        }
      }
    }
    for (const dvm::DType byte : {dvm::DType::i8, dvm::DType::u8}) {
      for (const int64_t n : {1, 3, 15, 16, 17, 33, 63, 64, 65, 127, 128, 129, 257, 1021, 2049}) {
        for (const int64_t rows : {1, 2, 5, 40}) {
          for (const uint8_t flags : {uint8_t{0}, dvm::kStream})
            check_bytes(*level.table, byte, rows, n, flags);
        }
      }
    }
  }
  return report("joined half");
}
