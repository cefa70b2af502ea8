#include "vm/tiling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "kernels/numbers.h"
#include "vm/lower.h"
#include "vm/repeated_rows.h"
#include "vm/strips.h"

namespace dvm {
namespace {

constexpr int kMaxTileRank = 3;  // loops of an instruction
constexpr int64_t kFew = 2;      // instructions that one more loop may take
constexpr int kMaxWaves = 4;
constexpr int64_t kByRowsPerCore = 32;  // tiles where passes take turns on rows, at least
constexpr int64_t kPassedOn = 3;  // shares of a first-level cache: with what is read, and written
constexpr int64_t kFirstInPrivate = 8;  // shares of a first-level cache in the core's own
constexpr double kLeastLive = 0.5;      // bytes per element that matter
constexpr double kLeastHeld = 4;    // bytes per element assumed after an attempt that did not fit
constexpr int64_t kLeastSums = 64;  // elements of a chunk along reduced axes
constexpr int64_t kLeastRows =
    8;                            // the same, where rows beside them are read or stored as they lie
constexpr int64_t kLongRows = 4;  // times as long, where results are streamed
constexpr int64_t kElementBytes = 4, kWidestBytes = 8;

// Of what a tile reads or writes of each of its rows: how many elements along reduced axes lie side
// by side in memory, and the axis, not reduced, that their neighbours lie along; -1: along none.
struct Row {
  int64_t held = 1;
  int axis = -1;
};
Row row_of(const NormalPlan& plan, const NormalNode& node, uint32_t reduced) {
  Row row;
  const uint32_t spanned = reduced | bit(std::max(plan.rank - 1, 0));
  if ((node.axes & spanned) != spanned) return row;
  const Strides& strides = plan.accesses[node.access].strides;
  for (int axis = plan.rank - 1; axis >= 0; --axis) {
    if (strides[axis] != row.held || plan.extents[axis] == 1) continue;
    if (!(reduced & bit(axis))) {
      row.axis = axis;
      return row;
    }
    row.held *= plan.extents[axis];
    axis = plan.rank;  // the next one may be any
  }
  return row;
}

class Tiler {
 public:
  Tiler(const NormalPlan& plan, const Target& target, const TilingRequest& request, TileCode& code)
      : plan_(plan),
        target_(target),
        request_(request),
        code_(code),
        tile_start_(target.costs.in_vector_elements(target.costs.tile_start) * kElementBytes /
                    static_cast<double>(computed_bytes())) {
    reduced_ = plan.reduced_axes();
    repeated_row_ = repeated_rows(plan, target).first;
    preferred_ = elements_in(target.vector_tile_bytes, request.live.cached,
                             target.private_bytes / kElementBytes);
    if (passes_in_memory()) {
      const double live = std::max(request.live.cached, request.live.local);
      preferred_ =
          elements_in(target.first_bytes / kPassedOn, live, target.private_bytes / kElementBytes);
    }
    largest_ = elements_in(target.local_bytes, request.live.local, INT64_MAX);
    if (request.by_rows) preferred_ = larger_by_rows();
    preferred_ = std::min(preferred_, largest_);
    code.space.rank = plan.rank;
    for (int axis = 0; axis < plan.rank; ++axis) {
      code.space.axes[axis] = {plan.extents[axis], plan.extents[axis], -1, plan.open[axis]};
      if (axis == request.forced.axis) {
        code.space.axes[axis].tile = request.forced.tile;
        forced_tiles_ = ceil_div(plan.extents[axis], request.forced.tile);
        held_ *= request.forced.tile;
      } else if (reduced_ & bit(axis)) {
        held_ *= plan.extents[axis];
        held_rank_ += 1;
      } else {
        parallel_[parallel_count_++] = axis;
      }
    }
    find_row();
    // Windows are reduced a vector of results at a time, however few there are.
    if (!plan.windows.empty()) {
      lanes_ = vector_elements();
      for (const Window& window : plan.windows) group_loops_ |= window.channels > 1 ? 1 : 0;
      preferred_ = std::clamp(held_ * lanes_, preferred_, std::max(preferred_, largest_));
    }
  }

