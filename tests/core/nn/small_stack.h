#pragma once

#include <memory>
#include <vector>

#include "nn/check_program.h"

namespace penstock::test {

/// A small stack of LSTM with all that its calls need.
struct Stack {
  Case c{.name = "small", .input = 3, .hidden = 5, .layers = 2, .rows = 2, .steps = 4};
  double dropout = 0.0;
  Recurrent<float> network = make_network<float>("lstm", c);
  Inputs<float> in = make_inputs(network, c);
  RecurrentSpec spec = network.spec();
  RecurrentForm form = form_of(in);
  std::vector<Tensor> weights = values_of(network);
  std::vector<float> y = std::vector<float>(2 * 4 * 5), dx = std::vector<float>(2 * 4 * 3);
  std::vector<std::vector<float>> gradient_memory;
  std::vector<Tensor> gradients = weights;
  Poisoned workspace{4 << 20}, tape{1 << 20};

  explicit Stack(double p = 0.0) : dropout(p) {
    spec.dropout = p;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      gradient_memory.emplace_back(network.parameters()[i].value.size());
      gradients[i].data = gradient_memory.back().data();
    }
  }
  std::shared_ptr<const RecurrentProgram> program() const { return RecurrentProgram::get(spec, form); }
  RecurrentProgram::Forward forward() {
    return {.weights = weights,
            .batch = in.batch(),
            .x = Tensor::contiguous(in.x.data(), DType::f32, {2, 4, 3}),
            .y = Tensor::contiguous(y.data(), DType::f32, {2, 4, 5}),
            .state_in = {},
            .state_out = {},
            .workspace = workspace.memory(),
            .tape = tape.memory(),
            .packed = {}};
  }
  RecurrentProgram::Backward backward() {
    const RecurrentProgram::Forward as_before = forward();
    return {.weights = weights,
            .batch = as_before.batch,
            .x = as_before.x,
            .y = as_before.y,
            .dy = Tensor::contiguous(in.dy.data(), DType::f32, {2, 4, 5}),
            .state_in = {},
            .dstate_out = {},
            .dx = Tensor::contiguous(dx.data(), DType::f32, {2, 4, 3}),
            .dstate_in = {},
            .gradients = gradients,
            .workspace = workspace.memory(),
            .tape = tape.memory(),
            .pass = 0,
            .packed = {}};
  }
};

}  // namespace penstock::test
