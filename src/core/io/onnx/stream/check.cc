#include "io/onnx/stream/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>

#include "base/random.h"
#include "io/status_error.h"
#include "network/session.h"
#include "network/tensor.h"

namespace penstock::io::onnx {
namespace {

using network::Network;
using network::Shape;

struct Tensor {
  network::Type type = network::Type::f32;
  Shape shape;
  std::vector<std::byte> bytes;
};

Tensor random_tensor(network::Type type, Shape shape, Random& random) {
  Tensor made{type, std::move(shape), {}};
  made.bytes.resize(network::bytes_of(type, made.shape));
  for (Index i = 0; i < network::elements(made.shape); ++i) {
    if (network::is_real(type)) {
      network::set_real(type, made.bytes.data(), i, random.normal());
    } else {
      network::set_integer(type, made.bytes.data(), i, random.below(2));
    }
  }
  return made;
}

/// Copies frames along an axis, [begin, begin + count) of `from`, to `at` of `to`. Both have the same other extents.
void copy_frames(const Tensor& from, Index axis, Index begin, Index count, std::byte* to, Index at, Index to_frames) {
  const auto place = static_cast<std::size_t>(axis);
  const Index outer = network::elements(from.shape, 0, place);
  const std::size_t inner = static_cast<std::size_t>(network::elements(from.shape, place + 1)) * size_of(from.type);
  for (Index i = 0; i < outer; ++i) {
    std::memcpy(to + static_cast<std::size_t>(i * to_frames + at) * inner,
                from.bytes.data() + static_cast<std::size_t>(i * from.shape[place] + begin) * inner,
                static_cast<std::size_t>(count) * inner);
  }
}

/// The most products that one result of a node adds up, as far as the shapes of weights tell.
Index longest_sum(const Network& network) {
  Index longest = 1;
  for (const network::Node& node : network.nodes) {
    Index sum = 0;
    for (const int read : node.reads) {
      const int constant = read < 0 ? -1 : network.values[static_cast<std::size_t>(read)].constant;
      if (constant < 0) continue;
      const Shape& shape = network.constants[static_cast<std::size_t>(constant)].shape;
      if (shape.size() < 2) continue;
      if (node.op == "Conv") sum = network::elements(shape, 1);
      if (node.op == "ConvTranspose") sum = network::elements(shape) / std::max<Index>(shape[1], 1);
      if (node.op == "Recurrent") sum += shape.back();
      if (node.op == "MatMul" || node.op == "Gemm" || node.op == "Einsum") sum = std::ranges::max(shape);
    }
    longest = std::max(longest, sum);
  }
  return longest;
}

/// How far results may be apart, as a share of the largest: a chunk may add the same numbers in another order. The
/// roundings of a sum of n numbers grow as the square root of n. 1e-6 up to sums of 256.
double rounding_of(const Network& network) {
  constexpr double epsilon = std::numeric_limits<float>::epsilon();
  return epsilon * std::max(8.0, 0.5 * std::sqrt(static_cast<double>(longest_sum(network))));
}

class Comparison {
 public:
  Comparison(const Network& whole, const Network& stream, const StreamCheck& about, const std::string& source)
      : whole_(std::make_shared<const Network>(whole)),
        stream_(std::make_shared<const Network>(stream)),
        about_(about),
        source_(source) {}

  void run() {
    run_whole();
    for (Index at = 0, chunk = about_.period; at < about_.steps; chunk = 4 * about_.period - chunk) {
      run_chunk(at, std::min(chunk, about_.steps - at));
      at += std::min(chunk, about_.steps - at);
    }
    for (std::size_t i = 0; i < expected_.size(); ++i) compare(i);
  }

 private:
  static const network::Value& value(const Network& network, int number) {
    return network.values[static_cast<std::size_t>(number)];
  }
  Shape shape_of(const Network& network, std::size_t input, Index steps) const {
    Shape shape = value(network, network.inputs[input]).shape;
    for (Index& each : shape) each = each < 0 ? 1 : each;
    if (input < about_.axes.size() && about_.axes[input] >= 0)
      shape[static_cast<std::size_t>(about_.axes[input])] = steps;
    return shape;
  }
  std::unique_ptr<network::Session> open(const std::shared_ptr<const Network>& network, Index steps) const {
    std::vector<Shape> shapes;
    for (std::size_t i = 0; i < network->inputs.size(); ++i) shapes.push_back(shape_of(*network, i, steps));
    std::shared_ptr<const network::Program> program;
    require_ok(network::Program::prepare(network, shapes, program), source_ + ": as a stream: ");
    std::unique_ptr<network::Session> session;
    require_ok(network::Session::open(program, nullptr, session), source_ + ": ");
    return session;
  }
  bool is_state(std::size_t input) const {
    return std::ranges::any_of(
        whole_->states, [&](const network::State& each) { return static_cast<std::size_t>(each.input) == input; });
  }