  bool whole() {
    if (parallel_count_ == 0) {
      if (held_ > largest_) return false;
    } else if (square_tile() || tile_of_groups()) {
      // both cuts are made
    } else if (!cut_one_axis(preferred_) && !smallest_tile()) {
      return false;
    } else if (is_narrow()) {
      if (can_chunk(plan_, reduced_)) return false;
      if (request_.widens && !(cut_one_axis(largest_) && !is_narrow()) &&
          !cut_one_axis(preferred_) && !smallest_tile())
        return false;
    }
    code_.grid.clear();
    for (int axis = 0; axis < plan_.rank; ++axis) code_.add_dim(axis);
    code_.chunk_dim = static_cast<int>(code_.grid.size());
    return true;
  }

  std::optional<uint32_t> chunks() {
    for (int i = 0; i < parallel_count_; ++i) tile_of(parallel_[i]) = 1;
    const int inner = plan_.rank - 1;
    int64_t volume = 1;
    const int across = reduced_ & bit(inner) ? row_axis_ : inner;
    if (across >= 0) {
      const bool rows = across == row_axis_;
      const int64_t held = rows ? row_held_ : 1;
      const int64_t vector = across == inner ? vector_elements() : 1;
      const int64_t unit = std::max(vector, rows ? row_unit_ : 1);
      const int64_t least = rows && held == 1 ? kLeastRows : kLeastSums * held;
      const int64_t most = std::max(unit, preferred_ / least);
      volume = equal_parts(plan_.extents[across], most, unit);
      tile_of(across) = volume;
    }
    uint32_t chunk_axes = 0;
    int64_t whole = held_ * volume;
    for (int axis = 0; axis < plan_.rank && whole > preferred_; ++axis) {
      if (!(reduced_ & bit(axis))) continue;
      whole /= plan_.extents[axis];
      const int64_t chunk = std::clamp<int64_t>(preferred_ / whole, 1, plan_.extents[axis]);
      // Chunks of equal size.
      const int64_t count = ceil_div(plan_.extents[axis], chunk);
      tile_of(axis) = ceil_div(plan_.extents[axis], count);
      whole *= tile_of(axis);
      chunk_axes |= bit(axis);
    }
    if (!can_chunk(plan_, chunk_axes)) return std::nullopt;
    code_.grid.clear();
    for (int axis = 0; axis < plan_.rank; ++axis) {
      if (!(chunk_axes & bit(axis))) code_.add_dim(axis);
    }
    code_.chunk_dim = static_cast<int>(code_.grid.size());
    for (int axis = 0; axis < plan_.rank; ++axis) {
      if (chunk_axes & bit(axis)) code_.add_dim(axis);
    }
    return chunk_axes;
  }

 private:
  // The least tile of whole units that takes no more tiles than such of `most`.
  static int64_t equal_parts(int64_t extent, int64_t most, int64_t unit) {
    const int64_t parts = ceil_div(extent, most);
    return std::min(extent, ceil_div(ceil_div(extent, parts), unit) * unit);
  }

  int64_t elements_in(int64_t bytes, double bytes_per_element, int64_t unlimited) const {
    // Where memory ran short, values were held that the estimate took for absorbed.
    if (request_.shrink < 1) bytes_per_element = std::max(bytes_per_element, kLeastHeld);
    if (bytes_per_element < kLeastLive) return unlimited;
    const double elements = static_cast<double>(bytes) * request_.shrink / bytes_per_element;
    return std::max<int64_t>(1, static_cast<int64_t>(elements));
  }

