// Operators that move elements to other places.

#include <algorithm>
#include <cstring>

#include "network/maps.h"
#include "network/preparation.h"
#include "network/transpose.h"

namespace penstock::network {

namespace {

/// Copies each loop from a read of its own; results follow `n`: the read, then the write of each loop.
void run_copies(const Step& step, const Memory& memory) {
  for (std::size_t i = 0; i < step.loops.size(); ++i) {
    const auto read = static_cast<std::size_t>(step.n[2 * i]), write = static_cast<std::size_t>(step.n[2 * i + 1]);
    copy(step.loops[i], size_of(step.write_type(write)), step.read(read, memory), step.write(write, memory));
  }
}

void add_copy(Preparation& p, const StridedLoop& loop, Index read, Index write) {
  if (loop.empty()) return;
  Step& step = p.run(&run_copies);
  step.loops.push_back(loop);
  step.n.push_back(read);
  step.n.push_back(write);
}

/// Result `write` is read 0 with other strides: a view if its elements lie one after the other.
Status restride(Preparation& p, std::size_t write, const Shape& shape, const Shape& strides, Index first) {
  PENSTOCK_TRY(p.write(write, p.type(0), shape));
  const Shape own = strides_of(shape);
  StridedLoop loop;
  loop.first = {0, first, 0, 0};
  for (std::size_t i = 0; i < shape.size(); ++i) loop.add(shape[i], {own[i], strides[i], 0, 0});
  if (loop.contiguous(2) && !loop.empty() && p.writes() == 1) {
    p.view(0, static_cast<std::size_t>(first) * size_of(p.type(0)));
  } else {
    p.run(&run_copies);
    add_copy(p, loop, 0, static_cast<Index>(write));
    if (!kIsRuntime) p.step.images.is_part = p.writes() == 1 && !loop.empty();
  }
  return {};
}

Status prepare_transpose(Preparation& p) {
  const Index rank = p.rank(0);
  std::vector<Index> order = p.integers("perm");
  if (order.empty()) {
    for (Index i = rank; i-- > 0;) order.push_back(i);
  }
  std::vector<Index> sorted = order;
  std::ranges::sort(sorted);
  for (Index i = 0; i < static_cast<Index>(sorted.size()); ++i) {
    if (static_cast<Index>(sorted.size()) != rank || sorted[i] != i) {
      return p.refuse("'perm' " + text_of(order) + " is no order of " + text_of(rank) + " axes");
    }
  }
  const Shape own = strides_of(p.shape(0));
  Shape shape, strides;
  for (const Index axis : order) shape.push_back(p.shape(0)[axis]), strides.push_back(own[axis]);
  return restride(p, 0, shape, strides, 0);
}

Status prepare_expand(Preparation& p) {
  std::vector<Index> wanted;
  PENSTOCK_TRY(p.known_integers(1, "the shape", wanted));
  PENSTOCK_TRY(check_shape(p.type(0), wanted));
  Shape shape;
  if (!broadcast(p.shape(0), wanted, shape)) {
    return p.refuse("shape " + text_of(p.shape(0)) + " cannot be expanded to " + text_of(wanted));
  }
  PENSTOCK_TRY(check_shape(p.type(0), shape));
  return restride(p, 0, shape, broadcast_strides(p.shape(0), shape), 0);
}

Status prepare_tile(Preparation& p) {
  std::vector<Index> repeats;
  PENSTOCK_TRY(p.known_integers(1, "'repeats'", repeats));
  if (static_cast<Index>(repeats.size()) != p.rank(0)) {
    return p.refuse("'repeats' " + text_of(repeats) + " does not have one number for each of " + text_of(p.rank(0)) +
                    " axes");
  }
  PENSTOCK_TRY(check_shape(p.type(0), repeats));
  Shape shape;
  for (std::size_t i = 0; i < repeats.size(); ++i) shape.push_back(repeats[i] * p.shape(0)[i]);
  PENSTOCK_TRY(p.write(0, p.type(0), shape));
  const Shape to = strides_of(shape), from = strides_of(p.shape(0));
  StridedLoop loop;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    loop.add(repeats[i], {to[i] * p.shape(0)[i], 0, 0, 0});
    loop.add(p.shape(0)[i], {to[i], from[i], 0, 0});
  }
  p.run(&run_copies);
  add_copy(p, loop, 0, 0);
  return {};
}

/// A loop over a part of tensor 0, whole but along an axis, and a tensor beside it.
StridedLoop part(const Shape& whole, Index axis, Index begin, Index extent) {
  const Index inner = elements(whole, axis + 1);
  StridedLoop loop;
  loop.first = {begin * inner, 0, 0, 0};
  loop.add(elements(whole, 0, axis), {whole[axis] * inner, extent * inner, 0, 0});
  loop.add(extent * inner, {1, 1, 0, 0});
  return loop;
}

Status prepare_concat(Preparation& p) {
  Index axis = 0;
  PENSTOCK_TRY(p.axis(0, p.rank(0), axis));
  PENSTOCK_TRY(p.same_types(0, p.reads()));
  Shape shape = p.shape(0);
  shape[axis] = 0;
  for (std::size_t i = 0; i < p.reads(); ++i) {
    if (!p.has(i)) return p.refuse("input " + text_of(static_cast<Index>(i) + 1) + " is missing");
    bool fits = p.rank(i) == p.rank(0);
    for (Index k = 0; fits && k < p.rank(0); ++k) fits = k == axis || p.shape(i)[k] == p.shape(0)[k];
    if (!fits) {
      return p.refuse("shapes " + text_of(p.shape(0)) + " and " + text_of(p.shape(i)) +
                      " cannot be joined along axis " + text_of(axis));
    }
    shape[axis] += p.shape(i)[axis];
  }
  PENSTOCK_TRY(p.write(0, p.type(0), shape));
  if (p.reads() == 1) {
    p.view(0);
    return {};
  }
  p.run(&run_copies);
  Index begin = 0;
  for (std::size_t i = 0; i < p.reads(); ++i) {
    const Index extent = p.shape(i)[axis];
    add_copy(p, part(shape, axis, begin, extent), static_cast<Index>(i), 0);
    begin += extent;
  }
  return {};
}

Status split_sizes(const Preparation& p, Index extent, std::vector<Index>& sizes) {
  const auto parts = static_cast<Index>(p.writes());
  if (p.has(1)) {
    PENSTOCK_TRY(p.known_integers(1, "'split'", sizes));
  } else {
    const Index wanted = p.integer("num_outputs", parts);
    if (wanted != parts || parts == 0) return p.refuse("'num_outputs' is not the number of its outputs");
    const Index size = (extent + parts - 1) / parts;
    for (Index i = 0; i < parts; ++i) sizes.push_back(std::clamp<Index>(extent - i * size, 0, size));
  }
  Index rest = extent;
  for (const Index size : sizes) {
    if (size < 0 || size > rest) break;
    rest -= size;
  }
  if (rest == 0 && static_cast<Index>(sizes.size()) == parts) return {};
  return p.refuse("an axis of " + text_of(extent) + " cannot be split into " + text_of(parts) + " parts of " +
                  text_of(sizes));
}

Status prepare_split(Preparation& p) {
  Index axis = 0, begin = 0;
  PENSTOCK_TRY(p.axis(0, p.rank(0), axis));
  std::vector<Index> sizes;
  PENSTOCK_TRY(split_sizes(p, p.shape(0)[axis], sizes));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Shape shape = p.shape(0);
    shape[axis] = sizes[i];
    PENSTOCK_TRY(restride(p, i, shape, strides_of(p.shape(0)), begin * elements(shape, axis + 1)));
    begin += sizes[i];
  }
  return {};
}

