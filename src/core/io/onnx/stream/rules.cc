// How frames go through operators that leave them where they are, or move them to another axis.

#include <algorithm>
#include <limits>
#include <numeric>

#include "io/onnx/read/tensor.h"
#include "io/onnx/stream/streamer.h"
#include "network/tensor.h"

namespace penstock::io::onnx {

using network::Shape;

Streamer::Rule Streamer::rule_of(const Node& node) {
  struct Entry {
    std::string_view op;
    Rule rule;
  };
  static constexpr Entry entries[] = {
      {"Identity", &Streamer::rule_pointwise},
      {"Cast", &Streamer::rule_pointwise},
      {"BatchNormalization", &Streamer::rule_channels},
      {"QuantizeLinear", &Streamer::rule_channels},
      {"DequantizeLinear", &Streamer::rule_channels},
      {"MatMul", &Streamer::rule_product},
      {"Gemm", &Streamer::rule_gemm},
      {"Einsum", &Streamer::rule_einsum},
      {"Softmax", &Streamer::rule_over_axis},
      {"LogSoftmax", &Streamer::rule_over_axis},
      {"Hardmax", &Streamer::rule_over_axis},
      {"LpNormalization", &Streamer::rule_over_axis},
      {"Split", &Streamer::rule_over_axis},
      {"TopK", &Streamer::rule_over_axis},
      {"LayerNormalization", &Streamer::rule_over_last_axes},
      {"RMSNormalization", &Streamer::rule_over_last_axes},
      {"InstanceNormalization", &Streamer::rule_over_maps},
      {"GroupNormalization", &Streamer::rule_over_maps},
      {"GlobalAveragePool", &Streamer::rule_over_maps},
      {"GlobalMaxPool", &Streamer::rule_over_maps},
      {"ReduceSum", &Streamer::rule_reduce},
      {"ReduceMean", &Streamer::rule_reduce},
      {"ReduceMax", &Streamer::rule_reduce},
      {"ReduceMin", &Streamer::rule_reduce},
      {"ReduceProd", &Streamer::rule_reduce},
      {"ReduceL1", &Streamer::rule_reduce},
      {"ReduceL2", &Streamer::rule_reduce},
      {"ReduceSumSquare", &Streamer::rule_reduce},
      {"ReduceLogSum", &Streamer::rule_reduce},
      {"ReduceLogSumExp", &Streamer::rule_reduce},
      {"ArgMax", &Streamer::rule_reduce},
      {"ArgMin", &Streamer::rule_reduce},
      {"Transpose", &Streamer::rule_transpose},
      {"Reshape", &Streamer::rule_reshape},
      {"Flatten", &Streamer::rule_reshape},
      {"Squeeze", &Streamer::rule_reshape},
      {"Unsqueeze", &Streamer::rule_reshape},
      {"Expand", &Streamer::rule_expand},
      {"Concat", &Streamer::rule_concat},
      {"Slice", &Streamer::rule_slice},
      {"Pad", &Streamer::rule_pad},
      {"Gather", &Streamer::rule_gather},
      {"CumSum", &Streamer::rule_cumulative},
      {"Conv", &Streamer::rule_convolution},
      {"MaxPool", &Streamer::rule_convolution},
      {"AveragePool", &Streamer::rule_convolution},
      {"STFT", &Streamer::rule_spectra},
      {"ConvTranspose", &Streamer::rule_transposed_convolution},
      {"Recurrent", &Streamer::rule_recurrent},
      {"Scan", &Streamer::rule_scan},
  };
  const auto* const found = std::ranges::find(entries, std::string_view(node.op), &Entry::op);
  if (found != std::end(entries)) return found->rule;
  for (const network::Operators& file : {network::pointwise_operators(), network::condition_operators()}) {
    if (std::ranges::find(file, std::string_view(node.op), &network::Operator::name) != file.end()) {
      return &Streamer::rule_pointwise;
    }
  }
  return nullptr;
}

/// The node reads all its frames aligned, and its results have frames along `axis`.
void Streamer::join_frames(Index axis) {
  std::vector<Chunk> chunks;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < node_->reads.size(); ++i) {
    if (!reads_frames(i)) continue;
    chunks.push_back(chunk(i));
    places.push_back(i);
  }
  const std::vector<int> values = aligned(chunks);
  Node& node = copy();
  for (std::size_t i = 0; i < places.size(); ++i) node.reads[places[i]] = values[i];
  Timing result_time = chunks[0].time;
  for (const std::size_t i : places) {
    if (!time(i).ahead.empty()) result_time.ahead = time(i).ahead;
  }
  result_time.axis = axis;
  results(result_time);
}

