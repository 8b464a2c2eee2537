// Tensors of calls with host memory: read in place on a CPU, copied to and from a GPU, here one of a driver that does
// what it is told (fake_cuda/).

#include "ops/memory/host_copies.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "support/expect_error.h"
#include "support/fake_cuda.h"

namespace penstock::ops {
namespace {

using Floats = std::vector<float>;

constexpr Index rows = 3, steps = 4, channels = 2, positions = 5;
constexpr Index starts[] = {0, 2, 2, positions};

struct Layout {
  const char* name;
  bool packed;
  Index row_stride, step_stride;
  SequenceStrides copied;  // strides of the copy
};

constexpr Layout layouts[] = {
    {"rows after rows", false, steps* channels, channels, {steps * channels, channels}},
    {"steps after steps", false, channels, rows* channels, {channels, rows* channels}},
    {"with gaps", false, 23, 5, {steps * channels, channels}},
    {"rows backwards", false, -steps* channels, channels, {steps * channels, channels}},
    {"packed", true, 0, channels, {0, channels}},
    {"packed with gaps", true, 0, 7, {0, channels}},
};

class HostCopiesOnAGpu : public testing::TestWithParam<Layout> {
 protected:
  static void SetUpTestSuite() { test::look_for_cuda_in(PENSTOCK_FAKE_CUDA); }

  Batch batch() const {
    Batch one{.rows = rows, .steps = steps};
    if (GetParam().packed) one.cu_seqlens = starts;
    return one;
  }
  template <class Real>
  SequenceView<Real> view(std::vector<std::remove_const_t<Real>>& memory) const {
    return {memory.data() + memory.size() / 2, GetParam().row_stride, GetParam().step_stride};
  }
  /// Calls visit(host, device) with the first channel of every position.
  template <class Visit>
  void for_each(const SequenceView<float>& host, const Tensor& device, const Visit& visit) const {
    auto* const there = static_cast<float*>(device.data);
    const SequenceStrides& strides = GetParam().copied;
    for (Index b = 0; b < (GetParam().packed ? 1 : rows); ++b) {
      for (Index t = 0; t < (GetParam().packed ? positions : steps); ++t) {
        visit(host.data + b * host.row_stride + t * host.step_stride, there + b * strides.row + t * strides.step);
      }
    }
  }
};

TEST_P(HostCopiesOnAGpu, SequencesGoThereAndComeBack) {
  Queue queue(Device::cuda());
  HostCopies copies;
  Floats x(200), y(200, -1.0f);
  std::iota(x.begin(), x.end(), 0.0f);
  const Batch host = batch();
  HostCall call(copies, queue, host);
  const Tensor there = call.in(0, view<const float>(x), channels);
  const Tensor out = call.out(1, "y", view<float>(y), channels);
  for (const Tensor& tensor : {there, out}) {
    EXPECT_EQ(tensor.device, Device::cuda());
    EXPECT_EQ(tensor.rank, GetParam().packed ? 2 : 3);
    EXPECT_EQ(tensor.strides[0], GetParam().packed ? channels : GetParam().copied.row);
  }
  for_each(view<float>(x), there, [](const float* here, const float* copy) {
    EXPECT_EQ(std::memcmp(here, copy, channels * sizeof(float)), 0);
  });
  Floats want = y;
  for_each(view<float>(want), out,
           [](float* here, float* copy) { copy[0] = here[0] = 3.0f, copy[1] = here[1] = 4.0f; });
  call.fetch(1, view<float>(y), channels);
  EXPECT_EQ(y, want) << "and what lies between positions stays";
}

TEST_P(HostCopiesOnAGpu, WhatWasCopiedIsFoundAgain) {
  Queue queue(Device::cuda());
  HostCopies copies;
  Floats x(200, 1.0f);
  const std::vector<std::uint8_t> reset(rows * steps, 1);
  Batch host = batch();
  host.reset = reset.data();
  HostCall first(copies, queue, host);
  const Tensor there = first.in(0, view<const float>(x), channels);
  EXPECT_NE(first.batch().reset, host.reset);
  EXPECT_EQ(first.batch().cu_seqlens == nullptr, !GetParam().packed);
  x.assign(x.size(), 2.0f);
  HostCall second(copies, queue, host, HostCall::Arrays::kept);
  const Tensor again = second.again(0, view<const float>(x), channels);
  EXPECT_EQ(again.data, there.data);
  EXPECT_EQ(again.shape, there.shape);
  EXPECT_EQ(again.strides, there.strides);
  EXPECT_EQ(static_cast<const float*>(again.data)[0], 1.0f) << "nothing is copied";
  EXPECT_EQ(second.batch().reset, first.batch().reset);
  EXPECT_EQ(second.batch().cu_seqlens, first.batch().cu_seqlens);
}

TEST_P(HostCopiesOnAGpu, ACpuReadsThemInPlace) {
  Queue queue(Device::cpu());
  HostCopies copies;
  Floats x(200);
  const Batch host = batch();
  HostCall call(copies, queue, host);
  const auto seen = view<float>(x);
  for (const Tensor& tensor : {call.in<float>(0, seen, channels), call.out(1, "y", seen, channels)}) {
    EXPECT_EQ(tensor.data, seen.data);
    EXPECT_EQ(tensor.strides[GetParam().packed ? 0 : 1], seen.step_stride);
    EXPECT_EQ(tensor.shape[0], GetParam().packed ? positions : rows);
  }
  EXPECT_EQ(call.batch().cu_seqlens, host.cu_seqlens);
}

TEST_F(HostCopiesOnAGpu, StatesAndOverlaps) {
  Queue queue(Device::cuda());
  HostCopies copies;
  const Batch host{.rows = rows, .steps = steps};
  HostCall call(copies, queue, host);
  const Index shape[] = {2, rows};
  Floats state = {1, 2, 3, 4, 5, 6}, back(6);
  const Tensor there = call.state_in<float>(0, state.data(), shape);
  EXPECT_NE(there.data, state.data());
  call.fetch_state(0, back.data(), shape);
  EXPECT_EQ(back, state);
  EXPECT_FALSE(call.state_in<float>(0, nullptr, shape));
  EXPECT_FALSE(call.state_out<float>(0, nullptr, shape));
  Floats y(100);
  test::expect_error(ErrorCode::invalid_argument, "y must have a step stride of at least its 2 channels, not 1", [&] {
    call.out<float>(1, "y", {y.data(), 8, 1}, channels);
  });
}

INSTANTIATE_TEST_SUITE_P(Each, HostCopiesOnAGpu, testing::ValuesIn(layouts), [](const auto& tested) {
  std::string name = tested.param.name;
  std::ranges::replace(name, ' ', '_');
  return name;
});

}  // namespace
}  // namespace penstock::ops
