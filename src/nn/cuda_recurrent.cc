// A stack of layers on a GPU, as the public interface shows it, over the backend's single layers.

#include <algorithm>
#include <optional>

#include "backend/cuda/scan/layer.h"
#include "backend/cuda/scan/step.h"
#include "base/check.h"
#include "ops/cuda_types.h"

namespace penstock {
namespace {

using cuda::DeviceAddress;
using cuda::DeviceSequence;

/// What stands in for a workspace while it has no address yet: aligned as every workspace is.
constexpr DeviceAddress kAnyWorkspace = 1 << 20;

std::size_t padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

void check_spec(const CudaRecurrentSpec& spec) {
  const RecurrentSpec& layers = spec.layers;
  cuda::scan_rule(layers.cell);  // says which cells there are
  check_enum("direction", layers.direction, Direction::bidirectional);
  check_enum("bias", layers.bias, Bias::both);
  check_enum("type", spec.type, CudaType::f16);
  check_enum("gradients", spec.gradients, CudaType::f16);
  check_enum("regime", spec.regime, CudaRegime::scan);
  require(layers.input_size >= 1, "input_size must be at least 1, not {}", layers.input_size);
  require(layers.hidden_size >= 1, "hidden_size must be at least 1, not {}", layers.hidden_size);
  require(layers.layers >= 1 && layers.layers <= 1024, "layers must be 1 to 1024, not {}", layers.layers);
  require(layers.dropout == 0.0, "dropout must be 0 on a GPU, not {}", layers.dropout);
  require(spec.gradients == CudaType::f32 || spec.gradients == spec.type, "gradients must be f32 or {}, not {}",
          to_string(spec.type), to_string(spec.gradients));
  require(!spec.tf32 || spec.type == CudaType::f32, "tf32 is for type f32, not {}", to_string(spec.type));
}

}  // namespace

struct CudaRecurrent::Impl {
  /// Where parts of a block of memory begin, one after the other.
  class Layout {
   public:
    std::size_t add(std::size_t bytes) {
      const std::size_t at = bytes_;
      bytes_ += padded(bytes);
      return at;
    }
    std::size_t bytes() const { return bytes_; }

   private:
    std::size_t bytes_ = 0;
  };

  /// One direction of one layer.
  struct Part {
    cuda::LayerSpec spec;
    Index layer = 0, direction = 0;
    std::size_t weight = 0, bias = 0, weight_gradient = 0, bias_gradient = 0;
    std::optional<cuda::LayerForwardExecutable> inference, training;
    std::optional<cuda::LayerBackwardExecutable> backward;
    std::optional<cuda::StepExecutable> step;
  };

  /// What lies behind the backend's parts of the workspace: gates that nobody keeps, and what goes from layer to layer.
  struct Scratch {
    std::size_t gates = 0;
    std::size_t between[2] = {0, 0};
    std::size_t end = 0;
  };

  CudaRecurrentSpec spec;
  std::future<void> products;  // on their way while the GPU starts and weights are copied
  cuda::Device* device;
  std::vector<Part> parts;
  std::vector<Parameter> parameters;
  Layout weights, gradients;
  Index prepared_places = 0;  // of the largest batch, steps included

  /// cuBLASLt, unless all products are floats in kernels of our own.
  static std::future<void> start_products(const CudaRecurrentSpec& of) {
    if (of.type == CudaType::f32 && !of.tf32) return {};
    return cuda::start_products(of.device);
  }

  explicit Impl(const CudaRecurrentSpec& of)
      : spec(of), products(start_products(of)), device(&cuda::Device::get(of.device)) {
    for (Index layer = 0; layer < spec.layers.layers; ++layer) {
      for (Index direction = 0; direction < spec.layers.directions(); ++direction) add_part(layer, direction);
    }
  }

