#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "backend/cuda/driver/device.h"
#include "backend/cuda/driver/driver.h"
#include "base/random.h"
#include "oracle/tolerance.h"
#include "support/half.h"
#include "support/tolerance.h"

/// Numbers on the way to a GPU and back.
namespace penstock::test {

using Doubles = std::vector<double>;
using plan::Storage;

/// A test with a stream on the first GPU. Skipped where there is no GPU.
template <class Parameters>
class GpuTestOf : public testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override {
    if (!cuda::driver_complaint().empty()) GTEST_SKIP() << cuda::driver_complaint();
    stream = std::make_unique<cuda::Stream>(cuda::Device::get(0));
  }

  std::unique_ptr<cuda::Stream> stream;
  Random random{11};

  cuda::Device& device() const { return stream->device(); }

  /// Uniform in -size..size, as the storage has them.
  Doubles numbers(Index count, double size, Storage of) {
    Doubles values;
    for (Index i = 0; i < count; ++i) values.push_back(rounded(size * (2 * random.uniform() - 1), of));
    return values;
  }
  template <class T>
  cuda::Buffer put(const std::vector<T>& values) {
    cuda::Buffer buffer(*stream, values.size() * sizeof(T));
    buffer.upload(values.data(), buffer.bytes());
    return buffer;
  }
  cuda::Buffer put(const Doubles& values, Storage of) { return put(to_storage(values, of)); }
  /// Returns memory filled with NaN, so that reading it before writing shows in the results.
  cuda::Buffer room(Index count, Storage of) { return bytes(static_cast<std::size_t>(count * plan::size_of(of))); }
  cuda::Buffer bytes(std::size_t count) {
    cuda::Buffer buffer(*stream, count);
    buffer.fill(0xff);
    return buffer;
  }
  template <class T>
  std::vector<T> get(const cuda::Buffer& buffer) {
    std::vector<T> values(buffer.bytes() / sizeof(T));
    buffer.download(values.data(), buffer.bytes());
    return values;
  }
  Doubles get(const cuda::Buffer& buffer, Storage of) { return from_storage(get<std::uint8_t>(buffer), of); }

  /// Runs twice, the second time over what the first left in the workspace: to the bit what `results` gives.
  template <class Run, class Results>
  void repeat(const Run& run, const Results& results) {
    run();
    const auto once = results();
    run();
    EXPECT_EQ(results(), once) << "not the same bits again";
  }
};

/// Fixture of tests with one storage.
class GpuTest : public GpuTestOf<Storage> {
 protected:
  Storage storage = GetParam();

  /// Float arithmetic with sums of so many terms, and so many roundings to the storage.
  double allowed(Index summed, double roundings) const {
    return oracle::tolerance<float>({.summed = summed}) +
           (storage == Storage::f32 ? 0 : roundings * half_unit(storage));
  }
};

}  // namespace penstock::test
