#include "io/onnx/stream/streamer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "io/onnx/read/tensor.h"
#include "network/tensor.h"

namespace penstock::io::onnx {

using network::Network;
using network::Shape;
using network::Type;

namespace {

constexpr Index kToEnd = std::numeric_limits<Index>::max();

std::size_t place(int value) { return static_cast<std::size_t>(value); }

}  // namespace

Streamer::Streamer(const Network& whole, const Traces& traces, Index period, const std::string& source)
    : whole_(whole), traces_(traces), period_(period), source_(source), stream_(whole) {
  stream_.nodes.clear();
  timing_.resize(whole.values.size());
  values_.resize(whole.values.size());
  std::iota(values_.begin(), values_.end(), 0);
  for (const network::State& state : whole.states) {
    timing_[place(whole.inputs[static_cast<std::size_t>(state.input)])].kind = Timing::Kind::carried;
  }
}

// Facts -----------------------------------------------------------------------------------------------------------

bool Streamer::varies(int value) const {
  const network::Fact &once = fact(value), &twice = traces_.twice.facts[place(value)];
  if (once.shape != twice.shape) return true;
  if (once.known == nullptr || twice.known == nullptr) return once.known != twice.known;
  return std::memcmp(once.known, twice.known, network::bytes_of(once.type, once.shape)) != 0;
}

bool Streamer::is_zero(int value) const {
  const network::Fact& it = fact(value);
  if (it.known == nullptr) return false;
  for (Index i = 0; i < network::elements(it.shape); ++i) {
    if (network::real_at(it.type, it.known, i) != 0) return false;
  }
  return true;
}

/// Its shape, with -1 for extents that the caller chooses.
Shape Streamer::extents(int value) const {
  Shape known = shape(value);
  const Shape& others = traces_.others.facts[place(value)].shape;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (i < others.size() && known[i] != others[i]) known[i] = -1;
  }
  return known;
}

Index Streamer::excess(int value, const Timing& time) const {
  return shape(value)[static_cast<std::size_t>(time.axis)] + time.offset - traces_.steps * time.up / time.down;
}

std::vector<Index> Streamer::integers(std::size_t read, const char* what) const {
  const network::Fact& it = fact(node_->reads[read]);
  if (it.known == nullptr) refuse("{} depends on what is in the inputs", what);
  std::vector<Index> numbers;
  for (Index i = 0; i < network::elements(it.shape); ++i) numbers.push_back(network::integer_at(it.type, it.known, i));
  return numbers;
}

Index Streamer::integer(std::string_view attribute, Index otherwise) const {
  const network::Attribute* const found = node_->find(attribute);
  return found == nullptr || found->integers.empty() ? otherwise : found->integers[0];
}

std::vector<Index> Streamer::list(std::string_view attribute, std::size_t count, Index otherwise) const {
  const network::Attribute* const found = node_->find(attribute);
  return found == nullptr || found->integers.size() != count ? std::vector<Index>(count, otherwise) : found->integers;
}

// The node --------------------------------------------------------------------------------------------------------

void Streamer::refuse_for(const std::string& reason) const {
  const std::string name = node_->name.empty() ? "" : " " + in_quotes(node_->name);
  fail(ErrorCode::unsupported, "{}: as a stream: {}{}: {}", source_, node_->op, name, reason);
}

Streamer::Chunk Streamer::chunk(std::size_t i) const {
  const int like = node_->reads[i];
  return {values_[place(like)], like, timing_[place(like)]};
}

/// Refuses reads that have frames, or change while frames come.
void Streamer::need_fixed(std::size_t first, std::size_t last) const {
  for (std::size_t i = first; i < std::min(last, node_->reads.size()); ++i) {
    if (!has(i) || time(i).kind == Timing::Kind::fixed) continue;
    const std::string name = in_quotes(whole_.values[place(node_->reads[i])].name);
    if (time(i).has_frames()) refuse("frames of {} and of another value are not at the same place", name);
    if (time(i).kind == Timing::Kind::last)
      refuse("it joins frames with {}, which is known after the last frame", name);
    if (time(i).kind == Timing::Kind::carried)
      refuse("it joins frames with {}, which is the state of another time", name);
    refuse("it joins frames with {}, which depends on how many there are", name);
  }
}

void Streamer::need_other_axis(Index axis) const {
  if (axis == time(0).axis) refuse("it goes over axis {}, which is time: it needs the whole sequence", axis);
}

// Parts -----------------------------------------------------------------------------------------------------------

