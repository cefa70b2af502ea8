// Groups of joined instructions that a thread has decoded: short tiles, and turns of a loop, would
// spend as much time on that as on what is computed. What is kept hangs on the words of a group
// alone, which are compared; where operands lie is looked up anew. Only what comes again before
// another group that would be kept in its place is: of a model of many kernels, none.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/known_rows.h"

namespace dvm::DVM_LEVEL {
namespace {

struct KeptGroup {
  Group group;
  RunRows run;
  uint64_t words[kMostGroupWords];

  // Compares heads first, one by one: they say how far there are words to compare.
  DVM_INLINE bool is(const uint64_t* at) const {
    for (size_t head = 0; head < group.words; head += (words[head] >> 16) & 0xff) {
      if (words[head] != at[head]) return false;
    }
    return group.words != 0 && __builtin_memcmp(words, at, group.words * sizeof *at) == 0;
  }
};

struct DecodedGroup {
  const Group& group;
  RunRows run;
};

// The group that begins there, as of the tile at hand, until the next one is asked for: `own`, or
// one that is kept.
DVM_INLINE DecodedGroup decoded_group(const Core& core, const uint64_t* words, Group& own) {
  constexpr int kPlaces = 8;  // by where the words lie
  struct Kept {
    const uint64_t* seen[kPlaces];  // the last that was not kept
    alignas(KeptGroup) std::byte bytes[kPlaces * sizeof(KeptGroup)];
  };
  thread_local Kept kept;  // zeros: groups of no words
  constexpr uint64_t kSpread = 0x9e3779b97f4a7c15;
  const uint64_t place = reinterpret_cast<uintptr_t>(words) / sizeof *words * kSpread >> 61;
  KeptGroup& known = reinterpret_cast<KeptGroup*>(kept.bytes)[place];
  if (known.is(words)) {
    Decoder(core, known.group, words).locate();
    return {known.group, known.run};
  }
  const bool keeps = kept.seen[place] == words;
  kept.seen[place] = words;
  Group& group = keeps ? known.group : own;
  group = {};
  Decoder(core, group, words).run();
  const RunRows run = choose_run(group);
  if (keeps) {
    known.run = run;
    __builtin_memcpy(known.words, words, group.words * sizeof *words);
  }
  return {group, run};
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
