// Defaults that suit a dataset.
#include <gtest/gtest.h>

#include <string>

#include "penstock/data/tasks.h"
#include "penstock/data/text.h"
#include "penstock/train.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

/// Words without end, of so many bytes.
std::unique_ptr<Dataset> text_of(Index bytes) {
  std::string text;
  text.reserve(static_cast<std::size_t>(bytes));
  for (Index word = 0; static_cast<Index>(text.size()) < bytes; ++word) text += std::to_string(word * word) + " ";
  text.resize(static_cast<std::size_t>(bytes));
  const test::TemporaryFolder folder;
  return open_text(folder.write("text", text));
}

TEST(Suggest, ACpuLearnsEveryTextByTheSameModel) {
  for (const Index bytes : {20'000, 2'000'000, 20'000'000}) {
    const auto data = text_of(bytes);
    const ModelSpec spec = suggest_spec(*data);
    EXPECT_EQ(spec.width, 128) << bytes;
    EXPECT_EQ(spec.blocks, 3) << bytes;
    EXPECT_EQ(spec.dropout > 0.0, bytes < 1'000'000) << bytes;  // which it passes over more than once
    EXPECT_EQ(suggest_options(*data).batch, 16) << bytes;
    EXPECT_EQ(suggest_options(*data).execution.precision, Precision::full) << bytes;
  }
}

TEST(Suggest, AGpuLearnsALargerModelOfALongerText) {
  Index width = 0, blocks = 0;
  for (const Index bytes : {20'000, 2'000'000, 20'000'000}) {
    const auto data = text_of(bytes);
    const ModelSpec spec = suggest_spec(*data, "", Device::cuda());
    const TrainOptions options = suggest_options(*data, Device::cuda());
    EXPECT_GT(spec.width, width) << bytes;
    EXPECT_GT(spec.blocks, blocks) << bytes;
    EXPECT_GT(spec.dropout, 0.0) << bytes;
    EXPECT_EQ(options.execution.device, Device::cuda()) << bytes;
    width = spec.width;
    blocks = spec.blocks;
  }
}

TEST(Suggest, ATextIsValidatedTwiceAPassAndEndsWhenItGainsNoMore) {
  const auto data = text_of(2'000'000);
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    const TrainOptions options = suggest_options(*data, device);
    const double pass =
        static_cast<double>(data->training_steps()) / static_cast<double>(options.batch * options.length);
    EXPECT_NEAR(static_cast<double>(options.validate_steps), pass / 2.0, 1.0);
    EXPECT_GT(options.patience, 0);
    EXPECT_TRUE(options.keep_best);
  }
}

TEST(Suggest, ARunThatGoesOnElsewhereHasTheBatchesThatItBeganWith) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path("run");
  const auto data = text_of(20'000);
  TrainOptions options = suggest_options(*data);
  options.batch = 3;
  options.length = 7;
  options.max_steps = 2;
  options.checkpoint_path = path;
  for (const auto& [patience, schedule] :
       {std::pair<Index, Schedule>(0, Schedule::cosine), {4, Schedule::cosine}, {0, Schedule::plateau}}) {
    const bool validates = patience > 0 || schedule == Schedule::plateau;
    options.patience = patience;
    options.schedule = schedule;
    options.validate_steps = validates ? 5 : 0;
    ModelSpec spec = suggest_spec(*data);
    spec.width = 8;
    Model model(spec, data->description(), 1);
    train(model, *data, options);
    const TrainOptions resumed = suggest_resumed(path, *data, Device::cuda());
    EXPECT_EQ(resumed.batch, 3);
    EXPECT_EQ(resumed.length, 7);
    EXPECT_EQ(resumed.patience, patience);
    if (validates) {
      EXPECT_EQ(resumed.validate_steps, 5);
    }
    EXPECT_EQ(resumed.execution.device, Device::cuda());
    model.save(path);
  }
  test::expect_error(ErrorCode::incompatible, "not a checkpoint", [&] { suggest_resumed(path, *data); });
}

TEST(Suggest, TheDeviceDecidesNothingAboutOtherData) {
  const auto data = open_task("parity");
  EXPECT_EQ(suggest_spec(*data).width, suggest_spec(*data, "", Device::cuda()).width);
  EXPECT_EQ(suggest_options(*data).batch, suggest_options(*data, Device::cuda()).batch);
  EXPECT_EQ(suggest_options(*data, Device::cuda()).execution.precision, Precision::full);
}

}  // namespace
}  // namespace penstock
