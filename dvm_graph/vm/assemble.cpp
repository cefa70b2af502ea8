#include "vm/assemble.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "vm/core.h"
#include "vm/sync.h"

namespace dvm {

AssemblyError::AssemblyError(int line, const std::string& message)
    : std::runtime_error("line " + std::to_string(line) + ": " + message), line_(line) {}

namespace {

// One line of text, read from left to right.
class LineReader {
 public:
  LineReader(std::string_view line, int number) : rest_(line), number_(number) { skip_spaces(); }

  [[noreturn]] void fail(const std::string& message) const {
    throw AssemblyError(number_, message + (rest_.empty() ? std::string(" at the end of the line")
                                                          : " at '" + std::string(rest_) + "'"));
  }

  bool at_end() const { return rest_.empty(); }
  bool next_is(char c) const { return !rest_.empty() && rest_.front() == c; }

  bool accept(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    const bool name = is_name(word.back());
    if (name && rest_.size() > word.size() && is_name(rest_[word.size()])) return false;
    rest_.remove_prefix(word.size());
    skip_spaces();
    return true;
  }

  // Like accept, but a number may follow at once: `d0`, `e12`, `p3`.
  bool accept_prefix(char letter) {
    if (rest_.size() < 2 || rest_[0] != letter || rest_[1] < '0' || rest_[1] > '9') return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(std::string_view word) {
    if (!accept(word)) fail("expected '" + std::string(word) + "'");
  }

  int64_t number(int64_t low = std::numeric_limits<int64_t>::min(),
                 int64_t high = std::numeric_limits<int64_t>::max()) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{}) fail("expected a number");
    if (value < low || value > high) fail("number out of range");
    advance_to(end);
    return value;
  }

  uint64_t hexadecimal() {
    if (!rest_.starts_with("0x")) fail("expected a hexadecimal number");
    uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(rest_.data() + 2, rest_.data() + rest_.size(), value, 16);
    if (error != std::errc{}) fail("expected a hexadecimal number");
    advance_to(end);
    return value;
  }

  double real() {
    const std::string copy(rest_.substr(0, 64));
    char* end = nullptr;
    const double value = std::strtod(copy.c_str(), &end);
    if (end == copy.c_str()) fail("expected a number");
    advance_to(rest_.data() + (end - copy.c_str()));
    return value;
  }

  std::string_view name() {
    size_t length = 0;
    while (length < rest_.size() && is_name(rest_[length])) ++length;
    if (length == 0) fail("expected a name");
    const std::string_view result = rest_.substr(0, length);
    rest_.remove_prefix(length);
    skip_spaces();
    return result;
  }

 private:
  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  void skip_spaces() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) {
      rest_.remove_prefix(1);
    }
    while (!rest_.empty() && (rest_.back() == ' ' || rest_.back() == '\r')) rest_.remove_suffix(1);
  }
  void advance_to(const char* end) {
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    skip_spaces();
  }

  std::string_view rest_;
  int number_;
};

class Assembler {
 public:
  explicit Assembler(std::string_view text) : text_(text) {}

  Program run() {
    read_kind(next_line());
    for (;;) {
      LineReader line = next_line();
      if (line.accept("body")) break;
      read_definition(line);
    }
    for (;;) {
      LineReader line = next_line();
      if (line.accept("end")) break;
      read_instruction(line);
      if (!line.at_end()) line.fail("unexpected text");
    }
    Program program;
    program.assign(header_, grid_, extents_, pointers_, body_);
    return program;
  }

 private:
  LineReader next_line() {
    for (;;) {
      if (text_.empty()) throw AssemblyError(number_, "the program ends before 'end'");
      const size_t length = std::min(text_.find('\n'), text_.size());
      const std::string_view whole = text_.substr(0, length);
      LineReader line(whole.substr(0, whole.find(';')), ++number_);  // without its comment
      text_.remove_prefix(std::min(length + 1, text_.size()));
      if (!line.at_end()) return line;
    }
  }

  void read_kind(LineReader line) {
    line.expect("program");
    if (line.accept("vector")) {
      header_.kind = KernelKind::vector;
    } else if (line.accept("cube")) {
      header_.kind = KernelKind::cube;
    } else if (line.accept("mix")) {
      header_.kind = KernelKind::mix;
    } else {
      line.fail("expected vector, cube or mix");
    }
  }

