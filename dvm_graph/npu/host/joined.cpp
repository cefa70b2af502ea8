// Joined instructions (vm/strips.h): a group at a time, or, where groups go over the same rows
// (vm/row_blocks.h), in turns on a few rows.
#include "npu/host/decoded_groups.h"
#include "npu/host/flat_rows.h"
#include "npu/host/streamed_rows.h"
#include "npu/host/units.h"
#include "vm/row_blocks.h"

namespace dvm::DVM_LEVEL {
namespace {

// Bytes of a row's operand that a block of rows is meant to have, so that what the groups read
// stays in the first-level cache; and how far ahead memory is read into the second level: early in
// the block, so that stores, which come late, find memory free.
constexpr int64_t kBlockBytes = 8192, kFetchDistance = 16384;
constexpr int kHurry = 2;

// Groups that go over the same rows, block by block. A block has at most a vector of rows: where
// groups compute one value per row, those of a block are a vector, which the groups after them read
// from `lanes_`.
class RowBlocks {
 public:
  RowBlocks(Core& core, const uint64_t* words) : core_(core) {
    do {
      Group& own = groups_[count_];
      const DecodedGroup decoded = decoded_group(core, words, own);
      if (&decoded.group != &own) own = decoded.group;
      turns_[count_++].run = decoded.run;
      words += decoded.group.words;
    } while (groups_[count_ - 1].goes_on && count_ < kMostRowGroups);
    end_ = words;
    choose_block();
    for (int g = 0; g < count_; g++) start(g);
    choose_streamed();
  }

  const uint64_t* run() {
    for (Ahead::Stream& stream : core_.ahead.streams) {
      if (rows_ > 0) stream.row_bytes = stream.bytes / rows_;
    }
    FetchAhead ahead(core_, kHurry);
    for (int64_t at = 0; at < rows_; at += block_) {
      const int64_t rows = lesser(block_, rows_ - at);
      ahead.begin(core_.ahead, at, kFetchDistance);
      for (int g = 0; g < count_; g++) {
        const Turn& turn = turns_[g];
        Group& group = groups_[g];
        if (turn.along) {
          run_along(group, turn, rows);
        } else {
          const bool streams = streams_ && g == count_ - 1;
          if (streams) group.places[group.count - 1].out.at = streamed_.next(rows * row_bytes_);
          float* const folded = group.folded.at + at * group.folded.middle;
          turn.run(group, {at, rows, group.extents.inner, folded, turn.lanes}, ahead);
        }
      }
    }
    if (streams_) streamed_.finish();
    return end_;
  }

 private:
  struct Turn {
    RunRows run = nullptr;
    bool along = false;      // goes over one element of each row
    float* lanes = nullptr;  // where a vector of what it leaves for each row goes as well
  };

  void choose_block() {
    rows_ = groups_[0].extents.middle;
    int64_t row_bytes = 1;
    for (int g = 0; g < count_; g++) {
      const Group& group = groups_[g];
      turns_[g].along = group.extents.middle != rows_;
      if (turns_[g].along) continue;
      int64_t element = 0;  // in bytes; 0: of a value for the row
      for (int s = 0; s < group.count; s++) element = greater(element, group.places[s].in.inner);
      row_bytes = greater(row_bytes, group.extents.inner * element);
    }
    block_ = greater<int64_t>(kBlockBytes / row_bytes, 1);
    block_ = lesser<int64_t>(block_, kF);
  }

  // What the last step of the last group streams, if nothing else of it does.
  void choose_streamed() {
    Group& group = groups_[count_ - 1];
    const int last = group.count - 1;
    for (int s = 0; s < last; s++)
      if (group.places[s].keep == Keep::stream) return;
    Place& place = group.places[last];
    row_bytes_ = group.extents.inner * place.out.inner;
    streams_ = !turns_[count_ - 1].along && place.keep == Keep::stream &&
               StreamedRows::suit(place.out.at, row_bytes_, place.out.middle, block_);
    if (!streams_) return;
    streamed_.start(place.out.at);
    place.keep = group.steps[last].keep = Keep::store;
    place.out.outer = 0;
    group.streams = false;
  }

