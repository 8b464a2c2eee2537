// The C runtime has the bits of the full library's Session, for every cell and every kind of model.

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "backend/cpu/instruction_sets.h"
#include "base/random.h"
#include "core/runtime/handles.h"
#include "custom/cell.h"
#include "custom/random_cell.h"
#include "nn/model/model_impl.h"
#include "oracle/written_cells.h"
#include "penstock/cell.h"
#include "penstock/model.h"
#include "penstock/quantize.h"
#include "penstock/stream.h"
#include "support/names.h"
#include "support/temporary_folder.h"
#include "support/tolerance.h"

namespace penstock::test {
namespace {

constexpr Index kSteps = 40;

DataDescription text_data() {
  DataDescription data;
  data.vocabulary = 50;
  return data;
}

DataDescription series_data() {
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = {{"a", 0.5, 1.5}, {"b", -1.0, 0.3}, {"c \"\xc3\xa9\" \n", 0.0, 1.0}};
  data.targets = {{"b", 0.1, 0.2}, {"a", 0.5, 1.5}};
  data.series.horizon = 3;
  return data;
}

DataDescription label_data(Index inputs) {
  DataDescription data;
  data.task = Task::classify;
  for (Index i = 0; i < inputs; ++i) data.inputs.push_back({"x" + std::to_string(i), 0.0, 1.0});
  data.labels.classes = {"no", "yes", "perhaps"};
  return data;
}

/// Gives values to the parameters that training would fit.
void fill_fitted(Model& model) {
  Random random(11);
  for (const nn::ParameterEntry& entry : model.impl().parameters->layout().entries()) {
    const bool is_fitted = entry.name.starts_with("filters.") || entry.name.starts_with("autoregression") ||
                           entry.name.find("head") != entry.name.npos || entry.name.ends_with(".bias") ||
                           entry.name.ends_with(".gain");
    if (!is_fitted) continue;
    for (float& value : model.impl().parameters->value(entry)) value = static_cast<float>(0.5 * random.normal());
  }
  model.impl().parameters->changed();
}

/// The same inputs to a model and its file, on every instruction set that this machine has.
void expect_same_bits(const Model& model, const std::string& path) {
  for (const std::string_view isa : cpu::available_isas()) {
    SCOPED_TRACE(isa);
    cpu::use_isa(isa);
    ::setenv("PENSTOCK_ISA", std::string(isa).c_str(), 1);
    const RuntimeModel opened(path, model.spec().int8.empty() ? &penstock_model_open : &penstock_int8_model_open);
    ASSERT_NE(opened.get(), nullptr);
    const penstock_model_info info = opened.info();
    EXPECT_EQ(info.outputs, static_cast<std::uint32_t>(model.data().output_size()));
    const Model for_isa = Model::load(path);  // whose int8 weights are packed for this instruction set
    Session session(for_isa);
    EXPECT_EQ(info.parameters, static_cast<std::uint64_t>(model.parameter_count()));
    RuntimeSession runtime(opened);
    ASSERT_NE(runtime.get(), nullptr);
    Random random(5);
    for (Index t = 0; t < kSteps; ++t) {
      std::vector<float> want, got;
      if (info.vocabulary > 0) {
        const auto token = static_cast<std::int32_t>(random.below(info.vocabulary));
        const auto answer = session.push(token);
        want.assign(answer.begin(), answer.end());
        got = runtime.push(token);
      } else {
        std::vector<float> features(info.inputs);
        for (float& x : features) x = static_cast<float>(random.normal());
        const auto answer = session.push(features);
        want.assign(answer.begin(), answer.end());
        got = runtime.push(features);
      }
      ASSERT_TRUE(same_bits(got, want)) << "step " << t;
    }
    EXPECT_TRUE(same_bits(runtime.state(), session.state()));
  }
  ::unsetenv("PENSTOCK_ISA");
  cpu::use_isa(cpu::available_isas().front());
}

void expect_same_bits(Model& model) {
  fill_fitted(model);
  const TemporaryFolder folder;
  model.save(folder.path("model.safetensors"));
  expect_same_bits(model, folder.path("model.safetensors"));
}

ModelSpec full_spec(const std::string& cell, Index heads) {
  return {.cell = cell,
          .width = 33,
          .blocks = 2,
          .hidden_size = 40,
          .heads = find_cell(cell).scan ? 1 : heads,
          .convolution = 4,
          .feed_forward = 1.3,
          .dropout = 0.3};
}

class EveryCell : public testing::TestWithParam<std::string> {};

TEST_P(EveryCell, OfTexts) {
  Model model(full_spec(GetParam(), 2), text_data(), 7);
  expect_same_bits(model);
}

TEST_P(EveryCell, OfSeriesInAnEnsemble) {
  ModelSpec spec = full_spec(GetParam(), 1);
  spec.from_last = true;
  spec.end_norms = false;
  spec.members = 3;
  Model model(spec, series_data(), 7);
  expect_same_bits(model);
}

TEST_P(EveryCell, OfManySizes) {
  for (const Index hidden : {1, 3, 8, 9, 16, 24, 31, 40, 64, 128}) {
    SCOPED_TRACE(hidden);
    Model model({.cell = GetParam(), .width = 1 + hidden % 7, .blocks = 1, .hidden_size = hidden}, label_data(1), 3);
    expect_same_bits(model);
  }
}

TEST_P(EveryCell, OfManyHeads) {
  if (find_cell(GetParam()).scan) return;  // it has no recurrent matrix
  for (const Index heads : {3, 4, 6, 8, 12, 24, 48}) {
    SCOPED_TRACE(heads);
    Model model({.cell = GetParam(), .width = 5, .blocks = 2, .hidden_size = 48, .heads = heads}, label_data(2), 3);
    expect_same_bits(model);
  }
}

void quantised(Model& model) {
  fill_fitted(model);
  const std::vector<std::string> layers = int8_layers(model);
  Model whole = model.with_int8(layers), heads = model.with_int8({layers.end() - 1, layers.end()});
  for (const Model* const each : {&whole, &heads}) {
    const TemporaryFolder folder;
    each->save(folder.path("model.safetensors"));
    expect_same_bits(*each, folder.path("model.safetensors"));
  }
}

TEST_P(EveryCell, WithWeightsOfInt8) {
  for (const Index heads : {1, 2, 5}) {
    Model text(full_spec(GetParam(), heads), text_data(), 7);
    quantised(text);
  }
  for (const Index hidden : {1, 3, 16, 31, 70}) {
    ModelSpec spec = full_spec(GetParam(), 1);
    spec.hidden_size = hidden, spec.members = 2, spec.from_last = true, spec.end_norms = false;
    spec.branch = closed_form_branch({.lags = 3});
    Model series(spec, series_data(), 7);
    quantised(series);
  }
}

std::vector<std::string> cell_names() {
  std::vector<std::string> names;
  for (const CellInfo& cell : cells()) names.emplace_back(cell.name);
  for (const WrittenCell& cell :
       {written_lstm(), written_peephole(), written_norm_lstm(), written_leaky(), written_mingru()}) {
    names.emplace_back(define_cell(cell.definition, cell.equations).name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cells, EveryCell, testing::ValuesIn(cell_names()), test_name);

TEST(RuntimeModels, RandomCells) {
  Random random(17);
  for (int i = 0; i < 40; ++i) {
    custom::CustomCell cell = random_cell(random, i % 2 == 0, false);
    cell.name = "random-" + std::to_string(i);
    SCOPED_TRACE(cell.name);
    define_cell_json(custom::to_json(cell));
    Model model({.cell = cell.name, .width = 9, .blocks = 2, .hidden_size = 20}, label_data(3), 3);
    expect_same_bits(model);
  }
}

TEST(RuntimeModels, LinearForecasts) {
  for (const Index lags : {1, 2, 24}) {
    Model model({.cell = "gru",
                 .width = 8,
                 .blocks = 1,
                 .end_norms = false,
                 .from_last = true,
                 .branch = closed_form_branch({.lags = lags})},
                series_data(), 7);
    expect_same_bits(model);
  }
  DataDescription data = series_data();
  for (Index ahead = 1; ahead <= data.series.horizon; ++ahead) {
    data.inputs.push_back({.name = "c \"\xc3\xa9\" \n", .ahead = ahead});
  }
  Model known({.cell = "mingru",
               .width = 8,
               .blocks = 2,
               .from_last = true,
               .branch = closed_form_branch({.lags = 5, .known_effects = true})},
              data, 7);
  expect_same_bits(known);
}

TEST(RuntimeModels, Filters) {
  for (const Index inputs : {1, 2, 19}) {
    for (const Index blocks : {0, 1}) {
      Model model(
          {.cell = "lstm", .width = 9, .blocks = blocks, .branch = closed_form_branch({.filters = 22, .dilations = 4})},
          label_data(inputs), 7);
      expect_same_bits(model);
      quantised(model);
    }
  }
}

TEST(RuntimeModels, FilesOfTheFirstRelease) {
  for (const char* name : {"ensemble", "groups", "lstm", "own_cell", "series"}) {
    SCOPED_TRACE(name);
    const std::string path = std::string(PENSTOCK_RELEASED) + "/" + name + ".safetensors";
    expect_same_bits(Model::load(path), path);
  }
}

TEST(RuntimeModels, TheyDescribeThemselves) {
  Model model({.cell = "gru", .width = 8, .blocks = 1, .from_last = true}, series_data(), 7);
  const TemporaryFolder folder;
  model.save(folder.path("model.safetensors"));
  const RuntimeModel opened(folder.path("model.safetensors"));
  const penstock_model_info info = opened.info();
  EXPECT_EQ(info.task, PENSTOCK_FORECAST);
  EXPECT_EQ(info.inputs, 3u);
  EXPECT_EQ(info.targets, 2u);
  EXPECT_EQ(info.horizon, 3u);
  EXPECT_EQ(info.parameters, static_cast<std::uint64_t>(model.parameter_count()));
  penstock_column column = {};
  EXPECT_EQ(penstock_model_get_input(opened.get(), 2, &column, nullptr), PENSTOCK_OK);
  EXPECT_STREQ(column.name, "c \"\xc3\xa9\" \n");
  EXPECT_EQ(penstock_model_get_target(opened.get(), 0, &column, nullptr), PENSTOCK_OK);
  EXPECT_STREQ(column.name, "b");
  EXPECT_EQ(column.mean, 0.1);
  EXPECT_EQ(column.scale, 0.2);
  const char* name = nullptr;
  EXPECT_EQ(penstock_model_get_instruction_set(opened.get(), &name, nullptr), PENSTOCK_OK);
  EXPECT_NE(std::string(name), "");
}

}  // namespace
}  // namespace penstock::test
