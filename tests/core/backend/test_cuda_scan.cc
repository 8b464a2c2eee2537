// The scan kernels on a GPU against plain loops in double, over sizes and options that kernels get wrong. Skipped where
// there is no GPU.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/driver/driver.h"
#include "backend/cuda/scan/scan.h"
#include "base/random.h"
#include "support/expect_error.h"
#include "support/half.h"
#include "support/tolerance.h"

namespace penstock::cuda {
namespace {

using plan::ScanAlgorithm;
using plan::Storage;
using testing::AssertionResult;

struct Case {
  std::string name;
  Index rows = 2, steps = 10, channels = 8;
  bool reverse = false, lengths = false, packed = false, reset = false, states = true;
  Index offset = 0;  ///< Elements before the tensor: breaks its alignment.
  Index gap = 0;     ///< Elements between the channels of two steps.
  bool time_first = false;
  double smallest_gain = 0.5;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

/// One sequence tensor of a case: its values [positions, C] and where they lie in memory.
struct Layout {
  Index row_stride = 0, step_stride = 0, offset = 0, elements = 0;
};

Layout layout_of(const Case& c) {
  const Index wide = c.channels + c.gap;
  Layout layout;
  layout.offset = c.offset;
  layout.row_stride = c.time_first ? wide : wide * c.steps;
  layout.step_stride = c.time_first ? wide * c.rows : wide;
  layout.elements = c.offset + wide * c.steps * (c.packed ? 1 : c.rows);
  return layout;
}

class ScanTest : public testing::TestWithParam<std::tuple<Case, Storage>> {
 protected:
  void SetUp() override {
    if (!driver_complaint().empty()) GTEST_SKIP() << driver_complaint();
    device = &Device::get(0);
    stream = std::make_unique<Stream>(*device);
    workspace = Buffer(*stream, std::size_t{64} << 20);
    workspace.fill(0);
    make_rows();
  }

  Case c = std::get<0>(GetParam());
  Storage storage = std::get<1>(GetParam());
  Layout layout = layout_of(c);
  Device* device = nullptr;
  std::unique_ptr<Stream> stream;
  Buffer workspace;
  Random random{11};
  std::vector<Index> first, length;  // [B] of each row, in steps
  std::vector<std::uint8_t> reset;   // [positions]

  void make_rows() {
    Index begin = 0;
    for (Index b = 0; b < c.rows; ++b) {
      Index steps = c.steps;
      if (c.lengths) steps = b == 0 ? c.steps : b == 1 ? 0 : 1 + (7 * b * b) % c.steps;
      if (c.packed)
        steps = b + 1 == c.rows ? c.steps - begin : std::min(c.steps - begin, b == 1 ? 0 : c.steps / c.rows + b);
      first.push_back(begin);
      length.push_back(steps);
      if (c.packed) begin += steps;
    }
    reset.resize(static_cast<std::size_t>(c.rows * c.steps));
    for (std::uint8_t& r : reset) r = c.reset && random.uniform() < 0.05 ? 1 : 0;
  }

  /// Element of step t of row b, channel 0.
  std::size_t at(Index b, Index t) const {
    const Index row = c.packed ? 0 : b;
    return static_cast<std::size_t>(layout.offset + row * layout.row_stride + (first[b] + t) * layout.step_stride);
  }
  /// Step t of row b, in time.
  Index time(Index b, Index s) const { return c.reverse ? length[b] - 1 - s : s; }
  bool resets(Index b, Index t) const {
    return reset[static_cast<std::size_t>((c.packed ? 0 : b) * c.steps + first[b] + t)] != 0;
  }

  std::vector<double> random_tensor(double low, double high) {
    std::vector<double> values(static_cast<std::size_t>(layout.elements));
    for (double& value : values) value = test::rounded(low + (high - low) * random.uniform(), storage);
    return values;
  }
  std::vector<float> random_states() {
    std::vector<float> values(static_cast<std::size_t>(c.rows * c.channels));
    for (float& value : values) value = static_cast<float>(2 * random.uniform() - 1);
    return values;
  }

