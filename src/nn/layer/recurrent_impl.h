#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <list>
#include <optional>

#include "backend/cpu/instruction_sets.h"
#include "base/alive.h"
#include "base/check.h"
#include "base/denormals.h"
#include "base/dtype.h"
#include "base/per_thread.h"
#include "base/random.h"
#include "base/threads.h"
#include "nn/layer/batch_hash.h"
#include "nn/layer/device_stack.h"
#include "nn/layer/recurrent_graph.h"
#include "nn/model/gate_bias.h"
#include "ops/memory/host_copies.h"
#include "ops/program_check.h"
#include "ops/scan/geometry.h"
#include "ops/tensor_check.h"
#include "penstock/recurrent.h"

/// Implementation of Recurrent and its tape: weights on the CPU, prepared passes, and calls that copy to a device.
namespace penstock {
namespace nn {

/// Number of prepared passes that a thread keeps, for the shapes that it used last.
inline constexpr std::size_t kPreparedPasses = 16;

/// Returns whether a [n] and b [m] do not overlap.
template <class Real>
bool are_apart(const Real* a, Index n, const Real* b, Index m) {
  return std::less_equal<>()(a + n, b) || std::less_equal<>()(b + m, a);
}

template <class Real>
SequenceStrides strides_of(const Batch& batch, const SequenceView<Real>& view) {
  return {batch.cu_seqlens != nullptr ? 0 : view.row_stride, view.step_stride};
}

/// Returns the channels of all states except the output.
inline Index other_states(const RecurrentSpec& spec) { return (find_cell(spec.cell).states - 1) * spec.output_size(); }

/// Copies the initial state to the final state, for a batch in which no row has a step.
template <class Real>
void pass_on(Index count, const Real* from, Real* to) {
  if (to == nullptr || to == from) return;
  if (from == nullptr) {
    std::fill_n(to, count, Real(0));
  } else {
    std::copy_n(from, count, to);
  }
}

}  // namespace nn

/// Data that a forward pass saves, in the layout of its program, and what identifies the pass.
template <class Real>
struct RecurrentTape<Real>::Content {
  ops::Queue queue{Device::cpu()};
  ops::Buffer memory;
  nn::StackTape layout;
  std::vector<Real> state_in;  // initial states of the rows; empty: zeros
  SequenceView<Real> y;
  RecurrentForm form;
  Index places = 0;
  std::uint64_t network = 0;  // identity of the network
  std::uint64_t version = 0;  // version of its weights
  std::uint64_t batch = 0;    // hash of lengths, row offsets and resets
  std::uint64_t seed = 0;     // seed of the dropout masks
  bool rounded = false;       // saved values are bfloat16
  bool filled = false;
  // For a network on a stream, instead of memory and layout: its tape, and copies for a call with host memory.
  nn::DeviceTape device;
  ops::HostCopies copies;

  /// Clears the tape for a pass of network `of` with weights of version `with`.
  void start(std::uint64_t of, std::uint64_t with, const std::shared_ptr<ops::Queue>& on) {
    filled = false;
    version = with;
    device.pass = 0;
    if (network == of) return;
    copies = {};
    nn::DeviceTape fresh;
    fresh.queue = on;
    std::swap(device, fresh);  // memory goes before its queue
    network = of;
  }
};

template <class Real>
struct Recurrent<Real>::Impl {
  /// A prepared pass of one form, with its own workspace.
  struct Prepared {
    RecurrentForm form;
    Execution execution;
    unsigned isa = 0;
    bool is_backward = false;
    nn::StackPass pass;
    std::optional<graph::Workspace> workspace;
    std::uint64_t version = 0;      // of the weights that its panels were packed from
    bool denormal_weights = false;  // steps: that version has denormal weights
    const Real* state = nullptr;    // steps: the bound state of the caller
  };

  /// Scratch memory and prepared passes of one thread.
  struct Work {
    std::list<Prepared> prepared;                  // the last used first
    std::array<std::optional<Prepared>, 4> steps;  // single steps, by precision
    ops::Buffer memory;                            // workspace of one call at a time
  };

