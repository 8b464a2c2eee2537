// Whole runs: layers of several seeds, fitted parts, and a score that has not seen the hold-out set.

#include "penstock/train/fit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/random.h"
#include "penstock/data.h"
#include "penstock/train/fine_tune.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

class FitTest : public testing::Test {
 protected:
  FitTest() {
    options_.max_steps = 4;
    options_.batch = 4;
    options_.length = 16;
    options_.checkpoint_path = folder_.path("c");
    options_.seed = 7;
  }

  std::unique_ptr<Dataset> series(Index rows) {
    std::string text = "x\n";
    Random random(5);
    double value = 0.0;
    for (Index i = 0; i < rows; ++i) text += fmt::format("{:.6f}\n", value = 0.9 * value + random.normal());
    return open_series(folder_.write("series.csv", text), {.from_last = true, .autoregression = true});
  }
  /// Sequences that differ by their level; the label tells which is higher.
  std::unique_ptr<Dataset> labelled(int count) {
    std::string text = "sequence,label,x\n";
    Random random(3);
    for (int i = 0; i < 9 * count; ++i) {
      const int sequence = i / 9;
      text += fmt::format("{},{},{:.4f}\n", sequence, sequence % 2 == 0 ? "up" : "down",
                          random.normal() + (sequence % 2 == 0 ? 0.3 : -0.3));
    }
    return open_labelled(folder_.write("labelled.csv", text), {});
  }
  static Model fresh(const Dataset& data, std::uint64_t seed) {
    ModelSpec spec{.cell = "gru", .width = 8, .blocks = 1, .from_last = linear_forecast(data) != nullptr};
    use_linear_forecast(spec, data);
    return new_model(spec, data, seed);
  }
  FitPlan plan(const FitRequest& request) const {
    return {.request = request, .options = options_, .resume = request.resume};
  }
  static double loss(const Model& model, const Dataset& data) {
    TrainOptions options;
    options.validation_batches = 0;
    return evaluate(model, data, options).loss;
  }

  test::TemporaryFolder folder_;
  TrainOptions options_;
};

TEST_F(FitTest, SeveralSeedsBecomeOneModelThatIsScoredAsOne) {
  const auto data = series(400);
  Model model = fresh(*data, 7);
  std::vector<std::string> begun;
  FitCallbacks callbacks;
  callbacks.begin = [&](const Model&, Index number, TrainOptions& options) {
    begun.push_back(fmt::format("{} {} {}", number, options.seed,
                                std::filesystem::path(options.checkpoint_path).filename().string()));
    return TrainCallbacks();
  };
  double scored = 0.0;
  callbacks.scored = [&](const Model& whole, const FitResult& result) {
    scored = loss(whole, *data);
    EXPECT_EQ(result.validation->loss, scored);
  };
  const FitResult result = fit(model, *data, plan({.seeds = 3}), callbacks);
  EXPECT_EQ(begun, (std::vector<std::string>{"0 7 c", "1 8 c.2", "2 9 c.3"}));
  EXPECT_EQ(model.spec().members, 3);
  ASSERT_EQ(result.members.size(), 3u);
  EXPECT_EQ(result.last.step, 12);
  EXPECT_EQ(result.members[1].seed, 8u);
  EXPECT_EQ(result.members[1].result.last.step, 4);
  EXPECT_NE(result.members[0].result.validation->loss, result.members[1].result.validation->loss);
  EXPECT_TRUE(result.scored());
  EXPECT_EQ(result.validation->loss, scored);
  EXPECT_NE(loss(model, *data), scored) << "the refit has seen the rows that the score held out";
}

TEST_F(FitTest, LaterModelsWithoutACheckpointBeginAnew) {
  const auto data = series(400);
  Model model = fresh(*data, 7);
  fit(model, *data, plan({}));
  Model again = fresh(*data, 7);
  const FitResult result = fit(again, *data, plan({.seeds = 2, .resume = true}));
  EXPECT_EQ(result.members[0].result.last.step, 4) << "of its own checkpoint, at whose step the run ends";
  EXPECT_TRUE(std::filesystem::exists(folder_.path("c.2")));
}

TEST_F(FitTest, ModelsOfOtherSeedsContinueFromTheSameWeights) {
  const auto data = series(400);
  const Model origin = fresh(*data, 1);
  std::vector<double> losses;
  FitCallbacks callbacks;
  callbacks.begin = [&](const Model& model, const auto&...) {
    losses.push_back(loss(model, *data));
    return TrainCallbacks();
  };
  Model model = continue_from(origin, *data, 0.0);
  fit(model, *data, plan({.seeds = 3, .continues = true}), callbacks);
  EXPECT_EQ(losses, std::vector(3, loss(origin, *data)));
}

TEST_F(FitTest, FiltersAloneAreScoredBeforeTheyLearnTheHoldOutSet) {
  const auto data = labelled(50);
  Model model = fresh(*data, 7);
  FitPlan filters = plan({});
  filters.filters_alone = true;
  const FitResult result = fit(model, *data, filters);
  EXPECT_EQ(model.spec().blocks, 0);
  EXPECT_TRUE(result.members.empty());
  EXPECT_EQ(result.weight(), "the filters alone: no layers were trained");
  ASSERT_TRUE(result.scored());
  EXPECT_EQ(result.validation->loss, loss(fit_filters(*data, options_.seed), *data));
  EXPECT_LT(loss(model, *data), result.validation->loss) << "the refit has seen the sequences of the score";
}

TEST_F(FitTest, AnInterruptEndsEachPhaseAndLeavesNoScoreOfAnotherModel) {
  const auto data = series(400);
  bool whole = false;
  for (int calls = 0; !whole; ++calls) {
    Model model = fresh(*data, 7);
    FitCallbacks callbacks;
    int asked = 0;
    bool seen = false;
    callbacks.stop = [&] { return asked++ >= calls; };
    callbacks.scored = [&](const Model&, const FitResult&) { seen = true; };
    const FitResult result = fit(model, *data, plan({.seeds = 2}), callbacks);
    whole = !result.interrupted;
    EXPECT_EQ(model.spec().members, static_cast<Index>(result.members.size()));
    EXPECT_EQ(result.scored(), whole);
    EXPECT_EQ(seen, whole);
    ASSERT_LT(calls, 1000);
  }
}

TEST_F(FitTest, ImpossibleSeedsAreRefusedBeforeTraining) {
  const auto data = series(100);
  Model model = fresh(*data, 7);
  test::expect_error(ErrorCode::invalid_argument, "seeds must be at least 1, not 0",
                     [&] { fit(model, *data, plan({.seeds = 0})); });
  test::expect_error(ErrorCode::invalid_argument, "the option 'seeds=2000': members must be 1 to 1024, not 2000",
                     [&] { fit(model, *data, plan({.seeds = 2000})); });
  EXPECT_FALSE(std::filesystem::exists(folder_.path("c")));
}

}  // namespace
}  // namespace penstock
