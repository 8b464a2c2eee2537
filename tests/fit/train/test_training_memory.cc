// Training with less memory than it needs: what is said, and what is left as it was.

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "nn/model/model_impl.h"
#include "penstock/train.h"
#include "support/allocations.h"
#include "support/limited_memory.h"
#include "support/temporary_folder.h"
#include "support/tolerance.h"
#include "toy_data.h"

namespace penstock {
namespace {

using test::weights;

constexpr std::size_t mega = std::size_t{1} << 20;

TrainOptions training_of(Index batch, Index length, Index steps = 2) {
  TrainOptions options;
  options.max_steps = steps;
  options.batch = batch, options.length = length;
  options.log_every = 0.0;
  options.validation_batches = 1;
  options.execution.threads = 2;
  return options;
}

/// A run takes as much memory as `info` prints before: one workspace of just these bytes, and little else.
TEST(TrainingMemory, WhatIsPlannedIsWhatIsTaken) {
  constexpr Index batch = 16, length = 128;
  for (const char* const cell : {"lstm", "mingru"}) {
    SCOPED_TRACE(cell);
    test::CopyTask data;
    Model model({.cell = cell, .width = 64, .blocks = 2}, data.description(), 1);
    const TrainOptions options = training_of(batch, length);
    const ModelMemory planned = model.memory(batch, length, options.execution);
    const std::size_t before = test::allocated_bytes;
    test::most_allocated_bytes = before, test::largest_allocation = 0;
    train(model, data, options);
    EXPECT_EQ(test::largest_allocation, planned.training);
    const std::size_t taken = test::most_allocated_bytes - before;
    EXPECT_GE(taken, planned.training + planned.optimizer);
    // Besides: panels of the weights for both passes, and those kept for the best step; tokens, plans and graphs.
    const std::size_t all = planned.training + planned.optimizer + planned.weights + planned.forward;
    EXPECT_LE(taken, all + 3 * planned.weights + 2 * mega);
  }
}

#if !defined(__SANITIZE_ADDRESS__)  // which ends a program whose allocation fails

Model model_of(const Dataset& data) { return Model({.cell = "lstm", .width = 64, .blocks = 2}, data.description(), 1); }

std::string message_of(Model& model, Dataset& data, const TrainOptions& options, bool resume = false) {
  try {
    train(model, data, options, {}, resume);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

TEST(TrainingMemory, TooLittleSaysWhatIsNeededWhatThereIsAndWhatLowersIt) {
  test::CopyTask data, same_data;
  Model model = model_of(data), never_failed = model_of(data);
  // Threads and their stacks are there from now on.
  train(model, data, training_of(2, 16));
  train(never_failed, same_data, training_of(2, 16));
  const std::vector<float> before = weights(model);

  const TrainOptions large = training_of(64, 4096);
  const ModelMemory memory = model.memory(64, 4096, large.execution);
  const std::size_t needed = memory.weights + memory.optimizer + memory.training;
  constexpr std::size_t left = 128 * mega;
  ASSERT_GT(needed, 4 * left);
  {
    const test::LimitedMemory limit(left);
    test::CopyTask other_data;
    const std::string message = message_of(model, other_data, large);
    std::smatch found;
    ASSERT_TRUE(std::regex_match(
        message, found,
        std::regex(
            "training with batches of 64 x 4096 needs ([0-9]+) MB of memory on cpu: the host cannot give "
            "([0-9]+) MB: ([0-9]+) MB are free; the option 'batch' lowers that, and so does the option 'length'")))
        << message;
    EXPECT_EQ(std::stod(found[1]), std::ceil(static_cast<double>(needed) / mega));
    EXPECT_LE(std::stoul(found[2]), std::stoul(found[1]));
    EXPECT_LE(std::stoul(found[3]), left / mega);
    EXPECT_GT(std::stoul(found[2]), std::stoul(found[3]));
    EXPECT_EQ(weights(model), before) << "what was learnt stays";

    // A smaller batch is what the message asks for.
    train(model, data, training_of(2, 16));
  }
  train(never_failed, same_data, training_of(2, 16));
  EXPECT_EQ(weights(model), weights(never_failed)) << "the failure left nothing behind";
}

TEST(TrainingMemory, TooLittleLeavesTheCheckpointToGoOnFrom) {
  const test::TemporaryFolder folder;
  TrainOptions options = training_of(8, 512, 4);
  options.checkpoint_path = folder.path("run.ckpt");
  test::CopyTask data;
  Model model = model_of(data);
  TrainCallbacks interrupted;
  interrupted.stop = [polls = 0]() mutable { return ++polls == 2; };
  EXPECT_EQ(train(model, data, options, interrupted).last.step, 2);
  const std::string saved = folder.read("run.ckpt");
  const long files = folder.count();
  {
    // Less than what is asked for beforehand: allocations fail.
    const test::LimitedMemory limit(8 * mega);
    test::CopyTask other_data;
    Model other = model_of(other_data);
    const std::string message = message_of(other, other_data, options, true);
    EXPECT_NE(message.find("training with batches of 8 x 512 needs "), std::string::npos) << message;
    EXPECT_NE(message.find("the option 'batch' lowers that"), std::string::npos) << message;
  }
  EXPECT_EQ(folder.read("run.ckpt"), saved);
  EXPECT_EQ(folder.count(), files) << "no file is half written";

  test::CopyTask later_data, whole_data;
  Model resumed = model_of(later_data), whole = model_of(whole_data);
  EXPECT_EQ(train(resumed, later_data, options, {}, true).last.step, 4);
  options.checkpoint_path.clear();
  train(whole, whole_data, options);
  EXPECT_TRUE(test::same_bits(weights(resumed), weights(whole)));
}

TEST(TrainingMemory, WhatIsNeededHasTheMomentsAndTheAverage) {
  test::CopyTask data;
  Model model({.cell = "lstm", .width = 512, .blocks = 1}, data.description(), 1);
  TrainOptions options = training_of(64, 4096);
  const ModelMemory memory = model.memory(64, 4096, options.execution);
  const auto needed = [&](Optimizer optimizer, double average) {
    options.optimizer = optimizer, options.average = average;
    const test::LimitedMemory limit(128 * mega);
    const std::string message = message_of(model, data, options);
    std::smatch found;
    EXPECT_TRUE(std::regex_search(message, found, std::regex("needs ([0-9]+) MB of memory"))) << message;
    return found.empty() ? 0.0 : std::stod(found[1]);
  };
  const auto stores = [&](std::size_t count) {
    return std::ceil(static_cast<double>(memory.weights * count + memory.training) / mega);
  };
  ASSERT_GT(memory.weights, 2 * mega);
  EXPECT_EQ(needed(Optimizer::adamw, 0.0), stores(4));
  EXPECT_EQ(needed(Optimizer::adamw, 0.9), stores(5));
  EXPECT_EQ(needed(Optimizer::lion, 0.0), stores(3));
}

#endif

}  // namespace
}  // namespace penstock
