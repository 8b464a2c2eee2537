// The programs of whole models: memory that is planned and shared changes no result and is near the least there can be.

#include "nn/model/model_programs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "base/random.h"
#include "nn/model/initialise.h"
#include "nn/model/model_graph.h"
#include "nn/program_run.h"
#include "support/expect_error.h"
#include "support/names.h"
#include "support/tolerance.h"

namespace penstock::nn {
namespace {

using graph::Home;
using test::ProgramRun;
using test::same_bits;

constexpr Index rows = 3, steps = 20, vocabulary = 40;
const std::vector<Index> lengths = {20, 7, 0};

DataDescription text() {
  DataDescription data;
  data.vocabulary = vocabulary;
  return data;
}

DataDescription series() {
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = {{"a", 0.0, 1.0}, {"b", 0.0, 1.0}};
  data.targets = {{"a", 0.0, 1.0}, {"c", 0.0, 1.0}};
  data.series.horizon = 2;
  return data;
}

ModelSpec full_spec(const std::string& cell, bool from_last) {
  return {.cell = cell,
          .width = 33,
          .blocks = 3,
          .hidden_size = 40,
          .heads = find_cell(cell).scan ? 1 : 2,
          .convolution = 4,
          .feed_forward = 1.3,
          .dropout = 0.3,
          .end_norms = !from_last,
          .from_last = from_last};
}

ops::Target training_target() {
  return {.rows = rows,
          .steps = steps,
          .flags = {CallFlag::lengths, CallFlag::reset, CallFlag::training},
          .execution = {.threads = 2}};
}

/// Returns the program with no value in the place of another that is read for the last time.
std::shared_ptr<const graph::Program> without_in_place(const graph::Program& program) {
  graph::Graph apart;
  for (const graph::Value& value : program.graph().values()) apart.add(value);
  for (graph::Node node : program.graph().nodes()) {
    node.in_place.clear();
    apart.add(std::move(node));
  }
  return std::make_shared<graph::Program>(std::move(apart), program.target());
}

TrainingShape training_shape(bool labels) {
  TrainingShape shape;
  shape.rules.learning_rate = 0.01;
  shape.rules.final_rate = 1.0;
  shape.rules.clip = 1.0;
  shape.rules.weight_decay = 0.1;
  shape.rules.beta1 = 0.9;
  shape.rules.beta2 = 0.99;
  shape.rules.seed = 3;
  shape.loss = labels ? LossKind::cross_entropy : LossKind::mse;
  return shape;
}

/// All that a training step comes to.
struct Results {
  std::vector<float> state_out, gradients, values, first, second, state_in;
  std::vector<std::int64_t> saturation;
  double loss = 0.0;

  testing::AssertionResult same_as(const Results& other, const ParameterLayout& layout) const {
    const auto differs = [](const std::string& name, const testing::AssertionResult& result) {
      return testing::AssertionFailure() << name << ": " << result.message();
    };
    for (const auto& [name, member] :
         {std::pair("state_out", &Results::state_out), std::pair("values", &Results::values),
          std::pair("first moments", &Results::first), std::pair("second moments", &Results::second),
          std::pair("state_in", &Results::state_in)}) {
      if (const auto same = same_bits(this->*member, other.*member); !same) return differs(name, same);
    }
    for (const ParameterEntry& entry : layout.entries()) {
      const auto of = [&](const std::vector<float>& all) {
        const auto first_value = all.begin() + entry.offset;
        return std::vector<float>(first_value, first_value + entry.size);
      };
      if (const auto same = same_bits(of(gradients), of(other.gradients)); !same) return differs(entry.name, same);
    }
    if (const auto same = same_bits(saturation, other.saturation); !same) return differs("saturation", same);
    return same_bits(std::vector<double>{loss}, std::vector<double>{other.loss});
  }
};

struct Case {
  std::string cell;
  bool from_last = false;
};

std::ostream& operator<<(std::ostream& out, const Case& tested) { return out << tested.cell; }

ParameterLayout layout_of(const ModelSpec& spec, const DataDescription& data) {
  GraphBuilder builder({});
  add_model(builder, spec, data, Home::outputs);
  return builder.layout();
}

class EveryProgram : public testing::TestWithParam<Case> {
 protected:
  EveryProgram()
      : spec_(full_spec(GetParam().cell, GetParam().from_last)),
        data_(GetParam().from_last ? series() : text()),
        layout_(layout_of(spec_, data_)),
        program_(training(training_target())) {
    reset_[3] = reset_[steps + 1] = 1;
  }

