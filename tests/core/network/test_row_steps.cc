// Layers over one sequence, which have kernels of their own, against the oracle: sizes around those of vectors, both
// directions, chunks of any length, and values beyond the ends of sigmoid and tanh.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/cpu/instruction_sets.h"
#include "network/network_maker.h"
#include "oracle/network.h"
#include "oracle/tolerance.h"

namespace penstock::network {
namespace {

struct Case {
  std::string cell;
  Index steps, input, hidden;
  Direction direction = Direction::forward;

  Index gates() const { return cell == "lstm" ? 4 : 3; }
  Index states() const { return cell == "lstm" ? 2 : 1; }
  Index directions() const { return direction == Direction::bidirectional ? 2 : 1; }
  std::string text() const {
    return cell + " " + std::to_string(steps) + " " + std::to_string(input) + " " + std::to_string(hidden);
  }
};

/// The tensors of a layer: x, weights and biases as a Recurrent node reads them, and states before.
struct LayerTensors {
  std::vector<Tensor> reads, states;

  explicit LayerTensors(const Case& of, float factor = 1) {
    const Index d = of.directions(), units = of.gates() * of.hidden;
    const Shape shapes[] = {
        {of.steps, 1, of.input}, {d, units, of.input}, {d, units, of.hidden}, {d, units}, {d, units}};
    for (const Shape& shape : shapes) reads.push_back(scaled(noise(shape, 30 + reads.size()), factor));
    for (Index k = 0; k < of.states(); ++k) states.push_back(noise({d, 1, of.hidden}, 40 + states.size()));
  }

  static Tensor scaled(const Tensor& tensor, float factor) {
    std::vector<float> values = tensor.as<float>();
    for (float& value : values) value *= factor;
    return floats(tensor.shape, values);
  }

  oracle::Results<double> expected(const Case& of) const {
    const auto wide = [](const Tensor& tensor, Index part, Index parts) {
      const std::vector<float> all = tensor.as<float>();
      const auto size = static_cast<std::ptrdiff_t>(all.size()) / parts;
      return std::vector<double>(all.begin() + part * size, all.begin() + (part + 1) * size);
    };
    oracle::Arguments<double> arguments;
    for (Index d = 0; d < of.directions(); ++d) {
      const auto part = [&](std::size_t i) { return wide(reads[i], d, of.directions()); };
      arguments.weights.push_back({part(1), part(2), part(3), part(4)});
    }
    arguments.x = wide(reads[0], 0, 1);
    for (const Tensor& state : states) {
      const std::vector<double> values = wide(state, 0, 1);
      arguments.state_in.insert(arguments.state_in.end(), values.begin(), values.end());
    }
    const RecurrentSpec spec{
        .cell = of.cell, .input_size = of.input, .hidden_size = of.hidden, .direction = of.direction};
    return oracle::forward(spec, {.rows = 1, .steps = of.steps}, arguments);
  }

  /// A network of the layer whose states are inputs and outputs.
  Network network(const Case& of) const {
    Maker maker;
    std::vector<int> read = {maker.input("x", {-1, 1, of.input})};
    for (std::size_t i = 1; i < reads.size(); ++i) read.push_back(maker.constant(reads[i]));
    for (const Tensor& state : states) read.push_back(maker.input("state", state.shape));
    const char* const names[] = {"forward", "reverse", "bidirectional"};
    maker.output(maker.node("Recurrent", read,
                            {{"cell", {}, {}, of.cell}, {"direction", {}, {}, names[static_cast<int>(of.direction)]}},
                            static_cast<int>(1 + states.size())));
    for (std::size_t k = 0; k < states.size(); ++k) {
      maker.output(maker.network.nodes.back().writes[1 + k]);
      maker.network.states.push_back({static_cast<int>(1 + k), static_cast<int>(1 + k)});
    }
    return maker.network;
  }

