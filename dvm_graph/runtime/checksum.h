// CRC-32C (Castagnoli), as iSCSI and ext4 use it, of large contents block by block: blocks are
// independent, so that cores and the stages of one core's multiplier work at several at a time, and
// a mistake has a place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dvm {

// CRC-32C of each block of `block` bytes, of the last one's rest, with up to `threads` threads.
std::vector<uint32_t> checksums(std::span<const std::byte> contents, size_t block, int threads);

}  // namespace dvm
