#include "npu/simulator/stacked_program.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dvm {

void StackedProgram::assign(std::span<const Stage> stages) {
  Header header{.stages = stages.size()};
  std::vector<std::pair<const std::vector<CoreShares>*, uint64_t>> tables;  // a launch has few
  std::vector<std::pair<const Program*, uint64_t>> programs;
  const auto find = [](const auto& known, const auto* one) {
    return std::ranges::find(known, one, [](const auto& each) { return each.first; });
  };
  for (const Stage& stage : stages) {
    header.entries += stage.programs.size();
    if (find(tables, stage.cores) != tables.end()) continue;
    tables.emplace_back(stage.cores, header.rows);
    header.rows += stage.cores->size();
    for (const CoreShares& core : *stage.cores) {
      header.shares += core.size();
      for (const Share& share : core) header.ranges += share.groups.size();
    }
  }
  const Tables at(header);
  words_.assign(at.programs, 0);

  uint64_t rows = 0, shares = 0, ranges = 0;
  for (const auto& [cores, first] : tables) {
    for (const CoreShares& core : *cores) {
      words_[at.rows + rows++] = shares;
      for (const Share& share : core) {
        set(at.shares + 2 * shares++, share.program, ranges);
        for (const GroupRange& range : share.groups) {
          set(at.ranges + 2 * ranges++, static_cast<uint64_t>(range.begin),
              static_cast<uint64_t>(range.end));
        }
      }
    }
  }
  words_[at.rows + rows] = shares;
  set(at.shares + 2 * shares, 0, ranges);

  uint64_t entries = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    const uint64_t row = find(tables, stage.cores)->second;
    const Line line{entries, entries + stage.programs.size(), row, row + stage.cores->size()};
    std::memcpy(&words_[at.stages] + s * kLineWords, &line, sizeof line);
    for (size_t p = 0; p < stage.programs.size(); ++p) {
      auto known = find(programs, stage.programs[p]);
      if (known == programs.end()) {
        known = programs.emplace(known, stage.programs[p], words_.size());
        const std::span<const uint64_t> words = stage.programs[p]->words();
        words_.insert(words_.end(), words.begin(), words.end());
      }
      set(at.entries + 2 * entries++, known->second, stage.buffers[p]);
    }
  }
  header.programs = programs.size();
  std::memcpy(words_.data(), &header, sizeof header);
}

void StackedProgram::set(size_t word, uint64_t first, uint64_t second) {
  words_[word] = first;
  words_[word + 1] = second;
}

StackedProgram::Tables::Tables(const Header& header)
    : stages(sizeof(Header) / sizeof(uint64_t)),
      entries(stages + kLineWords * header.stages),
      rows(entries + 2 * header.entries),
      shares(rows + header.rows + 1),
      ranges(shares + 2 * (header.shares + 1)),
      programs(ranges + 2 * header.ranges) {}

std::vector<ProgramView> StackedProgram::programs(size_t stage) const {
  const uint64_t* const entries = &words_[Tables(header()).entries];
  std::vector<ProgramView> found;
  for (uint64_t entry = line(stage).first_entry; entry < line(stage).end_entry; ++entry) {
    found.emplace_back(&words_[entries[2 * entry]]);
  }
  return found;
}

std::vector<uint64_t> StackedProgram::buffers(size_t stage) const {
  const uint64_t* const entries = &words_[Tables(header()).entries];
  std::vector<uint64_t> found;
  for (uint64_t entry = line(stage).first_entry; entry < line(stage).end_entry; ++entry) {
    found.push_back(entries[2 * entry + 1]);
  }
  return found;
}

std::vector<CoreShares> StackedProgram::cores(size_t stage) const {
  const Tables at(header());
  std::vector<CoreShares> found;
  for (uint64_t row = line(stage).first_row; row < line(stage).end_row; ++row) {
    CoreShares& core = found.emplace_back();
    for (uint64_t share = words_[at.rows + row]; share < words_[at.rows + row + 1]; ++share) {
      const uint64_t* const entry = &words_[at.shares + 2 * share];
      Share& one = core.emplace_back(Share{static_cast<uint32_t>(entry[0]), {}});
      for (uint64_t range = entry[1]; range < entry[3]; ++range) {
        const uint64_t* const groups = &words_[at.ranges + 2 * range];
        one.groups.push_back({static_cast<int64_t>(groups[0]), static_cast<int64_t>(groups[1])});
      }
    }
  }
  return found;
}

}  // namespace dvm