  Index size() const { return plan::size_of(ops::storage_of(spec.type)); }
  Index hidden() const { return spec.layers.hidden_size; }
  Index width() const { return spec.layers.output_size(); }
  Index gates() const { return parts.front().spec.hidden * cuda::scan_rule(spec.layers.cell).gates; }

  void add_part(Index layer, Index direction) {
    Part part;
    part.layer = layer;
    part.direction = direction;
    part.spec = {.cell = spec.layers.cell, .input = layer == 0 ? spec.layers.input_size : width(), .hidden = hidden()};
    part.spec.storage = ops::storage_of(spec.type);
    part.spec.gradients = ops::storage_of(spec.gradients);
    part.spec.bias = spec.layers.bias != Bias::none;
    part.spec.reverse = spec.layers.direction == Direction::reverse || direction == 1;
    part.spec.tf32 = spec.tf32;
    part.spec.regime = ops::regime_of(spec.regime);
    const Index rows = cuda::scan_rule(spec.layers.cell).gates * hidden();
    const std::string suffix = fmt::format("_l{}{}", layer, part.spec.reverse ? "_reverse" : "");
    std::tie(part.weight, part.weight_gradient) = add_parameter("weight_ih" + suffix, {rows, part.spec.input});
    if (part.spec.bias) std::tie(part.bias, part.bias_gradient) = add_parameter("bias_ih" + suffix, {rows});
    parts.push_back(std::move(part));
  }

  std::pair<std::size_t, std::size_t> add_parameter(const std::string& name, const std::vector<Index>& shape) {
    Index count = 1;
    for (const Index length : shape) count *= length;
    const Index gradient_size = plan::size_of(ops::storage_of(spec.gradients));
    Parameter parameter{name, shape, weights.add(static_cast<std::size_t>(count * size())),
                        gradients.add(static_cast<std::size_t>(count * gradient_size))};
    parameters.push_back(parameter);
    return {parameter.offset, parameter.gradient_offset};
  }

  static Index places(const CudaBatch& batch) { return batch.cu_seqlens != 0 ? batch.steps : batch.rows * batch.steps; }

  /// Outputs of all layers but the last, [P, H * directions], then the gates of every part, [P, G * H].
  std::size_t tape_bytes(Index P) const {
    return static_cast<std::size_t>(spec.layers.layers - 1) * between_bytes(P) + parts.size() * gate_bytes(P);
  }
  std::size_t between_bytes(Index P) const { return padded(static_cast<std::size_t>(P * width() * size())); }
  std::size_t gate_bytes(Index P) const { return padded(static_cast<std::size_t>(P * gates() * size())); }

  /// The backend's parts of the workspace, for all that is prepared: what blocks pass on and products leave is shared.
  cuda::WorkspaceParts shared_parts() const {
    cuda::WorkspaceParts all;
    const auto add = [&](const auto& executable) {
      if (!executable) return;
      const cuda::WorkspaceParts own = executable->parts();
      all.passed = std::max(all.passed, own.passed);
      all.products = std::max(all.products, padded(own.products));
      all.sums += own.sums;
    };
    for (const Part& part : parts) add(part.inference), add(part.training), add(part.backward);
    return all;
  }

  Scratch scratch() const {
    Scratch at;
    at.gates = shared_parts().bytes();
    at.between[0] = at.gates + gate_bytes(prepared_places);
    at.between[1] = at.between[0] + between_bytes(prepared_places);
    at.end = at.between[1] + between_bytes(prepared_places);
    return at;
  }

  void place_all() {
    const cuda::WorkspaceParts all = shared_parts();
    std::size_t sums = all.passed;
    const auto place = [&](auto& executable) {
      if (!executable) return;
      executable->place({0, sums, all.passed + all.sums});
      sums += executable->parts().sums;
    };
    for (Part& part : parts) place(part.inference), place(part.training), place(part.backward);
  }

  DeviceAddress state(DeviceAddress states, const Part& part, Index rows) const {
    if (states == 0) return 0;
    const Index before = (part.layer * spec.layers.directions() + part.direction) * rows * hidden();
    return states + static_cast<DeviceAddress>(4 * before);
  }

