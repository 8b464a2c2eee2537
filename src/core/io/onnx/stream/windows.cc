// Operators that look at several frames: convolutions, pools, padding, parts of the sequence.

#include <algorithm>
#include <limits>
#include <numeric>

#include "io/onnx/stream/streamer.h"
#include "network/tensor.h"

namespace penstock::io::onnx {

using network::Shape;

namespace {

constexpr Index kAll = std::numeric_limits<Index>::max();

/// Rounds up.
Index over(Index a, Index b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

}  // namespace

/// The frames that windows of `reach` frames need, each `stride` frames after the one before. The chunk that is
/// returned has the times of the results.
Streamer::Chunk Streamer::windows(const Chunk& x, Index reach, Index stride) {
  Chunk y = x;
  y.time.offset = over(reach + x.time.offset - stride, stride);
  y.time.down *= stride;
  y.value = with_history(x, (y.time.margin() + y.time.offset) * stride - x.time.offset);
  return y;
}

/// Conv, MaxPool and AveragePool.
void Streamer::rule_convolution() {
  if (!reads_frames(0)) refuse("it has frames in its weights");
  need_fixed(1, node_->reads.size());
  Chunk x = chunk(0);
  if (x.time.axis == 1 && node_->op == "Conv") refuse("it sums over frames: it needs the whole sequence");
  if (x.time.axis < 2) {
    copy();
    results(x.time);
    return;
  }
  const auto axis = static_cast<std::size_t>(x.time.axis) - 2, count = static_cast<std::size_t>(rank(x.like)) - 2;
  std::vector<Index> kernel = list("kernel_shape", count, 1), pads = list("pads", 2 * count, 0);
  const std::vector<Index> strides = list("strides", count, 1), dilations = list("dilations", count, 1);
  if (node_->op == "Conv") kernel.assign(shape(read(1)).begin() + 2, shape(read(1)).end());
  const std::string mode = node_->find("auto_pad") == nullptr ? "NOTSET" : node_->find("auto_pad")->text;
  const Shape &in = shape(x.like), &out = shape(node_->writes[0]);
  for (std::size_t i = 0; i < count && mode != "NOTSET" && !mode.empty(); ++i) {
    const Index reach = (kernel[i] - 1) * dilations[i] + 1;
    const Index all = mode == "VALID" ? 0 : std::max<Index>(0, (out[i + 2] - 1) * strides[i] + reach - in[i + 2]);
    pads[i] = mode == "SAME_UPPER" ? all / 2 : all - all / 2;
    pads[count + i] = all - pads[i];
  }
  const Index before = pads[axis];
  const bool averages = node_->op == "AveragePool";
  if (averages && before + pads[count + axis] > 0 && integer("count_include_pad", 0) == 0) {
    refuse("it takes the mean of fewer frames at the ends of the sequence");
  }
  if (node_->op == "MaxPool" && node_->writes.size() > 1 && node_->writes[1] >= 0) refuse("it counts frames");
  pads[axis] = pads[count + axis] = 0;
  const float fill = node_->op == "MaxPool" ? -std::numeric_limits<float>::infinity() : 0.0f;
  const Index reach = (kernel[axis] - 1) * dilations[axis] + 1;
  const Chunk y = windows(padded(x, before, fill), reach, strides[axis]);
  Node& node = copy();
  node.reads[0] = y.value;
  std::erase_if(node.attributes, [](const auto& each) {
    return each.name == "pads" || each.name == "auto_pad" || each.name == "ceil_mode";
  });
  node.attributes.push_back({"pads", pads});
  if (integer("ceil_mode", 0) != 0 && count > 1) refuse("'ceil_mode' is 1 over more than one axis");
  results(y.time);
}

/// Each frame adds to the frames of `reach` results.
void Streamer::rule_transposed_convolution() {
  if (!reads_frames(0)) refuse("it has frames in its weights");
  need_fixed(1, node_->reads.size());
  Chunk x = chunk(0);
  if (x.time.axis == 1) refuse("it sums over frames: it needs the whole sequence");
  if (x.time.axis < 2) {
    copy();
    results(x.time);
    return;
  }
  const auto axis = static_cast<std::size_t>(x.time.axis) - 2, count = static_cast<std::size_t>(rank(x.like)) - 2;
  std::vector<Index> pads = list("pads", 2 * count, 0), extra = list("output_padding", count, 0);
  if (node_->find("output_shape") != nullptr ||
      (node_->find("auto_pad") != nullptr && node_->find("auto_pad")->text != "NOTSET")) {
    refuse("its padding depends on how many frames there are; give 'pads'");
  }
  const Index stride = list("strides", count, 1)[axis];
  const Index reach = (shape(read(1))[axis + 2] - 1) * list("dilations", count, 1)[axis] + 1;
  Timing result_time = x.time;
  result_time.offset = pads[axis] + stride * x.time.offset;
  result_time.up *= stride;
  const Index margin = result_time.margin();
  const Index history = std::max((margin + reach - 1) / stride, x.time.margin());
  // Frames before the first add nothing.
  int value = with_history(x, history);
  if (x.time.offset > 0) value = masked(value, x, history, 0);
  pads[axis] = pads[count + axis] = 0;
  extra[axis] = std::max<Index>(0, stride - reach);
  Node& node = copy();
  node.reads[0] = value;
  std::erase_if(node.attributes, [](const auto& each) { return each.name == "pads" || each.name == "output_padding"; });
  node.attributes.push_back({"pads", pads});
  node.attributes.push_back({"output_padding", extra});
  const int all = node.writes[0] = new_value(network::Type::f32, fmt::format("stream.{}", stream_.values.size()));
  result(0, result_time, slice(all, x.time.axis, history * stride - margin, reach > stride ? stride - reach : kAll));
}

/// STFT: frames of samples, whose spectra are the frames of the result.
void Streamer::rule_spectra() {
  need_fixed(1, node_->reads.size());
  Chunk x = chunk(0);
  if (x.time.axis == 1) {
    const Index length = has(3) ? integers(3, "'frame_length'")[0] : network::elements(shape(read(2)));
    x = windows(x, length, integers(1, "'frame_step'")[0]);
  }
  copy().reads[0] = x.value;
  results(x.time);
}

void Streamer::rule_pad() {
  need_fixed(2, node_->reads.size());
  Chunk x = chunk(0);
  std::vector<Index> pads = integers(1, "its padding"), axes;
  if (has(3)) axes = integers(3, "'axes'");
  if (axes.empty()) {
    axes.resize(static_cast<std::size_t>(rank(x.like)));
    std::iota(axes.begin(), axes.end(), 0);
  }
  Index before = 0;
  bool others = false;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if ((axes[i] < 0 ? axes[i] + rank(x.like) : axes[i]) == x.time.axis) {
      before = pads[i];
      const std::string mode = node_->find("mode") == nullptr ? "" : node_->find("mode")->text;
      const Index behind = pads[axes.size() + i];
      if ((before > 0 || behind > 0) && !mode.empty() && mode != "constant") {
        refuse(
            "its mode is '{}' along time, over {} frames in front of the first and {} behind the last, which a "
            "stream does not know; frames can only be padded with a number",
            mode, before, behind);
      }
      pads[i] = pads[axes.size() + i] = 0;
    } else {
      others = others || pads[i] != 0 || pads[axes.size() + i] != 0;
    }
  }
  if (varies(read(1)) && others) refuse("its padding depends on how many frames there are");
  const float fill = has(2) && fact(read(2)).known != nullptr
                         ? static_cast<float>(network::real_at(fact(read(2)).type, fact(read(2)).known, 0))
                         : 0.0f;
  x = before < 0 ? moved(x, x.time.offset - before) : padded(x, before, fill);
  int value = x.value;
  if (others) {
    Node& node = copy({value, list_of(pads), has(2) ? values_[static_cast<std::size_t>(read(2))] : -1, list_of(axes)});
    value = node.writes[0];
  }
  result(0, x.time, value);
}

/// Parts of the sequence: without its first frames, each k-th frame, or the last frames.
void Streamer::rule_slice() {
  for (std::size_t i = 1; i < node_->reads.size(); ++i) {
    if (reads_frames(i)) refuse("its range depends on frames");
  }
  Chunk x = chunk(0);
  const std::vector<Index> begins = integers(1, "its range"), ends = integers(2, "its range");
  std::vector<Index> axes(begins.size()), steps(begins.size(), 1), kept[4];
  std::iota(axes.begin(), axes.end(), 0);
  if (has(3)) axes = integers(3, "its range");
  if (has(4)) steps = integers(4, "its range");
  Index step = 1, begin = 0;
  bool from_end = false;
  const Index frames = shape(x.like)[static_cast<std::size_t>(x.time.axis)];
  for (std::size_t i = 0; i < begins.size(); ++i) {
    if ((axes[i] < 0 ? axes[i] + rank(x.like) : axes[i]) == x.time.axis) {
      step = steps[i];
      begin = std::clamp<Index>(begins[i] < 0 ? begins[i] + frames : begins[i], 0, frames);
      const network::Fact& twice = traces_.twice.facts[static_cast<std::size_t>(read(1))];
      from_end = begins[i] < 0 || network::integer_at(twice.type, twice.known, static_cast<Index>(i)) != begins[i];
      continue;
    }
    kept[0].push_back(begins[i]), kept[1].push_back(ends[i]), kept[2].push_back(axes[i]), kept[3].push_back(steps[i]);
  }
  if (step < 1) refuse("it turns time around: it needs the whole sequence");
  const network::Shape& once = shape(node_->writes[0]);
  const auto axis = static_cast<std::size_t>(x.time.axis);
  const bool grows = traces_.twice.facts[static_cast<std::size_t>(node_->writes[0])].shape[axis] != once[axis];
  if (!grows && frames == 0) refuse("there are no frames");
  if (!grows && (!from_end || begin + once[axis] != frames || step != 1 || excess(x.like, x.time) != 0)) {
    refuse("it takes {} frames at a place of the whole sequence", once[axis]);
  }
  if (grows && from_end) refuse("its first frame depends on how many there are");
  if (!grows) {
    const Index last = once[axis];
    if (last == 0) refuse("it takes no frames");
    x.value = slice(with_history(x, last - 1), x.time.axis, -last, kAll);
  } else if (step > 1) {
    x = windows(moved(x, x.time.offset + begin), 1, step);
    x.value = slice(x.value, x.time.axis, 0, kAll, step);
  } else {
    x = moved(x, x.time.offset + begin);
  }
  if (!kept[0].empty()) {
    x.value = apply("Slice", {x.value, list_of(kept[0]), list_of(kept[1]), list_of(kept[2]), list_of(kept[3])}, {},
                    fact(x.like).type);
  }
  result(0, grows ? x.time : Timing{.kind = Timing::Kind::last}, x.value);
}

void Streamer::rule_concat() {
  std::size_t frames = node_->reads.size(), first = frames;
  Index axis = integer("axis", 0);
  for (std::size_t i = 0; i < node_->reads.size(); ++i) {
    if (axis < 0) axis += rank(read(i));
    if (!reads_frames(i)) continue;
    if (first == node_->reads.size()) first = i;
    if (time(i).axis != axis) frames = i;
  }
  if (frames != node_->reads.size()) return rule_pointwise();
  join_along_time(axis, first);
}

/// Padding by hand: zeros or a state before the frames, and what comes behind them.
void Streamer::join_along_time(Index axis, std::size_t frames) {
  Chunk x = chunk(frames);
  Index zeros = 0;
  std::vector<int> carried;
  for (std::size_t i = 0; i < node_->reads.size(); ++i) {
    if (i == frames) continue;
    if (reads_frames(i)) refuse("it puts frames behind frames: it needs the whole sequence");
    const Index count = shape(read(i))[static_cast<std::size_t>(axis)];
    if (varies(read(i))) need_fixed(i, i + 1);
    if (i > frames) continue;  // the excess shows it
    if (time(i).kind == Timing::Kind::carried && zeros == 0) {
      if (x.time.offset != 0) refuse("it joins a state with frames of another time");
      carried.push_back(values_[static_cast<std::size_t>(read(i))]);
      x.time.offset -= count;
    } else if (is_zero(read(i))) {
      zeros += count;
    } else {
      refuse("it puts {} frames that are not zero before the first", count);
    }
  }
  if (!carried.empty() && zeros > 0) refuse("it puts zeros and a state before the first frame");
  coupled_ = true;
  if (carried.empty()) {
    x = padded(x, zeros, 0);
  } else {
    carried.push_back(x.value);
    x.value = apply("Concat", carried, {{"axis", {axis}}}, fact(x.like).type);
  }
  result(0, x.time, x.value);
}

}  // namespace penstock::io::onnx