  template <class T>
  Buffer on_device(const std::vector<T>& values) {
    Buffer buffer(*stream, values.size() * sizeof(T));
    buffer.upload(values.data(), values.size() * sizeof(T));
    return buffer;
  }
  Buffer on_device(const std::vector<double>& values) { return on_device(test::to_storage(values, storage)); }
  /// Outputs begin as NaN, so that what nobody wrote is found.
  Buffer poison() {
    Buffer buffer(*stream, static_cast<std::size_t>(layout.elements * plan::size_of(storage)));
    buffer.fill(0xff);
    return buffer;
  }
  std::vector<std::uint8_t> bytes_of(const Buffer& buffer) {
    std::vector<std::uint8_t> bytes(buffer.bytes());
    buffer.download(bytes.data(), bytes.size());
    return bytes;
  }
  std::vector<float> floats_of(const Buffer& buffer) {
    std::vector<float> values(buffer.bytes() / sizeof(float));
    buffer.download(values.data(), buffer.bytes());
    return values;
  }
  DeviceSequence sequence(const Buffer& buffer) const {
    const auto start = static_cast<DeviceAddress>(layout.offset * plan::size_of(storage));
    return {buffer.address() + start, layout.row_stride, layout.step_stride};
  }

  ScanShape shape() {
    ScanShape s{.storage = storage, .rows = c.rows, .steps = c.steps, .channels = c.channels, .reverse = c.reverse};
    if (c.lengths) {
      lengths_on_device = on_device(length);
      s.lengths = lengths_on_device.address();
    }
    if (c.packed) {
      std::vector<Index> bounds = first;
      bounds.push_back(c.steps);
      lengths_on_device = on_device(bounds);
      s.cu_seqlens = lengths_on_device.address();
    }
    if (c.reset) {
      reset_on_device = on_device(reset);
      s.reset = reset_on_device.address();
      s.reset_row_stride = c.steps;
      s.reset_step_stride = 1;
    }
    return s;
  }
  Buffer lengths_on_device, reset_on_device;

  /// Compares where there are steps; padding of the rows must be zero, gaps between the steps untouched.
  void expect_tensor(const char* name, const Buffer& buffer, const std::vector<double>& want, double error) {
    const std::vector<double> got = test::from_storage(bytes_of(buffer), storage);
    std::vector<bool> owned(got.size(), false);
    double scale = 1e-30, worst = 0;
    for (Index b = 0; b < c.rows; ++b) {
      for (Index t = 0; t < (c.packed ? length[b] : c.steps); ++t) {
        for (Index j = 0; j < c.channels; ++j) {
          const std::size_t i = at(b, t) + static_cast<std::size_t>(j);
          owned[i] = true;
          const double wanted = t < length[b] ? want[i] : 0.0;
          scale = std::max(scale, std::abs(wanted));
          const double off = std::abs(got[i] - wanted);
          if (!(off <= worst)) worst = off;
          if (t >= length[b]) {
            ASSERT_EQ(got[i], 0.0) << name << ", padding of row " << b << " at " << t;
          }
        }
      }
    }
    EXPECT_LE(worst, error * scale) << name;
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(owned[i] || std::isnan(got[i])) << name << " at " << i;
  }