  DeviceSequence of_direction(DeviceSequence y, const Part& part) const {
    if (y.data != 0) y.data += static_cast<DeviceAddress>(part.direction * hidden() * size());
    return y;
  }

  /// [P, H * directions] without gaps, row after row.
  DeviceSequence between(DeviceAddress address, const CudaBatch& batch) const {
    return {address, batch.steps * width(), width()};
  }

  cuda::LayerWeights weights_of(DeviceAddress block, std::size_t weight, std::size_t bias) const {
    return {block + weight, spec.layers.bias == Bias::none ? 0 : block + bias};
  }

  /// What layer `layer` writes: y of the last one, and of the others the tape or what the workspace has between layers.
  DeviceSequence output(const Forward& call, Index layer, DeviceAddress workspace, const Scratch& at) const {
    if (layer + 1 == spec.layers.layers) return ops::sequence_of(call.y);
    const Index P = places(call.batch);
    if (call.tape != 0) return between(call.tape + static_cast<std::size_t>(layer) * between_bytes(P), call.batch);
    return between(workspace + at.between[layer % 2], call.batch);
  }

  DeviceAddress tape_gates(DeviceAddress tape, std::size_t part, Index P) const {
    return tape + static_cast<std::size_t>(spec.layers.layers - 1) * between_bytes(P) + part * gate_bytes(P);
  }

  cuda::LayerForward layer_call(const Forward& call, std::size_t index, DeviceAddress workspace,
                                const Scratch& at) const {
    const Part& part = parts[index];
    const bool keeps = call.tape != 0;
    cuda::LayerForward of;
    of.batch = ops::shape_of(call.batch);
    of.x = part.layer == 0 ? ops::sequence_of(call.x) : output(call, part.layer - 1, workspace, at);
    of.y = of_direction(output(call, part.layer, workspace, at), part);
    of.weights = weights_of(call.weights, part.weight, part.bias);
    of.gates = keeps ? tape_gates(call.tape, index, places(call.batch)) : workspace + at.gates;
    of.keep_gates = keeps;
    of.state_in = state(call.state_in, part, call.batch.rows);
    of.state_out = state(call.state_out, part, call.batch.rows);
    return of;
  }

  /// Gradients go from layer to layer through the workspace; two directions add up theirs of what both have read.
  cuda::LayerBackward layer_call(const Backward& call, std::size_t index, DeviceAddress workspace,
                                 const Scratch& at) const {
    const Part& part = parts[index];
    Forward forward;
    forward.batch = call.batch, forward.x = call.x, forward.y = call.y, forward.tape = call.tape;
    forward.weights = call.weights, forward.state_in = call.state_in;
    const cuda::LayerForward as_before = layer_call(forward, index, workspace, at);
    const auto passed_on = [&](Index layer) { return between(workspace + at.between[layer % 2], call.batch); };
    cuda::LayerBackward of;
    of.batch = as_before.batch;
    of.x = as_before.x, of.y = as_before.y;
    of.dy =
        of_direction(part.layer + 1 == spec.layers.layers ? ops::sequence_of(call.dy) : passed_on(part.layer), part);
    of.dx = part.layer == 0 ? ops::sequence_of(call.dx) : passed_on(part.layer - 1);
    of.add_dx = part.direction == 1;
    of.weights = as_before.weights;
    of.gradients = weights_of(call.gradients, part.weight_gradient, part.bias_gradient);
    of.gates = of.dgates = as_before.gates;
    of.state_in = as_before.state_in;
    of.dstate_out = state(call.dstate_out, part, call.batch.rows);
    of.dstate_in = state(call.dstate_in, part, call.batch.rows);
    return of;
  }

