#include "backend/cuda/pointwise/convolution.h"

#include <algorithm>

#include "backend/cuda/pointwise/arguments.h"
#include "base/check.h"
#include "base/training_step.h"

namespace penstock::cuda {
namespace {

constexpr int kMostVector = 4;
constexpr Index kMostTaps = 32;  // whose inputs and weights fit a thread's registers
constexpr int kGroups = 8;
constexpr int kForwardRun = 32, kBackwardRun = 64;
constexpr int kForwardAtOnce = 4, kBackwardAtOnce = 4;
constexpr int kForwardValues = 64, kBackwardValues = 32;  // taps * channels of a thread
constexpr int kStateAlignment = sizeof(float);
constexpr int kBackwardBlocks = 4;  // of a multiprocessor: each leaves partial sums

int vector_of(const Convolution& spec, bool backward) {
  int most = kMostVector;
  while (most > 1 && most * spec.taps > (backward ? kBackwardValues : kForwardValues)) most /= 2;
  return vector_for(spec.width, spec.alignment, {spec.storage, plan::Storage::f32}, most);
}

Index tiles_of(const Convolution& spec, bool backward) {
  const Index tile = Index{32} * vector_of(spec, backward);
  return (spec.width + tile - 1) / tile;
}

Index chunks_of(const Convolution& spec, int run) { return (spec.positions.steps + run - 1) / run; }

void check_spec(const Convolution& spec) {
  require_positions(spec.positions);
  require_size(spec.width, 1, "width");
  require_size(spec.taps, 1, "taps");
  require_size(spec.width * (spec.taps + 1), 1, "width * (taps + 1)");
}

template <class Call>
ConvolutionArguments arguments_of(const Convolution& spec, const Call& call) {
  require_lengths(spec.positions, call.lengths);
  ConvolutionArguments arguments{};
  if (spec.positions.rows == 0) return arguments;
  require_aligned(call.x, spec.alignment, "x");
  require_aligned(call.weight, spec.alignment, "weight");
  require_optional(call.state_in, kStateAlignment, "state_in");
  arguments.lengths = device_pointer<const long long>(call.lengths);
  arguments.reset = device_pointer<const unsigned char>(call.reset);
  arguments.x = device_pointer<const char>(call.x);
  arguments.weight = device_pointer<const float>(call.weight);
  arguments.state_in = device_pointer<const float>(call.state_in);
  arguments.rows = static_cast<int>(spec.positions.rows);
  arguments.steps = static_cast<int>(spec.positions.steps);
  return arguments;
}

}  // namespace

bool is_long(const Convolution& spec) { return spec.taps > kMostTaps; }

KernelSource convolution_source(const Convolution& spec, ConvolutionPart part) {
  const bool backward = part == ConvolutionPart::backward || part == ConvolutionPart::weights;
  std::vector<Constant> constants = {{"using Storage", storage_type(spec.storage)},
                                     {"constexpr int kTaps", spec.taps},
                                     {"constexpr int kWidth", spec.width}};
  if (is_long(spec)) {
    constants.emplace_back("constexpr int kThreads", kBlockThreads);
    switch (part) {
      case ConvolutionPart::forward:
        return pointwise_source("LongConvolutionForward", "convolution/long_convolution_forward", constants);
      case ConvolutionPart::state:
        return pointwise_source("LongConvolutionState", "convolution/long_convolution_state", constants);
      case ConvolutionPart::backward:
        return pointwise_source("LongConvolutionBackward", "convolution/long_convolution_backward", constants);
      case ConvolutionPart::weights:
        return pointwise_source("LongConvolutionWeights", "convolution/long_convolution_weights", constants);
    }
  }
  constants.emplace_back("constexpr int kVector", vector_of(spec, backward));
  constants.emplace_back("constexpr int kAtOnce", backward ? kBackwardAtOnce : kForwardAtOnce);
  constants.emplace_back("constexpr int kGroups", kGroups);
  constants.emplace_back("constexpr int kRun", backward ? kBackwardRun : kForwardRun);
  return pointwise_source(backward ? "ConvolutionBackward" : "ConvolutionForward",
                          backward ? "convolution/convolution_backward" : "convolution/convolution_forward", constants);
}

ConvolutionForwardExecutable::ConvolutionForwardExecutable(Device& device, const Convolution& spec) : spec_(spec) {
  check_spec(spec);
  kernel_ = &Kernel::load(device, convolution_source(spec, ConvolutionPart::forward));
  if (is_long(spec)) state_ = &Kernel::load(device, convolution_source(spec, ConvolutionPart::state));
}

void ConvolutionForwardExecutable::run(const ConvolutionForwardCall& call, StreamHandle stream) const {
  ConvolutionArguments arguments = arguments_of(spec_, call);
  if (spec_.positions.rows == 0) return;
  require_aligned(call.bias, spec_.alignment, "bias");
  require_aligned(call.y, spec_.alignment, "y");
  require_optional(call.state_out, kStateAlignment, "state_out");
  require(
      call.state_out == 0 || call.state_out != call.state_in || is_long(spec_) || spec_.positions.steps <= kForwardRun,
      "state_out may be state_in for up to {} steps, not {}", kForwardRun, spec_.positions.steps);
  arguments.bias = device_pointer<const float>(call.bias);
  arguments.y = device_pointer<char>(call.y);
  arguments.state_out = device_pointer<float>(call.state_out);
  if (is_long(spec_)) {
    kernel_->launch(blocks_for(spec_.positions.count() * spec_.width, kBlockThreads), kBlockThreads, arguments, stream);
    if (call.state_out == 0) return;
    state_->launch(blocks_for(spec_.positions.rows * spec_.width, kBlockThreads), kBlockThreads, arguments, stream);
    return;
  }
  const Index chunks = chunks_of(spec_, kForwardRun);
  arguments.chunks = static_cast<int>(chunks);
  arguments.tiles = static_cast<int>(tiles_of(spec_, false));
  kernel_->launch(static_cast<unsigned>(arguments.tiles) * blocks_for(spec_.positions.rows * chunks, kGroups),
                  32 * kGroups, arguments, stream);
}

ConvolutionBackwardExecutable::ConvolutionBackwardExecutable(Device& device, const Convolution& spec) : spec_(spec) {
  check_spec(spec);
  kernel_ = &Kernel::load(device, convolution_source(spec, ConvolutionPart::backward));
  const Index size = (spec.taps + 1) * spec.width;
  Index work = spec.positions.rows, tiles = blocks_for(size, kBlockThreads);
  if (is_long(spec)) {
    weights_ = &Kernel::load(device, convolution_source(spec, ConvolutionPart::weights));
  } else {
    work = blocks_for(spec.positions.rows * chunks_of(spec, kBackwardRun), kGroups);
    tiles = tiles_of(spec, true);
  }
  parts_ = std::min(work, std::max<Index>(1, resident_blocks(device, kBackwardBlocks) / tiles));
  sums_ = SumParts(device, parts_, size, spec.add);
}

void ConvolutionBackwardExecutable::run(const ConvolutionBackwardCall& call, DeviceAddress workspace,
                                        StreamHandle stream) const {
  ConvolutionArguments arguments = arguments_of(spec_, call);
  require_address(call.weight_gradient, "weight_gradient");
  require_address(call.bias_gradient, "bias_gradient");
  if (spec_.positions.rows > 0) {
    require_aligned(call.dy, spec_.alignment, "dy");
    require_optional(call.dx, spec_.alignment, "dx");
    require(call.dx != call.dy, "dx must not be dy");
    require_aligned(workspace, kAlignment, "workspace");
    arguments.dy = device_pointer<const char>(call.dy);
    arguments.y = device_pointer<char>(call.dx);
    arguments.partial = device_pointer<float>(workspace);
    arguments.parts = static_cast<int>(parts_);
    if (is_long(spec_)) {
      const Index values = spec_.positions.count() * spec_.width;
      if (call.dx != 0) kernel_->launch(blocks_for(values, kBlockThreads), kBlockThreads, arguments, stream);
      arguments.tiles = static_cast<int>(blocks_for((spec_.taps + 1) * spec_.width, kBlockThreads));
      weights_->launch(static_cast<unsigned>(arguments.tiles * arguments.parts), kBlockThreads, arguments, stream);
    } else {
      arguments.chunks = static_cast<int>(chunks_of(spec_, kBackwardRun));
      arguments.tiles = static_cast<int>(tiles_of(spec_, true));
      kernel_->launch(static_cast<unsigned>(arguments.tiles * arguments.parts), 32 * kGroups, arguments, stream);
    }
  }
  sums_.run(workspace, call.weight_gradient, spec_.taps * spec_.width, call.bias_gradient, stream);
}

}  // namespace penstock::cuda
