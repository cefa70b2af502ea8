#include "vm/instruction_times.h"

#include <algorithm>
#include <cstring>

namespace dvm {

void InstructionTimes::add_group(const uint64_t* words, const uint64_t* end, uint64_t elapsed) {
  Group found;
  while (words < end && found.size < kMostFamilies) {
    Head head;
    std::memcpy(&head, words, sizeof head);
    found.families[found.size++] = static_cast<Family>(head.opcode / 16);
    words += head.words;
  }
  const std::span<const Family> members = found.members();
  if (members.size() == 1) return add(members[0], elapsed);
  Group* const last = groups + group_count;
  Group* const group = std::find_if(groups, last, [&](const Group& known) {
    return std::ranges::equal(known.members(), members);
  });
  if (group == last) {
    if (group_count == kMostGroups) return add(members[0], elapsed);
    groups[group_count++] = found;
  }
  group->ticks += elapsed;
  group->count++;
}

}  // namespace dvm
