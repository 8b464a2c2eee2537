// Scans by program, steps, recorded graphs and pipelines on a GPU; skipped where there is none.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/random.h"
#include "ops/cuda/common.h"
#include "penstock/cuda.h"
#include "penstock/scan_program.h"
#include "penstock/system.h"
#include "support/expect_error.h"
#include "support/half.h"
#include "support/tolerance.h"

namespace penstock::test {
namespace {

using Doubles = std::vector<double>;

class CudaStreams : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_info().missing; !missing.empty()) GTEST_SKIP() << missing;
    stream.emplace(Device::cuda());
  }

  std::optional<Stream> stream;
  Random random{5};
  const Execution execution{.device = Device::cuda()};
  Context context() const {
    return {.execution = execution, .stream = stream->handle(), .seed = 0, .device_seed = nullptr};
  }

  Doubles numbers(Index count, double low, double high, DType type) {
    Doubles values;
    for (Index i = 0; i < count; ++i) values.push_back(rounded(random.uniform(low, high), ops::storage_of(type)));
    return values;
  }
  Buffer put(const Doubles& values, DType type) {
    const std::vector<std::uint8_t> bytes = to_storage(values, ops::storage_of(type));
    Buffer buffer(*stream, bytes.size());
    buffer.upload(bytes.data(), bytes.size());
    return buffer;
  }
  Buffer room(Index count, DType type) { return put(Doubles(static_cast<std::size_t>(count), NAN), type); }
  Buffer bytes(std::size_t count) {
    const std::vector<std::uint8_t> poison(count, 0xff);
    Buffer buffer(*stream, count);
    buffer.upload(poison.data(), count);
    return buffer;
  }
  static Doubles get(const Buffer& buffer, DType type) {
    std::vector<std::uint8_t> all(buffer.bytes());
    buffer.download(all.data(), all.size());
    return from_storage(all, ops::storage_of(type));
  }

  void check_scan(ScanForm form, DType type, bool reverse);
};

/// Against the same scan in double on the CPU, with lengths and resets.
void CudaStreams::check_scan(ScanForm form, DType type, bool reverse) {
  constexpr Index rows = 3, steps = 1037, channels = 40;
  const bool logs = form == ScanForm::logarithmic;
  const Index count = rows * steps * channels;
  const Doubles a = logs ? numbers(count, -2.0, 0.0, type) : numbers(count, -1.0, 1.0, type);
  const Doubles b = numbers(count, -1.0, 1.0, type), dh = numbers(count, -1.0, 1.0, type);
  const Doubles h0 = numbers(rows * channels, -1.0, 1.0, DType::f32);
  const std::vector<Index> lengths = {steps, 0, 700};
  std::vector<std::uint8_t> reset(rows * steps);
  for (std::uint8_t& r : reset) r = random.uniform() < 0.01 ? 1 : 0;
  const Batch host{.rows = rows, .steps = steps, .lengths = lengths.data(), .reset = reset.data()};

  Doubles h(a.size()), hT(h0.size()), da(a.size()), db(a.size()), dh0(h0.size());
  const auto view = [&](auto& values) {
    return SequenceView<std::remove_reference_t<decltype(values[0])>>::batch_first(values.data(), steps, channels);
  };
  const Scan<double> scan(channels, form, reverse);
  scan.forward(host, {view(a), view(b), {}}, view(h), h0.data(), hT.data());
  const Doubles h_read = h;
  scan.backward(host, {view(a), view(b), {}}, view(h_read), h0.data(), view(dh), nullptr, {view(da), view(db), {}},
                dh0.data());

  const auto program = ScanProgram::get({.channels = channels,
                                         .form = form,
                                         .reverse = reverse,
                                         .dtype = type,
                                         .rows = rows,
                                         .steps = steps,
                                         .flags = {CallFlag::lengths, CallFlag::reset, CallFlag::training}},
                                        execution);
  SCOPED_TRACE(program->explain());
  Buffer lengths_gpu(*stream, sizeof(Index) * rows), reset_gpu(*stream, reset.size());
  lengths_gpu.upload(lengths.data(), lengths_gpu.bytes()), reset_gpu.upload(reset.data(), reset_gpu.bytes());
  Batch batch = host;
  batch.lengths = static_cast<const Index*>(lengths_gpu.data());
  batch.reset = static_cast<const std::uint8_t*>(reset_gpu.data());
  const Buffer a_gpu = put(a, type), b_gpu = put(b, type), dh_gpu = put(dh, type), h0_gpu = put(h0, DType::f32);
  const Buffer h_gpu = room(count, type), da_gpu = room(count, type), db_gpu = room(count, type);
  const Buffer hT_gpu = room(rows * channels, DType::f32), dh0_gpu = room(rows * channels, DType::f32);
  const Buffer workspace = bytes(program->workspace_bytes());
  const auto tensor = [&](const Buffer& of) {
    return Tensor::contiguous(of.data(), type, {rows, steps, channels}, Device::cuda());
  };
  const auto state = [&](const Buffer& of) {
    return Tensor::contiguous(of.data(), DType::f32, {rows, channels}, Device::cuda());
  };
  const auto run = [&] {
    program->forward(context(), {.batch = batch,
                                 .terms = {tensor(a_gpu), tensor(b_gpu), {}},
                                 .h = tensor(h_gpu),
                                 .h0 = state(h0_gpu),
                                 .hT = state(hT_gpu),
                                 .workspace = workspace.memory()});
    program->backward(context(), {.batch = batch,
                                  .terms = {tensor(a_gpu), tensor(b_gpu), {}},
                                  .h = tensor(h_gpu),
                                  .dh = tensor(dh_gpu),
                                  .dterms = {tensor(da_gpu), tensor(db_gpu), {}},
                                  .h0 = state(h0_gpu),
                                  .dhT = {},
                                  .dh0 = state(dh0_gpu),
                                  .workspace = workspace.memory()});
  };
  run();
  const CudaGraph graph(*stream, run);
  graph.launch(stream->handle());
  graph.launch(stream->handle());
  const double unit = type == DType::f32 ? 0.0 : 4 * half_unit(ops::storage_of(type));
  const double forward = tolerance<float>({.summed = 2, .steps = steps, .logit = 2}) + unit;
  const double backward = tolerance<float>({.summed = 2, .steps = steps, .backward = true, .logit = 2}) + 2 * unit;
  EXPECT_TRUE(close(get(h_gpu, type), h, forward, forward_terms)) << "h";
  EXPECT_TRUE(close(get(hT_gpu, DType::f32), hT, forward, forward_terms)) << "hT";
  EXPECT_TRUE(close(get(da_gpu, type), da, backward, backward_terms)) << "da";
  EXPECT_TRUE(close(get(db_gpu, type), db, backward, backward_terms)) << "db";
  EXPECT_TRUE(close(get(dh0_gpu, DType::f32), dh0, backward, backward_terms)) << "dh0";
}

