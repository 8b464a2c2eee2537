// Work that calls of networks put into the stream of a GPU, whose driver and kernels are fake (fake_cuda/).

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/cuda/driver/kernel.h"
#include "penstock/model.h"
#include "penstock/recurrent.h"
#include "support/expect_error.h"
#include "support/fake_cuda.h"

namespace penstock::test {
namespace {

using Floats = std::vector<float>;

constexpr Index rows = 2, steps = 6, inputs = 16, hidden = 32;

class CallsOnAGpu : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    look_for_cuda_in(PENSTOCK_FAKE_CUDA);
    ::setenv("PENSTOCK_CACHE_DIR", "", 1);  // what is compiled here is no kernel
  }

  /// Returns the launches of a call.
  template <class Work>
  static int launches(const Work& work) {
    const int before = fake_driver().launches;
    work();
    return fake_driver().launches - before;
  }
  Tensor tensor(DType type, std::initializer_list<Index> shape) {
    std::size_t bytes = size_of(type);
    for (const Index extent : shape) bytes *= static_cast<std::size_t>(extent);
    kept.emplace_back(stream, bytes);
    kept.back().clear();
    return Tensor::contiguous(kept.back().data(), type, shape, Device::cuda());
  }

  Stream stream{Device::cuda()};
  Recurrent<float> network{{.cell = GetParam(), .input_size = inputs, .hidden_size = hidden}, stream};
  Batch batch{.rows = rows, .steps = steps};
  Floats x = Floats(rows * steps * inputs, 0.5f), y = Floats(rows * steps * hidden), dy = y, dx = x;
  SequenceView<const float> x_view = SequenceView<const float>::batch_first(x.data(), steps, inputs);
  SequenceView<const float> dy_view = SequenceView<const float>::batch_first(dy.data(), steps, hidden);
  SequenceView<float> y_view = SequenceView<float>::batch_first(y.data(), steps, hidden);
  SequenceView<float> dx_view = SequenceView<float>::batch_first(dx.data(), steps, inputs);
  std::vector<Buffer> kept;
};

TEST_P(CallsOnAGpu, FromTheHostLaunchWhatThoseWithTensorsLaunch) {
  const Tensor x_there = tensor(DType::f32, {rows, steps, inputs}), y_there = tensor(DType::f32, {rows, steps, hidden});
  const Tensor dx_there = tensor(DType::f32, {rows, steps, inputs}), dy_there = y_there;
  RecurrentTape<float> tape;
  const auto of_host = [&] {
    network.forward(batch, x_view, y_view, nullptr, nullptr, &tape);
    network.backward(batch, x_view, dy_view, nullptr, dx_view, nullptr, tape);
  };
  const auto of_tensors = [&] {
    network.forward(batch, x_there, y_there, {}, {}, &tape);
    network.backward(batch, x_there, dy_there, {}, dx_there, {}, tape);
  };
  const int host = launches(of_host);
  EXPECT_GE(host, 2);
  EXPECT_EQ(launches(of_tensors), host);
  EXPECT_EQ(launches(of_host), host);
}

TEST_P(CallsOnAGpu, HalvesAreRoundedOnceForEachVersionOfTheWeights) {
  if (!find_cell(GetParam()).scan) GTEST_SKIP() << "its products are those of a library that needs a GPU";
  // Large enough for the kernel whose epilogue is the recurrence: products of smaller layers are that library's, too.
  constexpr Index many = 64, longer = 128, wide = 256;
  fake_driver().memory = std::size_t{1} << 28;
  Recurrent<float> large({.cell = GetParam(), .input_size = wide, .hidden_size = wide}, stream);
  const Tensor x_there = tensor(DType::bf16, {many, longer, wide});
  const Tensor y_there = tensor(DType::bf16, {many, longer, wide});
  const auto forward = [&] { large.forward({.rows = many, .steps = longer}, x_there, y_there, {}, {}); };
  const int first = launches(forward), second = launches(forward);
  EXPECT_GT(first, second);
  large.write("weight_ih_l0", Floats(large.parameter("weight_ih_l0").shape[0] * wide, 0.25f));
  EXPECT_EQ(launches(forward), first);
  EXPECT_EQ(launches(forward), second);
}

TEST_P(CallsOnAGpu, AnObserverSeesEachLaunchByTheNameOfItsKernel) {
  struct Watch final : cuda::LaunchObserver {
    Watch() { cuda::Kernel::observe(this); }
    ~Watch() override { cuda::Kernel::observe(nullptr); }
    void before_launch() override { ++begun; }
    void after_launch(const std::string& kernel) override {
      EXPECT_EQ(begun, static_cast<int>(kernels.size()) + 1);
      kernels.push_back(kernel);
    }
    int begun = 0;
    std::vector<std::string> kernels;
  };
  const auto forward = [&] { network.forward(batch, x_view, y_view, nullptr, nullptr); };
  std::vector<std::string> seen;
  int launched = 0;
  {
    Watch watch;
    launched = launches(forward);
    seen = watch.kernels;
  }
  EXPECT_EQ(static_cast<int>(seen.size()), launched);
  EXPECT_EQ(std::ranges::count(seen, ""), 0);
  EXPECT_EQ(launches(forward), launched) << "nobody looks any more";
}