  // To start fewer tiles, but not so few that a core waits long for the others at the end: tiles
  // outgrow the first-level cache, and not the core's own.
  int64_t larger_by_rows() const {
    const int64_t growth = target_.private_bytes / (kFirstInPrivate * target_.first_bytes);
    const int64_t share = volume_of_all() / (kByRowsPerCore * target_.cores);
    return std::max(preferred_, std::min(preferred_ * growth, share));
  }

  // Where results go around the caches, memory keeps up the better, the longer their rows.
  int64_t transposed_tile(int64_t row) const {
    const int64_t elements = target_.first_bytes / kElementBytes * row / least_row();
    const int64_t least = std::min(preferred_, elements);
    if (!streams()) return least;
    const int64_t share = volume_of_all() / (kMaxWaves * target_.cores);
    return std::min(std::clamp(share, least, kLongRows * least), largest_);
  }

  bool streams() const {
    return std::ranges::any_of(plan_.nodes, [&](const NormalNode& node) {
      return node.op == PlanOp::store_ && target_.streams(plan_.accesses[node.access].value_bytes);
    });
  }

  int64_t volume_of_all() const {
    int64_t all = 1;
    for (int axis = 0; axis < plan_.rank; ++axis) all *= plan_.extents[axis];
    return all;
  }

  // What cuts along the contiguous axis are multiples of: whole vectors or, where everything is
  // moved to local memory, whole blocks of it in the narrowest storage.
  int64_t vector_elements() const {
    if (target_.unified_memory) return target_.vector_bytes / kElementBytes;
    int64_t narrowest = kWidestBytes;
    for (const NormalAccess& access : plan_.accesses) {
      if (access.value == kPlainInteger) continue;
      narrowest = std::min(narrowest, static_cast<int64_t>(size_of(access.storage)));
    }
    return std::max<int64_t>(1, target_.line_bytes / narrowest);
  }
  // Of the widest numbers that are computed: the unit does as many more of narrower ones at a time.
  int64_t computed_bytes() const {
    if (target_.unified_memory) return kElementBytes;
    int64_t widest = 1;
    for (const NormalNode& node : plan_.nodes) {
      if (info_of(node.op).kind != PlanOpKind::access)
        widest = std::max(widest, static_cast<int64_t>(size_of(node.dtype)));
    }
    return widest;
  }
  // Least elements each way of a tile that is read across rows.
  int64_t least_row() const { return kLeastLines * target_.line_bytes / kElementBytes; }

  // The same, as many lines of what is moved, where enough such tiles are left.
  int64_t least_row_across() const {
    int64_t widest = 1;
    for (const NormalNode& node : plan_.nodes) {
      if (node.op != PlanOp::load_ && node.op != PlanOp::store_) continue;
      widest = std::max<int64_t>(widest, plan_.accesses[node.access].element_bytes);
    }
    int64_t row = std::max(least_row(), kLeastLines * target_.line_bytes / widest);
    const int64_t most = std::min(preferred_, volume_of_all() / (kMaxWaves * target_.cores));
    while (row > least_row() && row * row > most) row /= 2;
    return row;
  }

  // Whether element-wise instructions run one after the other, none of which joins another: what
  // one leaves to the next goes through memory. Tiles outgrow the first-level cache for those that
  // join.
  bool passes_in_memory() const {
    if (!target_.joins || reduced_ != 0 || !plan_.windows.empty()) return false;
    const uint32_t all = bit(plan_.rank) - 1;
    int passes = 0;
    for (const NormalNode& node : plan_.nodes) {
      if (node.axes != 0 && node.axes != all) return false;  // computed once for many
      if (node.op == PlanOp::load_ || node.op == PlanOp::store_) {
        const NormalAccess& access = plan_.accesses[node.access];
        const int64_t inner = plan_.rank == 0 ? 0 : access.strides[plan_.rank - 1];
        if (inner != 0 && inner != 1) return false;
        const bool loads = node.op == PlanOp::load_;
        passes += access.storage != (loads ? node : plan_.nodes[node.inputs[0]]).dtype;
      } else if (info_of(node.op).kind == PlanOpKind::map) {
        if (joins(family_of(plan_, node), dtype_of_map(plan_, node))) return false;
        passes += 1;
      } else if (node.op == PlanOp::iota_) {
        passes += 1;
      } else if (node.op != PlanOp::fill_) {
        return false;
      }
    }
    return passes > 1;
  }