/// Returns where all reads with frames have them, by place(read); the others must not depend on frames. `otherwise`:
/// why two places are refused.
Index Streamer::common_place(const std::function<Index(std::size_t)>& place, const char* otherwise) const {
  Index common = -1;
  for (std::size_t i = 0; i < node_->reads.size(); ++i) {
    if (!reads_frames(i)) {
      need_fixed(i, i + 1);
      continue;
    }
    const Index own = place(i);
    if (common >= 0 && own != common) refuse("{}", fmt::format(fmt::runtime(otherwise), common, own));
    common = own;
  }
  return common;
}

/// Values are broadcast to each other: axes are counted from the end.
void Streamer::rule_pointwise() {
  const Index out = rank(node_->writes[0]);
  const auto axis = [&](std::size_t i) { return time(i).axis + out - rank(read(i)); };
  join_frames(common_place(axis, "it joins frames along axis {} with frames along axis {}"));
}

void Streamer::rule_channels() {
  need_fixed(1, node_->reads.size());
  const bool single = node_->op != "BatchNormalization" && network::elements(shape(read(1))) == 1;
  Index axis = integer("axis", 1);
  if (axis < 0) axis += rank(read(0));
  if (!single && axis == time(0).axis) refuse("it has another scale for each frame");
  copy();
  results(time(0));
}

void Streamer::rule_product() {
  if (rank(read(0)) < 2 || rank(read(1)) < 2) refuse("it has frames in a vector");
  const auto from_end = [&](std::size_t i) {
    const Index own = rank(read(i)) - time(i).axis;
    if (own == (i == 0 ? 1 : 2)) refuse("it sums over frames: it needs the whole sequence");
    return own;
  };
  const char* const all = "it has the products of all frames with each other";
  const Index place = common_place(from_end, all);
  if (reads_frames(0) && reads_frames(1) && place < 3) refuse("{}", all);
  join_frames(rank(node_->writes[0]) - place);
}

void Streamer::rule_gemm() {
  if (!reads_frames(0)) refuse("it has frames in its weights");
  need_fixed(1, node_->reads.size());
  if (time(0).axis != integer("transA", 0)) refuse("it sums over frames: it needs the whole sequence");
  copy();
  Timing result_time = time(0);
  result_time.axis = 0;
  results(result_time);
}

namespace {

/// The place along a term of an equation that has the axis: a letter, or '.' and the number of axes behind it there.
std::pair<char, Index> letter_of(std::string_view term, Index rank, Index axis) {
  const std::size_t dots = term.find("...");
  if (dots == term.npos) return {term[static_cast<std::size_t>(axis)], 0};
  const auto before = static_cast<Index>(dots), behind = static_cast<Index>(term.size() - dots) - 3;
  if (axis < before) return {term[static_cast<std::size_t>(axis)], 0};
  if (axis >= rank - behind) return {term[term.size() - static_cast<std::size_t>(rank - axis)], 0};
  return {'.', rank - behind - axis};
}

}  // namespace

void Streamer::rule_einsum() {
  std::string equation;
  if (node_->find("equation") != nullptr) equation = node_->find("equation")->text;
  std::erase(equation, ' ');
  const std::size_t arrow = equation.find("->");
  if (arrow == equation.npos) refuse("its equation does not name its result");
  const std::string right = equation.substr(arrow + 2);
  std::vector<std::string> terms = {""};
  for (const char c : equation.substr(0, arrow)) {
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back() += c;
    }
  }
  const Index out = rank(node_->writes[0]);
  const auto axis = [&](std::size_t i) {
    const auto letter = letter_of(terms[i], rank(read(i)), time(i).axis);
    Index own = -1;
    for (Index k = 0; k < out; ++k) {
      if (letter_of(right, out, k) == letter) own = k;
    }
    if (own < 0) refuse("it sums over frames: it needs the whole sequence");
    return own;
  };
  join_frames(common_place(axis, "it has the products of all frames with each other"));
}