  double allowed(bool backward) const {
    return test::tolerance<float>({.summed = 1, .steps = c.steps, .backward = backward}) +
           (storage == Storage::f32 ? 0 : 1.01 * test::half_unit(storage));
  }
};

TEST_P(ScanTest, ForwardEqualsTheLoop) {
  const std::vector<double> a = random_tensor(c.smallest_gain, 1), b = random_tensor(-1, 1);
  const std::vector<float> entry = random_states();
  std::vector<double> y(a.size());
  std::vector<double> last(entry.size());
  for (Index r = 0; r < c.rows; ++r) {
    for (Index j = 0; j < c.channels; ++j) {
      const std::size_t state = static_cast<std::size_t>(r * c.channels + j);
      double h = c.states ? entry[state] : 0.0;
      for (Index s = 0; s < length[r]; ++s) {
        const std::size_t i = at(r, time(r, s)) + static_cast<std::size_t>(j);
        if (resets(r, time(r, s))) h = 0;
        h = a[i] * h + b[i];
        y[i] = h;
      }
      last[state] = h;
    }
  }
  const Buffer a_gpu = on_device(a), b_gpu = on_device(b), entry_gpu = on_device(entry);
  Buffer y_gpu = poison(), last_gpu(*stream, entry.size() * sizeof(float));
  ScanForward call{.shape = shape(), .terms = {sequence(a_gpu), sequence(b_gpu)}, .y = sequence(y_gpu)};
  call.state_in = c.states ? entry_gpu.address() : 0;
  call.state_out = last_gpu.address();
  for (const ScanAlgorithm algorithm : {ScanAlgorithm::scan, ScanAlgorithm::direct}) {
    call.shape.algorithm = algorithm;
    y_gpu.fill(0xff), last_gpu.fill(0xff);
    const ScanExecutable executable(*device, call);
    SCOPED_TRACE(executable.plan().explain());
    ASSERT_EQ(executable.plan().algorithm, algorithm);
    ASSERT_LE(executable.workspace_bytes(), workspace.bytes());
    executable.run(call, workspace.address(), stream->handle());
    expect_tensor("y", y_gpu, y, allowed(false));
    EXPECT_TRUE(test::close(floats_of(last_gpu), last, allowed(false), test::forward_terms));

    const std::vector<std::uint8_t> once = bytes_of(y_gpu);
    for (int repeat = 0; repeat < 3; ++repeat) {
      executable.run(call, workspace.address(), stream->handle());
      EXPECT_EQ(bytes_of(y_gpu), once) << "not the same bits again";
    }
  }

  // The result of a pass from zero states is corrected to the states above.
  ScanForward before = call;
  before.state_in = 0;
  y_gpu.fill(0xff), last_gpu.fill(0xff);
  ScanExecutable(*device, before).run(before, workspace.address(), stream->handle());
  call.shape.corrects = true;
  const ScanExecutable correction(*device, call);
  SCOPED_TRACE(correction.plan().explain());
  correction.run(call, workspace.address(), stream->handle());
  expect_tensor("corrected y", y_gpu, y, allowed(false));
  EXPECT_TRUE(test::close(floats_of(last_gpu), last, allowed(false), test::forward_terms));
  // From the same states there is nothing to write.
  call.earlier = call.state_in;
  y_gpu.fill(0xff);
  const std::vector<std::uint8_t> untouched = bytes_of(y_gpu);
  if (!c.lengths) {  // there rows without steps have their padding cleared once more
    correction.run(call, workspace.address(), stream->handle());
    EXPECT_EQ(bytes_of(y_gpu), untouched);
  }
}

TEST_P(ScanTest, BackwardEqualsTheLoop) {
  const std::vector<double> a = random_tensor(c.smallest_gain, 1), y = random_tensor(-2, 2), dy = random_tensor(-1, 1);
  const std::vector<float> entry = random_states(), dlast = random_states();
  std::vector<double> da(a.size()), db(a.size()), dentry(entry.size());
  for (Index r = 0; r < c.rows; ++r) {
    for (Index j = 0; j < c.channels; ++j) {
      const std::size_t state = static_cast<std::size_t>(r * c.channels + j);
      double dh = c.states ? dlast[state] : 0.0;
      for (Index s = length[r] - 1; s >= 0; --s) {
        const Index t = time(r, s);
        const std::size_t i = at(r, t) + static_cast<std::size_t>(j);
        double before = c.states ? entry[state] : 0.0;
        if (s > 0) before = y[at(r, time(r, s - 1)) + static_cast<std::size_t>(j)];
        db[i] = dh + dy[i];
        da[i] = resets(r, t) ? 0 : db[i] * before;
        dh = resets(r, t) ? 0 : a[i] * db[i];
      }
      dentry[state] = dh;
    }
  }
  const Buffer a_gpu = on_device(a), y_gpu = on_device(y), dy_gpu = on_device(dy);
  const Buffer entry_gpu = on_device(entry), dlast_gpu = on_device(dlast);
  Buffer da_gpu = poison(), db_gpu = poison(), dentry_gpu(*stream, entry.size() * sizeof(float));
  ScanBackward call{.shape = shape(),
                    .terms = {sequence(a_gpu)},
                    .y = sequence(y_gpu),
                    .dy = sequence(dy_gpu),
                    .dterms = {sequence(da_gpu), sequence(db_gpu)}};
  call.state_in = c.states ? entry_gpu.address() : 0;
  call.dstate_out = c.states ? dlast_gpu.address() : 0;
  call.dstate_in = dentry_gpu.address();
  for (const ScanAlgorithm algorithm : {ScanAlgorithm::scan, ScanAlgorithm::direct}) {
    call.shape.algorithm = algorithm;
    da_gpu.fill(0xff), db_gpu.fill(0xff), dentry_gpu.fill(0xff);
    const ScanExecutable executable(*device, call);
    SCOPED_TRACE(executable.plan().explain());
    executable.run(call, workspace.address(), stream->handle());
    expect_tensor("da", da_gpu, da, allowed(true));
    expect_tensor("db", db_gpu, db, allowed(true));
    EXPECT_TRUE(test::close(floats_of(dentry_gpu), dentry, allowed(true), test::forward_terms));

    const std::vector<std::uint8_t> once = bytes_of(da_gpu);
    executable.run(call, workspace.address(), stream->handle());
    EXPECT_EQ(bytes_of(da_gpu), once) << "not the same bits again";
  }

  ScanBackward before = call;
  before.dstate_out = 0;
  da_gpu.fill(0xff), db_gpu.fill(0xff), dentry_gpu.fill(0xff);
  ScanExecutable(*device, before).run(before, workspace.address(), stream->handle());
  call.shape.corrects = true;
  const ScanExecutable correction(*device, call);
  SCOPED_TRACE(correction.plan().explain());
  correction.run(call, workspace.address(), stream->handle());
  expect_tensor("corrected da", da_gpu, da, allowed(true));
  expect_tensor("corrected db", db_gpu, db, allowed(true));
  EXPECT_TRUE(test::close(floats_of(dentry_gpu), dentry, allowed(true), test::forward_terms));
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const Index rows : {1, 3}) {
    for (const Index steps : {1, 2, 15, 16, 17, 127, 128, 129, 257, 1009}) {
      for (const Index channels : {1, 2, 3, 7, 31, 32, 33, 65, 100}) {
        list.push_back({.name = fmt::format("{}x{}x{}", rows, steps, channels)});
        list.back().rows = rows, list.back().steps = steps, list.back().channels = channels;
      }
    }
  }
  const auto add = [&](Case c) { list.push_back(std::move(c)); };
  add({.name = "reverse", .rows = 3, .steps = 1009, .channels = 48, .reverse = true});
  add({.name = "lengths", .rows = 9, .steps = 600, .channels = 40, .lengths = true});
  add({.name = "lengths_reverse", .rows = 9, .steps = 600, .channels = 40, .reverse = true, .lengths = true});
  add({.name = "packed", .rows = 7, .steps = 2003, .channels = 33, .packed = true});
  add({.name = "packed_reverse_reset",
       .rows = 7,
       .steps = 2003,
       .channels = 64,
       .reverse = true,
       .packed = true,
       .reset = true});
  add({.name = "reset", .rows = 3, .steps = 777, .channels = 64, .reset = true});
  add({.name = "lengths_reset", .rows = 5, .steps = 777, .channels = 66, .lengths = true, .reset = true});
  add({.name = "no_states", .rows = 3, .steps = 777, .channels = 64, .states = false});
  add({.name = "misaligned", .rows = 2, .steps = 300, .channels = 64, .offset = 1});
  add({.name = "gapped", .rows = 2, .steps = 300, .channels = 64, .gap = 3});
  add({.name = "time_first", .rows = 5, .steps = 300, .channels = 64, .time_first = true});
  add({.name = "time_first_gapped_lengths",
       .rows = 5,
       .steps = 300,
       .channels = 20,
       .lengths = true,
       .gap = 5,
       .time_first = true});
  add({.name = "long_memory", .rows = 1, .steps = 100003, .channels = 32, .smallest_gain = 0.999});
  add({.name = "one_channel", .rows = 1, .steps = 200003, .channels = 1, .smallest_gain = 0.99});
  add({.name = "many_rows", .rows = 1031, .steps = 37, .channels = 5});
  add({.name = "many_channels", .rows = 1, .steps = 21, .channels = 100000});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Cuda, ScanTest,
                         testing::Combine(testing::ValuesIn(cases()),
                                          testing::Values(Storage::f32, Storage::bf16, Storage::f16)),
                         [](const auto& param) {
                           return fmt::format("{}_{}", std::get<0>(param.param).name,
                                              to_string(std::get<1>(param.param)));
                         });

}  // namespace
}  // namespace penstock::cuda
