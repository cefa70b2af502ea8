#include "pipes.h"

#include <cstring>
#include <map>

#include "vm/interpret.h"
#include "vm/sync.h"

namespace dvm::testing {
namespace {

struct Issued {
  Core core;  // registers as they were when the scalar unit issued it
  const uint64_t* words;
};

thread_local std::vector<Issued> issued;

void record(Core& core, const uint64_t* words) {
  const Family family = family_of(head_of(words));
  const bool sync = family == Family::s_set_flag || family == Family::s_wait_flag;
  if (sync &&
      !sync_runs(family, *extra_words(Form::sync, words), core.share_tile, core.share_tiles))
    return;
  issued.push_back({core, words});
}

}  // namespace

bool run_tiles_out_of_order(const Program& program, const InstructionTable& table, Core& core,
                            std::byte* const* buffers, int64_t begin, int64_t end, Random& random) {
  issued.clear();
  InstructionTable recorder{};
  for (Handler& handler : recorder.handlers) handler = record;
  run_tiles(program, recorder, core, buffers, begin, end);
  std::vector<Issued> queues[kQueues];
  for (const Issued& one : issued) queues[static_cast<int>(queue_of(one.words))].push_back(one);
  size_t next[kQueues] = {};
  std::map<uint64_t, int> flags;
  size_t left = issued.size();
  // One pipe is favoured for a while, so that pipes run far ahead of each other.
  int favoured = 0;
  for (int blocked = 0; left > 0;) {
    if (blocked == 0 && random() % 16 == 0) favoured = static_cast<int>(random() % kQueues);
    if (blocked == kQueues) return false;
    const int pipe = (favoured + blocked) % kQueues;
    if (next[pipe] == queues[pipe].size()) {
      ++blocked;
      continue;
    }
    Issued& one = queues[pipe][next[pipe]];
    const Family family = family_of(head_of(one.words));
    if (family == Family::s_wait_flag) {
      if (flags[*extra_words(Form::sync, one.words)] == 0) {
        ++blocked;
        continue;
      }
      --flags[*extra_words(Form::sync, one.words)];
    } else if (family == Family::s_set_flag) {
      ++flags[*extra_words(Form::sync, one.words)];
    } else {
      table.handlers[static_cast<size_t>(family) * 16](one.core, one.words);
    }
    ++next[pipe];
    --left;
    blocked = 0;
  }
  return true;
}

}  // namespace dvm::testing
