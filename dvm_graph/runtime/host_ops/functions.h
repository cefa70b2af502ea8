// The functions of the table in host_operator.cpp.
#pragma once

namespace dvm {

class HostFrame;

void compress(HostFrame& frame);
void non_max_suppression(HostFrame& frame);
void non_zero(HostFrame& frame);
void top_k(HostFrame& frame);
void unique(HostFrame& frame);

}  // namespace dvm
