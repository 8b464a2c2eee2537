// Layers over W x on a GPU whose driver and kernels are fake (fake_cuda/): which kernels run, and where they read and
// write.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/dense/fill.h"
#include "backend/cuda/driver/kernel.h"
#include "penstock/recurrent_program.h"
#include "plan/cell_table.h"
#include "support/fake_cuda.h"

namespace penstock::test {
namespace {

using cuda::fill::DenseBackwardArguments;
using cuda::fill::DenseForwardArguments;
using cuda::fill::DenseTensor;
using Names = std::vector<std::string>;

constexpr Index rows = 3, steps = 6, hidden = 32;

/// The launches of the calling thread: names, and the arguments of the passes over the steps. Those of every such
/// kernel begin with the same struct.
class Launches final : public cuda::LaunchObserver {
 public:
  Launches() {
    cuda::Kernel::observe(this);
    fake_driver().launching = [this](void* const* arguments) { last_ = arguments[0]; };
  }
  ~Launches() override {
    cuda::Kernel::observe(nullptr);
    fake_driver().launching = {};
  }
  void before_launch() override {}
  void after_launch(const std::string& kernel) override {
    names.push_back(kernel);
    if (kernel == "DenseHeadForward") forward = *static_cast<const DenseForwardArguments*>(last_);
    if (kernel == "DenseHeadBackward") backward = *static_cast<const DenseBackwardArguments*>(last_);
  }

  Names names;
  std::optional<DenseForwardArguments> forward;
  std::optional<DenseBackwardArguments> backward;

 private:
  const void* last_ = nullptr;
};

struct Layer {
  std::string cell;
  Index heads = 1;
  bool projected = true;
  SequenceStrides x = {}, dx = {};
  CallFlags more = {};

  Index gates() const { return find_cell(cell).gates * hidden; }
};

class ProjectedOnAGpu : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    look_for_cuda_in(PENSTOCK_FAKE_CUDA);
    ::setenv("PENSTOCK_CACHE_DIR", "", 1);  // what is compiled here is no kernel
    fake_driver().memory = std::size_t{1} << 26;
  }

  void* room(std::size_t bytes) {
    kept.emplace_back(stream, bytes);
    return kept.back().data();
  }
  Tensor sequence(Index channels, const SequenceStrides& strides) {
    Tensor tensor = Tensor::contiguous(room(std::size_t{1} << 18), DType::f32, {rows, steps, channels}, Device::cuda());
    if (strides != SequenceStrides{}) tensor.strides = {strides.row, strides.step, 1};
    return tensor;
  }

  /// Runs both passes.
  void run(const Layer& layer) {
    const RecurrentSpec spec{.cell = layer.cell,
                             .input_size = layer.gates(),
                             .hidden_size = hidden,
                             .heads = layer.heads,
                             .projected_input = layer.projected};
    RecurrentForm form{.rows = rows, .steps = steps, .flags = layer.more, .x = layer.x, .dx = layer.dx};
    form.flags.set(CallFlag::training);
    const Execution execution{.device = Device::cuda()};
    const auto program = RecurrentProgram::get(spec, form, execution);
    std::vector<Tensor> weights;
    for (const ParameterShape& parameter : program->parameters()) {
      const std::vector<Index>& shape = parameter.shape;
      void* const data = room(std::size_t{1} << 18);
      weights.push_back(shape.size() == 1 ? Tensor::contiguous(data, DType::f32, {shape[0]}, Device::cuda())
                        : shape.size() == 2
                            ? Tensor::contiguous(data, DType::f32, {shape[0], shape[1]}, Device::cuda())
                            : Tensor::contiguous(data, DType::f32, {shape[0], shape[1], shape[2]}, Device::cuda()));
    }
    const Batch batch{
        .rows = rows,
        .steps = steps,
        .lengths = form.has(CallFlag::lengths) ? static_cast<const Index*>(room(rows * sizeof(Index))) : nullptr};
    const Context context{.execution = execution, .stream = stream.handle(), .seed = 0, .device_seed = nullptr};
    const Memory workspace{room(program->workspace_bytes()), program->workspace_bytes()};
    const Memory tape{room(program->tape_bytes()), program->tape_bytes()};
    tape_bytes = program->tape_bytes();
    x = sequence(layer.gates(), layer.x), y = sequence(hidden, {});
    if (!form.has(CallFlag::no_input_gradient))
      dx = sequence(layer.gates(), layer.dx == SequenceStrides{} ? layer.x : layer.dx);
    {
      Launches seen;
      program->forward(context, {.weights = weights,
                                 .batch = batch,
                                 .x = x,
                                 .y = y,
                                 .state_in = {},
                                 .state_out = {},
                                 .workspace = workspace,
                                 .tape = tape,
                                 .packed = {},
                                 .states = {}});
      forward = seen.forward, forward_names = seen.names;
    }
    Launches seen;
    program->backward(context, {.weights = weights,
                                .batch = batch,
                                .x = x,
                                .y = y,
                                .dy = y,
                                .state_in = {},
                                .dstate_out = {},
                                .dx = dx,
                                .dstate_in = {},
                                .gradients = weights,
                                .workspace = workspace,
                                .tape = tape,
                                .pass = 0,
                                .packed = {},
                                .dstates = {}});
    backward = seen.backward, backward_names = seen.names;
    ASSERT_TRUE(forward && backward);
  }