Status prepare_slice(Preparation& p) {
  std::vector<Index> starts, ends, axes, steps;
  PENSTOCK_TRY(p.known_integers(1, "'starts'", starts));
  PENSTOCK_TRY(p.known_integers(2, "'ends'", ends));
  PENSTOCK_TRY(p.known_axes(3, p.rank(0), axes));
  if (!p.has(3)) {
    for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<Index>(i));
  }
  steps.assign(starts.size(), 1);
  if (p.has(4)) PENSTOCK_TRY(p.known_integers(4, "'steps'", steps));
  if (starts.size() != ends.size() || starts.size() != axes.size() || starts.size() != steps.size() ||
      static_cast<Index>(starts.size()) > p.rank(0)) {
    return p.refuse("'starts', 'ends', 'axes' and 'steps' differ in length, or name more axes than there are");
  }
  Shape shape = p.shape(0), strides = strides_of(shape);
  Index first = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Index axis = axes[i], extent = shape[axis];
    // A step beyond the extent is as good as any other.
    const Index step = std::clamp(steps[i], -extent - 1, extent + 1);
    if (steps[i] == 0) return p.refuse("a step of 'steps' is 0");
    const auto bounded = [&](Index at, Index low, Index high) {
      return std::clamp(at < 0 ? std::max(at, -extent - 1) + extent : at, low, high);
    };
    const bool forward = step > 0;
    const Index start = forward ? bounded(starts[i], 0, extent) : bounded(starts[i], 0, std::max<Index>(extent - 1, 0));
    const Index end = forward ? bounded(ends[i], 0, extent) : bounded(ends[i], -1, extent - 1);
    const Index distance = forward ? end - start : start - end, size = forward ? step : -step;
    shape[axis] = extent == 0 || distance <= 0 ? 0 : (distance + size - 1) / size;
    first += shape[axis] == 0 ? 0 : start * strides[axis];
    strides[axis] *= step;
  }
  return restride(p, 0, shape, strides, first);
}