  cuda::LayerStep layer_call(const Step& call, std::size_t index, DeviceAddress workspace, const Scratch& at) const {
    const Part& part = parts[index];
    const bool last = index + 1 == parts.size();
    cuda::LayerStep of;
    of.rows = call.rows;
    of.x = index == 0 ? call.x : workspace + at.between[(index - 1) % 2];
    of.x_stride = part.spec.input;
    of.y = last ? call.y : workspace + at.between[index % 2];
    of.y_stride = hidden();
    of.state = state(call.state, part, call.rows);
    of.weights = weights_of(call.weights, part.weight, part.bias);
    return of;
  }

  void check(const CudaBatch& batch, CudaAddress weights_at) const {
    require(batch.rows >= 1 && batch.steps >= 1, "rows and steps must be at least 1, not {} and {}", batch.rows,
            batch.steps);
    cuda::require_address(weights_at, "weights");
  }

  void require_room(Index P, CudaAddress workspace) const {
    require(P <= prepared_places, "the call must have at most the {} steps of all rows that were prepared, not {}",
            prepared_places, P);
    require(workspace % 256 == 0, "workspace must be aligned to 256 bytes");
    require(workspace != 0 || scratch().end == 0, "workspace must be an address on the GPU, not null");
  }
};

CudaRecurrent::CudaRecurrent(const CudaRecurrentSpec& spec) {
  check_spec(spec);
  impl_ = std::make_unique<Impl>(spec);
}
CudaRecurrent::~CudaRecurrent() = default;
CudaRecurrent::CudaRecurrent(CudaRecurrent&&) noexcept = default;
CudaRecurrent& CudaRecurrent::operator=(CudaRecurrent&&) noexcept = default;

const CudaRecurrentSpec& CudaRecurrent::spec() const { return impl_->spec; }
const std::vector<CudaRecurrent::Parameter>& CudaRecurrent::parameters() const { return impl_->parameters; }
std::size_t CudaRecurrent::weight_bytes() const { return impl_->weights.bytes(); }
std::size_t CudaRecurrent::gradient_bytes() const { return impl_->gradients.bytes(); }
std::size_t CudaRecurrent::tape_bytes(const CudaBatch& batch) const { return impl_->tape_bytes(Impl::places(batch)); }

void CudaRecurrent::upload(Recurrent<float>& from, CudaAddress weights, CudaStream stream) const {
  cuda::require_address(weights, "weights");
  std::vector<std::uint8_t> block(weight_bytes());
  for (const Parameter& parameter : impl_->parameters) {
    const auto& all = from.parameters();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& other) { return other.name == parameter.name; });
    require(found != all.end() && found->shape == parameter.shape && all.size() == impl_->parameters.size(),
            "the stack to upload must have the same layers: {} [{}] is not in it", parameter.name,
            fmt::join(parameter.shape, ", "));
    const std::vector<std::uint8_t> bytes = ops::stored_as(impl_->spec.type, found->value);
    std::copy(bytes.begin(), bytes.end(), block.begin() + static_cast<std::ptrdiff_t>(parameter.offset));
  }
  impl_->device->upload(weights, block.data(), block.size(), ops::handle_of(stream));
}

void CudaRecurrent::prepare(const Forward& form) {
  Impl& impl = *impl_;
  impl.check(form.batch, form.weights);
  impl.prepared_places = std::max(impl.prepared_places, Impl::places(form.batch));
  const Impl::Scratch at = impl.scratch();
  for (std::size_t i = 0; i < impl.parts.size(); ++i) {
    Impl::Part& part = impl.parts[i];
    (form.tape != 0 ? part.training : part.inference)
        .emplace(*impl.device, part.spec, impl.layer_call(form, i, kAnyWorkspace, at));
  }
  impl.place_all();
}

void CudaRecurrent::prepare(const Backward& form) {
  Impl& impl = *impl_;
  impl.check(form.batch, form.weights);
  cuda::require_address(form.tape, "tape");
  cuda::require_address(form.gradients, "gradients");
  impl.prepared_places = std::max(impl.prepared_places, Impl::places(form.batch));
  const Impl::Scratch at = impl.scratch();
  for (std::size_t i = 0; i < impl.parts.size(); ++i) {
    Impl::Part& part = impl.parts[i];
    part.backward.emplace(*impl.device, part.spec, impl.layer_call(form, i, kAnyWorkspace, at));
  }
  impl.place_all();
}

