// The functions of the table in host_operator.cpp.
#pragma once

namespace dvm {

class HostFrame;

void compress(HostFrame& frame);
void constant_extents(HostFrame& frame);
void expand_extents(HostFrame& frame);
void non_max_suppression(HostFrame& frame);
void non_zero(HostFrame& frame);
void one_hot_extents(HostFrame& frame);
void pad_extents(HostFrame& frame);
void range_extents(HostFrame& frame);
void reshape_extents(HostFrame& frame);
void slice_extents(HostFrame& frame);
void split_extents(HostFrame& frame);
void tile_extents(HostFrame& frame);
void top_k(HostFrame& frame);
void unique(HostFrame& frame);

}  // namespace dvm
