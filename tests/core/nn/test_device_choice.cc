// Where a model had better run: on machines that are given, whatever this one is.

#include "nn/device_choice.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/fake_cuda.h"

namespace penstock::test {
namespace {

/// Two threads with vectors of 64 bytes, and an H200.
plan::Machine both() {
  plan::Machine machine;
  machine.cpu.isa = "avx512", machine.cpu.cores = 2, machine.cpu.vector_bytes = 64;
  machine.cpu.costs.multiply_adds = 105'000, machine.cpu.costs.gates = 860;
  machine.gpu = plan::named_gpu("h200");
  return machine;
}

DataDescription text() {
  DataDescription data;
  data.task = Task::language;
  data.vocabulary = 256;
  return data;
}

DeviceChoice choose(const ModelSpec& spec, const DeviceQuestion& question, const plan::Machine& machine = both()) {
  return nn::choose_device(spec, text(), question, machine, "");
}

DeviceQuestion question(Index rows, Index steps, bool training = false) {
  DeviceQuestion question{.rows = rows, .steps = steps, .training = training};
  question.execution.threads = 2;
  return question;
}

TEST(DeviceChoice, ShortSequencesBelongOnTheCpuAndLongOnesOnTheGpu) {
  for (const char* const cell : {"mingru", "lstm"}) {
    SCOPED_TRACE(cell);
    const ModelSpec spec{.cell = cell, .width = 128};
    EXPECT_EQ(choose(spec, question(1, 1)).device, Device::cpu());
    EXPECT_EQ(choose(spec, question(64, 4096)).device, Device::cuda());
    // Once the GPU has caught up it stays ahead.
    bool on_gpu = false;
    for (Index steps = 1; steps <= 65'536; steps *= 4) {
      const bool now = choose(spec, question(8, steps)).device.is_cuda();
      EXPECT_TRUE(now || !on_gpu) << steps;
      on_gpu = now;
    }
    EXPECT_TRUE(on_gpu);
  }
}

TEST(DeviceChoice, TheChosenDeviceIsTheOneOfLessTimeAndTheLineSaysSo) {
  const DeviceChoice choice = choose({.width = 64}, question(64, 512, true));
  ASSERT_GT(choice.cpu_microseconds, 0);
  ASSERT_GT(choice.gpu_microseconds, 0);
  EXPECT_EQ(choice.device.is_cuda(), choice.gpu_microseconds < choice.cpu_microseconds);
  for (const char* const words :
       {"a step of 64 x 512: by estimate ", " on H200 (", " of them to copy)", " on the CPU"}) {
    EXPECT_NE(choice.why.find(words), std::string::npos) << words << " in: " << choice.why;
  }
}

TEST(DeviceChoice, CopiesAndTheStartOfAGpuCount) {
  const ModelSpec spec{.width = 128};
  DeviceQuestion asked = question(16, 2048);
  const DeviceChoice usual = choose(spec, asked);
  ASSERT_TRUE(usual.device.is_cuda());
  plan::Machine slow = both();
  slow.gpu.costs.host.bytes = 1;  // a megabyte a second
  const DeviceChoice copying = choose(spec, asked, slow);
  EXPECT_EQ(copying.device, Device::cpu());
  // Tokens go there and logits come back, 4 bytes each.
  const double bytes = 16 * 2048 * (1 + 256) * 4.0;
  EXPECT_NEAR(copying.copy_microseconds, bytes + 2 * slow.gpu.costs.host.copy, 1);

  asked.start = true;
  EXPECT_EQ(choose(spec, asked).device, Device::cpu());
  asked.calls = 100'000;  // which many calls make up for
  EXPECT_EQ(choose(spec, asked).device, Device::cuda());
}

TEST(DeviceChoice, FollowsWhatADeviceCannot) {
  const ModelSpec spec{.width = 128};
  DeviceQuestion exact = question(64, 4096);
  exact.execution.exact = true;
  EXPECT_EQ(choose(spec, exact).device, Device::cpu());
  EXPECT_EQ(choose(spec, exact).why, "exact results differ between devices, and auto takes those of the CPU");

  DeviceQuestion halves = question(1, 1);
  halves.execution.precision = Precision::f16;
  EXPECT_EQ(choose(spec, halves).device, Device::cuda());
  EXPECT_NE(choose(spec, halves).why.find("f16"), std::string::npos) << choose(spec, halves).why;

  halves.execution.exact = true;
  expect_error(ErrorCode::unsupported, "neither device can: ", [&] { choose(spec, halves); });
  expect_error(ErrorCode::invalid_argument, "rows, steps, calls and copied_every must be at least 1, not 0, 1, 1 and 1",
               [&] { choose(spec, question(0, 1)); });
}

DeviceChoice choose(const RecurrentSpec& spec, const DeviceQuestion& question, const plan::Machine& machine = both()) {
  return nn::choose_device(spec, question, machine, "");
}

TEST(DeviceChoice, OfAStackCountsItsLayersAndCopies) {
  for (const char* const cell : {"mingru", "lstm"}) {
    SCOPED_TRACE(cell);
    const RecurrentSpec spec{.cell = cell, .input_size = 64, .hidden_size = 128, .layers = 2};
    EXPECT_EQ(choose(spec, question(1, 1)).device, Device::cpu());
    const DeviceChoice longer = choose(spec, question(64, 4096));
    EXPECT_EQ(longer.device, Device::cuda());
    // x and y, and the states that enter and leave both layers.
    const double states = 64 * 2 * (cell == std::string("lstm") ? 2 : 1) * 128 * 4.0;
    const double bytes = 64 * 4096 * (64 + 128) * 4.0 + 2 * states;
    const plan::GpuCosts costs = both().gpu.costs;
    EXPECT_NEAR(longer.copy_microseconds, bytes / costs.host.bytes + 4 * costs.host.copy, 1);

    RecurrentSpec deeper = spec;
    deeper.layers = 6;
    EXPECT_GT(choose(deeper, question(64, 4096)).gpu_microseconds, longer.gpu_microseconds);
    EXPECT_GT(choose(spec, question(64, 4096, true)).cpu_microseconds, longer.cpu_microseconds) << "a backward pass";
  }
  DeviceQuestion exact = question(64, 4096);
  exact.execution.exact = true;
  const RecurrentSpec spec{.input_size = 64, .hidden_size = 128};
  EXPECT_EQ(choose(spec, exact).device, Device::cpu());
  EXPECT_EQ(choose(spec, exact).why, "exact results differ between devices, and auto takes those of the CPU");
  expect_error(ErrorCode::invalid_argument, "hidden_size", [&] { choose(RecurrentSpec{.input_size = 3}, exact); });
}

/// The twenty layers of docs/results/gpu_tables.md ("cuda_rnn"), which an H200 and one thread were measured on: of one
/// sequence of 16 or 64 steps the CPU is back sooner, from 256 on the GPU, copies counted.
TEST(DeviceChoice, OfMeasuredLayersIsTheQuickerDevice) {
  for (const char* const cell : {"mingru", "minlstm"}) {
    for (const Index hidden : {128, 256}) {
      for (const Index steps : {16, 64, 256, 512, 1024, 8192, 65'536}) {
        if (hidden == 256 && (steps < 256 || steps > 1024)) continue;
        DeviceQuestion asked = question(1, steps);
        asked.execution.threads = 1;
        if (hidden == 128 && steps == 256) continue;  // both estimates are 80 us
        const DeviceChoice choice = choose({.cell = cell, .input_size = 64, .hidden_size = hidden}, asked);
        EXPECT_EQ(choice.device.is_cuda(), steps >= 256) << cell << " " << hidden << " " << choice.why;
      }
    }
  }
}

TEST(DeviceChoice, WithoutAGpuSaysWhy) {
  const DeviceChoice choice = nn::choose_device({.width = 128}, text(), question(64, 4096), both(), "no driver");
  EXPECT_EQ(choice.device, Device::cpu());
  EXPECT_EQ(choice.why, "there is no GPU: no driver");
}

TEST(DeviceChoice, OfAModelOnANamedChip) {
  const Model model({.width = 32, .blocks = 1}, text(), 1);
  DeviceQuestion asked = question(1, 16);
  asked.chip = "h100";
  EXPECT_EQ(choose_device(model, asked).device, Device::cpu());
  asked.rows = 256, asked.steps = 65'536;
  EXPECT_EQ(choose_device(model, asked).device, Device::cuda());
}

/// In a process of its own, since a driver is opened once.
TEST(DeviceChoiceDeathTest, AGpuThatIsTooOldIsNone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto choose_and_say_why = [] {
    look_for_cuda_in(PENSTOCK_FAKE_CUDA);
    fake_driver().compute = 75;
    const RecurrentSpec spec{.cell = "lstm", .input_size = 8, .hidden_size = 8};
    const DeviceChoice choice = penstock::choose_device(spec, question(64, 1024));
    std::fprintf(stderr, "%s: %s\n", to_string(choice.device).c_str(), choice.why.c_str());
    std::_Exit(0);
  };
  EXPECT_EXIT(choose_and_say_why(), testing::ExitedWithCode(0),
              "cpu: there is no GPU: GPU 0 is a chip of a test \\(compute capability 7.5\\); 8.0 or newer is needed");
}

}  // namespace
}  // namespace penstock::test
