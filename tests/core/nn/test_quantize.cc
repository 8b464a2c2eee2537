// Models of int8: which layers there are, what quantize() leaves in float, what is refused, and how much memory is
// left.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "nn/model/graph_builder.h"
#include "nn/model/model_impl.h"
#include "nn/model/quantize.h"
#include "penstock/cell.h"
#include "penstock/quantize.h"
#include "support/expect_error.h"
#include "support/tolerance.h"

namespace penstock {
namespace {

using test::expect_error;

DataDescription text_data() {
  DataDescription data;
  data.vocabulary = 50;
  return data;
}

Model model_of(const std::string& cell, Index width = 48) {
  return {{.cell = cell, .width = width, .blocks = 2, .hidden_size = width + 8, .convolution = 3, .feed_forward = 1.5},
          text_data(),
          7};
}

std::vector<float> outputs_of(const Model& model, const Execution& execution = {}) {
  Random random(3);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 3 * 40; ++i) tokens.push_back(static_cast<std::int32_t>(random.below(50)));
  std::vector<float> outputs(tokens.size() * 50);
  ModelState state = model.state(3);
  model.forward(3, 40, tokens, outputs, state, execution);
  return outputs;
}

/// The error of outputs against those of a model, as a share of their size.
double error_of(const Model& made, const Model& model) {
  const std::vector<float> got = outputs_of(made), want = outputs_of(model);
  double squares = 0.0, all = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    squares += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    all += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(squares / all);
}

TEST(Int8Models, ComputeNearlyWhatFloatsDo) {
  for (const char* cell : {"elman", "gru", "gru-before", "lstm", "slstm", "mingru", "minlstm-log"}) {
    SCOPED_TRACE(cell);
    const Model model = model_of(cell);
    const std::vector<std::string> layers = int8_layers(model);
    EXPECT_EQ(layers, (std::vector<std::string>{"embedding", "blocks.0.recurrent", "blocks.0.projection",
                                                "blocks.0.feed_forward.up", "blocks.0.feed_forward.down",
                                                "blocks.1.recurrent", "blocks.1.projection", "blocks.1.feed_forward.up",
                                                "blocks.1.feed_forward.down", "head"}));
    const Model made = model.with_int8(layers);
    EXPECT_EQ(made.spec().int8, layers);
    const double error = error_of(made, model);
    EXPECT_GT(error, 1e-5);  // or nothing was rounded
    EXPECT_LT(error, 0.03);
    const std::vector<float> whole = outputs_of(made, {.threads = 1});
    EXPECT_TRUE(test::same_bits(outputs_of(made, {.threads = 3, .exact = true}), whole));
  }
}

TEST(Int8Models, TakeThreeTenthsOfTheMemory) {
  const Model model = model_of("lstm", 256);
  const Model made = model.with_int8(int8_layers(model));
  outputs_of(model), outputs_of(made);
  const auto bytes = [](const Model& of) {
    const graph::Weights& weights = *of.impl().parameters->weights();
    return static_cast<double>(weights.values().bytes() + weights.derived_bytes());  // with panels
  };
  EXPECT_LT(bytes(made) / bytes(model), 0.3);
  const ModelMemory memory = made.memory(1, 8);
  EXPECT_LT(static_cast<double>(memory.weights), 0.3 * static_cast<double>(model.memory(1, 8).weights));
  EXPECT_EQ(memory.training, 0u);
  EXPECT_EQ(made.parameter_count(), model.parameter_count());  // scales are none
}

TEST(Int8Models, LeaveLayersThatLoseMost) {
  const Model model = model_of("gru");
  const auto loses = [](double of_head, double of_others) {
    return [=](const Model& made) {
      double loss = 0.0;
      for (const std::string& layer : made.spec().int8) loss += layer == "head" ? of_head : of_others;
      return loss;
    };
  };
  const Quantized all = quantize(model, loses(0.3, 0.01));
  for (const QuantizeOptions& options : {QuantizeOptions{.each_layer = true}, QuantizeOptions{.max_loss = 0.035}}) {
    std::vector<std::string> last;
    const auto loss_of = [&](const Model& made) { return last = made.spec().int8, loses(0.3, 0.01)(made); };
    EXPECT_EQ(quantize(model, loss_of, options).model.spec().int8, last);
  }
  EXPECT_EQ(all.model.spec().int8, int8_layers(model));
  EXPECT_NEAR(all.loss, 0.39, 1e-9);
  EXPECT_FALSE(all.layers.front().loss.has_value());

  const Quantized measured = quantize(model, loses(0.3, 0.01), {.each_layer = true});
  EXPECT_NEAR(*measured.layers.back().loss, 0.3, 1e-9);

  const Quantized less = quantize(model, loses(0.3, 0.01), {.max_loss = 0.1});
  EXPECT_NEAR(less.loss, 0.09, 1e-9);
  EXPECT_FALSE(less.layers.back().int8);
  EXPECT_EQ(less.model.spec().int8.size(), 9u);

  const Quantized few = quantize(model, loses(0.3, 0.01), {.max_loss = 0.035});
  EXPECT_EQ(few.model.spec().int8.size(), 3u);
  EXPECT_EQ(quantize(few.model, loses(0.0, 0.0)).model.spec().int8.size(), 10u);  // the others follow

  expect_error(ErrorCode::numerical, "no layer can be int8 without a loss of more than 0.5 %",
               [&] { quantize(model, loses(0.3, 0.01), {.max_loss = 0.005}); });
  expect_error(ErrorCode::numerical, "no layer can be int8 without a loss of more than 10 %",
               [&] { quantize(model, loses(std::nan(""), std::nan("")), {.max_loss = 0.1}); });
  expect_error(ErrorCode::numerical, "the loss is not a number",
               [&] { quantize(model, loses(std::nan(""), std::nan(""))); });
  expect_error(ErrorCode::invalid_argument, "max_loss must be 0 or more",
               [&] { quantize(model, loses(0.3, 0.01), {.max_loss = -1.0}); });
}

TEST(Int8Models, RefuseWeightsThatAreNotFinite) {
  std::vector<std::int8_t> rounded(3);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> row = {1.0f, bad, 2.0f};
    expect_error(ErrorCode::numerical, "a weight is infinite or not a number", [&] { nn::round_row(row, rounded); });
  }
}

