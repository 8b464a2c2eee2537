// A profile names every op of a pass once, with times that add up to about the pass, and leaves the model as it is.

#include "penstock/train/profile.h"

#include <gmock/gmock.h>

#include <map>
#include <numeric>
#include <set>

#include "backend/cuda/driver/driver.h"
#include "nn/model/model_impl.h"
#include "penstock/train/kernel_profile.h"
#include "support/expect_error.h"
#include "toy_data.h"

namespace penstock {
namespace {

using test::CopyTask;
using test::expect_error;
using test::SumTask;

const ProfileEntry* find(const Profile& profile, const std::string& op) {
  const auto found = std::ranges::find(profile.entries, op, &ProfileEntry::op);
  return found == profile.entries.end() ? nullptr : &*found;
}

Execution one_thread() { return {.threads = 1}; }

TEST(Profile, NamesTheOpsOfAForwardPass) {
  const CopyTask data;
  const Model model({.cell = "lstm", .width = 24, .blocks = 3}, data.description(), 1);
  const Profile profile = penstock::profile(model, 2, 50, ProfiledPass::forward, one_thread(), 5);
  EXPECT_EQ(profile.passes, 5);
  std::set<std::string> names;
  for (const ProfileEntry& entry : profile.entries) {
    EXPECT_TRUE(names.insert(entry.op).second) << entry.op << " stands there twice";
    EXPECT_GT(entry.seconds, 0.0) << entry.op;
    EXPECT_GT(entry.bytes, 0.0) << entry.op;
    EXPECT_EQ(entry.launches, 0) << "there is no GPU in it";
  }
  EXPECT_TRUE(profile_kernels(model, 2, 50, ProfiledPass::forward, one_thread(), 5).empty());
  EXPECT_TRUE(std::ranges::is_sorted(profile.entries, std::ranges::greater{}, &ProfileEntry::seconds));
  const ProfileEntry *lstm = find(profile, "lstm"), *linear = find(profile, "linear");
  ASSERT_TRUE(lstm != nullptr && linear != nullptr);
  EXPECT_EQ(lstm->nodes, 3);
  // Two for a multiply-add, three layers, four gates; I = H = 24; 100 positions.
  EXPECT_EQ(lstm->operations, 2.0 * 3 * 4 * 24 * (24 + 24) * 100);
  EXPECT_EQ(linear->operations, 2.0 * 24 * CopyTask::vocabulary * 100);
  EXPECT_GT(profile.copied, 1e7);
  EXPECT_GT(profile.products, 1e7);
}

TEST(Profile, OfTrainingHasBothWaysAndTheOptimizer) {
  const SumTask data;
  Model model({.cell = "mingru", .width = 16, .blocks = 2}, data.description(), 1);
  const auto values = model.impl().parameters->values();
  const std::vector<float> before(values.begin(), values.end());
  const Profile profile = penstock::profile(model, 3, 20, ProfiledPass::training, one_thread(), 3);
  for (const char* op : {"mingru", "mingru.backward", "linear", "linear.backward", "loss", "optimizer"}) {
    EXPECT_NE(find(profile, op), nullptr) << op;
  }
  EXPECT_EQ(find(profile, "mingru.backward")->operations, 2 * find(profile, "mingru")->operations);
  EXPECT_TRUE(std::ranges::equal(values, before)) << "steps train a copy";
}

TEST(Profile, CountsLaunchesOnAGpu) {
  if (!cuda::driver_complaint().empty()) GTEST_SKIP() << cuda::driver_complaint();
  const CopyTask data;
  const Model model({.cell = "mingru", .width = 32, .blocks = 2}, data.description(), 1);
  const Profile short_one = penstock::profile(model, 4, 16, ProfiledPass::training, {.device = Device::cuda()}, 3);
  const Profile long_one = penstock::profile(model, 4, 512, ProfiledPass::training, {.device = Device::cuda()}, 3);
  for (const ProfileEntry& entry : short_one.entries) {
    EXPECT_GT(entry.seconds, 0.0) << entry.op;
    const ProfileEntry* same = find(long_one, entry.op);
    ASSERT_NE(same, nullptr) << entry.op;
    EXPECT_LE(same->launches, 4 * (entry.launches + 1)) << entry.op << ": launches must not grow with T";
  }
  EXPECT_GT(find(short_one, "residual_norm")->launches, 0);
  std::map<std::string, Index> launches;  // of the kernels, by op
  for (const KernelProfile& each :
       profile_kernels(model, 4, 16, ProfiledPass::training, {.device = Device::cuda()}, 3)) {
    EXPECT_GT(each.seconds, 0.0) << each.kernel;
    launches[each.op] += each.launches;
  }
  for (const ProfileEntry& entry : short_one.entries) EXPECT_EQ(launches[entry.op], entry.launches) << entry.op;
  EXPECT_FALSE(penstock::profile(model, 1, 512, ProfiledPass::forward, {.device = Device::cuda()}, 3).entries.empty());
  const Execution halves{.precision = Precision::bf16, .device = Device::cuda()};
  EXPECT_FALSE(
      penstock::profile({.cell = "lstm", .input_size = 16, .hidden_size = 32}, 2, 9, ProfiledPass::training, halves, 3)
          .entries.empty());
}

TEST(Profile, RefusesWhatThereIsNot) {
  const CopyTask data;
  const Model model({.width = 8}, data.description(), 1);
  expect_error(ErrorCode::invalid_argument, "rows must be at least 1, not 0",
               [&] { profile(model, 0, 5, ProfiledPass::forward); });
  expect_error(ErrorCode::invalid_argument, "steps must be at least 1, not -1",
               [&] { profile(model, 1, -1, ProfiledPass::forward); });
  expect_error(ErrorCode::invalid_argument, "passes must be at least 1, not 0",
               [&] { profile(model, 1, 1, ProfiledPass::forward, {}, 0); });
}

}  // namespace
}  // namespace penstock
