// Which process this is. A forked child has one thread, the one that forked: those of its parent
// are gone, and what they were at stays half done, with the locks they held. So what threads work
// at is kept for one process, and left alone and made anew in a child. The rest is whole there.
#pragma once

#include <cstdint>
#include <mutex>

namespace dvm {

// Differs between a process and those it was forked from: the forks since the first one.
uint32_t process_generation();

// Guards what has to be whole in a child: no other thread holds it while the process forks. Held
// for moments only, by who waits for nothing and runs nobody else's code meanwhile.
std::mutex& whole_at_fork();

}  // namespace dvm