  int64_t& tile_of(int axis) { return code_.space.axes[axis].tile; }

  // Algorithm 1. False: no cut within the limit.
  bool cut_one_axis(int64_t limit) {
    Cut best;
    int64_t outer_tiles = forced_tiles_;
    for (int i = 0; i < parallel_count_; ++i) {
      const int axis = parallel_[i];
      const bool last = i + 1 == parallel_count_;
      int64_t inner = held_;
      for (int j = i + 1; j < parallel_count_; ++j) inner *= plan_.extents[parallel_[j]];
      const int rank = loops_from(i);
      if (inner <= limit && (rank <= kMaxTileRank || last)) {
        const int64_t most = std::min(plan_.extents[axis], limit / inner);
        consider_cuts(axis, most, inner, outer_tiles, best);
      }
      const bool enough =
          target_.largest_tiles || outer_tiles >= int64_t{kMaxWaves} * target_.cores;
      if (best.axis >= 0 && enough) break;
      outer_tiles *= plan_.extents[axis];
    }
    if (best.axis < 0) return false;
    for (int i = 0; i < parallel_count_ && parallel_[i] != best.axis; ++i) {
      tile_of(parallel_[i]) = 1;
    }
    tile_of(best.axis) = best.tile;
    return true;
  }

  // Of an instruction over tiles of the parallel axes from this one on.
  int loops_from(int parallel) const {
    int axes = parallel_count_ - parallel;
    if (repeated_row_ >= 0) axes = 1 + std::max(repeated_row_ - parallel_[parallel], 0);
    const int loops = axes + held_rank_ - group_loops_;
    return loops == kMaxTileRank + 1 && holds_few(parallel) ? kMaxTileRank : loops;
  }

  // Whether one of the axes between the one that is cut and the innermost one is so short that its
  // loop is unrolled, as that of a pixel that becomes two rows is.
  bool holds_few(int cut) const {
    for (int i = cut + 1; i + 1 < parallel_count_; ++i) {
      if (plan_.extents[parallel_[i]] <= kFew) return true;
    }
    return false;
  }

  // Where an access is contiguous along another axis than the innermost, long tiles of few rows
  // would touch whole cache lines for a few elements each: two axes are cut. False: no such access.
  bool square_tile() {
    const int inner = plan_.rank - 1;
    if (held_ > 1 || parallel_count_ < 2 || parallel_[parallel_count_ - 1] != inner) return false;
    uint32_t across = 0;
    for (const NormalNode& node : plan_.nodes) {
      if (node.op != PlanOp::load_ && node.op != PlanOp::store_) continue;
      const Strides& strides = plan_.accesses[node.access].strides;
      if (strides[inner] == 0 || strides[inner] == 1) continue;
      for (int i = 0; i + 1 < parallel_count_; ++i) {
        if (strides[parallel_[i]] == 1) across |= bit(parallel_[i]);
      }
    }
    if (std::popcount(across) != 1) return false;
    const int axis = std::countr_zero(across);
    const int64_t across_row = least_row_across(), volume = transposed_tile(across_row);
    const int64_t high = plan_.extents[axis], wide = plan_.extents[inner];
    if (high < least_row() && tile_of_short_rows(axis, volume)) return true;
    int64_t whole = 1;  // with the axes between them
    int rank = 0;
    for (int i = 0; i < parallel_count_; ++i) {
      if (parallel_[i] < axis) continue;
      whole *= plan_.extents[parallel_[i]];
      rank += 1;
    }
    if (whole <= volume && rank <= kMaxTileRank) return false;
    int64_t side = std::min(high, across_row);
    const int64_t least = std::max(volume / side, across_row);
    const int64_t row = std::min(wide, align(inner, least, wide));
    const int next = parallel_[parallel_count_ - 2];  // short rows take some of it
    const int64_t rows =
        next == axis ? 1 : std::clamp<int64_t>(least / row, 1, plan_.extents[next]);
    side = std::min(high, std::max(side, volume / (row * rows)));
    if (row * rows * side > largest_) return false;
    for (int i = 0; i < parallel_count_; ++i) tile_of(parallel_[i]) = 1;
    tile_of(next) = rows;
    tile_of(axis) = side;
    tile_of(inner) = row;
    return true;
  }

