// Layers of a stack run as a wavefront give the bits that they give one after the other.

#include "nn/check_program.h"

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
  form.flags.set(CallFlag::training, false);
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

RecurrentSpec dropping(RecurrentSpec spec) {
  spec.dropout = 0.4;
  return spec;
}

class Wavefronts : public CellTest {
 protected:
  /// Calls check(network, case) in both directions, of those cases that the cell has.
  template <typename Check>
  void for_each_case(const std::vector<Case>& cases, const Check& check) const {
    for (Case c : cases) {
      for (const Direction direction : {Direction::forward, Direction::reverse}) {
        c.direction = direction;
        if (!c.applies_to(info())) continue;
        SCOPED_TRACE(testing::Message() << c.name << (direction == Direction::reverse ? ", reverse" : ""));
        Recurrent<float> network = make_network<float>(cell(), c);
        check(network, c);
      }
    }
  }
};

/// Cases of fewer rows than are summed at a time, and of more, so that such pieces end within a chunk.
TEST_P(Wavefronts, TrainWithTheBitsOfLayerAfterLayer) {
  const std::vector<Case> cases = {
      {.name = "one row", .input = 5, .hidden = 16, .layers = 2, .rows = 1, .steps = 16},
      {.name = "several pieces", .input = 3, .hidden = 9, .layers = 3, .rows = 7, .steps = 203},
      {.name = "heads", .input = 9, .hidden = 24, .heads = 3, .layers = 4, .rows = 2, .steps = 65},
      {.name = "ragged", .input = 4, .hidden = 12, .layers = 3, .rows = 9, .steps = 150, .form = RowForm::lengths},
      {.name = "packed", .input = 4, .hidden = 12, .layers = 3, .rows = 9, .steps = 150, .form = RowForm::packed},
      {.name = "resets", .input = 4, .hidden = 12, .layers = 3, .rows = 4, .steps = 50, .reset = true},
      {.name = "time first",
       .input = 4,
       .hidden = 12,
       .layers = 2,
       .rows = 4,
       .steps = 40,
       .layout = Layout::time_first},
  };
  for_each_case(cases, [](Recurrent<float>& network, const Case& c) {
    Recurrent<float> drops(dropping(network.spec()), 1);
    const Inputs<float> in = make_inputs(network, c);
    const Outputs<float> want = run_program(network, in, {.threads = 1});
    const Outputs<float> dropped = run_program(drops, in, {.threads = 1});
    EXPECT_FALSE(same_bits(dropped.y, want.y)) << "nothing was dropped";
    for (const int threads : {2, 3}) {
      SCOPED_TRACE(testing::Message() << threads << " threads");
      expect_same_bits(run_program(network, in, {.threads = threads}), want);
      SCOPED_TRACE("dropout");
      expect_same_bits(run_program(drops, in, {.threads = threads}), dropped);
    }
  });
}

TEST_P(Wavefronts, HaveTheBitsOfLayerAfterLayer) {
  const std::vector<Case> cases = {
      {.name = "two layers", .input = 5, .hidden = 16, .layers = 2, .rows = 1, .steps = 16},
      {.name = "odd", .input = 3, .hidden = 7, .layers = 3, .rows = 3, .steps = 101},
      {.name = "many layers", .input = 8, .hidden = 33, .layers = 7, .rows = 2, .steps = 37},
      {.name = "heads", .input = 9, .hidden = 24, .heads = 3, .layers = 4, .rows = 5, .steps = 129},
      {.name = "ragged", .input = 4, .hidden = 12, .layers = 3, .rows = 9, .steps = 50, .form = RowForm::lengths},
      {.name = "resets", .input = 4, .hidden = 12, .layers = 3, .rows = 4, .steps = 50, .reset = true},
      {.name = "packed", .input = 4, .hidden = 12, .layers = 3, .rows = 9, .steps = 50, .form = RowForm::packed},
      {.name = "time first",
       .input = 4,
       .hidden = 12,
       .layers = 2,
       .rows = 4,
       .steps = 40,
       .layout = Layout::time_first},
  };
  for_each_case(cases, [](Recurrent<float>& network, const Case& c) {
    const Inputs<float> in = make_inputs(network, c);
    const Outputs<float> want = infer(network, in, {.threads = 1}, true);
    for (const int threads : {2, 3, 5}) {
      SCOPED_TRACE(testing::Message() << threads << " threads");
      const Outputs<float> got = infer(network, in, {.threads = threads}, true);
      EXPECT_TRUE(same_bits(got.y, want.y));
      EXPECT_TRUE(same_bits(got.state_out, want.state_out));
      EXPECT_TRUE(same_bits(infer(network, in, {.threads = threads}, false).y, want.y)) << "without states";
    }
    if (c.layers > 3) return;  // the oracle takes its time
    EXPECT_TRUE(close(want.y, expected(network, in).y, tolerances(network, in, c).forward, forward_terms));
  });
}

INSTANTIATE_TEST_SUITE_P(Each, Wavefronts, testing::ValuesIn(cell_names()), test_name);

}  // namespace
}  // namespace penstock::test
