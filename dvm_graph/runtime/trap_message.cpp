#include "runtime/trap_message.h"

#include <algorithm>
#include <vector>

#include "vm/disassemble.h"

namespace dvm {
namespace {

constexpr size_t kLinesAround = 3;

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string lines_around(const Program& program, uint32_t pc) {
  const std::span<const uint64_t> body = program.body();
  std::vector<uint32_t> starts;
  for (size_t word = 0; word < body.size();) {
    starts.push_back(static_cast<uint32_t>(word));
    Head head;
    std::memcpy(&head, &body[word], sizeof head);
    word += std::max<size_t>(head.words, 1);
  }
  const auto at = static_cast<size_t>(std::find(starts.begin(), starts.end(), pc) - starts.begin());
  const size_t first = at < kLinesAround ? 0 : at - kLinesAround;
  const size_t end = std::min(starts.size(), at + kLinesAround + 1);
  std::string text;
  for (size_t i = first; i < end; i++) {
    text += std::string("\n  ") + (i == at ? "-> " : "   ") + std::to_string(starts[i]) + ": " +
            disassemble_instruction(&body[starts[i]]);
  }
  return text;
}

}  // namespace

std::string trap_message(const Trap& trap, const ModelKernel& kernel, const Program& program) {
  const std::string limit = std::to_string(trap.limit);
  const std::string valid = trap.limit == 0
                                ? "there is nothing to choose from"
                                : "valid are -" + limit + " to " + std::to_string(trap.limit - 1);
  return "kernel " + kernel.plan.name +
         (kernel.origin.empty() ? "" : " (ONNX nodes: " + join(kernel.origin) + ")") + ": index " +
         std::to_string(trap.value) + " is out of range, " + valid + " (core " +
         std::to_string(trap.core) + ", tile " + std::to_string(trap.tile) + ", pc " +
         std::to_string(trap.pc) + ")" + lines_around(program, trap.pc);
}

}  // namespace dvm