Status prepare_depth_to_space(Preparation& p) {
  const Index block = p.integer("blocksize", 0);
  const bool opens = p.variant() == 0;
  if (p.rank(0) != 4 || block < 1 || block > (1 << 20))
    return p.refuse("it needs four axes and a positive 'blocksize'");
  const Shape& x = p.shape(0);
  if (opens ? x[1] % (block * block) != 0 : x[2] % block != 0 || x[3] % block != 0) {
    return p.refuse("shape " + text_of(x) + " is no multiple of blocks of " + text_of(block));
  }
  const Shape shape = opens ? Shape{x[0], x[1] / (block * block), x[2] * block, x[3] * block}
                            : Shape{x[0], x[1] * block * block, x[2] / block, x[3] / block};
  PENSTOCK_TRY(p.write(0, p.type(0), shape));
  const Shape wide = strides_of(opens ? shape : x), deep = strides_of(opens ? x : shape);
  const Index channels = opens ? shape[1] : x[1], rows = opens ? x[2] : shape[2], columns = opens ? x[3] : shape[3];
  const bool channels_first = p.text("mode", "DCR") == "CRD";
  const Index of_channel = channels_first ? deep[1] * block * block : deep[1];
  const Index of_block = channels_first ? deep[1] : deep[1] * channels;
  StridedLoop loop;
  const auto add = [&](Index extent, Index of_wide, Index of_deep) {
    loop.add(extent, {opens ? of_wide : of_deep, opens ? of_deep : of_wide, 0, 0});
  };
  add(x[0], wide[0], deep[0]);
  add(channels, wide[1], of_channel);
  add(rows, wide[2] * block, deep[2]);
  add(block, wide[2], of_block * block);
  add(columns, wide[3] * block, deep[3]);
  add(block, wide[3], of_block);
  p.run(&run_copies);
  add_copy(p, loop, 0, 0);
  return {};
}

