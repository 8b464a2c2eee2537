// Recurrences: the states after a chunk are those before the next.

#include <algorithm>

#include "io/onnx/stream/streamer.h"
#include "io/status_error.h"
#include "network/cell.h"

namespace penstock::io::onnx {

using network::Shape;

/// What a recurrence starts a chunk with: a state of its own, or one that the network has (then `own` is -1).
int Streamer::first_state(std::size_t read, const Shape& shape, const Shape& others, int& own) {
  const bool given = has(read) && !is_zero(this->read(read));
  if (given && time(read).kind == Timing::Kind::carried) {
    own = -1;
    return values_[static_cast<std::size_t>(this->read(read))];
  }
  if (given) need_fixed(read, read + 1);
  own = add_state_input(network::Type::f32, shape, others);
  if (!given) return own;
  return apply("Where", {started(), own, values_[static_cast<std::size_t>(this->read(read))]});
}

void Streamer::rule_recurrent() {
  if (!reads_frames(network::kRecurrentX)) refuse("it has frames in its weights or its first states");
  const Chunk x = chunk(network::kRecurrentX);
  if (x.time.axis == 2) refuse("it sums over frames: it needs the whole sequence");
  if (x.time.axis == 1) return rule_rows();
  need_fixed(1, network::kRecurrentFirstState);
  const network::Attribute* const direction = node_->find("direction");
  if (direction != nullptr && direction->text != "forward" && !direction->text.empty()) {
    refuse("it runs backwards in time ({}): it needs the whole sequence", direction->text);
  }
  if (x.time.offset < 0) refuse("it begins {} frames before the first frame of the inputs", -x.time.offset);
  network::CellSizes cell;
  require_ok(network::find_cell_sizes(node_->find("cell")->text, cell), source_ + ": ");
  const network::Trace& others = traces_.others;
  const Index hidden = shape(read(network::kRecurrentWeightIh))[1] / cell.gates;
  const Shape free_rows = others.facts[static_cast<std::size_t>(x.like)].shape;
  std::vector<int> reads, own(static_cast<std::size_t>(cell.states), -1);
  for (std::size_t i = 0; i < network::kRecurrentFirstState; ++i) {
    reads.push_back(has(i) ? values_[static_cast<std::size_t>(read(i))] : -1);
  }
  if (has(network::kRecurrentFirstState + own.size())) refuse("it has the lengths of whole sequences (sequence_lens)");
  for (std::size_t k = 0; k < own.size(); ++k) {
    const Index rows = extents(x.like)[1];
    reads.push_back(
        first_state(network::kRecurrentFirstState + k, {1, rows, hidden}, {1, free_rows[1], hidden}, own[k]));
  }
  if (x.time.offset > 0) {
    reads.push_back(-1);
    reads.push_back(apply("Sub", {list_of({x.time.offset}), position_of(x.time)}, {}, network::Type::i64));
  }
  std::vector<int> writes = node_->writes;
  writes.resize(1 + own.size(), -1);
  for (std::size_t k = 0; k < own.size(); ++k) {
    if (writes[1 + k] < 0)
      writes[1 + k] = new_value(network::Type::f32, fmt::format("stream.{}", stream_.values.size()));
  }
  copy(reads).writes = writes;
  for (std::size_t k = 0; k < own.size(); ++k) {
    if (own[k] >= 0) add_state(own[k], apply("Identity", {writes[1 + k]}));
  }
  result(0, x.time);
  Timing last{.kind = Timing::Kind::last};
  if (excess(x.like, x.time) != 0) {
    last = {.kind = Timing::Kind::unclear, .reason = "the last state of a recurrence is not that after the last frame"};
  }
  for (std::size_t i = 1; i < node_->writes.size(); ++i) result(i, last);
}

/// Frames are rows of a batch: each has a recurrence of its own over another axis.
void Streamer::rule_rows() {
  need_fixed(1, network::kRecurrentFirstState);
  std::vector<int> reads;
  for (std::size_t i = 0; i < node_->reads.size(); ++i) {
    const bool zero = i >= network::kRecurrentFirstState && has(i) && is_zero(read(i));
    if (!zero && i > 0) need_fixed(i, i + 1);
    reads.push_back(!has(i) || zero ? -1 : values_[static_cast<std::size_t>(read(i))]);
  }
  copy(reads);
  results(time(network::kRecurrentX));
}

void Streamer::rule_scan() {
  const auto states = static_cast<std::size_t>(integer("states", 0));
  const auto count = static_cast<std::size_t>(integer("num_scan_inputs", 0));
  const std::vector<Index> axes = list("scan_input_axes", count, 0), reverse = list("scan_input_directions", count, 0);
  const std::size_t stacked = node_->writes.size() - states;
  need_fixed(states + count, node_->reads.size());
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < count; ++i) {
    if (!reads_frames(states + i)) refuse("it goes over frames and over other values");
    const Chunk x = chunk(states + i);
    if ((axes[i] < 0 ? axes[i] + rank(x.like) : axes[i]) != x.time.axis) refuse("it goes over another axis than time");
    if (reverse[i] != 0) refuse("it runs backwards in time: it needs the whole sequence");
    chunks.push_back(x);
  }
  const std::vector<int> values = aligned(chunks);
  if (chunks[0].time.offset != 0) refuse("it does not begin with the first frame of the inputs");
  std::vector<int> reads, own(states, -1);
  for (std::size_t i = 0; i < states; ++i) {
    const Shape free_shape = traces_.others.facts[static_cast<std::size_t>(read(i))].shape;
    reads.push_back(first_state(i, extents(read(i)), free_shape, own[i]));
  }
  reads.insert(reads.end(), values.begin(), values.end());
  for (std::size_t i = states + count; i < node_->reads.size(); ++i) {
    reads.push_back(values_[static_cast<std::size_t>(read(i))]);
  }
  std::vector<int> writes = node_->writes;
  for (std::size_t i = 0; i < states; ++i) {
    if (writes[i] < 0) writes[i] = new_value(network::Type::f32, fmt::format("stream.{}", stream_.values.size()));
  }
  copy(reads).writes = writes;
  for (std::size_t i = 0; i < states; ++i) {
    if (own[i] >= 0) add_state(own[i], apply("Identity", {writes[i]}));
    result(i, {.kind = Timing::Kind::last});
  }
  const std::vector<Index> out_axes = list("scan_output_axes", stacked, 0);
  for (const Index each : list("scan_output_directions", stacked, 0)) {
    if (each != 0) refuse("it turns time around: it needs the whole sequence");
  }
  for (std::size_t i = 0; i < stacked; ++i) {
    Timing time = chunks[0].time;
    time.axis = out_axes[i];
    if (node_->writes[states + i] >= 0 && time.axis < 0) time.axis += rank(node_->writes[states + i]);
    result(states + i, time);
  }
}

}  // namespace penstock::io::onnx