  std::shared_ptr<const graph::Program> training(const ops::Target& target) const {
    return training_program(spec_, data_, training_shape(!GetParam().from_last), target);
  }

  std::shared_ptr<Parameters<float>> fresh_parameters() const {
    auto parameters = std::make_shared<Parameters<float>>(layout_);
    initialise(layout_, parameters->values().data(), 5);
    parameters->changed();
    return parameters;
  }

  /// A training step from the beginning, but for the optimiser unless `update`; which of several batches is `seed`.
  Results step(ProgramRun<float>& run, std::uint64_t seed, bool update) const {
    Random random(seed);
    run.call.batch.lengths = lengths.data();
    run.call.batch.reset = reset_.data();
    run.call.seed = seed;
    for (std::int32_t& token : run.home<std::int32_t>(Home::tokens)) {
      token = static_cast<std::int32_t>(random.below(vocabulary));
    }
    for (float& value : run.home(Home::features)) value = static_cast<float>(random.normal());
    // sLSTM's normaliser must not be negative.
    for (float& value : run.home(Home::state_in)) value = static_cast<float>(0.1 * random.uniform());
    const auto scored = [&](Index position) {
      return position % steps < lengths[static_cast<std::size_t>(position / steps)];
    };
    const auto labels = run.home<std::int32_t>(Home::labels);
    for (Index i = 0; i < std::ssize(labels); ++i) {
      labels[static_cast<std::size_t>(i)] = scored(i) ? static_cast<std::int32_t>(random.below(vocabulary)) : -1;
    }
    for (float& value : run.home(Home::targets)) value = static_cast<float>(random.normal());
    const auto weights = run.home(Home::target_weights);
    for (Index i = 0; i < std::ssize(weights); ++i) {
      weights[static_cast<std::size_t>(i)] = scored(i / data_.output_size()) ? 1.0f : 0.0f;
    }
    const auto status = run.home<std::byte>(Home::status);
    std::ranges::fill(status, std::byte{0});
    auto& state = *reinterpret_cast<StepState*>(status.data());
    state = ops::first_step_state(1.0f);
    for (const Home moments : {Home::first_moments, Home::second_moments}) std::ranges::fill(run.home(moments), 0.0f);

    Results results;
    run.run_forward();
    results.state_out = run.values(Home::state_out);
    run.run_backward();
    results.gradients = run.values(Home::gradients);
    if (update) {
      // Gradients between parameters are unused: set them to zero.
      std::vector<bool> used(results.gradients.size(), false);
      for (const ParameterEntry& entry : layout_.entries()) {
        std::fill_n(used.begin() + entry.offset, entry.size, true);
      }
      for (std::size_t i = 0; i < used.size(); ++i) {
        if (!used[i]) run.home(Home::gradients)[i] = 0.0f;
      }
      run.workspace().run(graph::Phase::update, run.call);
      EXPECT_EQ(state.apply, 1);
    }
    results.state_in = run.values(Home::state_in);
    results.first = run.values(Home::first_moments);
    results.second = run.values(Home::second_moments);
    const auto values = run.parameters()->values();
    results.values.assign(values.begin(), values.end());
    const auto counts = status.subspan(static_cast<std::size_t>(ops::StatusLayout::watched));
    results.saturation.resize(counts.size() / sizeof(std::int64_t));
    std::memcpy(results.saturation.data(), counts.data(), counts.size());
    results.loss = state.loss.sum;
    return results;
  }

  /// How many values of the program lie where one that is read for the last time does.
  Index in_place(const ProgramRun<float>& run) const {
    Index count = 0;
    for (const graph::Node& node : program_->graph().nodes()) {
      for (const auto& [written, read] : node.in_place) {
        const std::size_t write = static_cast<std::size_t>(written) - node.reads.size();
        const void* const place = run.workspace().value(node.writes[write]);
        count += place != nullptr && place == run.workspace().value(node.reads[static_cast<std::size_t>(read)]) ? 1 : 0;
      }
    }
    return count;
  }