/// Gains of many steps underflow to zero there, and zero times infinity is no number.
TEST_F(CudaStreams, InfiniteStatesStayInfinite) {
  constexpr Index steps = 65'536;
  const std::vector<float> a(steps, 0.5f), b(steps, 1.0f);
  std::vector<float> h(steps);
  const auto view = [&](auto& values) {
    return SequenceView<std::remove_reference_t<decltype(values[0])>>::batch_first(values.data(), steps, 1);
  };
  const float h0 = -std::numeric_limits<float>::infinity();
  Scan<float>(1, *stream)
      .forward({.rows = 1, .steps = steps}, {view(a), view(b), {}}, view(h), &h0, nullptr, execution);
  EXPECT_EQ(h, std::vector<float>(steps, h0));
}

/// In exact mode, whatever lies around a row and wherever its steps are cut.
TEST_F(CudaStreams, ExactScansHaveTheBitsOfTheirPieces) {
  constexpr Index rows = 5, steps = 3000, cut = 1111, channels = 70;
  const Execution exact{.exact = true, .device = Device::cuda()};
  for (const ScanForm form : {ScanForm::linear, ScanForm::logarithmic}) {
    std::vector<float> a(rows * steps * channels), b = a, whole = a, pieces = a;
    for (float& value : a) value = static_cast<float>(random.uniform(-1.0, 0.0));
    for (float& value : b) value = static_cast<float>(random.uniform(-1.0, 1.0));
    const auto from = [&](auto& values, Index row, Index step) {
      using Value = std::remove_reference_t<decltype(values[0])>;
      return SequenceView<Value>{&values[static_cast<std::size_t>((row * steps + step) * channels)], steps * channels,
                                 channels};
    };
    const auto run = [&](Index row, Index count, Index step, Index length, std::vector<float>& h, const float* h0,
                         float* hT) {
      const Scan<float>::Terms terms{from(std::as_const(a), row, step), from(std::as_const(b), row, step), {}};
      Scan<float>(channels, *stream, form)
          .forward({.rows = count, .steps = length}, terms, from(h, row, step), h0, hT, exact);
    };
    run(0, rows, 0, steps, whole, nullptr, nullptr);
    for (Index row = 0; row < rows; ++row) {
      std::vector<float> between(channels);
      run(row, 1, 0, cut, pieces, nullptr, between.data());
      run(row, 1, cut, steps - cut, pieces, between.data(), nullptr);
    }
    EXPECT_EQ(pieces, whole);
  }
  Execution chunks = exact;
  chunks.algorithm = Algorithm::scan;
  const std::vector<float> one(channels, 0.5f);
  std::vector<float> h = one;
  const auto view = [](auto& values) {
    return SequenceView<std::remove_reference_t<decltype(values[0])>>::batch_first(values.data(), 1, channels);
  };
  expect_error(ErrorCode::invalid_argument, "algorithm must be auto or sequential in exact mode", [&] {
    Scan<float>(channels, *stream)
        .forward({.rows = 1, .steps = 1}, {view(one), view(one), {}}, view(h), nullptr, nullptr, chunks);
  });
}