  RecurrentSpec spec;
  std::uint64_t seed;
  std::uint64_t identity;                  // unique to this network
  std::unique_ptr<nn::DeviceStack> stack;  // networks on a stream; weights, gradients and works below are then unused
  PerThread<ops::HostCopies> copies{[] { return std::make_unique<ops::HostCopies>(); }};
  std::shared_ptr<ops::Queue> queue = std::make_shared<ops::Queue>(Device::cpu());
  std::shared_ptr<graph::Weights> weights;
  std::vector<Real> gradients;
  std::vector<Parameter> parameters;
  PerThread<Work> works{[] { return std::make_unique<Work>(); }};
  std::atomic<std::uint64_t> passes{0};  // training passes so far: each draws dropout masks of its own
  Index row_state = 0;                   // values of one row, all layers and directions

  /// Makes a network with zero weights. `stream`: null for a network on the CPU without a stream.
  Impl(const RecurrentSpec& s, std::uint64_t seed_, Stream* stream) : spec(s), seed(seed_), identity(next_identity()) {
    std::vector<ParameterShape> shapes = parameter_shapes(spec);
    require_possible(shapes);
    if (stream == nullptr) {
      allocate(std::move(shapes));
    } else {
      allocate_on(*stream, std::move(shapes));
    }
    row_state = find_cell(spec.cell).states * spec.layers * spec.directions() * spec.hidden_size;
  }

  static std::uint64_t next_identity() {
    static std::atomic<std::uint64_t> count{0};
    return ++count;
  }

  static std::size_t total_of(const std::vector<ParameterShape>& shapes) {
    std::size_t total = 0;
    for (const ParameterShape& parameter : shapes) total += ops::count_of(parameter.shape);
    return total;
  }

  static void require_possible(const std::vector<ParameterShape>& shapes) {
    constexpr std::size_t most = std::size_t{1} << 36;
    require(total_of(shapes) <= most,
            "hidden_size, input_size and layers must not ask for more than {} weights, but {} are needed", most,
            total_of(shapes));
  }

  void allocate(std::vector<ParameterShape> shapes) {
    const std::size_t total = total_of(shapes);
    weights = std::make_shared<graph::Weights>(queue, total * sizeof(Real));
    gradients.resize(total);
    std::size_t offset = 0;
    for (ParameterShape& parameter : shapes) {
      const std::size_t size = ops::count_of(parameter.shape);
      Real* const value = values().data() + offset;
      Real* const gradient = gradients.data() + offset;
      const auto tensor = [&](Real* data) {
        return nn::tensor_of(data, dtype_of<Real>(), parameter.shape, Device::cpu());
      };
      parameters.push_back(
          {parameter.name, parameter.shape, {value, size}, {gradient, size}, tensor(value), tensor(gradient)});
      offset += size;
    }
  }

  void allocate_on(Stream& stream, std::vector<ParameterShape> shapes) {
    stack = std::make_unique<nn::DeviceStack>(spec, stream, dtype_of<Real>());
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const Tensor& value = stack->weights()[i];
      const Tensor& gradient = stack->gradients()[i];
      const std::size_t size = stream.device().is_cuda() ? 0 : ops::count_of(shapes[i].shape);
      const auto span = [&](const Tensor& tensor) {
        return size == 0 ? std::span<Real>() : std::span<Real>(static_cast<Real*>(tensor.data), size);
      };
      parameters.push_back(
          {std::move(shapes[i].name), std::move(shapes[i].shape), span(value), span(gradient), value, gradient});
    }
  }

  std::span<Real> values() const { return {static_cast<Real*>(weights->values().data()), gradients.size()}; }

  void initialise() {
    Random random(seed);
    const double bound = 1.0 / std::sqrt(static_cast<double>(spec.hidden_size));
    std::vector<Real> drawn;
    for (const Parameter& parameter : parameters) {
      drawn.resize(ops::count_of(parameter.shape));
      for (Real& value : drawn) value = static_cast<Real>(random.uniform(-bound, bound));
      if (parameter.name.starts_with("bias_ih")) nn::set_learnt_vectors(spec.cell, spec.hidden_size, drawn.data());
      write(parameter.value_tensor, parameter.value, drawn);
    }
  }