void Streamer::rule_over_axis() {
  need_fixed(1, node_->reads.size());
  Index axis = integer("axis", node_->op == "Split" ? 0 : -1);
  if (axis < 0) axis += rank(read(0));
  need_other_axis(axis);
  copy();
  results(time(0));
}

void Streamer::rule_over_last_axes() {
  need_fixed(1, node_->reads.size());
  Index axis = integer("axis", -1);
  if (axis < 0) axis += rank(read(0));
  if (time(0).axis >= axis) refuse("it takes the mean of all frames: it needs the whole sequence");
  copy();
  results(time(0));
}

void Streamer::rule_over_maps() {
  need_fixed(1, node_->reads.size());
  if (time(0).axis >= 1) refuse("it goes over all frames: it needs the whole sequence");
  copy();
  results(time(0));
}

void Streamer::rule_reduce() {
  need_fixed(1, node_->reads.size());
  std::vector<Index> axes;
  if (node_->op == "ArgMax" || node_->op == "ArgMin") {
    axes = {integer("axis", 0)};
  } else if (has(1)) {
    axes = integers(1, "'axes'");
  } else if (node_->find("axes") != nullptr) {
    axes = node_->find("axes")->integers;
  }
  const bool all = axes.empty() && integer("noop_with_empty_axes", 0) == 0;
  Timing result_time = time(0);
  for (Index& axis : axes) {
    if (axis < 0) axis += rank(read(0));
  }
  if (all || std::ranges::find(axes, time(0).axis) != axes.end()) {
    refuse("it goes over all frames: it needs the whole sequence");
  }
  const auto before = std::ranges::count_if(axes, [&](Index axis) { return axis < time(0).axis; });
  if (integer("keepdims", 1) == 0) result_time.axis -= before;
  copy();
  results(result_time);
}

void Streamer::rule_transpose() {
  std::vector<Index> order = list("perm", static_cast<std::size_t>(rank(read(0))), -1);
  if (order[0] < 0) {
    std::iota(order.rbegin(), order.rend(), 0);
  }
  copy();
  Timing result_time = time(0);
  result_time.axis = std::ranges::find(order, time(0).axis) - order.begin();
  results(result_time);
}

namespace {

/// Frames after a reshape: their axis, and how many each becomes, or how many become one. 0 parts: it has none of them.
struct NewAxis {
  std::size_t at = 0;
  Index parts = 0, joined = 0;
  bool operator==(const NewAxis&) const = default;
};

/// Elements stay in their order, so the distance between frames in it shows whether an axis has them.
NewAxis frames_at(const Shape& in, std::size_t axis, const Shape& out, std::size_t at) {
  const Index distance = network::elements(in, axis + 1), behind = network::elements(out, at + 1);
  if (distance == 0 || behind == 0 || behind * out[at] != distance * in[axis]) return {};
  if (distance % behind == 0) return {at, distance / behind, 1};
  return behind % distance == 0 ? NewAxis{at, 1, behind / distance} : NewAxis{};
}

}  // namespace

void Streamer::rule_reshape() {
  need_fixed(2, node_->reads.size());
  const Shape &in = shape(read(0)), &out = shape(node_->writes[0]);
  const auto axis = static_cast<std::size_t>(time(0).axis);
  NewAxis to_axis;
  for (std::size_t place = 0; place < out.size() && to_axis.parts == 0; ++place) {
    const auto found = [&](const network::Trace& trace) {
      const auto shape_in = [&](int value) -> const Shape& {
        return trace.facts[static_cast<std::size_t>(value)].shape;
      };
      return frames_at(shape_in(read(0)), axis, shape_in(node_->writes[0]), place);
    };
    const NewAxis once = found(traces_.once);
    if (once == found(traces_.twice) && once == found(traces_.others)) to_axis = once;
  }
  if (to_axis.parts == 0) {
    refuse("its result of shape [{}] mixes time, which is axis {} of [{}], with another axis", fmt::join(out, ", "),
           axis, fmt::join(in, ", "));
  }
  const auto [at, parts, joined] = to_axis;
  Chunk x = chunk(0);
  if (joined > 1) {
    x = later(x, (joined - x.time.offset % joined) % joined);
    x.time.down *= joined, x.time.offset /= joined;
  }
  x.time.up *= parts, x.time.offset *= parts;
  x.time.axis = static_cast<Index>(at);
  std::vector<int> reads = {x.value};
  if (node_->op == "Reshape") {
    Shape to = extents(node_->writes[0]);
    const Shape from = extents(read(0));
    bool known = true;
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (i == at) {
        to[i] = -1;
      } else if (to[i] < 0) {
        to[i] = 0;
        known = known && i < from.size() && from[i] < 0 && i < axis;
      }
    }
    reads.push_back(known ? list_of(to) : values_[static_cast<std::size_t>(read(1))]);
    copy(reads);
    std::erase_if(stream_.nodes.back().attributes, [](const auto& each) { return each.name == "allowzero"; });
  } else {
    for (std::size_t i = 1; i < node_->reads.size(); ++i) reads.push_back(values_[static_cast<std::size_t>(read(i))]);
    copy(reads);
  }
  results(x.time);
}

