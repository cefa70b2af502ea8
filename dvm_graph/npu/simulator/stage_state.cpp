#include "npu/simulator/stage_state.h"

#include <algorithm>
#include <iterator>
#include <span>

namespace dvm {
namespace {

class Gathering {
 public:
  Gathering(std::vector<ProgramWork>& programs, const NpuPart& part, StageState& state)
      : programs_(programs), part_(part), state_(state), cores_(state.cores) {}

  void run(const std::vector<CoreShares>& cores) {
    std::vector<CoreState> team;
    for (uint32_t number = 0; number < cores.size(); ++number) {
      team.assign(1, {});
      team[0].first = number;
      int64_t lanes = 0;
      for (const Share& share : cores[number]) {
        lanes = std::max<int64_t>(lanes, programs_[share.program].program().header().lanes());
        add_share(team[0], share.program, share.groups, 0);
      }
      if (team[0].tiles.empty()) continue;
      ++state_.used_cores;
      for (int lane = 0; lane < lanes; ++lane) {
        CoreState& state = team.emplace_back();
        state.first = static_cast<uint32_t>(cores.size()) +
                      number * static_cast<uint32_t>(part_.vector_per_cube()) +
                      static_cast<uint32_t>(lane);
        state.lane = lane;
        for (const Share& share : cores[number]) {
          const ProgramHeader& header = programs_[share.program].program().header();
          if (lane >= header.lanes()) continue;
          add_share(state, share.program + static_cast<uint32_t>(header.program_of(lane)),
                    share.groups, lane);
        }
        state_.used_lanes += !state.tiles.empty();
      }
      if (!merge(team)) add_team(team);
    }
  }

 private:
  void add_share(CoreState& state, uint32_t program, std::span<const GroupRange> groups,
                 int64_t lane) {
    ProgramWork& work = programs_[program];
    const size_t before = state.tiles.size();
    work.classes(groups, lane, state.tiles);
    if (state.tiles.size() > before)
      state.programs.emplace_back(static_cast<int64_t>(state.tiles.size()), &work);
  }

  bool merge(const std::vector<CoreState>& team) {
    for (size_t c = 0; c < cores_.size(); c += 1 + cores_[c].followers) {
      if (cores_[c].followers + 1 != team.size()) continue;
      const auto* const known = &cores_[c];
      if (!std::equal(team.begin(), team.end(), known,
                      [](const CoreState& a, const CoreState& b) { return a.same_work(b); }))
        continue;
      for (size_t i = 0; i < team.size(); ++i) cores_[c + i].weight += 1;
      return true;
    }
    return false;
  }

  void add_team(std::vector<CoreState>& team) {
    const auto head = static_cast<uint32_t>(cores_.size());
    for (CoreState& state : team) {
      state.head = head;
      state.queues.resize(kUnitQueues, UnitQueue(static_cast<size_t>(part_.scalar_queue)));
      cores_.push_back(std::move(state));
    }
    CoreState& cube = cores_[head];
    cube.followers = static_cast<uint32_t>(team.size() - 1);
    cube.for_lane.resize(cube.followers);
    cube.from_lane.resize(cube.followers);
  }

  std::vector<ProgramWork>& programs_;
  const NpuPart& part_;
  StageState& state_;
  std::vector<CoreState>& cores_;
};

}  // namespace

std::pair<int, int> CoreState::lanes_at(Handed handed, int64_t tile_number) const {
  if (lane >= 0) return {lane, lane + 1};
  const auto at =
      std::upper_bound(programs.begin(), programs.end(), tile_number,
                       [](int64_t number, const auto& stretch) { return number < stretch.first; });
  const ProgramHeader& header = at->second->program().header();
  const int64_t begin = at == programs.begin() ? 0 : std::prev(at)->first;
  const Ring& ring = header.ring(handed);
  if (handed == Handed::rows) return {ring.first_lane, ring.end_lane()};
  const auto turn = (tile_number - begin) / header.tile_group % ring.lanes;
  const int first = ring.first_lane + static_cast<int>(turn);
  return {first, first + 1};
}

void gather_cores(std::vector<ProgramWork>& programs, const std::vector<CoreShares>& shares,
                  const NpuPart& part, StageState& state) {
  Gathering(programs, part, state).run(shares);
}

}  // namespace dvm
