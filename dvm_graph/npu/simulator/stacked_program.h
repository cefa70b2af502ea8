// The programs of a launch as one, as the paper stacks kernels: what a part is handed at once.
//
// Stages run one after the other, with a barrier of all cores between them (temporal stacking). In
// a stage, each core has a row of shares, which it runs in this order (spatial stacking).
//
// One vector of 64-bit words: a header, tables, and the words of the programs. What is the same
// object lies there once, however often it runs, programs as well as what cores do of a stage: each
// entry has the buffers of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "npu/simulator/stage_timing.h"
#include "vm/program.h"

namespace dvm {

class StackedProgram {
 public:
  struct Stage {
    std::vector<const Program*> programs;
    std::vector<uint64_t> buffers;  // of each: the first of its own in the launch's table
    const std::vector<CoreShares>* cores = nullptr;
  };

  // Replaces all of it; keeps the capacity.
  void assign(std::span<const Stage> stages);

  size_t stages() const { return header().stages; }
  size_t different_programs() const { return header().programs; }
  // Of a stage, in its order.
  std::vector<ProgramView> programs(size_t stage) const;
  std::vector<uint64_t> buffers(size_t stage) const;
  // By core of the stage.
  std::vector<CoreShares> cores(size_t stage) const;
  std::span<const uint64_t> words() const { return words_; }

 private:
  // How much there is of each.
  struct Header {
    uint64_t stages = 0, entries = 0, rows = 0, shares = 0, ranges = 0, programs = 0;
  };
  // The words at which they begin. Of rows and shares, whose lines say where things of another
  // table begin, there is one more, at which the last ends.
  struct Tables {
    explicit Tables(const Header& header);
    size_t stages, entries, rows, shares, ranges, programs;
  };

  // Of a stage: [first, end) of its entries and of its rows.
  struct Line {
    uint64_t first_entry = 0, end_entry = 0, first_row = 0, end_row = 0;
  };
  static constexpr size_t kLineWords = sizeof(Line) / sizeof(uint64_t);

  const Line& line(size_t stage) const {
    return reinterpret_cast<const Line*>(&words_[Tables(header()).stages])[stage];
  }
  void set(size_t word, uint64_t first, uint64_t second);
  const Header& header() const { return *reinterpret_cast<const Header*>(words_.data()); }

  std::vector<uint64_t> words_;
};

}  // namespace dvm