  void run_whole() {
    const auto session = open(whole_, about_.steps);
    Random random(1);
    for (std::size_t i = 0; i < whole_->inputs.size(); ++i) {
      const network::Value& input = value(*whole_, whole_->inputs[i]);
      inputs_.push_back(random_tensor(input.type, session->program().input_shape(i), random));
      if (is_state(i)) std::ranges::fill(inputs_.back().bytes, std::byte{0});
      std::ranges::copy(inputs_.back().bytes, static_cast<std::byte*>(session->input(i)));
    }
    session->run();
    for (std::size_t i = 0; i < whole_->outputs.size(); ++i) {
      Tensor output{session->program().output_type(i), session->program().output_shape(i), {}};
      const auto* const bytes = static_cast<const std::byte*>(session->output(i));
      output.bytes.assign(bytes, bytes + network::bytes_of(output.type, output.shape));
      expected_.push_back(output);
      if (about_.outputs[i].has_frames()) {
        output.shape[static_cast<std::size_t>(about_.outputs[i].axis)] =
            about_.steps * about_.outputs[i].up / about_.outputs[i].down;
        output.bytes.assign(network::bytes_of(output.type, output.shape), std::byte{0});
      }
      streamed_.push_back(std::move(output));
    }
  }

  void run_chunk(Index at, Index steps) {
    std::unique_ptr<network::Session>& session = sessions_[steps];
    if (session == nullptr) session = open(stream_, steps);
    if (!state_.empty()) session->write_state(state_.data());
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      auto* const to = static_cast<std::byte*>(session->input(i));
      if (is_state(i)) continue;
      if (about_.axes[i] < 0) {
        std::ranges::copy(inputs_[i].bytes, to);
      } else {
        copy_frames(inputs_[i], about_.axes[i], at, steps, to, 0, steps);
      }
    }
    session->run();
    state_.resize(session->state_bytes());
    session->read_state(state_.data());
    for (std::size_t i = 0; i < streamed_.size(); ++i) {
      Tensor chunk{session->program().output_type(i), session->program().output_shape(i), {}};
      const auto* const bytes = static_cast<const std::byte*>(session->output(i));
      chunk.bytes.assign(bytes, bytes + network::bytes_of(chunk.type, chunk.shape));
      const Timing& time = about_.outputs[i];
      if (!time.has_frames()) {
        streamed_[i] = std::move(chunk);
        continue;
      }
      const Index first = at * time.up / time.down, frames = steps * time.up / time.down;
      const Shape& whole = streamed_[i].shape;
      Shape expected = whole;
      expected[static_cast<std::size_t>(time.axis)] = frames;
      if (chunk.shape != expected) {
        refuse(i,
               fmt::format("has the shape [{}] in chunks, not [{}]: how this network depends on time is not understood",
                           fmt::join(chunk.shape, ", "), fmt::join(expected, ", ")));
      }
      copy_frames(chunk, time.axis, 0, frames, streamed_[i].bytes.data(), first,
                  whole[static_cast<std::size_t>(time.axis)]);
    }
  }

  void compare(std::size_t output) const {
    Tensor expected = expected_[output], streamed = streamed_[output];
    if (expected.type != network::Type::f32) return;
    const Timing& time = about_.outputs[output];
    if (time.has_frames()) {
      const auto axis = static_cast<std::size_t>(time.axis);
      const Index frames = std::min(expected.shape[axis], streamed.shape[axis] - time.offset);
      for (Tensor* const each : {&expected, &streamed}) {
        Tensor part{each->type, each->shape, {}};
        part.shape[axis] = std::max<Index>(frames, 0);
        part.bytes.resize(network::bytes_of(part.type, part.shape));
        if (frames > 0) {
          copy_frames(*each, time.axis, each == &streamed ? time.offset : 0, frames, part.bytes.data(), 0, frames);
        }
        *each = std::move(part);
      }
    }
    double largest = 0, difference = 0;
    for (Index i = 0; i < network::elements(expected.shape); ++i) {
      const double one = network::real_at(expected.type, expected.bytes.data(), i);
      const double other = network::real_at(streamed.type, streamed.bytes.data(), i);
      if (!std::isfinite(one)) continue;
      largest = std::max(largest, std::abs(one));
      difference = std::isfinite(other) ? std::max(difference, std::abs(one - other)) : HUGE_VAL;
    }
    const double rounding = rounding_of(*whole_);
    const double scale = largest + 0.01;  // a result may be what cancels of inputs near 1
    if (difference > rounding * scale) {
      refuse(
          output,
          fmt::format("differs from that of the whole sequence by {:.1e} of its largest value, more than the {:.1e} of "
                      "rounding: this network enlarges rounding, or how it depends on time is not understood",
                      difference / scale, rounding));
    }
  }

  [[noreturn]] void refuse(std::size_t output, const std::string& problem) const {
    fail(ErrorCode::unsupported, "{}: as a stream: output {} {}", source_,
         in_quotes(value(*whole_, whole_->outputs[output]).name), problem);
  }

  std::shared_ptr<const Network> whole_, stream_;
  const StreamCheck& about_;
  const std::string& source_;
  std::vector<Tensor> inputs_, expected_, streamed_;
  std::vector<std::byte> state_;
  std::map<Index, std::unique_ptr<network::Session>> sessions_;  // by their numbers of steps
};

}  // namespace

void check_stream(const Network& whole, const Network& stream, const StreamCheck& about, const std::string& source) {
  Comparison(whole, stream, about, source).run();
}

}  // namespace penstock::io::onnx