  // Of rows along an axis whose elements are too few: with as much as it takes of the axis that
  // they go on along. False: they go on along none, or lie within every tile as they do in memory.
  bool tile_of_short_rows(int axis, int64_t volume) {
    const int inner = plan_.rank - 1;
    const int64_t high = plan_.extents[axis];
    int next = -1;
    for (const NormalNode& node : plan_.nodes) {
      if (node.op != PlanOp::load_ && node.op != PlanOp::store_) continue;
      const Strides& strides = plan_.accesses[node.access].strides;
      if (strides[axis] != 1) continue;
      for (int i = 0; i < parallel_count_; ++i) {
        if (parallel_[i] > axis && strides[parallel_[i]] == high) next = parallel_[i];
      }
    }
    if (next < 0 || next == inner) return false;
    const int64_t rows = std::min(ceil_div(least_row(), high), plan_.extents[next]);
    const int64_t least = std::max(volume / (high * rows), least_row());
    const int64_t row = std::min(plan_.extents[inner], align(inner, least, plan_.extents[inner]));
    if (high * rows * row > largest_) return false;
    for (int i = 0; i < parallel_count_; ++i) tile_of(parallel_[i]) = 1;
    tile_of(axis) = high;
    tile_of(next) = rows;
    tile_of(inner) = row;
    return true;
  }

  // Convolutions of groups read the weights of a tile's groups once for all its windows: as many
  // windows as there are, or fit, by no more groups than make rows long enough or leave each core
  // its share. False: there is none, or an axis between.
  bool tile_of_groups() {
    const int results = plan_.rank - 1, groups = plan_.rank - 2, windows = plan_.rank - 3;
    if (held_ > 1 || windows < 0 || parallel_count_ < plan_.rank) return false;
    const auto of_groups = std::ranges::find_if(plan_.nodes, [&](const NormalNode& node) {
      if (node.op != PlanOp::depthwise_ || plan_.windows[node.window].channels == 1) return false;
      const Strides& weights = plan_.accesses[node.weights].strides;
      return plan_.accesses[node.numbers].strides[windows] == 1 && weights[results] == 1 &&
             weights[groups] == plan_.extents[results];
    });
    if (of_groups == plan_.nodes.end()) return false;
    const int64_t each = plan_.extents[results];
    const int64_t least = std::min(plan_.extents[groups], ceil_div(least_row(), each));
    if (least * each > largest_) return false;
    int64_t outer = 1;
    for (int axis = 0; axis < windows; ++axis) outer *= plan_.extents[axis];
    const int64_t all = plan_.extents[windows];
    Cut cut;
    consider_cuts(windows, std::clamp<int64_t>(preferred_ / (least * each), 1, all), least * each,
                  outer * ceil_div(plan_.extents[groups], least), cut);
    const int64_t wide = cut.tile;
    cut = {};
    consider_cuts(groups, std::clamp(preferred_ / (wide * each), least, plan_.extents[groups]),
                  wide * each, outer * ceil_div(all, wide), cut);
    for (int axis = 0; axis < windows; ++axis) tile_of(axis) = 1;
    tile_of(windows) = wide;
    tile_of(groups) = std::max(cut.tile, least);
    return true;
  }

  struct Cut {
    double cost = INFINITY;
    int axis = -1;
    int64_t tile = 0;
  };