TEST_P(CallsOnAGpu, ATapeServesOneBackwardPass) {
  RecurrentTape<float> tape;
  network.forward(batch, x_view, y_view, nullptr, nullptr, &tape);
  const auto backward = [&] { network.backward(batch, x_view, dy_view, nullptr, dx_view, nullptr, tape); };
  backward();
  expect_error(ErrorCode::invalid_argument, "tape must hold a forward pass of this network", backward);
}

TEST_P(CallsOnAGpu, RefuseTensorsThatOverlapAsACpuDoes) {
  const auto refuses = [](const char* what, const auto& call) {
    expect_error(ErrorCode::invalid_argument, what, call);
  };
  const auto in_x = SequenceView<float>::batch_first(x.data(), steps, hidden);
  refuses("y must not overlap x", [&] { network.forward(batch, x_view, in_x, nullptr, nullptr); });
  refuses("y must have a step stride of at least its 32 channels, not 1", [&] {
    network.forward(batch, x_view, {y.data(), steps * hidden, 1}, nullptr, nullptr);
  });
  RecurrentTape<float> tape;
  network.forward(batch, x_view, y_view, nullptr, nullptr, &tape);
  const auto backward = [&](SequenceView<float> gradient) {
    network.backward(batch, x_view, dy_view, nullptr, gradient, nullptr, tape);
  };
  refuses("dx must not overlap x", [&] { backward(SequenceView<float>::batch_first(x.data(), steps, inputs)); });
  refuses("dx must not overlap dy", [&] { backward(SequenceView<float>::batch_first(dy.data(), steps, inputs)); });
  backward(dx_view);
}

TEST_P(CallsOnAGpu, RefuseRestartsWithoutTheirStates) {
  const std::vector<std::uint8_t> reset(rows * steps, 1);
  Batch again = batch;
  again.reset = reset.data(), again.restarts = Restarts::one;
  expect_error(ErrorCode::invalid_argument, "state_in must not be null on a GPU where rows start again",
               [&] { network.forward(again, x_view, y_view, nullptr, nullptr); });
}

TEST_P(CallsOnAGpu, SumTheGradientsOfAStateOfAllRows) {
  const std::vector<std::uint8_t> reset(rows * steps, 1);
  const auto training = [&](Restarts restarts) {
    Batch again = batch;
    again.reset = reset.data(), again.restarts = restarts;
    Floats state(static_cast<std::size_t>(state_rows(again) * network.state_size())), dstate(state.size());
    RecurrentTape<float> tape;
    return launches([&] {
      network.forward(again, x_view, y_view, state.data(), nullptr, &tape);
      network.backward(again, x_view, dy_view, nullptr, dx_view, dstate.data(), tape);
    });
  };
  const int zeros = training(Restarts::zeros), sums = static_cast<int>(network.state_size() / hidden);
  EXPECT_EQ(training(Restarts::one), zeros + sums);
  EXPECT_EQ(training(Restarts::steps), zeros);
}

TEST_P(CallsOnAGpu, StatesOfABatchWithoutStepsGoOutAsTheyCameIn) {
  const Index starts[] = {0, 0, 0};
  const Batch none{.rows = rows, .steps = steps, .cu_seqlens = starts};
  const Floats state(static_cast<std::size_t>(rows * network.state_size()), 0.5f);
  Floats out(state.size());
  EXPECT_EQ(launches([&] { network.forward(none, x_view, y_view, state.data(), out.data()); }), 0);
  EXPECT_EQ(out, state);
}

TEST_P(CallsOnAGpu, StepsWithTensorsLaunchNoMoreThanOnePosition) {
  const Tensor x_there = tensor(DType::f32, {rows, inputs}), y_there = tensor(DType::f32, {rows, hidden});
  const Index states = network.state_size() / hidden;
  const Tensor state = tensor(DType::f32, {states, 1, rows, hidden});
  Floats host_state(static_cast<std::size_t>(rows * network.state_size()));
  const int with_tensors = launches([&] { network.step(x_there, y_there, state); });
  EXPECT_GE(with_tensors, 1);
  EXPECT_EQ(launches([&] { network.step(rows, x.data(), y.data(), host_state.data()); }), with_tensors);
}

// Layers of models have fewer operands than those of networks.
TEST_P(CallsOnAGpu, ModelsRun) {
  fake_driver().memory = std::size_t{1} << 28;
  DataDescription data;
  data.vocabulary = 50;
  const Model model({.cell = GetParam(), .width = 40, .blocks = 2}, data, 3);
  const std::vector<std::int32_t> tokens(rows * steps, 7);
  Floats logits(rows * steps * 50);
  ModelState state = model.state(rows);
  const auto forward = [&] { model.forward(rows, steps, tokens, logits, state, {.device = Device::cuda()}); };
  const int first = launches(forward);
  EXPECT_GE(first, 4);
  EXPECT_GE(first, launches(forward));
}

INSTANTIATE_TEST_SUITE_P(Each, CallsOnAGpu, testing::Values("lstm", "mingru"));

}  // namespace
}  // namespace penstock::test