  ModelSpec spec_;
  DataDescription data_;
  std::vector<std::uint8_t> reset_ = std::vector<std::uint8_t>(rows * steps, 0);
  ParameterLayout layout_;
  std::shared_ptr<const graph::Program> program_;
};

TEST_P(EveryProgram, WritingInPlaceChangesNoResult) {
  const auto apart_program = without_in_place(*program_);
  EXPECT_LE(program_->peak_bytes(), apart_program->peak_bytes());
  ProgramRun<float> planned(program_, fresh_parameters()), apart(apart_program, fresh_parameters());
  EXPECT_GT(in_place(planned), 0);
  EXPECT_EQ(in_place(apart), 0);
  const Results want = step(apart, 1, true), got = step(planned, 1, true);
  EXPECT_TRUE(got.same_as(want, layout_));
  for (const float value : got.values) ASSERT_TRUE(std::isfinite(value));
  const auto before = fresh_parameters();
  EXPECT_FALSE(same_bits(got.values, std::vector<float>(before->values().begin(), before->values().end())));
}

TEST_P(EveryProgram, NothingIsReadBeforeItIsWritten) {
  const auto shared = fresh_parameters();
  ProgramRun<float> plain(program_, shared);
  plain.poisons = false;
  (void)step(plain, 2, false);  // leaves numbers of another batch everywhere
  const Results want = step(plain, 1, true);
  ProgramRun<float> poisoned(program_, fresh_parameters());
  EXPECT_TRUE(step(poisoned, 1, true).same_as(want, layout_));
}

TEST_P(EveryProgram, TwoThreadsWithAWorkspaceEachShareTheWeights) {
  const auto shared = fresh_parameters();
  ProgramRun<float> alone(program_, shared);
  const std::vector<Results> want = {step(alone, 1, false), step(alone, 2, false)};
  std::vector<testing::AssertionResult> agree(2, testing::AssertionSuccess());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      ProgramRun<float> run(program_, shared);
      for (int times = 0; times < 5 && agree[i]; ++times) agree[i] = step(run, 1 + i, false).same_as(want[i], layout_);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(agree[0]);
  EXPECT_TRUE(agree[1]);
}

TEST_P(EveryProgram, MemoryIsNearTheLeastThereCanBe) {
  for (const Index many : {1, 7, 64}) {
    ops::Target target = training_target();
    target.steps = many;
    const auto trained = training(target);
    target.flags.set(CallFlag::training, false);
    const auto forward = forward_program(spec_, data_, target);
    for (const graph::Program* program : {trained.get(), forward.get()}) {
      EXPECT_GE(program->workspace_bytes(), program->peak_bytes());
      EXPECT_LE(static_cast<double>(program->workspace_bytes()), 1.3 * static_cast<double>(program->peak_bytes()))
          << program->describe();
    }
    EXPECT_LT(forward->workspace_bytes(), trained->workspace_bytes());
  }
}

TEST_P(EveryProgram, AForwardPassTakesNoMoreMemoryForMoreBlocks) {
  ops::Target target = training_target();
  target.flags.set(CallFlag::training, false);
  ModelSpec few = spec_, many = spec_;
  few.blocks = 2, many.blocks = 20;
  EXPECT_EQ(forward_program(few, data_, target)->workspace_bytes(),
            forward_program(many, data_, target)->workspace_bytes());
}

TEST_P(EveryProgram, ATrainingChangeLeavesAnOlderWorkspaceItsPanels) {
  const auto parameters = fresh_parameters();
  const graph::Weights& weights = *parameters->weights();
  ProgramRun<float> older(program_, parameters), newer(program_, parameters);
  (void)step(older, 1, false);
  const std::size_t count = weights.derived_count(), bytes = weights.derived_bytes();
  EXPECT_GT(count, 0u);
  const auto panels = [&](const ProgramRun<float>& run) {
    std::vector<const void*> places;
    const std::vector<graph::Value>& values = program_->graph().values();
    for (int v = 0; v < std::ssize(values); ++v) {
      if (values[static_cast<std::size_t>(v)].home == Home::derived) places.push_back(run.workspace().value({v}));
    }
    return places;
  };
  const std::vector<const void*> before = panels(older);
  for (float& value : parameters->values()) value *= 0.5f;
  parameters->changed();
  (void)step(newer, 1, false);
  EXPECT_EQ(panels(older), before);
  const std::vector<const void*> made = panels(newer);
  ASSERT_EQ(made.size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NE(made[i], before[i]);
  EXPECT_EQ(weights.derived_count(), count);
  EXPECT_EQ(weights.derived_bytes(), bytes);
  // Once the older one is refreshed too, both share what is new.
  EXPECT_TRUE(step(older, 1, false).same_as(step(newer, 1, false), layout_));
  EXPECT_EQ(panels(older), panels(newer));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const CellInfo& cell : cells()) all.push_back({std::string(cell.name), false});
  all.push_back({"gru", true});
  all.push_back({"minlstm", true});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cells, EveryProgram, testing::ValuesIn(cases()), [](const auto& tested) {
  std::string name = tested.param.cell + (tested.param.from_last ? "_from_last" : "");
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(ModelPrograms, AWorkspaceIsTakenAgainAndNeverByTwo) {
  const ModelSpec spec{.width = 4, .blocks = 1};
  ModelPrograms programs;
  const auto queue = std::make_shared<ops::Queue>(Device::cpu());
  const ops::Target target{.rows = 2, .steps = 3};
  const graph::Workspace* first = nullptr;
  {
    const auto a = programs.take(spec, text(), target, queue), b = programs.take(spec, text(), target, queue);
    EXPECT_NE(&*a, &*b);
    EXPECT_EQ(&a->program(), &b->program());
    first = &*a;
  }
  const auto again = programs.take(spec, text(), target, queue);
  EXPECT_EQ(&*again, first);
}

TEST(ModelPrograms, ALeaseOutlivesTheProgramsThatAreKept) {
  const ModelSpec spec{.width = 4, .blocks = 1};
  ModelPrograms programs;
  const auto queue = std::make_shared<ops::Queue>(Device::cpu());
  const auto held = programs.take(spec, text(), {.rows = 1, .steps = 1}, queue);
  const graph::Program* const program = &held->program();
  for (Index many = 2; many < 30; ++many) (void)programs.take(spec, text(), {.rows = 1, .steps = many}, queue);
  EXPECT_EQ(&held->program(), program);
  EXPECT_NE(programs.program(spec, text(), {.rows = 1, .steps = 1}).get(), program) << "it was given up";
}

TEST(ModelPrograms, WhateverAProgramDependsOnTellsItApart) {
  const ModelSpec spec{.width = 4, .blocks = 1};
  ModelPrograms programs;
  const auto of = [&](const ops::Target& target) { return programs.program(spec, text(), target); };
  const ops::Target base{.rows = 1, .steps = 1, .execution = {.threads = 1}};
  const auto program = of(base);
  EXPECT_EQ(of(base), program);
  ops::Target other = base;
  other.rows = 2;
  EXPECT_NE(of(other), program);
  other = base, other.steps = 2;
  EXPECT_NE(of(other), program);
  other = base, other.flags.set(CallFlag::lengths);
  EXPECT_NE(of(other), program);
  other = base, other.flags.set(CallFlag::reset);
  EXPECT_NE(of(other), program);
  other = base, other.flags.set(CallFlag::step);
  EXPECT_NE(of(other), program);
  other = base, other.execution.threads = 2;
  EXPECT_NE(of(other), program);
  other = base, other.execution.exact = true;
  EXPECT_NE(of(other), program);
  other = base, other.execution.precision = Precision::bf16_weights;
  EXPECT_NE(of(other), program);
}

TEST(Program, RefusesAnotherNumberOfThreadsThanItWasPreparedFor) {
  ProgramRun<float> run({.execution = {.threads = 2}}, [](GraphBuilder& builder) -> test::Ends {
    return {add_model(builder, {.cell = "gru", .width = 4, .blocks = 1}, text(), Home::outputs).head};
  });
  run.home<std::int32_t>(Home::tokens)[0] = 0;
  run.call.threads = 3;
  test::expect_error(ErrorCode::invalid_argument, "threads must be 2, for which this program was prepared, not 3",
                     [&] { run.forward(); });
}

}  // namespace
}  // namespace penstock::nn