  static void expect_place(const DenseTensor& tensor, const Tensor& of) {
    EXPECT_EQ(tensor.data, of.data);
    EXPECT_EQ(tensor.row_stride, of.strides[0] * 4);
    EXPECT_EQ(tensor.step_stride, of.strides[1] * 4);
  }
  bool copies() const { return std::ranges::count(backward_names, "CopyRows") > 0; }

  Stream stream{Device::cuda()};
  std::vector<Buffer> kept;
  Tensor x, y, dx;
  std::size_t tape_bytes = 0;
  std::optional<DenseForwardArguments> forward;
  std::optional<DenseBackwardArguments> backward;
  Names forward_names, backward_names;
};

TEST_P(ProjectedOnAGpu, TheRecurrenceReadsXAndWritesDx) {
  const Layer layer{.cell = GetParam()};
  const Index width = layer.gates();
  for (const Index heads : {1, 2}) {
    for (const SequenceStrides& strides : {SequenceStrides{}, SequenceStrides{width, rows * width}}) {
      run({.cell = GetParam(), .heads = heads, .x = strides});
      EXPECT_EQ(forward_names, Names{"DenseHeadForward"});
      expect_place(forward->wx, x);
      expect_place(backward->dwx, dx);
      if (plan::cell_traits(GetParam()).split_gradients) expect_place(backward->wx, x);
      EXPECT_FALSE(copies());
    }
  }
}

TEST_P(ProjectedOnAGpu, NoProductRunsBesideThatOfTheRecurrentMatrix) {
  run({.cell = GetParam(), .projected = false});
  const Names forward_of_x = forward_names, backward_of_x = backward_names;
  const std::size_t tape_of_x = tape_bytes;
  run({.cell = GetParam()});
  EXPECT_LT(forward_names.size(), forward_of_x.size());
  EXPECT_LE(backward_names.size() + 2, backward_of_x.size());  // of weight_ih and of x
  EXPECT_EQ(tape_bytes < tape_of_x, plan::cell_traits(GetParam()).split_gradients) << "of a copy of W x";
}

TEST_P(ProjectedOnAGpu, AGradientWithGapsIsCopied) {
  const Layer layer{.cell = GetParam()};
  const Index width = layer.gates(), wide = width + 4;
  const SequenceStrides gapped{steps * wide, wide}, by_steps{width, rows * width};
  run({.cell = GetParam(), .x = gapped});
  EXPECT_EQ(forward_names, Names{"DenseHeadForward"}) << "x is read where it lies";
  expect_place(forward->wx, x);
  EXPECT_NE(backward->dwx.data, dx.data);
  EXPECT_EQ(backward->dwx.step_stride, width * 4);
  EXPECT_TRUE(copies());
  run({.cell = GetParam(), .x = by_steps, .dx = {steps * width, width}});
  EXPECT_EQ(backward->dwx.step_stride, rows * width * 4) << "in the order of the tape";
  EXPECT_TRUE(copies());
  run({.cell = GetParam(), .x = gapped, .dx = {steps * width, width}});
  expect_place(backward->dwx, dx);
  EXPECT_FALSE(copies());
}

TEST_P(ProjectedOnAGpu, LengthsNeedNoCopy) {
  run({.cell = GetParam(), .more = {CallFlag::lengths}});
  expect_place(forward->wx, x);
  expect_place(backward->dwx, dx);
  EXPECT_FALSE(copies());
}

TEST_P(ProjectedOnAGpu, WithoutAnInputGradientTheWorkspaceHoldsIt) {
  run({.cell = GetParam(), .more = {CallFlag::no_input_gradient}});
  EXPECT_NE(backward->dwx.data, nullptr);
  EXPECT_NE(backward->dwx.data, backward->drh.data);
  EXPECT_FALSE(copies());
}

INSTANTIATE_TEST_SUITE_P(Each, ProjectedOnAGpu, testing::Values("lstm", "gru", "elman", "slstm"));

}  // namespace
}  // namespace penstock::test