TEST(Int8Models, RefuseWhatTheyCannotDo) {
  const Model model = model_of("lstm");
  const std::vector<std::string> unknown = {"blocks.7.recurrent"}, head = {"head"};
  expect_error(ErrorCode::invalid_argument, "not \"blocks.7.recurrent\"", [&] { model.with_int8(unknown); });
  const Model made = model.with_int8(head);
  expect_error(ErrorCode::unsupported, "no layer of this model can become int8: those that can already are",
               [&] { quantize(made.with_int8(int8_layers(made)), [](const Model&) { return 0.0; }); });
  ModelSpec spec = model.spec();
  spec.int8 = head;
  expect_error(ErrorCode::invalid_argument, "int8 must be empty for a new model", [&] { Model(spec, text_data()); });
  spec.int8 = {"head", "head"};
  expect_error(ErrorCode::invalid_argument, "int8 must name layer \"head\" once", [&] { Model(spec, text_data()); });
  std::vector<Model> members;
  members.push_back(model.with_int8(head));
  expect_error(ErrorCode::invalid_argument, "quantise the ensemble", [&] { Model::combine(members); });

  ops::Target gpu{.device = Device::cuda()}, training;
  training.flags.set(CallFlag::training);
  expect_error(ErrorCode::unsupported, "weights of int8 run on CPUs only, not on cuda",
               [&] { nn::GraphBuilder(gpu).set_int8(head); });
  expect_error(ErrorCode::unsupported, "a model with weights of int8 cannot be trained",
               [&] { nn::GraphBuilder(training).set_int8(head); });
}

TEST(Int8Models, AreEnsemblesToo) {
  std::vector<Model> members;
  members.push_back(model_of("gru"));
  members.push_back(Model(members[0].spec(), text_data(), 8));
  const Model both = Model::combine(members);
  const Model made = both.with_int8(int8_layers(both));
  EXPECT_EQ(made.spec().int8.size(), 20u);
  EXPECT_LT(error_of(made, both), 0.03);
}

}  // namespace
}  // namespace penstock
