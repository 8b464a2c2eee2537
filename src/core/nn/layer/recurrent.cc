// The stack of recurrent layers that owns its weights: where they lie, and access to them.

#include <algorithm>
#include <cmath>

#include "base/alive.h"
#include "base/random.h"
#include "nn/layer/recurrent_impl.h"
#include "nn/model/gate_bias.h"
#include "ops/memory/stream_queue.h"

namespace penstock {

namespace {

/// Where one parameter begins behind another: enough for every kernel's widest access.
constexpr std::size_t kParameterAlignment = 256;

/// The queue of networks that were made without a stream.
const std::shared_ptr<ops::Queue>& host_queue() {
  static const auto* const queue = new std::shared_ptr<ops::Queue>(std::make_shared<ops::Queue>(Device::cpu()));
  return *queue;
}

std::uint64_t next_identity() {
  static std::atomic<std::uint64_t> count{0};
  return ++count;
}

void require_values(std::string_view name, const std::vector<Index>& shape, std::size_t size) {
  require(size == ops::count_of(shape), "{} must have {} values, not {}", name, ops::count_of(shape), size);
}

std::size_t offset_in(const ops::Buffer& memory, const Tensor& tensor) {
  return static_cast<std::size_t>(static_cast<const std::byte*>(tensor.data) -
                                  static_cast<const std::byte*>(memory.data()));
}

/// Copy a parameter's value or its gradient, which lies in `memory`, to or from host memory, and wait.
template <class Real>
void read_from(const ops::Buffer& memory, const Tensor& tensor, std::span<Real> to) {
  memory.download(to.data(), to.size_bytes(), offset_in(memory, tensor));
}
template <class Real>
void write_to(ops::Buffer& memory, const Tensor& tensor, std::span<const Real> from) {
  memory.upload(from.data(), from.size_bytes(), offset_in(memory, tensor));
}

}  // namespace

template <class Real>
typename RecurrentTape<Real>::Content& RecurrentTape<Real>::content() {
  require(content_ != nullptr, "tape must not have been moved from");
  return *content_;
}

template <class Real>
RecurrentTape<Real>::RecurrentTape() : content_(std::make_unique<Content>()) {}
template <class Real>
RecurrentTape<Real>::~RecurrentTape() = default;
template <class Real>
RecurrentTape<Real>::RecurrentTape(RecurrentTape&&) noexcept = default;
template <class Real>
RecurrentTape<Real>& RecurrentTape<Real>::operator=(RecurrentTape&&) noexcept = default;

template <class Real>
Recurrent<Real>::Impl::Impl(const RecurrentSpec& spec_, std::uint64_t seed_, std::shared_ptr<ops::Queue> queue_)
    : spec(spec_), seed(seed_), queue(std::move(queue_)), identity(next_identity()), device(queue->device()) {
  const std::vector<ParameterShape> shapes = parameter_shapes(spec);
  states = find_cell(spec.cell).states;
  row_state = states * spec.layers * spec.directions() * spec.hidden_size;
  common.form.weights = dtype_of<Real>();
  common.form.flags.set(CallFlag::add_gradients);
  const bool host = !device.is_cuda();
  if (!host && dtype_of<Real>() == DType::f64) {
    fail(ErrorCode::unsupported, "a network in double runs on the CPU, not on {}: there, Recurrent<float> does",
         to_string(device));
  }
  std::size_t values = 0, bytes = 0;
  std::vector<std::size_t> offsets;
  for (const ParameterShape& parameter : shapes) {
    const std::size_t size = ops::count_of(parameter.shape);
    offsets.push_back(bytes);
    values += size;
    bytes += (size * sizeof(Real) + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
  }
  constexpr std::size_t most = std::size_t{1} << 36;
  require(values <= most, "hidden_size, input_size and layers must not ask for more than {} weights, but {} are needed",
          most, values);
  weights = std::make_shared<graph::Weights>(queue, bytes, graph::Weights::Renewal::in_place);
  gradients = ops::Buffer(*queue, bytes);
  gradients.zero();
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto tensor = [&](const ops::Buffer& memory) {
      return ops::tensor_of(static_cast<std::byte*>(memory.data()) + offsets[i], dtype_of<Real>(), shapes[i].shape,
                            device);
    };
    Parameter one;
    one.name = shapes[i].name;
    one.shape = shapes[i].shape;
    one.value_tensor = tensor(weights->values());
    one.gradient_tensor = tensor(gradients);
    if (host) {
      const std::size_t size = ops::count_of(one.shape);
      one.value = {static_cast<Real*>(one.value_tensor.data), size};
      one.gradient = {static_cast<Real*>(one.gradient_tensor.data), size};
    }
    parameters.push_back(std::move(one));
  }
}

template <class Real>
void Recurrent<Real>::Impl::initialise() {
  Random random(seed);
  const double bound = 1.0 / std::sqrt(static_cast<double>(spec.hidden_size));
  std::vector<Real> drawn;
  for (const Parameter& parameter : parameters) {
    drawn.resize(ops::count_of(parameter.shape));
    for (Real& value : drawn) value = static_cast<Real>(random.uniform(-bound, bound));
    if (parameter.name.starts_with("bias_ih")) nn::set_learnt_vectors(spec.cell, spec.hidden_size, drawn.data());
    write_to<Real>(weights->values(), parameter.value_tensor, drawn);
  }
}

template <class Real>
typename Recurrent<Real>::Parameter& Recurrent<Real>::Impl::parameter(std::string_view name) {
  const auto found = std::ranges::find(parameters, name, &Parameter::name);
  if (found != parameters.end()) return *found;
  std::vector<std::string> names;
  for (const Parameter& one : parameters) names.push_back(one.name);
  fail_choice("name", name, std::move(names));
}

template <class Real>
Recurrent<Real>::Recurrent(const RecurrentSpec& spec, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(spec, seed, host_queue())) {
  impl_->initialise();
}
template <class Real>
Recurrent<Real>::Recurrent(const RecurrentSpec& spec, Stream& stream, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(spec, seed, queue_of(stream))) {
  impl_->initialise();
}
template <class Real>
Recurrent<Real>::~Recurrent() = default;
template <class Real>
Recurrent<Real>::Recurrent(Recurrent&&) noexcept = default;
template <class Real>
Recurrent<Real>& Recurrent<Real>::operator=(Recurrent&&) noexcept = default;

template <class Real>
typename Recurrent<Real>::Impl& Recurrent<Real>::held() const {
  return alive(impl_, "the network");
}

template <class Real>
const RecurrentSpec& Recurrent<Real>::spec() const {
  return held().spec;
}

template <class Real>
Device Recurrent<Real>::device() const {
  return held().device;
}

template <class Real>
void Recurrent<Real>::move_to(Stream& stream) {
  const Impl& from = held();
  auto moved = std::make_unique<Impl>(from.spec, from.seed, queue_of(stream));
  moved->passes = from.passes.load();
  std::vector<Real> numbers;
  for (const Parameter& parameter : from.parameters) {
    numbers.resize(ops::count_of(parameter.shape));
    const Parameter& there = moved->parameter(parameter.name);
    read_from<Real>(from.weights->values(), parameter.value_tensor, numbers);
    write_to<Real>(moved->weights->values(), there.value_tensor, numbers);
    read_from<Real>(from.gradients, parameter.gradient_tensor, numbers);
    write_to<Real>(moved->gradients, there.gradient_tensor, numbers);
  }
  impl_ = std::move(moved);
}

template <class Real>
Index Recurrent<Real>::state_size() const {
  return held().row_state;
}

template <class Real>
std::vector<typename Recurrent<Real>::Parameter>& Recurrent<Real>::parameters() {
  return held().parameters;
}

template <class Real>
const std::vector<typename Recurrent<Real>::Parameter>& Recurrent<Real>::parameters() const {
  return held().parameters;
}

template <class Real>
typename Recurrent<Real>::Parameter& Recurrent<Real>::parameter(std::string_view name) {
  return held().parameter(name);
}

template <class Real>
void Recurrent<Real>::weights_changed() {
  held().weights->changed();
}

template <class Real>
void Recurrent<Real>::zero_gradients() {
  held().gradients.zero();
}

template <class Real>
void Recurrent<Real>::read(std::string_view name, std::span<Real> value) const {
  const Parameter& parameter = held().parameter(name);
  require_values(parameter.name, parameter.shape, value.size());
  read_from(impl_->weights->values(), parameter.value_tensor, value);
}

template <class Real>
void Recurrent<Real>::read_gradient(std::string_view name, std::span<Real> gradient) const {
  const Parameter& parameter = held().parameter(name);
  require_values(parameter.name, parameter.shape, gradient.size());
  read_from(impl_->gradients, parameter.gradient_tensor, gradient);
}

template <class Real>
void Recurrent<Real>::write(std::string_view name, std::span<const Real> value) {
  const Parameter& parameter = held().parameter(name);
  require_values(parameter.name, parameter.shape, value.size());
  write_to(impl_->weights->values(), parameter.value_tensor, value);
  impl_->weights->changed();
}

template class RecurrentTape<float>;
template class RecurrentTape<double>;
template class Recurrent<float>;
template class Recurrent<double>;

}  // namespace penstock
