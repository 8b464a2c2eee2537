// Properties of gradients without the oracle: the slope of the loss, zero across resets, added to what is there.

#include "nn/check_cell.h"

namespace penstock::test {
namespace {

class CellGradients : public CellTest {};

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// sum(y * dy) + sum(state_out * dstate_out); padding of y is zero.
double loss(Recurrent<double>& network, const Inputs<double>& in) {
  const Outputs<double> out = run(network, in);
  return dot(out.y, in.dy) + dot(out.state_out, in.dstate_out);
}

/// Central differences at a few of `values`, which `changed` announces to the network.
template <class Changed>
void expect_slopes(const std::string& what, std::span<double> values, const std::vector<double>& gradient,
                   Recurrent<double>& network, const Inputs<double>& in, Changed&& changed) {
  ASSERT_EQ(values.size(), gradient.size()) << what;
  // Near the cube root of eps the two errors of a central difference balance: h^2 / 6 times a third derivative, here
  // up to a few hundred, and the rounding of a loss of up to 100, divided by h.
  const double h = 1e-5, allowed = 1e-8;
  for (const std::size_t i : {std::size_t{0}, values.size() / 2, values.size() - 1}) {
    const double before = values[i];
    values[i] = before + h;
    changed();
    const double above = loss(network, in);
    values[i] = before - h;
    changed();
    const double below = loss(network, in);
    values[i] = before;
    changed();
    EXPECT_NEAR(gradient[i], (above - below) / (2 * h), allowed) << what << ", value " << i;
  }
}

TEST_P(CellGradients, EqualFiniteDifferences) {
  Case c{.name = "slopes",
         .input = 3,
         .hidden = 6,
         .layers = 2,
         .direction = Direction::bidirectional,
         .rows = 3,
         .steps = 5,
         .reset = true};
  if (!info().scan) c.heads = 2;
  Recurrent<double> network = make_network<double>(cell(), c);
  Inputs<double> in = make_inputs(network, c);
  const Outputs<double> out = run(network, in);
  for (std::size_t p = 0; p < out.gradients.size(); ++p) {
    const auto& [name, gradient] = out.gradients[p];
    expect_slopes(name, network.parameters()[p].value, gradient, network, in, [&] { network.weights_changed(); });
  }
  expect_slopes("x", in.x, out.dx, network, in, [] {});
  // The middle one of these is the first n of sLSTM: 0, where the cell jumps. Make it that of a running row.
  if (info().states > 2) in.state_in[in.state_in.size() / 2] = 0.7;
  expect_slopes("state_in", in.state_in, run(network, in).dstate_in, network, in, [] {});
}

TEST_P(CellGradients, AreZeroAcrossResets) {
  const Case c{.name = "barrier", .layers = 2, .rows = 2, .steps = 9};
  Recurrent<float> network = make_network<float>(cell(), c);
  Inputs<float> in = make_inputs(network, c);
  in.reset.assign(static_cast<std::size_t>(c.rows * c.steps), 0);
  const Index barrier = 4;
  for (Index b = 0; b < c.rows; ++b) {
    in.reset[b * c.steps + barrier] = 1;
    for (Index i = 0; i < barrier * c.hidden; ++i) in.dy[b * c.steps * c.hidden + i] = 0.0f;
  }
  for (const Execution& execution : executions(info())) {
    const Outputs<float> out = run(network, in, execution);
    for (float g : out.dstate_in) EXPECT_EQ(g, 0.0f);
    for (Index b = 0; b < c.rows; ++b) {
      for (Index t = 0; t < c.steps; ++t) {
        float largest = 0.0f;
        for (Index i = 0; i < c.input; ++i) {
          largest = std::max(largest, std::abs(out.dx[(b * c.steps + t) * c.input + i]));
        }
        EXPECT_EQ(largest == 0.0f, t < barrier) << "row " << b << ", step " << t << ": " << largest;
      }
    }
  }
}

TEST_P(CellGradients, StopAtTheEndOfARow) {
  const Case c{.name = "lengths", .rows = 4, .form = RowForm::lengths};
  Recurrent<float> network = make_network<float>(cell(), c);
  Inputs<float> in = make_inputs(network, c);
  // A row without steps hands its state, and the gradient of its state, straight through.
  const Index empty = std::ranges::find(in.lengths, 0) - in.lengths.begin();
  ASSERT_LT(empty, c.rows);
  const Outputs<float> out = run(network, in);
  for (Index s = 0; s < info().states; ++s) {
    for (Index j = 0; j < c.hidden; ++j) {
      const Index at = (s * c.rows + empty) * c.hidden + j;
      EXPECT_EQ(out.state_out[at], in.state_in[at]);
      EXPECT_EQ(out.dstate_in[at], in.dstate_out[at]);
    }
  }
}

TEST_P(CellGradients, AreAddedToWhatIsThere) {
  const Case c = everything();
  Recurrent<double> network = make_network<double>(cell(), c);
  const Inputs<double> in = make_inputs(network, c);
  const Outputs<double> once = run(network, in);
  for (auto& parameter : network.parameters()) std::ranges::fill(parameter.gradient, 3.0);
  Sequence<double> x(in.batch(), c.input, c.layout), y(in.batch(), network.spec().output_size(), c.layout);
  Sequence<double> dx(in.batch(), c.input, c.layout), dy(in.batch(), network.spec().output_size(), c.layout);
  x.fill(in.x);
  dy.fill(in.dy);
  RecurrentTape<double> tape;
  network.forward(in.batch(), x.view(), y.view(), in.state_in.data(), nullptr, &tape);
  network.backward(in.batch(), x.view(), dy.view(), in.dstate_out.data(), {}, nullptr, tape);
  for (std::size_t p = 0; p < once.gradients.size(); ++p) {
    const auto& [name, gradient] = once.gradients[p];
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      EXPECT_NEAR(network.parameters()[p].gradient[i], 3.0 + gradient[i], 1e-13) << name;
    }
  }
}

TEST_P(CellGradients, DoNotDependOnWhatElseIsWanted) {
  const Case c = everything();
  Recurrent<float> network = make_network<float>(cell(), c);
  const Inputs<float> in = make_inputs(network, c);
  const Outputs<float> all = run(network, in);
  Sequence<float> x(in.batch(), c.input, c.layout), y(in.batch(), network.spec().output_size(), c.layout);
  Sequence<float> dy(in.batch(), network.spec().output_size(), c.layout);
  x.fill(in.x);
  dy.fill(in.dy);
  RecurrentTape<float> tape;
  network.forward(in.batch(), x.view(), y.view(), in.state_in.data(), nullptr, &tape);
  EXPECT_TRUE(same_bits(y.values(), all.y)) << "without state out";
  Sequence<float> inference(in.batch(), network.spec().output_size(), c.layout);
  network.forward(in.batch(), x.view(), inference.view(), in.state_in.data(), nullptr);
  const Tolerances t = tolerances(network, in, c);
  EXPECT_TRUE(close(inference.values(), all.y, t.forward, forward_terms)) << "without tape";
  zero_gradients(network);
  network.backward(in.batch(), x.view(), dy.view(), in.dstate_out.data(), {}, nullptr, tape);
  for (std::size_t p = 0; p < all.gradients.size(); ++p) {
    const auto& parameter = network.parameters()[p];
    EXPECT_TRUE(same_bits({parameter.gradient.begin(), parameter.gradient.end()}, all.gradients[p].second))
        << parameter.name << " without dx";
  }
}

TEST_P(CellGradients, ATapeServesBatchesOfAnySizeOneAfterTheOther) {
  Recurrent<float> network = make_network<float>(cell(), {.name = "reuse", .layers = 2});
  RecurrentTape<float> tape;
  for (const Index steps : {3, 17, 5}) {
    const Case c{.name = "reuse", .layers = 2, .rows = 2, .steps = steps};
    const Inputs<float> in = make_inputs(network, c);
    const Outputs<float> fresh = run(network, in);
    std::vector<float> y(in.dy.size()), dx(in.x.size());
    const auto of = [&]<class T>(T* data, Index channels) {
      return SequenceView<T>::batch_first(data, steps, channels);
    };
    network.forward(in.batch(), of(in.x.data(), c.input), of(y.data(), c.hidden), in.state_in.data(), nullptr, &tape);
    zero_gradients(network);
    network.backward(in.batch(), of(in.x.data(), c.input), of(in.dy.data(), c.hidden), in.dstate_out.data(),
                     of(dx.data(), c.input), nullptr, tape);
    EXPECT_TRUE(same_bits(y, fresh.y)) << steps;
    EXPECT_TRUE(same_bits(dx, fresh.dx)) << steps;
  }
}

/// Where n is 0 a state has seen nothing, and no output follows c, n and m: docs/cells.md.
TEST(SlstmGradients, AnEmptyStateHasOneOfHAlone) {
  const Case c{.name = "empty", .input = 3, .hidden = 4, .rows = 2, .steps = 5};
  Recurrent<double> network = make_network<double>("slstm", c);
  Inputs<double> in = make_inputs(network, c);
  const std::size_t size = in.state_in.size() / 4;  // of h, c, n and m each
  std::fill(in.state_in.begin(), in.state_in.end(), 0.0);
  const Outputs<double> empty = run(network, in);
  const auto of_state = [&](const Outputs<double>& outputs, std::size_t state) {
    const auto first = outputs.dstate_in.begin() + static_cast<std::ptrdiff_t>(state * size);
    return std::vector<double>(first, first + static_cast<std::ptrdiff_t>(size));
  };
  const auto is_zero = [](double value) { return value == 0; };
  EXPECT_TRUE(std::ranges::none_of(of_state(empty, 0), is_zero)) << "h is read by the recurrent matrix";
  for (const std::size_t state : {1, 2, 3}) EXPECT_TRUE(std::ranges::all_of(of_state(empty, state), is_zero)) << state;
  // Finite differences agree: c and m may be anything.
  std::fill(in.state_in.begin() + static_cast<std::ptrdiff_t>(size),
            in.state_in.begin() + 2 * static_cast<std::ptrdiff_t>(size), 0.3);
  std::fill(in.state_in.begin() + 3 * static_cast<std::ptrdiff_t>(size), in.state_in.end(), 0.3);
  EXPECT_TRUE(same_bits(run(network, in).y, empty.y));
  // A state that is to be learnt has n > 0.
  std::fill(in.state_in.begin(), in.state_in.end(), 1.0);
  const Outputs<double> begun = run(network, in);
  for (const std::size_t state : {1, 2, 3}) EXPECT_TRUE(std::ranges::none_of(of_state(begun, state), is_zero)) << state;
}

INSTANTIATE_TEST_SUITE_P(Each, CellGradients, testing::ValuesIn(cell_names()), test_name);

}  // namespace
}  // namespace penstock::test
