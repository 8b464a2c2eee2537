// Tensors of calls with host memory, copied to and from a GPU: here one of a driver that does what it is told
// (fake_cuda/).

#include "ops/memory/host_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "penstock/scan.h"
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
  Batch host = batch();
  Tensor there = sequence_on_host(host, view<const float>(x), channels);
  Tensor out = sequence_on_host(host, view<float>(y), channels);
  HostCall call(copies, queue, host);
  call.in({&there});
  call.out({&out});
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
  call.fetch();
  EXPECT_EQ(y, want) << "and what lies between positions stays";
}

TEST_P(HostCopiesOnAGpu, WhatWasCopiedIsFoundAgain) {
  Queue queue(Device::cuda());
  HostCopies copies;
  Floats x(200, 1.0f);
  const std::vector<std::uint8_t> reset(rows * steps, 1);
  Batch host = batch();
  host.reset = reset.data();
  const Tensor here = sequence_on_host(host, view<const float>(x), channels);
  Batch first_batch = host, second_batch = host;
  Tensor there = here, again = here;
  HostCall first(copies, queue, first_batch);
  first.in({&there});
  EXPECT_NE(first_batch.reset, host.reset);
  EXPECT_EQ(first_batch.cu_seqlens == nullptr, !GetParam().packed);
  x.assign(x.size(), 2.0f);
  HostCall second(copies, queue, second_batch, 1);
  second.again(again);
  EXPECT_EQ(again.data, there.data);
  EXPECT_EQ(again.shape, there.shape);
  EXPECT_EQ(again.strides, there.strides);
  EXPECT_EQ(static_cast<const float*>(again.data)[0], 1.0f) << "nothing is copied";
  EXPECT_EQ(second_batch.reset, first_batch.reset);
  EXPECT_EQ(second_batch.cu_seqlens, first_batch.cu_seqlens);
}

TEST_P(HostCopiesOnAGpu, TensorsOfSequencesLieOnTheHost) {
  Floats x(200);
  const auto seen = view<float>(x);
  const Tensor tensor = sequence_on_host(batch(), seen, channels);
  EXPECT_EQ(tensor.data, seen.data);
  EXPECT_EQ(tensor.strides[GetParam().packed ? 0 : 1], seen.step_stride);
  EXPECT_EQ(tensor.shape[0], GetParam().packed ? positions : rows);
  EXPECT_EQ(tensor.device, Device::cpu());
}

TEST_F(HostCopiesOnAGpu, StatesGoThereAndComeBack) {
  Queue queue(Device::cuda());
  HostCopies copies;
  Batch host{.rows = rows, .steps = steps};
  HostCall call(copies, queue, host);
  Floats state = {1, 2, 3, 4, 5, 6};
  const Floats want = {1, 2, 9, 4, 5, 6};
  Tensor there = Tensor::contiguous(state.data(), DType::f32, {2, rows});
  call.update(there);
  EXPECT_NE(there.data, state.data());
  EXPECT_EQ(static_cast<float*>(there.data)[1], 2.0f);
  static_cast<float*>(there.data)[2] = 9;
  call.fetch();
  EXPECT_EQ(state, want);
  Tensor none;
  call.in({&none});
  call.out({&none});
  call.again(none);
  EXPECT_FALSE(none);
}

TEST_F(HostCopiesOnAGpu, ScansRefuseTensorsThatOverlapAsACpuDoes) {
  ::setenv("PENSTOCK_CACHE_DIR", "", 1);  // what is compiled here is no kernel
  Stream stream(Device::cuda());
  const Scan<float> scan(channels, stream);
  const Batch batch{.rows = rows, .steps = steps};
  Floats a(100), b(100);
  const auto at = [](auto* data) { return SequenceView<std::remove_pointer_t<decltype(data)>>{data, 8, channels}; };
  const Scan<float>::Terms terms{at(std::as_const(a).data()), at(std::as_const(b).data()), {}};
  scan.forward(batch, terms, at(a.data()));
  test::expect_error(ErrorCode::invalid_argument, "h must not overlap terms.a unless it takes its place",
                     [&] { scan.forward(batch, terms, at(a.data() + 1)); });
  test::expect_error(ErrorCode::invalid_argument, "dterms.b must not overlap terms.b", [&] {
    scan.backward(batch, terms, at(a.data()), nullptr, at(b.data()), nullptr, {at(a.data() + 50), at(b.data()), {}});
  });
}

INSTANTIATE_TEST_SUITE_P(Each, HostCopiesOnAGpu, testing::ValuesIn(layouts), [](const auto& tested) {
  std::string name = tested.param.name;
  std::ranges::replace(name, ' ', '_');
  return name;
});

}  // namespace
}  // namespace penstock::ops