int Streamer::new_value(Type type, std::string name) {
  stream_.values.push_back({.name = std::move(name), .type = type});
  return static_cast<int>(stream_.values.size()) - 1;
}

int Streamer::constant(network::Constant constant) {
  const int value = new_value(constant.type, fmt::format("stream.{}", stream_.values.size()));
  stream_.values.back().shape = constant.shape;
  stream_.values.back().constant = static_cast<int>(stream_.constants.size());
  stream_.constants.push_back(std::move(constant));
  return value;
}

int Streamer::list_of(std::vector<Index> numbers) {
  return constant(make_integers({static_cast<Index>(numbers.size())}, numbers));
}

int Streamer::apply(std::string_view op, std::vector<int> reads, std::vector<network::Attribute> attributes,
                    Type type) {
  const int value = new_value(type, fmt::format("stream.{}", stream_.values.size()));
  stream_.nodes.push_back({.op = std::string(op),
                           .name = node_ == nullptr ? "" : node_->name,
                           .reads = std::move(reads),
                           .writes = {value},
                           .attributes = std::move(attributes)});
  return value;
}

int Streamer::slice(int value, Index axis, Index begin, Index end, Index step) {
  if (begin == 0 && end == kToEnd && step == 1) return value;
  return apply("Slice", {value, list_of({begin}), list_of({end}), list_of({axis}), list_of({step})});
}

/// A state of the given shape; free extents, which have to be those of `others`, have the names of the inputs' extents.
int Streamer::add_state_input(Type type, Shape shape, const Shape& others) {
  coupled_ = true;
  const std::string name = fmt::format("{}.past.{}", node_ == nullptr ? "stream" : node_->name, states_++);
  const int value = new_value(type, name);
  std::vector<std::string> axes(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] >= 0) continue;
    const auto found = std::ranges::find(traces_.names, others[i], &std::pair<Index, std::string>::first);
    if (found == traces_.names.end()) refuse("its state has an extent that is a product of free ones");
    axes[i] = found->second;
  }
  stream_.values.back().shape = std::move(shape);
  stream_.values.back().axes = std::move(axes);
  stream_.inputs.push_back(value);
  return value;
}

void Streamer::add_state(int input, int output) {
  const auto at = std::ranges::find(stream_.inputs, input) - stream_.inputs.begin();
  stream_.values[place(output)].name = stream_.values[place(input)].name + ".next";
  stream_.states.push_back({static_cast<int>(at), static_cast<int>(stream_.outputs.size())});
  stream_.outputs.push_back(output);
}

/// Steps of the inputs before this chunk: [1].
int Streamer::position() {
  if (position_ >= 0) return position_;
  position_ = add_state_input(Type::i64, {1}, {});
  const int steps = apply("Shape", {clock_}, {{"start", {clock_axis_}}, {"end", {clock_axis_ + 1}}}, Type::i64);
  add_state(position_, apply("Add", {position_, steps}, {}, Type::i64));
  return position_;
}

/// Frames before this chunk: [1].
int Streamer::position_of(const Timing& time) {
  const int frames = time.up == 1 ? position() : apply("Mul", {position(), list_of({time.up})}, {}, Type::i64);
  return time.down == 1 ? frames : apply("Div", {frames, list_of({time.down})}, {}, Type::i64);
}

/// Whether there have been chunks before this one: [1].
int Streamer::started() { return apply("Greater", {position(), list_of({0})}, {}, Type::boolean); }

/// A chunk with so many frames before it; zeros before the first frame.
int Streamer::with_history(const Chunk& x, Index frames) {
  const Index margin = x.time.margin(), axis = x.time.axis;
  if (frames <= margin) return slice(x.value, axis, margin - frames, kToEnd);
  Shape shape = extents(x.like);
  shape[static_cast<std::size_t>(axis)] = frames - margin;
  const Type type = fact(x.like).type;
  const int past = add_state_input(type, shape, traces_.others.facts[place(x.like)].shape);
  const int both = apply("Concat", {past, x.value}, {{"axis", {axis}}}, type);
  add_state(past, slice(both, axis, -frames, margin == 0 ? kToEnd : -margin));
  return both;
}