  void consider_cuts(int axis, int64_t most, int64_t inner, int64_t outer_tiles, Cut& best) const {
    const int64_t extent = plan_.extents[axis];
    const int64_t fewest = ceil_div(extent, most);
    for (int waves = 0; waves <= (target_.largest_tiles ? 0 : kMaxWaves); ++waves) {
      int64_t blocks = ceil_div(int64_t{waves} * target_.cores, outer_tiles);
      blocks = std::min(std::max(blocks, fewest), extent);
      const int64_t tile = align(axis, ceil_div(extent, blocks), most);
      const int64_t tiles = outer_tiles * ceil_div(extent, tile);
      // Another core joins in for about as much as a tile takes to start.
      const double joining = tiles > 1 ? tile_start_ : 0;
      const int64_t beside = ceil_div(tile * inner / held_, lanes_) * lanes_;
      const double cost = static_cast<double>(ceil_div(tiles, target_.cores)) *
                              (static_cast<double>(held_ * beside) + tile_start_) +
                          joining;
      if (cost < best.cost * 0.999) best = {cost, axis, tile};
    }
  }

  // hardware_align_div: along the contiguous axis, where it is cut; along windows, to whole rows of
  // them.
  int64_t align(int axis, int64_t tile, int64_t most) const {
    const int64_t unit = axis == plan_.rank - 1 ? vector_elements()
                         : axis == row_axis_    ? row_unit_
                                                : row_of_windows(axis);
    const bool fills = axis == row_axis_ || lanes_ > 1;  // else it is narrow
    const bool stays = tile < unit && (!fills || most < unit);
    if (stays || tile == plan_.extents[axis]) return tile;
    const int64_t up = ceil_div(tile, unit) * unit;
    return up <= most ? up : tile / unit * unit;
  }

  // Where the neighbours of what is reduced lie along another axis, tiles are as wide along that
  // one as a vector has room, or, where nothing that is reduced lies beside it, as a line: narrower
  // ones are read in parts of lines, and several cores would write to each line.
  void find_row() {
    for (const NormalNode& node : plan_.nodes) {
      if (node.op != PlanOp::load_ && node.op != PlanOp::store_) continue;
      const Row row = row_of(plan_, node, reduced_);
      if (row.axis < 0) continue;
      const int64_t line = target_.line_bytes / plan_.accesses[node.access].element_bytes;
      const int64_t rows = plan_.windows.empty() ? line : std::max(line, least_row());
      const int64_t least = row.held == 1 ? rows : vector_elements() / row.held;
      const int64_t unit = std::min(least, plan_.extents[row.axis]);
      if (unit <= row_unit_) continue;
      row_axis_ = row.axis;
      row_held_ = row.held;
      row_unit_ = unit;
    }
  }
  bool is_narrow() const {
    return reduced_ != 0 && row_axis_ >= 0 && code_.space.axes[row_axis_].tile < row_unit_;
  }

  int64_t row_of_windows(int axis) const {
    for (const NormalNode& node : plan_.nodes) {
      if (is_window(node.op) && plan_.accesses[node.numbers].strides[axis] == 1)
        return std::max(plan_.windows[node.window].out_width, 1);
    }
    return 1;
  }

  // Rows that exceed the preferred size: as little as possible next to the reduced axes.
  bool smallest_tile() {
    for (int i = 0; i < parallel_count_; ++i) tile_of(parallel_[i]) = 1;
    if (held_ > largest_) return false;
    const int inner = plan_.rank - 1;
    if (!(reduced_ & bit(inner)) && inner != request_.forced.axis) {
      tile_of(inner) = std::clamp<int64_t>(largest_ / held_, 1,
                                           std::min(vector_elements(), plan_.extents[inner]));
    }
    return true;
  }