  /// A session for chunks of so many steps, with the states before.
  Running running(const Case& of, Index steps) const {
    std::vector<Shape> shapes = {{steps, 1, of.input}};
    for (const Tensor& state : states) shapes.push_back(state.shape);
    Running made(network(of), shapes);
    EXPECT_TRUE(made.status.ok()) << made.status.text;
    for (std::size_t k = 0; k < states.size(); ++k) made.set(1 + k, states[k]);
    return made;
  }
};

double tolerance_of(const Case& of) {
  return oracle::tolerance<float>({.summed = of.input + of.hidden, .steps = of.steps});
}

void expect_near(const std::vector<float>& values, const double* expected, double tolerance, const std::string& text) {
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], tolerance) << text << " at " << i;
}

class RowSteps : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { cpu::use_isa(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(, RowSteps, ::testing::ValuesIn(cpu::available_isas()),
                         [](const auto& isa) { return std::string(isa.param); });

TEST_P(RowSteps, EqualTheOracleAtEverySize) {
  for (const std::string cell : {"lstm", "gru"}) {
    for (const Index hidden : {1, 2, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 40, 48, 49, 65}) {
      for (const Index input : {1, 3}) {
        const Case of{cell, 11, input, hidden};
        const LayerTensors tensors(of);
        const oracle::Results<double> expected = tensors.expected(of);
        Running whole = tensors.running(of, of.steps);
        whole.set(0, tensors.reads[0]);
        whole.run();
        expect_near(whole.output(0).as<float>(), expected.y.data(), tolerance_of(of), of.text());
        for (Index k = 0; k < of.states(); ++k) {
          expect_near(whole.output(static_cast<std::size_t>(1 + k)).as<float>(), &expected.state_out[k * hidden],
                      2 * tolerance_of(of), of.text() + " state");
        }
      }
    }
  }
}

/// A layer and a dense layer of one output after it, whose result is `head`. Where y is an output, too, or the states
/// before are read by another node, the program cannot join them or carry the states in place.
Network with_head(const Case& of, const LayerTensors& tensors, bool apart) {
  Maker maker;
  maker.network = tensors.network(of);
  const Node layer = maker.network.nodes[0];
  const int y = maker.network.outputs[0];
  const int product = maker.node("MatMul", {y, maker.constant(noise({of.hidden, 1}, 50))});
  maker.network.outputs[0] = maker.node("Add", {product, maker.constant(floats({1}, {0.25f}))});
  if (!apart) return maker.network;
  maker.output(y);
  maker.output(maker.node("Neg", {layer.reads[5]}));
  return maker.network;
}

TEST_P(RowSteps, EndInOneOutputWithTheSameBits) {
  for (const std::string cell : {"lstm", "gru"}) {
    for (const Index hidden : {1, 5, 8, 9, 16, 24, 32, 40, 65}) {
      const Case of{cell, 12, 1, hidden};
      const LayerTensors tensors(of);
      const std::vector<float> x = tensors.reads[0].as<float>();
      for (const Index chunk : {1, 3, 12}) {
        std::vector<Shape> shapes = {{chunk, 1, 1}};
        for (const Tensor& state : tensors.states) shapes.push_back(state.shape);
        Running joined(with_head(of, tensors, false), shapes), apart(with_head(of, tensors, true), shapes);
        ASSERT_TRUE(joined.status.ok() && apart.status.ok()) << joined.status.text << apart.status.text;
        for (std::size_t k = 0; k < tensors.states.size(); ++k) {
          joined.set(1 + k, tensors.states[k]), apart.set(1 + k, tensors.states[k]);
        }
        for (Index t = 0; t < of.steps; t += chunk) {
          const Tensor part = floats({chunk}, {x.begin() + t, x.begin() + t + chunk});
          joined.set(0, part), apart.set(0, part);
          joined.run(), apart.run();
          ASSERT_EQ(joined.output(0).as<float>(), apart.output(0).as<float>()) << of.text() << " step " << t;
          std::vector<std::byte> state(joined.session->state_bytes()), other(state.size());
          joined.session->read_state(state.data()), apart.session->read_state(other.data());
          ASSERT_EQ(state, other) << of.text() << " step " << t;
        }
      }
    }
  }
}

TEST_P(RowSteps, RunInBothDirections) {
  for (const std::string cell : {"lstm", "gru"}) {
    for (const Direction direction : {Direction::reverse, Direction::bidirectional}) {
      for (const Index hidden : {5, 17}) {
        const Case of{cell, 6, 2, hidden, direction};
        const LayerTensors tensors(of);
        Running whole = tensors.running(of, of.steps);
        whole.set(0, tensors.reads[0]);
        whole.run();
        expect_near(whole.output(0).as<float>(), tensors.expected(of).y.data(), tolerance_of(of), of.text());
      }
    }
  }
}

TEST_P(RowSteps, HaveTheSameBitsInChunksOfAnyLength) {
  for (const std::string cell : {"lstm", "gru"}) {
    for (const Index hidden : {3, 8, 17, 40}) {
      const Case of{cell, 12, 1, hidden};
      const LayerTensors tensors(of);
      Running whole = tensors.running(of, of.steps);
      whole.set(0, tensors.reads[0]);
      whole.run();
      const std::vector<float> x = tensors.reads[0].as<float>(), expected = whole.output(0).as<float>();
      for (const Index chunk : {1, 3, 6}) {
        Running part = tensors.running(of, chunk);
        std::vector<float> y;
        for (Index t = 0; t < of.steps; t += chunk) {
          part.set(0, floats({chunk}, {x.begin() + t, x.begin() + t + chunk}));
          part.run();
          const std::vector<float> more = part.output(0).as<float>();
          y.insert(y.end(), more.begin(), more.end());
        }
        EXPECT_EQ(y, expected) << of.text() << " in chunks of " << chunk;
      }
    }
  }
}

TEST_P(RowSteps, OfNoStepsLeaveTheStates) {
  for (const std::string cell : {"lstm", "gru"}) {
    for (const Index hidden : {5, 32}) {
      const Case of{cell, 1, 3, hidden};
      Running none = LayerTensors(of).running(of, 0);
      std::vector<std::byte> before(none.session->state_bytes()), after(before.size());
      none.session->read_state(before.data());
      none.run();
      none.session->read_state(after.data());
      EXPECT_TRUE(before == after && before != std::vector<std::byte>(before.size())) << of.text();
    }
  }
}

/// Gates with arguments of hundreds are 0 or 1, and states reach their ends.
TEST_P(RowSteps, KeepToTheEndsOfSigmoidAndTanh) {
  for (const std::string cell : {"lstm", "gru"}) {
    for (const Index hidden : {6, 20}) {
      const Case of{cell, 9, 2, hidden};
      const LayerTensors tensors(of, 40);
      Running whole = tensors.running(of, of.steps);
      whole.set(0, tensors.reads[0]);
      whole.run();
      // Arguments have errors of their size: the tolerance has that of the largest.
      const double largest = 40 * 40 * 2 + 40.0 * static_cast<double>(hidden) + 80;
      const double tolerance = oracle::tolerance<float>({.summed = 2 + hidden, .steps = of.steps, .logit = largest});
      expect_near(whole.output(0).as<float>(), tensors.expected(of).y.data(), tolerance, of.text());
    }
  }
}

TEST_P(RowSteps, PassNaNsOn) {
  for (const std::string cell : {"lstm", "gru"}) {
    const Case of{cell, 3, 1, 9};
    const LayerTensors tensors(of);
    Running whole = tensors.running(of, of.steps);
    whole.set(0, floats({3}, {0.5f, std::numeric_limits<float>::quiet_NaN(), 0.5f}));
    whole.run();
    const std::vector<float> y = whole.output(0).as<float>();
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i >= 9) << cell << " at " << i;
  }
}

}  // namespace
}  // namespace penstock::network