  static void require_size(const Parameter& parameter, std::size_t size) {
    require(size == ops::count_of(parameter.shape), "{} must have {} values, not {}", parameter.name,
            ops::count_of(parameter.shape), size);
  }

  void read(const Tensor& tensor, std::span<const Real> host, std::span<Real> to) const {
    if (host.empty()) {
      stack->read(tensor, to.data());
    } else {
      std::ranges::copy(host, to.begin());
    }
  }

  /// Copies numbers from the host's memory into a parameter or its gradient; `host`: where it lies on a CPU.
  void write(const Tensor& tensor, std::span<Real> host, std::span<const Real> from) {
    if (host.empty()) {
      stack->write(tensor, from.data());
    } else {
      std::ranges::copy(from, host.begin());
    }
  }

  void weights_changed() {
    if (stack) {
      stack->weights_changed();
    } else {
      weights->changed();
    }
  }

  std::uint64_t version() const { return stack ? stack->version() : weights->version(); }

  /// Throws unless the tape is of this network with its current weights. Gradients of changed weights would be wrong.
  void require_tape_of_this(const typename RecurrentTape<Real>::Content& tape) const {
    require(tape.network == identity, "tape must hold a forward pass of this network");
    require(
        tape.version == version(),
        "tape must hold a forward pass with the weights as they are now, and they have changed since: call backward() "
        "before weights change, or forward() again");
  }

  /// Returns the form of calls with a batch.
  RecurrentForm form_of(const Batch& batch) const {
    RecurrentForm form;
    form.dtype = form.weights = dtype_of<Real>();
    form.rows = batch.rows;
    form.steps = batch.steps;
    form.positions = batch.cu_seqlens != nullptr ? ops::positions_of(batch) : 0;
    form.lengths = batch.lengths != nullptr;
    form.reset = batch.reset != nullptr;
    form.add_gradients = true;
    return form;
  }

  Parameter& parameter(std::string_view name) {
    const auto found = std::ranges::find(parameters, name, &Parameter::name);
    if (found != parameters.end()) return *found;
    std::vector<std::string_view> names;
    for (const Parameter& one : parameters) names.emplace_back(one.name);
    fail(ErrorCode::invalid_argument, "name must be one of {}, not {}", fmt::join(names, ", "), name);
  }

  Device device() const { return stack ? stack->device() : Device::cpu(); }

  /// Returns the seed of the dropout masks of the next training pass.
  std::uint64_t next_seed() { return spec.dropout > 0.0 ? nn::Hash(seed).add(++passes).value() : 0; }

  /// [S, layers * directions, B, H]
  std::vector<Index> state_shape(Index rows) const {
    return {find_cell(spec.cell).states, spec.layers * spec.directions(), rows, spec.hidden_size};
  }

  // Calls with host memory, for a network on a stream. `tape`: null if no backward pass follows.
  void forward_copied(const Batch& batch, SequenceView<const Real> x, SequenceView<Real> y, const Real* state_in,
                      Real* state_out, typename RecurrentTape<Real>::Content* tape, const Execution& execution,
                      SequenceView<Real> every_state);
  void backward_copied(const Batch& batch, SequenceView<const Real> dy, const Real* dstate_out, SequenceView<Real> dx,
                       Real* dstate_in, typename RecurrentTape<Real>::Content& tape, const Execution& execution,
                       SequenceView<const Real> dstates);

  void step_copied(Index rows, const Real* x, Real* y, Real* state, const Execution& execution);

  static Execution resolved(const Execution& execution) {
    require(!execution.device.is_cuda(), "execution.device must be cpu, where the network is, not {}",
            to_string(execution.device));
    Execution whole = execution;
    whole.threads = resolve_threads(execution.threads);
    whole.device = Device::cpu();
    return whole;
  }