  const NormalPlan& plan_;
  const Target& target_;
  const TilingRequest& request_;
  TileCode& code_;
  uint32_t reduced_ = 0;
  int parallel_[kMaxDomainRank];
  int parallel_count_ = 0;
  int64_t held_ = 1;  // elements of a tile along the reduced and forced axes
  int held_rank_ = 0;
  int64_t lanes_ = 1;      // elements beside the held ones are computed in multiples of it
  int repeated_row_ = -1;  // axis from which on rows are repeated as a whole (repeated_rows.h)
  int group_loops_ = 0;  // loops of windows, over groups, that are one with the next to all others
  int64_t forced_tiles_ = 1;
  int row_axis_ = -1;  // of the elements beside the innermost held ones, row_held_ in number
  int64_t row_held_ = 1, row_unit_ = 1;
  int64_t preferred_ = 0, largest_ = 0;
  const double tile_start_;  // in elements
};

}  // namespace

bool can_chunk(const NormalPlan& plan, uint32_t chunk_axes) {
  bool late[kMaxNodes] = {};
  if (plan.nodes.size() > kMaxNodes) return false;
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const NormalNode& node = plan.nodes[i];
    for (const int32_t input : node.inputs) late[i] |= input >= 0 && late[input];
    if (late[i] && (node.axes | node.reduce_axes) & chunk_axes) return false;
    if ((node.reduce_axes & chunk_axes) == 0) continue;
    if ((node.reduce_axes & chunk_axes) != chunk_axes) return false;
    late[i] = true;
  }
  return true;
}

bool tile_whole(const NormalPlan& plan, const Target& target, const TilingRequest& request,
                TileCode& code) {
  return Tiler(plan, target, request, code).whole();
}

bool goes_across(const NormalPlan& plan, const Target& target, const TileCode& code) {
  const uint32_t reduced = plan.reduced_axes();
  if (reduced == 0 || can_chunk(plan, reduced)) return false;  // rows are not held
  for (const NormalNode& node : plan.nodes) {
    if (node.op != PlanOp::load_ && node.op != PlanOp::store_) continue;
    const Row row = row_of(plan, node, reduced);
    if (row.axis < 0) continue;
    const TileAxis& a = code.space.axes[row.axis];
    const int64_t bytes = row.held * plan.accesses[node.access].element_bytes;
    if (a.tile < a.whole && bytes * (a.tile + 1) <= target.line_bytes) return true;
  }
  return false;
}

uint32_t tile_least(const NormalPlan& plan, int64_t elements, TileCode& code) {
  int order[kMaxDomainRank];
  std::iota(order, order + plan.rank, 0);
  std::stable_sort(order, order + plan.rank,
                   [&](int a, int b) { return plan.extents[a] > plan.extents[b]; });
  code.space.rank = plan.rank;
  uint32_t cut = 0;
  int64_t whole = 1;
  for (int i = 0; i < plan.rank; ++i) {
    const int axis = order[i];
    if (i < kMaxGridRank) {
      cut |= bit(axis);
    } else {
      whole *= plan.extents[axis];
    }
    code.space.axes[axis] = {plan.extents[axis], i < kMaxGridRank ? 1 : plan.extents[axis], -1};
  }
  const int inner = plan.rank - 1;
  if (inner >= 0 && (cut & bit(inner))) {
    code.space.axes[inner].tile = std::clamp<int64_t>(elements / whole, 1, plan.extents[inner]);
  }
  const uint32_t chunk_axes = cut & plan.reduced_axes();
  code.grid.clear();
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (!(chunk_axes & bit(axis))) code.add_dim(axis);
  }
  code.chunk_dim = static_cast<int>(code.grid.size());
  for (int axis = 0; axis < plan.rank; ++axis) {
    if (chunk_axes & bit(axis)) code.add_dim(axis);
  }
  return chunk_axes;
}

std::optional<uint32_t> tile_chunks(const NormalPlan& plan, const Target& target,
                                    const TilingRequest& request, TileCode& code) {
  return Tiler(plan, target, request, code).chunks();
}

}  // namespace dvm
