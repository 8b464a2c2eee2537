// Every op of a model, forward and backward, on the CPU in floats and on a GPU in every type of activations, against
// its definition over oracle::Var.

#include <gtest/gtest.h>

#include "backend/cuda/driver/driver.h"
#include "op_cases.h"
#include "ops/pointwise/cast.h"
#include "ops/pointwise/causal_convolution.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/embedding.h"
#include "ops/pointwise/residual_norm.h"
#include "ops/pointwise/series.h"
#include "ops/pointwise/silu_gate.h"
#include "ops/product/linear.h"
#include "ops/recurrence/recurrence.h"
#include "oracle/network.h"

namespace penstock {
namespace {

using test::Kind;
using test::OpCase;
using test::Shape;
using test::Source;
using test::Tensor;
using test::Var;
using test::Vars;

constexpr auto input = Source::input, output = Source::output, dinput = Source::dinput, doutput = Source::doutput,
               column_sums = Source::column_sums;

/// One position, an odd number, a prime of them, one past what a block of threads has, and ragged rows.
std::vector<Shape> shapes() { return {{1, 1}, {3, 5}, {1, 257}, {4, 6, {6, 0, 1, 5}}}; }

std::string name_of(const char* op, const Shape& shape, Index width) {
  std::string name = fmt::format("{}_{}x{}x{}", op, shape.rows, shape.steps, width);
  if (!shape.lengths.empty()) name += "_lengths";
  if (!shape.reset.empty()) name += "_reset";
  return name;
}

Vars zeros(Index count) { return Vars(static_cast<std::size_t>(count), Var(0.0)); }

Var sigmoid(const Var& x) { return oracle::sigmoid(x); }

void add_embeddings(std::vector<OpCase>& cases, const Shape& shape) {
  for (const auto& [vocabulary, width] : {std::pair<Index, Index>{1, 1}, {13, 7}, {50, 64}}) {
    const ops::Embedding op{vocabulary, width};
    const Index wide = width;
    cases.push_back({.name = name_of("embedding", shape, width),
                     .shape = shape,
                     .inputs = {{"tokens", shape.positions(), Kind::tokens, static_cast<double>(vocabulary)},
                                {"table", vocabulary * width, Kind::parameter}},
                     .outputs = {{"y", shape.positions() * width}},
                     .formula = [shape, wide](const std::vector<Vars>& in) -> std::vector<Vars> {
                       Vars y = zeros(shape.positions() * wide);
                       for (Index p = 0; p < shape.positions(); ++p) {
                         const auto token = static_cast<Index>(in[0][static_cast<std::size_t>(p)].value());
                         for (Index c = 0; shape.exists(p) && c < wide; ++c) y[p * wide + c] = in[1][token * wide + c];
                       }
                       return {y};
                     },
                     .forward = ops::embedding_forward(op),
                     .backward = ops::embedding_backward(op),
                     .backward_reads = {{input, 0}, {doutput, 0}},
                     .backward_writes = {{dinput, 1}},
                     .summed = shape.positions()});
  }
}

void add_linear(std::vector<OpCase>& cases, const Shape& shape) {
  for (const auto& [inputs, outputs] : {std::pair<Index, Index>{1, 1}, {7, 5}, {40, 129}, {64, 16}}) {
    const ops::Linear op{inputs, outputs};
    const Index k = inputs, n = outputs;
    for (const bool all : {true, false}) {
      if (!shape.lengths.empty()) continue;  // it knows of no rows
      cases.push_back(
          {.name = name_of(all ? "linear" : "linear_without_sums", shape, inputs),
           .shape = shape,
           .inputs = {{"x", shape.positions() * k}, {"weight", n * k, Kind::parameter}, {"bias", n, Kind::parameter}},
           .outputs = {{"y", shape.positions() * n}},
           .formula = [shape, k, n](const std::vector<Vars>& in) -> std::vector<Vars> {
             Vars y;
             for (Index p = 0; p < shape.positions(); ++p) {
               for (Index j = 0; j < n; ++j) {
                 y.push_back(oracle::dot(&in[0][p * k], &in[1][j * k], static_cast<std::size_t>(k)) + in[2][j]);
               }
             }
             return {y};
           },
           .forward = ops::linear_forward(op),
           .backward = ops::linear_backward(op, all, all),
           .backward_reads = {{input, 0}, {input, 1}, {doutput, 0}},
           .backward_writes = {{dinput, 1}, all ? Source{dinput, 2} : Source{}, all ? Source{dinput, 0} : Source{}},
           .summed = shape.positions() + k + n});
    }
  }
}

/// normal = gain * sum / sqrt(mean(sum^2) + epsilon), of one row.
void normalise(const Var* sum, const Vars& gain, Index width, Vars& normal) {
  Var squares = 0.0;
  for (Index c = 0; c < width; ++c) squares += sum[c] * sum[c];
  const Var mean = squares / Var(static_cast<double>(width)) + Var(ops::ResidualNorm::epsilon);
  const Var inverse = oracle::exp(Var(-0.5) * oracle::log(mean));
  for (Index c = 0; c < width; ++c) normal.push_back(gain[c] * sum[c] * inverse);
}

void add_norms(std::vector<OpCase>& cases, const Shape& shape) {
  if (!shape.lengths.empty()) return;  // it knows of no rows
  for (const Index width : {1, 7, 64, 515}) {
    const Index size = shape.positions() * width;
    const ops::ResidualNorm alone{.width = width, .branch = false, .dropout = {}},
        residual{.width = width, .branch = true, .dropout = {}};
    // The norm of a row with one value is its sign: its gradient is all cancellation.
    const double size_of_x = width == 1 ? 0.02 : 1.0;
    cases.push_back(
        {.name = name_of("norm", shape, width),
         .shape = shape,
         .inputs = {{"x", size, Kind::activation, size_of_x},
                    {"no branch", 0, Kind::opaque},
                    {"gain", width, Kind::master}},
         .outputs = {{"normal", size}, {"no sum", 0, Kind::opaque}, {"inverse", shape.positions(), Kind::opaque}},
         .formula = [shape, width](const std::vector<Vars>& in) -> std::vector<Vars> {
           Vars normal;
           for (Index p = 0; p < shape.positions(); ++p) normalise(&in[0][p * width], in[2], width, normal);
           return {normal, {}, {}};
         },
         .forward = ops::residual_norm_forward(alone)});
    cases.push_back({.name = name_of("residual_sum", shape, width),
                     .shape = shape,
                     .inputs = {{"x", size}, {"branch", size}},
                     .outputs = {{"sum", size}},
                     .formula = [](const std::vector<Vars>& in) -> std::vector<Vars> {
                       Vars sum;
                       for (std::size_t i = 0; i < in[0].size(); ++i) sum.push_back(in[0][i] + in[1][i]);
                       return {sum};
                     },
                     .forward = ops::residual_sum(width, {})});
    cases.push_back({.name = name_of("residual_norm", shape, width),
                     .shape = shape,
                     .inputs = {{"x", size}, {"branch", size}, {"gain", width, Kind::master}},
                     .outputs = {{"normal", size}, {"sum", size}, {"inverse", shape.positions(), Kind::master}},
                     .formula = [shape, width](const std::vector<Vars>& in) -> std::vector<Vars> {
                       Vars sum, normal, inverse;
                       for (std::size_t i = 0; i < in[0].size(); ++i) sum.push_back(in[0][i] + in[1][i]);
                       for (Index p = 0; p < shape.positions(); ++p) {
                         normalise(&sum[p * width], in[2], width, normal);
                         double squares = 0.0;
                         for (Index c = 0; c < width; ++c) squares += std::pow(sum[p * width + c].value(), 2);
                         inverse.emplace_back(
                             1.0 / std::sqrt(squares / static_cast<double>(width) + ops::ResidualNorm::epsilon));
                       }
                       return {normal, sum, inverse};
                     },
                     .forward = ops::residual_norm_forward(residual),
                     .backward = ops::residual_norm_backward(residual, true),
                     .backward_reads = {{output, 1}, {output, 2}, {input, 2}, {doutput, 0}, {doutput, 1}},
                     .backward_writes = {{dinput, 2}, {dinput, 0}, {}, {column_sums, 1, width}},
                     .summed = shape.positions() + width,
                     .roundings = 6.0});
  }
}

void add_gates(std::vector<OpCase>& cases, const Shape& shape) {
  if (!shape.lengths.empty()) return;  // it knows of no rows
  for (const Index inner : {1, 7, 64, 1030, 9001}) {
    if (inner > 2000 && shape.positions() > 20) continue;
    const ops::SiluGate op{inner};
    cases.push_back({.name = name_of("silu_gate", shape, inner),
                     .shape = shape,
                     .inputs = {{"gate_value", 2 * shape.positions() * inner, Kind::activation, 3.0}},
                     .outputs = {{"y", shape.positions() * inner}},
                     .formula = [shape, inner](const std::vector<Vars>& in) -> std::vector<Vars> {
                       Vars y;
                       for (Index p = 0; p < shape.positions(); ++p) {
                         for (Index c = 0; c < inner; ++c) {
                           const Var& gate = in[0][2 * p * inner + c];
                           y.push_back(gate * sigmoid(gate) * in[0][(2 * p + 1) * inner + c]);
                         }
                       }
                       return {y};
                     },
                     .forward = ops::silu_gate_forward(op),
                     .backward = ops::silu_gate_backward(op, true),
                     .backward_reads = {{input, 0}, {doutput, 0}},
                     .backward_writes = {{dinput, 0}, {column_sums, 0, 2 * inner}},
                     .summed = shape.positions()});
  }
}

void add_convolutions(std::vector<OpCase>& cases, Shape shape) {
  for (const auto& [width, taps] : {std::pair<Index, Index>{1, 1}, {7, 3}, {64, 4}, {130, 9}, {5, 40}}) {
    for (const bool reset : {false, true}) {
      shape.reset.clear();
      for (Index p = 0; reset && p < shape.positions(); ++p) shape.reset.push_back(p % 7 == 3 ? 1 : 0);
      const ops::CausalConvolution op{width, taps};
      const Index w = width, before = taps - 1, b_rows = shape.rows;
      cases.push_back({.name = name_of(fmt::format("convolution_of_{}", taps).c_str(), shape, width),
                       .shape = shape,
                       .inputs = {{"x", shape.positions() * w},
                                  {"state_in", b_rows * before * w, Kind::master},
                                  {"weight", taps * w, Kind::master},
                                  {"bias", w, Kind::master}},
                       .outputs = {{"y", shape.positions() * w}, {"state_out", b_rows * before * w, Kind::master}},
                       .formula = [shape, w, before](const std::vector<Vars>& in) -> std::vector<Vars> {
                         Vars y = zeros(shape.positions() * w), state;
                         for (Index b = 0; b < shape.rows; ++b) {
                           std::vector<Vars> past;  // the oldest first
                           for (Index j = 0; j < before; ++j) {
                             const auto from = in[1].begin() + (b * before + j) * w;
                             past.emplace_back(from, from + w);
                           }
                           for (Index t = 0; t < shape.length(b); ++t) {
                             const Index p = b * shape.steps + t;
                             if (shape.resets(p)) past.assign(past.size(), zeros(w));
                             past.emplace_back(in[0].begin() + p * w, in[0].begin() + (p + 1) * w);
                             for (Index c = 0; c < w; ++c) {
                               y[p * w + c] = in[3][c];
                               for (Index j = 0; j <= before; ++j) {
                                 y[p * w + c] +=
                                     in[2][j * w + c] * past[past.size() - 1 - static_cast<std::size_t>(j)][c];
                               }
                             }
                             past.erase(past.begin());
                           }
                           for (const Vars& row : past) state.insert(state.end(), row.begin(), row.end());
                         }
                         return {y, state};
                       },
                       .forward = ops::causal_convolution_forward(op),
                       .backward = ops::causal_convolution_backward(op),
                       .backward_reads = {{input, 0}, {input, 1}, {input, 2}, {doutput, 0}},
                       .backward_writes = {{dinput, 2}, {dinput, 3}, {dinput, 0}},
                       .summed = shape.positions() + taps});
    }
  }
}

void add_recurrences(std::vector<OpCase>& cases, Shape shape) {
  for (const char* const cell : {"mingru", "minlstm-log", "lstm", "gru"}) {
    for (const auto& [inputs, hidden] : {std::pair<Index, Index>{3, 5}, {32, 40}}) {
      if (shape.steps > 100 && hidden > 10) continue;  // the tape would be long
      const ops::Recurrence op{.cell = cell, .input = inputs, .hidden = hidden, .bias = Bias::single};
      const bool scan = op.is_scan();
      const Index gates = oracle::find_cell<double>(cell).gates, state = op.state_size();
      const RecurrentSpec spec{.cell = cell, .input_size = inputs, .hidden_size = hidden};
      const Kind bias = scan ? Kind::parameter : Kind::master;
      const double scale = 1.0 / std::sqrt(static_cast<double>(inputs));
      cases.push_back(
          {.name = name_of(cell, shape, hidden),
           .shape = shape,
           .inputs = {{"x", shape.positions() * inputs},
                      {"state_in", shape.rows * state, Kind::master},
                      {"weight_ih", gates * hidden * inputs, Kind::parameter, scale},
                      {"weight_hh", scan ? 0 : gates * hidden * hidden, scan ? Kind::opaque : Kind::parameter,
                       1.0 / std::sqrt(static_cast<double>(hidden))},
                      {"bias_ih", gates * hidden, bias},
                      {"no bias_hh", 0, Kind::opaque},
                      {"panels", 0, Kind::opaque}},
           .outputs = {{"y", shape.positions() * hidden},
                       {"state_out", shape.rows * state, Kind::master},
                       {"tape", 0, Kind::opaque}},
           .formula = [shape, spec](const std::vector<Vars>& in) -> std::vector<Vars> {
             Batch batch{.rows = shape.rows, .steps = shape.steps};
             if (!shape.lengths.empty()) batch.lengths = shape.lengths.data();
             if (!shape.reset.empty()) batch.reset = shape.reset.data();
             oracle::Arguments<Var> arguments;
             arguments.weights.push_back({in[2], in[3], in[4], {}});
             arguments.x = in[0];
             arguments.state_in = in[1];
             oracle::Results<Var> results = oracle::forward(spec, batch, arguments);
             return {results.y, results.state_out, {}};
           },
           .forward = ops::recurrence_forward(op),
           .backward = ops::recurrence_backward(op),
           .backward_reads = {{input, 0},
                              {output, 0},
                              {doutput, 0},
                              {input, 1},
                              {input, 2},
                              {input, 3},
                              {input, 4},
                              {},
                              {input, 6},
                              {output, 2},
                              {doutput, 1},
                              {}},
           .backward_writes =
               {{dinput, 2}, scan ? Source{} : Source{dinput, 3}, {dinput, 4}, {}, {dinput, 0}, {dinput, 1}},
           .summed = shape.positions() + inputs + hidden,
           .roundings = 8.0 * std::log2(1.0 + static_cast<double>(shape.steps)),
           .panels = [op](const ops::Target& target) -> std::optional<ops::Op> {
             const ops::Panels panels = ops::forward_panels(target);
             if (!ops::reads_panels(op, panels, target)) return std::nullopt;
             return ops::recurrence_panels(op, panels);
           },
           .backward_panels = [op](const ops::Target& target) -> std::optional<ops::Op> {
             if (!ops::reads_panels(op, ops::Panels::backward, target)) return std::nullopt;
             return ops::recurrence_panels(op, ops::Panels::backward);
           },
           .panels_input = 6,
           .panels_of = {2, scan ? -1 : 3, 4, -1}});
    }
  }
}

void add_padding(std::vector<OpCase>& cases, const Shape& shape) {
  for (const Index width : {1, 7, 64}) {
    cases.push_back({.name = name_of("clear_padding", shape, width),
                     .shape = shape,
                     .inputs = {{"features", shape.positions() * width, Kind::master}},
                     .outputs = {{"y", shape.positions() * width}},
                     .formula = [shape, width](const std::vector<Vars>& in) -> std::vector<Vars> {
                       Vars y = in[0];
                       for (Index i = 0; i < shape.positions() * width; ++i) {
                         if (!shape.exists(i / width)) y[static_cast<std::size_t>(i)] = Var(0.0);
                       }
                       return {y};
                     },
                     .forward = ops::clear_padding(width)});
  }
}

std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases;
  for (const Shape& shape : shapes()) {
    add_embeddings(cases, shape);
    add_linear(cases, shape);
    add_norms(cases, shape);
    add_gates(cases, shape);
    add_convolutions(cases, shape);
    add_recurrences(cases, shape);
    add_padding(cases, shape);
  }
  return cases;
}

struct Where {
  Device device;
  DType type;
};

class EveryOp : public testing::TestWithParam<Where> {};

TEST_P(EveryOp, IsItsDefinition) {
  const auto& [device, type] = GetParam();
  if (device.is_cuda() && !cuda::driver_complaint().empty()) GTEST_SKIP() << cuda::driver_complaint();
  for (const OpCase& tested : all_cases()) {
    SCOPED_TRACE(tested.name);
    test::OpRun(tested, device, type).check();
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp,
                         testing::Values(Where{{}, DType::f32}, Where{Device::cuda(), DType::f32},
                                         Where{Device::cuda(), DType::bf16}, Where{Device::cuda(), DType::f16}),
                         [](const auto& tested) {
                           return std::string(tested.param.device.is_cuda() ? "cuda_" : "cpu_") +
                                  std::string(to_string(tested.param.type));
                         });

}  // namespace
}  // namespace penstock