  void read_definition(LineReader& line) {
    if (line.accept("grid")) {
      read_grid(line);
    } else if (line.accept("tiles")) {
      read_tiles(line);
    } else if (line.accept("regions")) {
      read_regions(line);
    } else if (line.accept("ring")) {
      read_ring(line);
    } else if (line.accept("lines")) {
      line.expect("of");
      header_.line_blocks = static_cast<int32_t>(line.number(1, INT32_MAX));
    } else if (line.accept("pieces")) {
      read_pieces(line);
    } else if (line.accept_prefix('e')) {
      read_extent(line);
    } else if (line.accept_prefix('p')) {
      read_pointer(line);
    } else {
      line.fail("expected grid, tiles, a register or body");
    }
    if (!line.at_end()) line.fail("unexpected text");
  }

  static int read_dim(LineReader& line) {
    if (!line.accept_prefix('d')) line.fail("expected a grid dim");
    return static_cast<int>(line.number(0, kMaxGridRank - 1));
  }

  void read_grid(LineReader& line) {
    if (read_dim(line) != static_cast<int>(grid_.size())) line.fail("grid dims out of order");
    GridDim dim;
    line.expect(":");
    dim.count = line.number();
    line.expect("tiles");
    line.expect("of");
    dim.tile = line.number();
    line.expect("in");
    dim.whole = line.number();
    grid_.push_back(dim);
  }

  void read_tiles(LineReader& line) {
    header_.tiles = line.number();
    line.expect("per_core");
    header_.tiles_per_core = line.number();
    line.expect("group");
    header_.tile_group = line.number();
    line.expect("claim");
    header_.preferred_claim = line.number();
    line.expect("chunks");
    header_.chunk_dim = static_cast<uint8_t>(line.number(0, kMaxGridRank));
    line.expect("local");
    header_.local_bytes = static_cast<int64_t>(line.hexadecimal());
    if (!line.accept("ahead")) return;
    header_.ahead_lines = static_cast<uint8_t>(line.number(0, UINT8_MAX));
    for (uint8_t& pointer : header_.ahead) {
      if (!line.accept_prefix('p')) return;
      pointer = static_cast<uint8_t>(line.number(0, kPointerRegisters - 1) + 1);
    }
  }

  void read_regions(LineReader& line) {
    header_.regions[0] = static_cast<uint16_t>(line.number(1, UINT16_MAX));
    line.expect("x");
    header_.regions[1] = static_cast<uint16_t>(line.number(1, UINT16_MAX));
  }

  void read_ring(LineReader& line) {
    const Handed handed = line.accept("rows") ? Handed::rows : Handed::sums;
    if (handed == Handed::sums) line.expect("sums");
    Ring& ring = header_.ring(handed);
    if (!line.accept_prefix('p')) line.fail("expected a pointer register");
    ring.pointer = static_cast<uint8_t>(line.number(0, kPointerRegisters - 1) + 1);
    line.expect("by");
    ring.pointers = static_cast<uint8_t>(line.number(1, kPointerRegisters));
    line.expect("lanes");
    ring.first_lane = static_cast<uint8_t>(line.number(0, UINT8_MAX - 1));
    line.expect("to");
    ring.lanes =
        static_cast<uint8_t>(line.number(ring.first_lane, UINT8_MAX - 1) - ring.first_lane + 1);
    line.expect("slots");
    ring.slots = static_cast<uint8_t>(line.number(1, UINT8_MAX));
    line.expect("of");
    ring.bytes = line.number();
  }

  void read_pieces(LineReader& line) {
    header_.pieces = line.number();
    line.expect("line");
    header_.line_tiles = line.number();
  }