/// `fill` before the first frame, for a value of `history` frames and a chunk.
int Streamer::masked(int value, const Chunk& x, Index history, float fill) {
  if (fact(x.like).type != Type::f32) refuse("it pads frames that are not f32");
  const auto whole_number = [&](Index number) { return constant(make_integers({}, std::span(&number, 1))); };
  const int first = position_of(x.time);
  const int count = apply("Shape", {value}, {{"start", {x.time.axis}}, {"end", {x.time.axis + 1}}}, Type::i64);
  const int scalar = apply("Squeeze", {count}, {}, Type::i64);
  const int range = apply("Range", {whole_number(0), scalar, whole_number(1)}, {}, Type::i64);
  const int place_of_each = apply("Add", {range, first}, {}, Type::i64);
  const int there = apply("GreaterOrEqual", {place_of_each, list_of({history + x.time.offset})}, {}, Type::boolean);
  std::vector<Index> column(static_cast<std::size_t>(rank(x.like) - x.time.axis), 1);
  column[0] = -1;
  const int beside = apply("Reshape", {there, list_of(column)}, {}, Type::boolean);
  return apply("Where", {beside, value, constant(make_number(fill))});
}

/// The frames of some frames ago.
Streamer::Chunk Streamer::later(Chunk x, Index frames) {
  if (frames == 0) return x;
  const Index offset = x.time.offset + frames;
  const int both = with_history(x, std::max<Index>(0, -offset) + frames);
  x.value = slice(both, x.time.axis, 0, -frames);
  x.time.offset = offset;
  coupled_ = true;
  return x;
}

/// The same frames, from a later one of the whole sequence on.
Streamer::Chunk Streamer::moved(Chunk x, Index offset) {
  const Index margin = x.time.margin();
  x.time.offset = offset;
  x.value = slice(x.value, x.time.axis, margin - x.time.margin(), kToEnd);
  return x;
}

/// With so many frames of `fill` in front of the first.
Streamer::Chunk Streamer::padded(Chunk x, Index frames, float fill) {
  if (frames == 0) return x;
  const Index offset = x.time.offset - frames, margin = std::max<Index>(0, -offset);
  const int both = with_history(x, std::max(margin, x.time.margin()));
  x.value = fill == 0 && x.time.offset <= 0 ? both : masked(both, x, margin, fill);
  x.time.offset = offset;
  return x;
}

std::vector<int> Streamer::aligned(std::vector<Chunk>& chunks) {
  Index latest = std::numeric_limits<Index>::min();
  for (const Chunk& each : chunks) latest = std::max(latest, each.time.offset);
  std::vector<int> values;
  for (Chunk& each : chunks) {
    if (each.time.up * chunks[0].time.down != each.time.down * chunks[0].time.up) {
      refuse("it joins frames of different rates");
    }
    each = later(each, latest - each.time.offset);
    values.push_back(each.value);
  }
  return values;
}

// Results ---------------------------------------------------------------------------------------------------------

/// The node as it is, of other values.
network::Node& Streamer::copy(std::vector<int> reads) {
  Node node = *node_;
  node.reads = std::move(reads);
  stream_.nodes.push_back(std::move(node));
  return stream_.nodes.back();
}

network::Node& Streamer::copy() {
  std::vector<int> reads;
  for (const int value : node_->reads) reads.push_back(value < 0 ? -1 : values_[place(value)]);
  return copy(std::move(reads));
}

/// What the node writes is a value of the stream; -1: the same.
void Streamer::result(std::size_t write, Timing time, int value) {
  if (write >= node_->writes.size() || node_->writes[write] < 0) return;
  const int whole = node_->writes[write];
  if (value >= 0) values_[place(whole)] = value;
  if (time.has_frames()) {
    const Index divisor = std::gcd(time.up, time.down);
    time.up /= divisor, time.down /= divisor;
    if (period_ * time.up % time.down != 0) throw OtherPeriod(std::lcm(period_, time.down));
    const auto axis = static_cast<std::size_t>(time.axis);
    const Shape& twice = traces_.twice.facts[place(whole)].shape;
    const Index grown = traces_.steps * time.up / time.down;
    if (axis >= shape(whole).size() || twice[axis] - shape(whole)[axis] != grown) {
      refuse("its result of shape [{}] does not have frames along axis {}: it mixes time with other axes",
             fmt::join(shape(whole), ", "), time.axis);
    }
    if (excess(whole, time) <= 0) {
      time.ahead.clear();
    } else if (time.ahead.empty()) {
      time.ahead = node_->op + (node_->name.empty() ? "" : " " + in_quotes(node_->name));
    }
  }
  timing_[place(whole)] = std::move(time);
}

void Streamer::results(const Timing& time) {
  for (std::size_t i = 0; i < node_->writes.size(); ++i) result(i, time);
}

