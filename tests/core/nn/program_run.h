#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "graph/program.h"
#include "nn/model/graph_builder.h"

namespace penstock::test {

/// Outputs and inputs of the layers that a test builds.
struct Ends {
  graph::ValueId outputs;                   ///< [B, T, O]
  std::vector<graph::ValueId> inputs = {};  ///< Of which gradients are wanted
};

using Build = std::function<Ends(nn::GraphBuilder&)>;

/// A program on the CPU and everything that it reads and writes, each home in memory of its own: for layers by
/// themselves and for whole models. Whatever a run is to write holds NaN before, also the workspace, and so shows up in
/// results that depend on it.
template <class Real>
class ProgramRun {
 public:
  /// Prepares the layers that `build` adds; `target.dtype` is that of Real. With training, their backward pass follows.
  /// Parameters are zero unless they are given, by another run of the same layers.
  ProgramRun(ops::Target target, const Build& build, std::shared_ptr<nn::Parameters<Real>> parameters = nullptr) {
    target.dtype = dtype_of<Real>();
    nn::GraphBuilder builder(target);
    ends_ = build(builder);
    if (target.has(CallFlag::training)) {
      builder.backward(ends_.outputs, builder.external("doutputs", graph::Home::doutputs, graph::Extent::positions,
                                                       builder.width_of(ends_.outputs), target.dtype));
    }
    for (const graph::ValueId input : ends_.inputs) input_gradients_.push_back(builder.gradient(input));
    if (parameters == nullptr) parameters = std::make_shared<nn::Parameters<Real>>(builder.layout());
    open(std::make_shared<graph::Program>(builder.take_graph(), target), std::move(parameters));
  }

  /// Runs a given program; its results are under Home::outputs.
  ProgramRun(std::shared_ptr<const graph::Program> program, std::shared_ptr<nn::Parameters<Real>> parameters) {
    open(std::move(program), std::move(parameters));
  }

  const graph::Program& program() const { return workspace_->program(); }
  graph::Workspace& workspace() const { return *workspace_; }
  const std::shared_ptr<nn::Parameters<Real>>& parameters() const { return parameters_; }
  const nn::ParameterLayout& layout() const { return parameters_->layout(); }

  /// All values of a home: what a run reads is to be filled before it.
  template <class T = Real>
  std::span<T> home(graph::Home home) {
    std::vector<std::max_align_t>& memory = homes_[static_cast<std::size_t>(home)];
    return {reinterpret_cast<T*>(memory.data()), bytes_[static_cast<std::size_t>(home)] / sizeof(T)};
  }
  void fill(graph::Home home, const std::vector<Real>& values) {
    ASSERT_EQ(values.size(), this->home(home).size());
    std::ranges::copy(values, this->home(home).begin());
  }
  std::vector<Real> values(graph::Home home) {
    const std::span<Real> found = this->home(home);
    return {found.begin(), found.end()};
  }

  /// Runs the forward pass; returns outputs [B, T, O].
  std::vector<Real> forward() {
    run_forward();
    return ends_.outputs ? read(ends_.outputs) : values(graph::Home::outputs);
  }
  void run_forward() {
    workspace_->refresh(call);
    poison(workspace_->planned_memory());
    poison(std::as_writable_bytes(home(graph::Home::outputs)));
    if (!state_in_place) poison(std::as_writable_bytes(home(graph::Home::state_out)));
    bind();
    workspace_->run(graph::Phase::forward, call);
  }

  /// Runs the backward pass behind a forward pass, from doutputs [B, T, O].
  void backward(const std::vector<Real>& doutputs) {
    fill(graph::Home::doutputs, doutputs);
    run_backward();
  }
  void run_backward() {
    poison(std::as_writable_bytes(home(graph::Home::gradients)));
    workspace_->run(graph::Phase::backward, call);
  }

  std::span<const Real> gradient(const nn::ParameterEntry& entry) {
    return home(graph::Home::gradients)
        .subspan(static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.size));
  }
  /// That of one of Ends::inputs.
  std::vector<Real> input_gradient(std::size_t input) const { return read(input_gradients_[input]); }

  /// Rows and steps are the target's; lengths and resets are to be added where the target says that there are some.
  ops::Call call;
  /// True if the new state replaces the old one in memory; only programs without a backward pass allow that.
  bool state_in_place = false;
  /// True if memory to be written holds NaN before a run; otherwise it holds the results of the last run.
  bool poisons = true;

 private:
  void open(std::shared_ptr<const graph::Program> program, std::shared_ptr<nn::Parameters<Real>> parameters) {
    const ops::Target& target = program->target();
    call.batch = {.rows = target.rows, .steps = target.steps};
    call.threads = target.execution.threads;
    const auto reserve = [&](graph::Home home, std::size_t bytes) {
      std::size_t& held = bytes_[static_cast<std::size_t>(home)];
      held = std::max(held, bytes);
    };
    const auto parameter_bytes = static_cast<std::size_t>(parameters->layout().size()) * sizeof(Real);
    reserve(graph::Home::gradients, parameter_bytes);
    for (const graph::Value& value : program->graph().values()) {
      if (value.home == graph::Home::workspace || value.home == graph::Home::derived) continue;
      const Index before = value.extent == graph::Extent::rows ? value.offset * target.rows : value.offset;
      reserve(value.home, static_cast<std::size_t>(before + value.count(target)) * size_of(value.dtype));
    }
    for (std::size_t home = 0; home < homes_.size(); ++home) {
      homes_[home].resize(bytes_[home] / sizeof(std::max_align_t) + 1);
    }
    parameters_ = std::move(parameters);
    workspace_ = std::make_unique<graph::Workspace>(std::move(program), std::make_shared<ops::Queue>(Device::cpu()));
    workspace_->bind(parameters_->weights());
  }

  void bind() {
    for (std::size_t home = 0; home < homes_.size(); ++home) {
      const auto which = static_cast<graph::Home>(home);
      if (which == graph::Home::workspace || which == graph::Home::derived || which == graph::Home::values) continue;
      const bool state = which == graph::Home::state_out && state_in_place;
      workspace_->bind(which, homes_[state ? static_cast<std::size_t>(graph::Home::state_in) : home].data());
    }
  }

  /// All bits set: NaN in every type of numbers.
  void poison(std::span<std::byte> memory) const {
    if (poisons) std::memset(memory.data(), 0xff, memory.size());
  }

  std::vector<Real> read(graph::ValueId id) const {
    const auto* const values = static_cast<const Real*>(workspace_->value(id));
    const graph::Program& of = workspace_->program();
    return {values, values + of.graph().value(id).count(of.target())};
  }

  Ends ends_;
  std::vector<graph::ValueId> input_gradients_;
  std::shared_ptr<nn::Parameters<Real>> parameters_;
  std::array<std::vector<std::max_align_t>, graph::kHomes> homes_;
  std::array<std::size_t, graph::kHomes> bytes_ = {};
  std::unique_ptr<graph::Workspace> workspace_;
};

}  // namespace penstock::test