  void make(Prepared& prepared, const RecurrentForm& form, const Execution& execution,
            const nn::StackTape* tape) const {
    nn::check_form(spec, form, execution);
    prepared.form = form;
    prepared.execution = execution;
    prepared.isa = cpu::isa_generation();
    prepared.is_backward = tape != nullptr;
    prepared.pass =
        tape != nullptr ? nn::backward_pass(spec, form, execution, *tape) : nn::forward_pass(spec, form, execution);
    prepared.workspace.emplace(prepared.pass.program);
    prepared.workspace->bind(weights);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      prepared.workspace->bind(prepared.pass.weights[i], parameters[i].value.data());
      if (tape != nullptr) prepared.workspace->bind(prepared.pass.gradients[i], parameters[i].gradient.data());
    }
  }

  /// Returns this thread's prepared pass of a form. `tape`: for a backward pass; null: forward.
  Prepared& prepare(Work& work, const RecurrentForm& form, const Execution& execution, const nn::StackTape* tape) {
    const unsigned isa = cpu::isa_generation();
    auto& all = work.prepared;
    const auto found = std::ranges::find_if(all, [&](const Prepared& held) {
      return held.is_backward == (tape != nullptr) && held.isa == isa && held.form == form &&
             held.execution == execution;
    });
    if (found != all.end()) {
      all.splice(all.begin(), all, found);
    } else {
      Prepared fresh;
      make(fresh, form, execution, tape);
      all.push_front(std::move(fresh));
      if (all.size() > nn::kPreparedPasses) all.pop_back();
    }
    refresh(work, all.front());
    return all.front();
  }

  void refresh(Work& work, Prepared& prepared) const {
    const std::size_t bytes = prepared.pass.program->workspace_bytes();
    if (work.memory.bytes() < bytes) work.memory = ops::Buffer(*queue, bytes);
    prepared.workspace->place(work.memory.data());
    if (prepared.version == weights->version()) return;
    prepared.workspace->refresh({.threads = prepared.execution.threads});
    prepared.version = weights->version();
  }

  /// Returns whether step_row() can take these arguments. If not, step() reports why.
  bool accepts_row(const Real* x, const Real* y, const Real* state, const Execution& execution) const {
    return x != nullptr && y != nullptr && state != nullptr && spec.direction == Direction::forward &&
           execution.precision < Precision::f16 && execution.precision >= Precision::full &&
           nn::are_apart(y, spec.hidden_size, x, spec.input_size) &&
           nn::are_apart(y, spec.hidden_size, state, row_state);
  }

  /// Computes one step of one row: x [I] to y [H], state [S, layers, H].
  void step_row(const Real* x, Real* y, Real* state, Precision precision) {
    Work& work = works.get();
    std::optional<Prepared>& held = work.steps[static_cast<std::size_t>(precision)];
    if (!held || held->version != weights->version() || held->isa != cpu::isa_generation()) {
      prepare_step(work, held, precision);
    }
    graph::Workspace& workspace = *held->workspace;
    workspace.place(work.memory.data());
    workspace.bind(held->pass.x, const_cast<Real*>(x));
    workspace.bind(held->pass.y, y);
    if (held->state != state) {
      workspace.bind(held->pass.state_in, state);
      workspace.bind(held->pass.state_out, state);
      held->state = state;
    }
    static constexpr ops::Call call{.threads = 1};
    if (held->denormal_weights) {
      workspace.run(call);
    } else {
      workspace.run_as_is(call);
    }
  }

  /// Prepares steps for the current version of the weights. Steps switch denormal numbers to zeros only if weights are
  /// denormal: switching takes half as long as a small step, and callers of many steps do it once.
  void prepare_step(Work& work, std::optional<Prepared>& held, Precision precision) const {
    if (!held || held->isa != cpu::isa_generation()) {
      RecurrentForm form;
      form.dtype = form.weights = dtype_of<Real>();
      form.step = true;
      Prepared fresh;  // one row: all kinds of kernels give the same bits
      make(fresh, form, {.threads = 1, .exact = true, .precision = precision}, nullptr);
      held = std::move(fresh);
    }
    refresh(work, *held);
    held->denormal_weights = has_denormals(values().data(), static_cast<Index>(values().size()));
  }
};

}  // namespace penstock