/// Logarithms a breath below 0, whose exponentials are all but 1 in a float: over a million steps, in chunks and by
/// threads that run alone.
TEST_F(CudaStreams, LogarithmsNearZeroKeepTheDigitsOfALoop) {
  for (const Index steps : {Index{48}, Index{65'536}, Index{1'000'000}}) {
    const auto count = static_cast<std::size_t>(steps);
    std::vector<float> a(count), b(count), dh(count, 1.0f), h(count), da(count), db(count);
    for (std::size_t t = 0; t < count; ++t) {
      a[t] = static_cast<float>(random.uniform(-2e-6, -1e-6)), b[t] = static_cast<float>(random.uniform(-1.0, 1.0));
    }
    const auto view = [&](auto& values) {
      return SequenceView<std::remove_reference_t<decltype(values[0])>>::batch_first(values.data(), steps, 1);
    };
    const Scan<float> scan(1, *stream, ScanForm::logarithmic);
    const Batch batch{.rows = 1, .steps = steps};
    const Scan<float>::Terms terms{view(std::as_const(a)), view(std::as_const(b)), {}};
    scan.forward(batch, terms, view(h), nullptr, nullptr, execution);
    scan.backward(batch, terms, view(std::as_const(h)), nullptr, view(std::as_const(dh)), nullptr,
                  {view(da), view(db), {}}, nullptr, execution);
    double state = 0, flowing = 0, worst = 0, worst_back = 0, most = 0, most_back = 0;
    for (std::size_t t = 0; t < count; ++t) {
      state += std::expm1(double{a[t]}) * state + std::exp(double{b[t]});
      most = std::max(most, state), worst = std::max(worst, std::abs(h[t] - state));
    }
    for (std::size_t t = count; t-- > 0;) {
      flowing += dh[t];
      most_back = std::max(most_back, flowing);
      worst_back = std::max(worst_back, std::abs(db[t] / std::exp(double{b[t]}) - flowing));
      flowing += std::expm1(double{a[t]}) * flowing;
    }
    EXPECT_LE(worst, 3e-5 * most) << steps;
    EXPECT_LE(worst_back, 3e-5 * most_back) << steps;
  }
}

TEST_F(CudaStreams, ScansAgreeWithTheCpu) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    for (const ScanForm form : {ScanForm::linear, ScanForm::logarithmic}) {
      SCOPED_TRACE(testing::Message() << to_string(type) << (form == ScanForm::linear ? ", linear" : ", logarithmic"));
      check_scan(form, type, type == DType::bf16);
    }
  }
}

TEST_F(CudaStreams, StepsEqualTheSequence) {
  const RecurrentSpec spec{.cell = "minlstm", .input_size = 24, .hidden_size = 32, .layers = 2};
  constexpr Index rows = 3, steps = 9, I = 24, H = 32;
  std::vector<Buffer> memory;
  std::vector<Tensor> weights;
  for (const ParameterShape& parameter : parameter_shapes(spec)) {
    const Index columns = parameter.shape.size() == 2 ? parameter.shape[1] : 1;
    memory.push_back(put(numbers(parameter.shape[0] * columns, -0.3, 0.3, DType::f32), DType::f32));
    weights.push_back(
        parameter.shape.size() == 2
            ? Tensor::contiguous(memory.back().data(), DType::f32, {parameter.shape[0], columns}, Device::cuda())
            : Tensor::contiguous(memory.back().data(), DType::f32, {parameter.shape[0]}, Device::cuda()));
  }
  const Buffer x = put(numbers(rows * steps * I, -1.0, 1.0, DType::f32), DType::f32);
  const Buffer whole = room(rows * steps * H, DType::f32), steps_y = room(rows * steps * H, DType::f32);
  const Buffer state = put(Doubles(2 * rows * H, 0.5), DType::f32), last = room(2 * rows * H, DType::f32);
  const auto states = [&](const Buffer& of) {
    return Tensor::contiguous(of.data(), DType::f32, {1, 2, rows, H}, Device::cuda());
  };
  RecurrentForm form{.rows = rows, .steps = steps};
  form.x = {I, rows * I}, form.y = {H, rows * H};
  const auto sequence = RecurrentProgram::get(spec, form, execution);
  const Buffer workspace = bytes(sequence->workspace_bytes());
  sequence->forward(context(), {.weights = weights,
                                .batch = {.rows = rows, .steps = steps},
                                .x = Tensor::time_first(x.data(), DType::f32, rows, steps, I, Device::cuda()),
                                .y = Tensor::time_first(whole.data(), DType::f32, rows, steps, H, Device::cuda()),
                                .state_in = states(state),
                                .state_out = states(last),
                                .workspace = workspace.memory(),
                                .tape = {},
                                .packed = {}});
  const auto step = RecurrentProgram::get(spec, {.rows = rows, .flags = {CallFlag::step}}, execution);
  const Buffer own = bytes(step->workspace_bytes());
  for (Index t = 0; t < steps; ++t) {
    step->forward(context(), {.weights = weights,
                              .batch = {.rows = rows, .steps = 1},
                              .x = Tensor::contiguous(static_cast<const float*>(x.data()) + t * rows * I, DType::f32,
                                                      {rows, 1, I}, Device::cuda()),
                              .y = Tensor::contiguous(static_cast<const float*>(steps_y.data()) + t * rows * H,
                                                      DType::f32, {rows, 1, H}, Device::cuda()),
                              .state_in = states(state),
                              .state_out = states(state),
                              .workspace = own.memory(),
                              .tape = {},
                              .packed = {}});
  }
  const double allowed = 2 * tolerance<float>({.summed = I + H, .steps = 2 * steps, .logit = 4});
  EXPECT_TRUE(close(get(steps_y, DType::f32), get(whole, DType::f32), allowed, forward_terms));
  EXPECT_TRUE(close(get(state, DType::f32), get(last, DType::f32), allowed, forward_terms));
}