void Streamer::rule_expand() {
  Timing result_time = time(0);
  result_time.axis += rank(node_->writes[0]) - rank(read(0));
  Shape to = extents(node_->writes[0]);
  const Shape from = extents(read(0));
  bool known = true;
  const std::size_t shift = to.size() - from.size();
  for (std::size_t i = 0; i < to.size(); ++i) {
    const bool same = i >= shift && from[i - shift] == to[i];
    known = known && (to[i] >= 0 || same);
    if (static_cast<Index>(i) == result_time.axis || same) to[i] = 1;
  }
  copy({chunk(0).value, known ? list_of(to) : values_[static_cast<std::size_t>(read(1))]});
  results(result_time);
}

void Streamer::rule_gather() {
  const Index data_rank = rank(read(0));
  Index axis = integer("axis", 0);
  if (axis < 0) axis += data_rank;
  Timing result_time;
  if (reads_frames(1)) {
    need_fixed(0, 1);
    result_time = time(1);
    result_time.axis += axis;
  } else if (axis != time(0).axis) {
    need_fixed(1, 2);
    result_time = time(0);
    if (axis < result_time.axis) result_time.axis += rank(read(1)) - 1;
  } else {
    const std::vector<Index> indices = integers(1, "a place in time");
    const Index frames = shape(read(0))[static_cast<std::size_t>(axis)];
    const bool is_last = indices.size() == 1 && (indices[0] == -1 || (varies(read(1)) && indices[0] == frames - 1));
    if (!is_last) refuse("it takes frame {} of the whole sequence", fmt::join(indices, ", "));
    if (excess(read(0), time(0)) != 0) refuse("it takes the last frame, which is not that of the inputs' last");
    const int minus_one = rank(read(1)) == 0 ? constant(make_integers({}, std::vector<Index>{-1})) : list_of({-1});
    copy({chunk(0).value, minus_one});
    result(0, {.kind = Timing::Kind::last});
    return;
  }
  copy();
  results(result_time);
}

/// The sum so far is a state.
void Streamer::rule_cumulative() {
  need_fixed(1, 2);
  const std::vector<Index> axis = integers(1, "its axis");
  Chunk x = chunk(0);
  if ((axis[0] < 0 ? axis[0] + rank(x.like) : axis[0]) != x.time.axis) {
    copy();
    results(x.time);
    return;
  }
  if (integer("reverse", 0) != 0) refuse("it sums from the last frame on: it needs the whole sequence");
  if (integer("exclusive", 0) != 0 || x.time.offset < 0) refuse("it sums frames before the first one");
  int value = x.time.offset > 0 ? masked(x.value, x, 0, 0) : x.value;
  Shape one = extents(x.like);
  one[static_cast<std::size_t>(x.time.axis)] = 1;
  const int past =
      add_state_input(fact(x.like).type, one, traces_.others.facts[static_cast<std::size_t>(x.like)].shape);
  value = apply("Concat", {past, value}, {{"axis", {x.time.axis}}});
  const int sums = apply("CumSum", {value, values_[static_cast<std::size_t>(read(1))]});
  constexpr Index end = std::numeric_limits<Index>::max();
  add_state(past, slice(sums, x.time.axis, -1, end));
  result(0, x.time, slice(sums, x.time.axis, 1, end));
}

}  // namespace penstock::io::onnx