  void read_extent(LineReader& line) {
    if (line.number(1, kExtentRegisters - 1) != static_cast<int64_t>(extents_.size()) + 1) {
      line.fail("extent registers out of order");
    }
    line.expect("=");
    ExtentRegister e;
    e.multiplier = static_cast<int32_t>(
        line.number(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
    if (line.accept("part")) {
      e.part = static_cast<uint16_t>(line.number(1, std::numeric_limits<uint16_t>::max()));
      line.expect("of");
      e.dim = static_cast<int16_t>(read_dim(line));
    } else if (line.accept("*")) {
      e.dim = static_cast<int16_t>(read_dim(line));
    }
    extents_.push_back(e);
  }

  void read_pointer(LineReader& line) {
    if (line.number(0, kPointerRegisters - 1) != static_cast<int64_t>(pointers_.size())) {
      line.fail("pointer registers out of order");
    }
    line.expect("=");
    PointerRegister pointer;
    if (line.accept("integer")) {
      pointer.buffer = kPlainInteger;
    } else if (line.accept("workspace")) {
      pointer.buffer = kWorkspace;
    } else if (line.accept_prefix('v')) {
      pointer.buffer = line.number(0);
    } else {
      line.fail("expected a value, workspace or integer");
    }
    line.expect("+");
    pointer.base = line.number();
    line.expect("in");
    line.expect("[");
    pointer.low = line.number();
    line.expect(",");
    pointer.high = line.number();
    line.expect(")");
    while (!line.at_end()) {
      const int dim = read_dim(line);
      line.expect(":");
      pointer.steps[dim] = line.number();
    }
    pointers_.push_back(pointer);
  }

  void read_instruction(LineReader& line) {
    Head head{};
    const std::string_view name = line.name();
    const FamilyInfo& info = find_opcode(line, name, head);
    const auto dtype = static_cast<DType>(head.opcode % 16);
    const size_t begin = body_.size();
    body_.push_back(0);
    if (info.form == Form::sync) {
      read_sync(line);
    } else {
      read_extents(line, head);
      const FormInfo& form = form_info(info.form);
      for (int k = 0; k < form.operand_count(); ++k) {
        if (k > 0) line.expect(k == 1 ? "<-" : ",");
        read_operand(line, operand_dtype(info.form, dtype, k));
      }
      if (form.extra == Extra::gather) {
        line.expect("stride");
        body_.push_back(static_cast<uint64_t>(line.number()));
      }
      if (has_window(info.form)) read_window(line);
      if (has_ending(info.form)) {
        read_ending(line, dtype);
      } else if (has_levels(form)) {
        read_levels(line);
      } else if (form.extra == Extra::block) {
        line.expect("block");
        body_.push_back(static_cast<uint64_t>(line.number()));
        line.expect("of");
        body_.push_back(static_cast<uint64_t>(line.number()));
        line.expect("bits");
      } else if (form.extra == Extra::gather || form.extra == Extra::limit) {
        line.expect("limit");
        body_.push_back(static_cast<uint64_t>(line.number()));
      }
    }
    read_predicates(line, head);
    head.words = static_cast<uint8_t>(body_.size() - begin);
    std::memcpy(&body_[begin], &head, sizeof head);
  }

  void read_ending(LineReader& line, DType dtype) {
    line.expect("clamp");
    read_two(line, dtype);
    if (line.accept("gate"))
      read_two(line, dtype);
    else
      body_.insert(body_.end(), kEndingWords - 2, 0);
  }

  void read_two(LineReader& line, DType dtype) {
    for (const char* before : {"(", ","}) {
      line.expect(before);
      line.expect("#");
      body_.push_back(read_bits(line, dtype));
    }
    line.expect(")");
  }

  void read_levels(LineReader& line) {
    line.expect("levels");
    for (const char* before : {"(", ",", ","}) {
      line.expect(before);
      body_.push_back(static_cast<uint64_t>(line.number()));
    }
    line.expect(")");
  }

  void read_window(LineReader& line) {
    int32_t sizes[2 * kWindowWords];
    line.expect("window");
    for (int32_t& size : sizes) {
      line.expect(&size == sizes ? "(" : ",");
      size = read_stride(line);
    }
    line.expect(")");
    uint64_t words[kWindowWords];
    std::memcpy(words, sizes, sizeof words);
    body_.insert(body_.end(), words, words + kWindowWords);
  }

  static const FamilyInfo& find_opcode(const LineReader& line, std::string_view name, Head& head) {
    for (int f = 0; f < kFamilies; ++f) {
      const FamilyInfo& info = info_of(static_cast<Family>(f));
      const std::string_view known = dvm::name_of(static_cast<Family>(f));
      if (!name.starts_with(known)) continue;
      std::string_view suffix = name.substr(known.size());
      if (info.form == Form::sync && suffix.empty()) {
        head.opcode = opcode_of(f, DType::f32);
        return info;
      }
      if (suffix.empty() || suffix.front() != '_') continue;
      suffix.remove_prefix(1);
      for (int d = 0; d < kDTypes; ++d) {
        if (suffix != dvm::name_of(static_cast<DType>(d)) || !(info.dtypes >> d & 1)) continue;
        head.opcode = opcode_of(f, static_cast<DType>(d));
        return info;
      }
    }
    line.fail("no instruction '" + std::string(name) + "'");
  }

  static Queue read_queue(LineReader& line) {
    const std::string_view name = line.name();
    for (int queue = 0; queue < kQueues; ++queue) {
      if (name == name_of(static_cast<Queue>(queue))) return static_cast<Queue>(queue);
    }
    line.fail("no queue '" + std::string(name) + "'");
  }

  void read_sync(LineReader& line) {
    const Queue from = read_queue(line);
    line.expect("->");
    const Queue to = read_queue(line);
    line.expect("event");
    const auto event = static_cast<int>(line.number(0, 255));
    const int64_t distance = line.accept("across") ? line.number(1, 255) : 0;
    const uint64_t word = sync_word(from, to, event, static_cast<int>(distance));
    body_.push_back(line.accept("between_cores") ? between_cores(word) : word);
  }

  static void read_extents(LineReader& line, Head& head) {
    line.expect("[");
    for (uint8_t* e : {&head.e0, &head.e1, &head.e2}) {
      if (e != &head.e0) line.expect(",");
      if (line.accept_prefix('e')) {
        *e = static_cast<uint8_t>(line.number(1, kExtentRegisters - 1));
      } else {
        line.expect("1");
      }
    }
    line.expect("]");
  }

  static int32_t read_stride(LineReader& line) {
    return static_cast<int32_t>(
        line.number(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
  }

  void read_operand(LineReader& line, DType dtype) {
    Operand operand{};
    if (line.accept("#")) return read_immediate(line, dtype);
    uint64_t place = 0;
    if (line.accept("l:")) {
      place = line.hexadecimal();
      operand.address = static_cast<uint32_t>(Space::local) << kSpaceShift;
    } else if (line.accept("ll:")) {
      place = line.hexadecimal();
      operand.address = static_cast<uint32_t>(Space::two_places) << kSpaceShift;
    } else if (line.accept_prefix('p')) {
      place = static_cast<uint64_t>(line.number(0, kPointerRegisters - 1));
      operand.address = static_cast<uint32_t>(Space::pointer) << kSpaceShift;
    } else {
      line.fail("expected an operand");
    }
    if (place > kAddressMask) line.fail("local address out of range");
    operand.address |= static_cast<uint32_t>(place);
    line.expect("(");
    operand.outer_stride = read_stride(line);
    line.expect(",");
    operand.middle_stride = read_stride(line);
    line.expect(",");
    operand.inner_stride = read_stride(line);
    line.expect(")");
    uint64_t words[2];
    std::memcpy(words, &operand, sizeof words);
    body_.insert(body_.end(), words, words + 2);
  }

  void read_immediate(LineReader& line, DType dtype) {
    body_.push_back(static_cast<uint64_t>(Space::immediate) << kSpaceShift);
    body_.push_back(read_bits(line, dtype));
  }

  static uint64_t read_bits(LineReader& line, DType dtype) {
    uint64_t bits = 0;
    if (line.accept("bits")) {
      bits = line.hexadecimal();
    } else if (dtype == DType::f32) {
      const auto value = static_cast<float>(line.real());
      std::memcpy(&bits, &value, sizeof value);
    } else if (dtype == DType::f64) {
      const double value = line.real();
      std::memcpy(&bits, &value, sizeof value);
    } else if (dtype == DType::i32) {
      bits = static_cast<uint32_t>(
          line.number(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
    } else {
      bits = static_cast<uint64_t>(line.number());
    }
    return bits;
  }

  static void read_predicates(LineReader& line, Head& head) {
    if (!line.accept("{")) return;
    do {
      if (line.accept("changed")) {
        do {
          head.changed_mask |= static_cast<uint8_t>(1u << read_dim(line));
        } while (line.next_is('d'));
      } else if (line.accept("first_tile")) {
        head.changed_mask |= kFirstTileOnly;
      } else if (line.accept("accumulate_always")) {
        head.flags |= kAccumulateAlways;
      } else if (line.accept("accumulate")) {
        head.flags |= kAccumulate;
      } else if (line.accept("first_chunk")) {
        head.flags |= kFirstChunk;
      } else if (line.accept("last_chunk")) {
        head.flags |= kLastChunk;
      } else if (line.accept("stream")) {
        head.flags |= kStream;
      } else if (line.accept("joined")) {
        head.flags |= kJoined;
      } else if (line.accept("transient")) {
        head.flags |= kTransient;
      } else if (line.accept("rows")) {
        head.flags |= kRows;
      } else {
        line.fail("expected a predicate or flag");
      }
    } while (line.accept(","));
    line.expect("}");
  }

  std::string_view text_;
  int number_ = 0;
  ProgramHeader header_;
  std::vector<GridDim> grid_;
  std::vector<ExtentRegister> extents_;
  std::vector<PointerRegister> pointers_;
  std::vector<uint64_t> body_;
};

}  // namespace

Program assemble(std::string_view text) { return Assembler(text).run(); }

}  // namespace dvm