TEST_F(CudaStreams, PipelinesRunChunksInTheirOrder) {
  constexpr Index chunk = 1000, channels = 8;
  constexpr int chunks = 7;
  Buffer state(*stream, channels * sizeof(float)), ones(*stream, chunk * channels * sizeof(float));
  state.clear();
  ones.upload(std::vector<float>(chunk * channels, 1.0F).data(), ones.bytes());
  const auto program = ScanProgram::get({.channels = channels, .rows = 1, .steps = chunk}, execution);
  const Buffer workspace = bytes(program->workspace_bytes());
  stream->synchronize();
  const auto tensor = [&](void* at) {
    return Tensor::contiguous(at, DType::f32, {1, chunk, channels}, Device::cuda());
  };
  const Tensor carried = Tensor::contiguous(state.data(), DType::f32, {1, channels}, Device::cuda());
  CudaPipeline pipeline(ones.bytes(), ones.bytes());
  int filled = 0;
  std::vector<float> lasts;
  pipeline.run(
      [&](void* in) {
        std::fill_n(static_cast<float*>(in), chunk * channels, static_cast<float>(filled + 1));
        return filled++ < chunks;
      },
      [&](void* in, void* out, void* on) {
        program->forward({.execution = execution, .stream = on, .seed = 0, .device_seed = nullptr},
                         {.batch = {.rows = 1, .steps = chunk},
                          .terms = {tensor(ones.data()), tensor(in), {}},
                          .h = tensor(out),
                          .h0 = carried,
                          .hT = carried,
                          .workspace = workspace.memory()});
      },
      [&](const void* out) { lasts.push_back(static_cast<const float*>(out)[chunk * channels - 1]); });
  std::vector<float> want;  // sums of 1,000 ones, and 1,000 twos, ...
  float sum = 0;
  for (int i = 1; i <= chunks; ++i) want.push_back(sum += static_cast<float>(i * chunk));
  EXPECT_EQ(lasts, want);
  expect_error(ErrorCode::numerical, "no more", [&] {
    pipeline.run([](void*) { return true; }, [](auto, auto, auto) { throw Error(ErrorCode::numerical, "no more"); },
                 [](const void*) {});
  });
}

TEST(CudaInterface, WithoutAGpuSaysWhatIsMissing) {
  const std::string missing = cuda_info().missing;
  if (missing.empty()) GTEST_SKIP() << "there is a GPU";
  expect_error(ErrorCode::unsupported, missing, [] { const Stream stream(Device::cuda()); });
  expect_error(ErrorCode::unsupported, missing, [] { const CudaPipeline pipeline(16, 16); });
  expect_error(ErrorCode::unsupported, missing, [] { gpu_of(nullptr); });
  expect_error(ErrorCode::unsupported, missing, [] { synchronize(Device::cuda()); });
  expect_error(ErrorCode::unsupported, missing, [] { ScanProgram::get({}, {.device = Device::cuda()}); });
  Stream host;
  expect_error(ErrorCode::invalid_argument, "stream must be of a GPU, not of cpu",
               [&] { const CudaGraph graph(host, [] {}); });
}

}  // namespace
}  // namespace penstock::test