/// The element that position i of a padded axis takes, before `before` is added; -1: none.
Index padded_from(Index i, Index extent, std::string_view mode) {
  if (i >= 0 && i < extent) return i;
  if (mode == "constant" || extent == 0) return -1;
  if (mode == "edge") return i < 0 ? 0 : extent - 1;
  if (mode == "wrap") return ((i % extent) + extent) % extent;
  if (extent == 1) return 0;
  const Index period = 2 * (extent - 1), at = ((i % period) + period) % period;  // reflected
  return at < extent ? at : period - at;
}

Status read_pads(const Preparation& p, std::vector<Index>& before, std::vector<Index>& after) {
  std::vector<Index> pads, axes;
  PENSTOCK_TRY(p.known_integers(1, "'pads'", pads));
  PENSTOCK_TRY(p.known_axes(3, p.rank(0), axes));
  if (!p.has(3)) {
    for (Index i = 0; i < p.rank(0); ++i) axes.push_back(i);
  }
  if (pads.size() != 2 * axes.size()) {
    return p.refuse("'pads' has " + text_of(static_cast<Index>(pads.size())) + " numbers, not two for each of " +
                    text_of(static_cast<Index>(axes.size())) + " axes");
  }
  before.assign(p.rank(0), 0), after = before;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    before[axes[i]] = pads[i], after[axes[i]] = pads[axes.size() + i];
  }
  for (const std::vector<Index>* side : {&before, &after}) {
    for (const Index pad : *side) {
      if (pad > kMostBytes || pad < -kMostBytes) return p.refuse("'pads' holds " + text_of(pad));
    }
  }
  return {};
}

Status prepare_pad(Preparation& p) {
  const std::string_view mode = p.text("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap") {
    return p.unsupported("mode '" + std::string(mode) + "'; supported: constant, edge, reflect, wrap");
  }
  std::vector<Index> before, after;
  PENSTOCK_TRY(read_pads(p, before, after));
  if (p.has(2) && (p.type(2) != p.type(0) || p.count(2) != 1))
    return p.refuse("the value that pads must be one of the input's type");
  const Shape& x = p.shape(0);
  Shape shape = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    shape[i] += before[i] + after[i];
    if (x[i] == 0 && shape[i] > 0 && mode != "constant")
      return p.refuse("an axis without elements has nothing to repeat");
  }
  PENSTOCK_TRY(p.write(0, p.type(0), shape));
  if (shape == x) {
    p.view(0);
    return {};
  }
  AxisMaps maps(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (Index k = 0; k < shape[i]; ++k) maps[i].push_back(padded_from(k - before[i], x[i], mode));
  }
  take_from(p, maps, p.has(2));
  const bool zero = !p.has(2) || (p.known(2) != nullptr && p.type(2) == Type::f32 && *p.known_floats(2) == 0);
  const bool around_maps = x.size() > 2 && before[0] == 0 && before[1] == 0 && after[0] == 0 && after[1] == 0;
  before.insert(before.end(), after.begin(), after.end());
  p.step.adds_zeros = mode == "constant" && zero && around_maps && *std::ranges::min_element(before) >= 0;
  p.step.plan = std::make_shared<const Shape>(std::move(before));
  return {};
}

}  // namespace

Operators movement_operators() {
  static constexpr Operator operators[] = {
      {"Transpose", prepare_transpose, 1, 1},
      {"Expand", prepare_expand, 2, 2},
      {"Tile", prepare_tile, 2, 2},
      {"Concat", prepare_concat, 1, kAny},
      {"Split", prepare_split, 1, 2},
      {"Slice", prepare_slice, 3, 5},
      {"DepthToSpace", prepare_depth_to_space, 1, 1, 0},
      {"SpaceToDepth", prepare_depth_to_space, 1, 1, 1},
      {"Pad", prepare_pad, 2, 4},
  };
  return operators;
}

}  // namespace penstock::network