void Streamer::add_input(int value, Index axis) {
  if (axis < 0) return;
  Timing& time = timing_[place(value)];
  time.kind = Timing::Kind::frames;
  time.axis = axis;
  if (clock_ < 0) clock_ = value, clock_axis_ = axis;
  if (period_ == 1) return;
  // A chunk of another length does not fit this shape.
  Shape split(static_cast<std::size_t>(axis), 0), joined = split;
  const Shape all = extents(value);
  split.insert(split.end(), {-1, period_});
  joined.push_back(-1);
  for (std::size_t i = static_cast<std::size_t>(axis) + 1; i < all.size(); ++i) {
    if (all[i] < 0) return;
    split.push_back(all[i]), joined.push_back(all[i]);
  }
  const int parts = apply("Reshape", {value, list_of(split)});
  stream_.nodes.back().name =
      fmt::format("{} in chunks of a multiple of {}", whole_.values[place(value)].name, period_);
  values_[place(value)] = apply("Reshape", {parts, list_of(joined)});
}

/// Nodes that read no frames stay as they are.
void Streamer::write_without_frames() {
  using Kind = Timing::Kind;
  bool carried = false, last = false, length = false;
  for (std::size_t i = 0; i < node_->reads.size(); ++i) {
    if (!has(i)) continue;
    carried = carried || time(i).kind == Kind::carried;
    last = last || time(i).kind == Kind::last;
    length = length || time(i).kind == Kind::length;
  }
  copy();
  for (std::size_t i = 0; i < node_->writes.size(); ++i) {
    const int write = node_->writes[i];
    if (write < 0) continue;
    const bool other = varies(write);
    if ((carried || last) && other) refuse("its result depends on how many frames there are");
    // A value that is not known may depend on their number.
    const bool unknown = fact(write).known == nullptr && length;
    Timing time{.kind = last ? Kind::last : carried ? Kind::carried : other || unknown ? Kind::length : Kind::fixed};
    result(i, time);
  }
}

void Streamer::write_node() {
  bool frames = false;
  for (std::size_t i = 0; i < node_->reads.size(); ++i) {
    if (!has(i)) continue;
    if (time(i).kind == Timing::Kind::unclear) refuse_for(time(i).reason);
    frames = frames || reads_frames(i);
  }
  if (!frames) {
    write_without_frames();
  } else if (node_->op == "Shape" || node_->op == "Size") {
    copy();
    const bool other = varies(node_->writes[0]);
    result(0, {.kind = other ? Timing::Kind::length : Timing::Kind::fixed});
  } else {
    const Rule rule = rule_of(*node_);
    if (rule == nullptr) refuse("it may need the whole sequence: there is no rule for this operator over frames");
    (this->*rule)();
  }
}

void Streamer::write_outputs() {
  for (std::size_t i = 0; i < whole_.outputs.size(); ++i) {
    const int value = whole_.outputs[i];
    const Timing& time = timing_[place(value)];
    const std::string name = whole_.values[place(value)].name;
    Chunk x{values_[place(value)], value, time};
    const auto refuse_output = [&](const std::string& reason) {
      fail(ErrorCode::unsupported, "{}: as a stream: output {} {}", source_, in_quotes(name), reason);
    };
    if (time.kind == Timing::Kind::unclear) refuse_output("is not there: " + time.reason);
    if (time.kind == Timing::Kind::length) refuse_output("depends on how many frames there are");
    if (time.has_frames() && excess(value, time) > 0) {
      const Index frames = excess(value, time);
      refuse_output(fmt::format("looks ahead by {} frame{}, first in {}: it needs frames that have not come yet",
                                frames, frames == 1 ? "" : "s", time.ahead));
    }
    if (time.has_frames() && time.offset < 0) {
      refuse_output(fmt::format("begins {} frames before the first frame of the inputs", -time.offset));
    }
    if (time.has_frames() && time.offset > 0) {
      x.value = apply("Identity", {x.value}, {{"delay", {time.offset}}});
      stream_.nodes.back().name = name;
    }
    if (x.value != value) {
      stream_.values[place(value)].name = name + ".whole";
      stream_.values[place(x.value)].name = name;
      stream_.outputs[i] = x.value;
    }
    outputs_.push_back(time);
  }
}

Network Streamer::write() {
  for (const Node& node : whole_.nodes) {
    node_ = &node;
    write_node();
  }
  node_ = nullptr;
  write_outputs();
  return std::move(stream_);
}

}  // namespace penstock::io::onnx