void CudaRecurrent::prepare(const Step& form) {
  Impl& impl = *impl_;
  require(impl.spec.layers.direction == Direction::forward, "steps run forwards: direction must be forward, not {}",
          to_string(impl.spec.layers.direction));
  impl.check({.rows = form.rows}, form.weights);
  impl.prepared_places = std::max(impl.prepared_places, form.rows);
  const Impl::Scratch at = impl.scratch();
  for (std::size_t i = 0; i < impl.parts.size(); ++i) {
    Impl::Part& part = impl.parts[i];
    part.step.emplace(*impl.device, part.spec, impl.layer_call(form, i, kAnyWorkspace, at));
  }
}

std::size_t CudaRecurrent::workspace_bytes() const { return impl_->scratch().end; }

std::string CudaRecurrent::explain() const {
  std::string lines;
  for (const Impl::Part& part : impl_->parts) {
    const std::string which = fmt::format("layer {}{}", part.layer, part.spec.reverse ? " reverse" : "");
    if (part.inference) lines += fmt::format("{} forward: {}\n", which, part.inference->plan().explain());
    if (part.training) lines += fmt::format("{} forward with a tape: {}\n", which, part.training->plan().explain());
    if (part.backward) lines += fmt::format("{} backward: {}\n", which, part.backward->plan().explain());
  }
  return lines;
}

void CudaRecurrent::forward(const Forward& call, CudaAddress workspace, CudaStream stream) const {
  const Impl& impl = *impl_;
  impl.check(call.batch, call.weights);
  const bool tape = call.tape != 0;
  require((tape ? impl.parts[0].training : impl.parts[0].inference).has_value(),
          "prepare() a forward call {} a tape before forward()", tape ? "with" : "without");
  impl.require_room(Impl::places(call.batch), workspace);
  const Impl::Scratch at = impl.scratch();
  for (std::size_t i = 0; i < impl.parts.size(); ++i) {
    const auto& executable = tape ? impl.parts[i].training : impl.parts[i].inference;
    executable->run(impl.layer_call(call, i, workspace, at), workspace, ops::handle_of(stream));
  }
}

void CudaRecurrent::backward(const Backward& call, CudaAddress workspace, CudaStream stream) const {
  const Impl& impl = *impl_;
  impl.check(call.batch, call.weights);
  cuda::require_address(call.tape, "tape");
  cuda::require_address(call.gradients, "gradients");
  require(impl.parts[0].backward.has_value(), "prepare() a backward call before backward()");
  impl.require_room(Impl::places(call.batch), workspace);
  const Impl::Scratch at = impl.scratch();
  const Index directions = impl.spec.layers.directions();
  for (Index layer = impl.spec.layers.layers - 1; layer >= 0; --layer) {
    for (Index direction = 0; direction < directions; ++direction) {
      const auto i = static_cast<std::size_t>(layer * directions + direction);
      impl.parts[i].backward->run(impl.layer_call(call, i, workspace, at), workspace, ops::handle_of(stream));
    }
  }
}

void CudaRecurrent::step(const Step& call, CudaAddress workspace, CudaStream stream) const {
  const Impl& impl = *impl_;
  require(impl.parts[0].step.has_value(), "prepare() a step before step()");
  impl.check({.rows = call.rows}, call.weights);
  if (impl.parts.size() > 1) impl.require_room(call.rows, workspace);
  const Impl::Scratch at = impl.scratch();
  for (std::size_t i = 0; i < impl.parts.size(); ++i) {
    impl.parts[i].step->run(impl.layer_call(call, i, workspace, at), ops::handle_of(stream));
  }
}

}  // namespace penstock