  void start(int g) {
    Group& group = groups_[g];
    Turn& turn = turns_[g];
    for (int s = 0; s < group.count; s++) {
      Place& place = group.places[s];
      place.in.outer = turn.along ? place.in.inner : place.in.middle;
      place.out.outer = turn.along ? place.out.inner : place.out.middle;
      read_lanes(place, turn.along);
      Step& step = group.steps[s];
      if (turn.along && step.keep == Keep::stream) step.keep = Keep::store;  // not aligned
      step.in = place.in.at;
      step.out = place.out.at;
      if (place.keep != Keep::nothing) overwritten(floats_at(place.out.at));
    }
    if (turn.along) {
      const Tile<std::byte>& out = group.places[group.count - 1].out;
      if (group.steps[group.count - 1].kept_as == DType::f32) {
        offer(g, floats_at(out.at), out.inner / kFloat);
      }
    } else if (group.fold != Family::count_ && !group.accumulate) {
      offer(g, group.folded.at, group.folded.middle);
    }
  }

  static constexpr int64_t kFloat = sizeof(float);

  static const float* floats_at(const std::byte* at) { return reinterpret_cast<const float*>(at); }

  // What the group leaves for each row, `stride` elements apart.
  void offer(int g, const float* values, int64_t stride) {
    overwritten(values);
    if (stride != 1) return;
    turns_[g].lanes = lanes_[g];
    offered_[g] = values;
  }

  void overwritten(const float* at) {
    for (const float*& offered : offered_) {
      if (offered == at) offered = nullptr;
    }
  }

  // Has a step read from lanes what an earlier group leaves there: every block's in the same place.
  void read_lanes(Place& place, bool along) {
    Tile<const std::byte>& in = place.in;
    const bool per_row = along ? in.inner == kFloat : in.inner == 0 && in.middle == kFloat;
    if (in.at == nullptr || !per_row) return;
    for (int g = 0; g < count_; g++) {
      if (offered_[g] != floats_at(in.at)) continue;
      in.at = reinterpret_cast<const std::byte*>(lanes_[g]);
      in.outer = 0;
      return;
    }
  }

  // One element of each row of a block: they are a vector.
  void run_along(Group& group, const Turn& turn, int64_t rows) {
    F strip[1];
    AnySteps::run<1, true>(group.steps, group.count, 0, rows, strip);
    if (turn.lanes != nullptr) store(turn.lanes, strip[0]);
    for (int s = 0; s < group.count; s++) {
      group.steps[s].in += group.places[s].in.outer * block_;
      group.steps[s].out += group.places[s].out.outer * block_;
    }
  }

  Core& core_;
  const uint64_t* end_;
  Group groups_[kMostRowGroups];
  Turn turns_[kMostRowGroups];
  alignas(kVectorBytes) float lanes_[kMostRowGroups][kF];
  const float* offered_[kMostRowGroups] = {};
  int count_ = 0;
  int64_t rows_ = 0, block_ = 1;
  StreamedRows streamed_;
  int64_t row_bytes_ = 0;
  bool streams_ = false;  // what the last group leaves goes through them
};

}  // namespace

const uint64_t* run_joined(Core& core, const uint64_t* words) {
  if ((flags_of(words) & kRows) != 0) return RowBlocks(core, words).run();
  if (Decoder::folds(words)) return run_folds(core, words);
  Group own;
  const DecodedGroup decoded = decoded_group(core, words, own);
  const Group& group = decoded.group;
  const Extents& e = group.extents;
  FetchAhead ahead(core);
  ahead.begin(core.ahead);
  if (!run_flat(group, ahead)) {
    for (int64_t o = 0; o < e.outer; o++) {
      decoded.run(group, {o, e.middle, e.inner, group.folded.at}, ahead);
    }
  }
  ahead.end(core.ahead);
  return words + group.words;
}

}  // namespace dvm::DVM_LEVEL
