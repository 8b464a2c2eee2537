// Layers of a stack run as a wavefront give the bits that they give one after the other.

#include "nn/check_program.h"
#include "plan/wavefront.h"

namespace penstock::test {
namespace {

/// y and the states of a forward pass without a tape; y is laid out as `in` says.
template <class Real>
Outputs<Real> infer(Recurrent<Real>& network, const Inputs<Real>& in, const Execution& execution, bool keeps_state) {
  const RecurrentSpec& spec = network.spec();
  const Batch batch = in.batch();
  Sequence<Real> x(batch, spec.input_size, in.layout), y(batch, spec.output_size(), in.layout);
  x.fill(in.x);
  RecurrentForm form = form_of(in);
  form.training = false;
  form.x = strides_of(x.view()), form.y = strides_of(y.view());
  const auto program = RecurrentProgram::get(spec, form, execution);
  Outputs<Real> out;
  if (keeps_state) out.state_out.resize(network.state_size() * in.rows);
  const std::vector<Tensor> weights = values_of(network);
  Poisoned workspace(program->workspace_bytes());
  program->forward({.execution = execution}, {.weights = weights,
                                              .batch = batch,
                                              .x = tensor_of(batch, spec.input_size, x.view()),
                                              .y = tensor_of(batch, spec.output_size(), y.view()),
                                              .state_in = states_of(spec, in.rows, in.state_in),
                                              .state_out = states_of(spec, in.rows, out.state_out),
                                              .workspace = workspace.memory(),
                                              .tape = {},
                                              .packed = {}});
  EXPECT_TRUE(y.was_written_where_due());
  out.y = y.values();
  return out;
}

class Wavefronts : public CellTest {};

TEST_P(Wavefronts, HaveTheBitsOfLayerAfterLayer) {
  const std::vector<Case> cases = {
      {.name = "two layers", .input = 5, .hidden = 16, .layers = 2, .rows = 1, .steps = 16},
      {.name = "odd", .input = 3, .hidden = 7, .layers = 3, .rows = 3, .steps = 101},
      {.name = "many layers", .input = 8, .hidden = 33, .layers = 7, .rows = 2, .steps = 37},
      {.name = "heads", .input = 9, .hidden = 24, .heads = 3, .layers = 4, .rows = 5, .steps = 129},
      {.name = "ragged", .input = 4, .hidden = 12, .layers = 3, .rows = 9, .steps = 50, .form = RowForm::lengths},
      {.name = "resets", .input = 4, .hidden = 12, .layers = 3, .rows = 4, .steps = 50, .reset = true},
      {.name = "time first",
       .input = 4,
       .hidden = 12,
       .layers = 2,
       .rows = 4,
       .steps = 40,
       .layout = Layout::time_first},
  };
  for (Case c : cases) {
    for (const Direction direction : {Direction::forward, Direction::reverse}) {
      c.direction = direction;
      if (!c.applies_to(info())) continue;
      SCOPED_TRACE(testing::Message() << c.name << (direction == Direction::reverse ? ", reverse" : ""));
      Recurrent<float> network = make_network<float>(cell(), c);
      const Inputs<float> in = make_inputs(network, c);
      const Outputs<float> want = infer(network, in, {.threads = 1}, true);
      for (const int threads : {2, 3, 5}) {
        SCOPED_TRACE(testing::Message() << threads << " threads");
        const Outputs<float> got = infer(network, in, {.threads = threads}, true);
        EXPECT_TRUE(same_bits(got.y, want.y));
        EXPECT_TRUE(same_bits(got.state_out, want.state_out));
        EXPECT_TRUE(same_bits(infer(network, in, {.threads = threads}, false).y, want.y)) << "without states";
      }
      if (c.layers > 3) continue;  // the oracle takes its time
      EXPECT_TRUE(close(want.y, expected(network, in).y, tolerances(network, in, c).forward, forward_terms));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, Wavefronts, testing::ValuesIn(cell_names()), test_name);

TEST(WavefrontPlan, IsMadeWhereItPays) {
  using plan::wavefront_chunk;
  const auto chunk = [](Index layers, Index rows, Index steps, int threads) {
    return wavefront_chunk({.layers = layers, .rows = rows, .steps = steps, .threads = threads}, {});
  };
  EXPECT_GT(chunk(2, 1, 200, 2), 0);
  EXPECT_GT(chunk(4, 16, 100, 2), 0);
  EXPECT_EQ(chunk(1, 1, 200, 2), 0) << "one layer";
  EXPECT_EQ(chunk(4, 1, 200, 1), 0) << "one thread";
  EXPECT_EQ(chunk(4, 64, 200, 2), 0) << "rows for all threads";
  EXPECT_EQ(chunk(4, 1, 8, 4), 0) << "no chunks to speak of";
  plan::WavefrontProblem large{.layers = 4, .steps = 200, .threads = 2, .layer_bytes = 4 << 20};
  plan::CpuModel machine;
  machine.l2_bytes = 1 << 20;
  EXPECT_EQ(wavefront_chunk(large, machine), 0) << "a matrix that one core's cache does not hold";
  machine.l2_bytes = 8 << 20;
  EXPECT_GT(wavefront_chunk(large, machine), 0);
  for (Index steps = 16; steps < 5000; steps += 7) {
    EXPECT_LE((steps + chunk(4, 1, steps, 2) - 1) / chunk(4, 1, steps, 2), 16);
  }
}

}  // namespace
}  // namespace penstock::test
