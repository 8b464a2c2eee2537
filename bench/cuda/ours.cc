// Penstock's layers and scans on a GPU as contenders, through the public interface, and what the GPU can do at most.

#include <algorithm>
#include <map>
#include <stdexcept>

#include "backend/cuda/runtime/blas.h"
#include "bench/contender.h"
#include "bench/cuda/measure.h"
#include "bench/limits.h"
#include "bench/rows.h"
#include "bench/scan.h"
#include "penstock/cuda.h"
#include "penstock/error.h"

namespace penstock::bench {
namespace {

using namespace penstock::bench::cuda;  // NOLINT(google-build-using-namespace)

/// As the dtype lies in memory: of numbers that it has, as make_problem() has drawn them.
std::vector<std::uint8_t> stored(const std::vector<float>& values, Storage storage) {
  const auto size = static_cast<std::size_t>(size_of(storage));
  std::vector<std::uint8_t> bytes(values.size() * size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint8_t* p = &bytes[i * size];
    const std::uint16_t f16 = storage == Storage::f16 ? half_of(static_cast<double>(values[i])) : std::uint16_t{0};
    const auto bf16 = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
    if (storage == Storage::f32) std::memcpy(p, &values[i], size);
    if (storage == Storage::bf16) std::memcpy(p, &bf16, size);
    if (storage == Storage::f16) std::memcpy(p, &f16, size);
  }
  return bytes;
}

Storage storage_of(const std::string& dtype) {
  return dtype == "f32" ? Storage::f32 : dtype == "bf16" ? Storage::bf16 : Storage::f16;
}

CudaRegime regime_of(const std::string& name) {
  const std::size_t dash = name.find('-');
  return dash == std::string::npos || name == "penstock-loop" ? CudaRegime::automatic
                                                              : parse_cuda_regime(name.substr(dash + 1));
}

/// What every contender on the GPU has: a stream, a clock, and memory filled in the dtype.
class OnGpu : public Contender {
 public:
  explicit OnGpu(const Problem& problem)
      : problem_(problem), stream_(cuda::Device::get(0)), clock_(stream_), storage_(storage_of(problem.test.dtype)) {}

  std::vector<double> sample(double seconds) override {
    return clock_.sample(seconds, [&] { run(dy_); });
  }
  Answers<float> check() override {
    if (!training()) {
      run(dy_);
      return last();
    }
    run(on_gpu(problem_.masked_dy()));
    Answers<float> answers = last();
    add_gradients(answers);
    return answers;
  }

 protected:
  /// What is timed: forward, and training backward from the gradients of the outputs.
  virtual void run(const Buffer& dy) = 0;
  /// Those of the last run's training by name, beside dx.
  virtual void add_gradients(Answers<float>&) {}

  bool training() const { return problem_.test.pass == Pass::training; }
  const Shape& shape() const { return problem_.test.shape; }
  CudaBatch batch() const { return {.rows = shape().rows, .steps = shape().steps}; }
  Index positions() const { return shape().rows * shape().steps; }
  CudaType type() const { return parse_cuda_type(to_string(storage_)); }
  CudaStream stream() const { return stream_.handle(); }

  Buffer room(std::size_t bytes) {
    Buffer buffer(stream_, bytes);
    buffer.fill(0);
    return buffer;
  }
  Buffer room_for(Index count) { return room(static_cast<std::size_t>(count * size_of(storage_))); }
  Buffer on_gpu(const std::vector<float>& values) {
    const std::vector<std::uint8_t> bytes = stored(values, storage_);
    Buffer buffer(stream_, bytes.size());
    buffer.upload(bytes.data(), bytes.size());
    return buffer;
  }
  std::vector<float> host(const Buffer& buffer, Index first, Index count, Storage storage) {
    const std::vector<double> values = elements(buffer, first, count, storage, stream_);
    return {values.begin(), values.end()};
  }
  /// [R, T, C] of a sequence [B, T, C] or [T, B, C].
  std::vector<float> rows_of(const Buffer& buffer, Index channels, bool time_first = false) {
    return compared_rows(problem_, host(buffer, 0, positions() * channels, storage_), channels, time_first);
  }
  CudaSequence view(const Buffer& buffer, Index channels) const {
    return CudaSequence::batch_first(buffer.address(), shape().steps, channels);
  }

  const Problem& problem_;
  Stream stream_;
  Clock clock_;
  Storage storage_;
  Buffer dy_;  // training
};

CudaRecurrent make_stack(const Recurrent<float>& layer, CudaType type, CudaRegime regime) {
  return CudaRecurrent({.layers = layer.spec(), .type = type, .regime = regime});
}

/// Whole sequences, forward or training.
class GpuLayer : public OnGpu {
 public:
  GpuLayer(const std::string& name, const Problem& problem)
      : OnGpu(problem),
        layer_(make_layer(problem, problem.weights_for(name))),
        stack_(make_stack(layer_, type(), regime_of(name))),
        weights_(room(stack_.weight_bytes())),
        x_(on_gpu(problem.x)),
        y_(room_for(positions() * shape().hidden)) {
    stack_.upload(layer_, weights_.address(), stream());
    if (training()) {
      gradients_ = room(stack_.gradient_bytes());
      tape_ = room(stack_.tape_bytes(batch()));
      dy_ = on_gpu(problem.dy);
      dx_ = room_for(positions() * shape().inputs);
      stack_.prepare(backward(dy_));
    }
    stack_.prepare(forward());
    workspace_ = room(stack_.workspace_bytes());
  }

  Answers<float> last() override {
    Answers<float> answers{.y = rows_of(y_, shape().hidden), .dx = {}, .gradients = {}};
    if (training()) answers.dx = rows_of(dx_, shape().inputs);
    return answers;
  }

 private:
  void run(const Buffer& dy) override {
    stack_.forward(forward(), workspace_.address(), stream());
    if (training()) stack_.backward(backward(dy), workspace_.address(), stream());
  }
  void add_gradients(Answers<float>& answers) override {
    for (const CudaRecurrent::Parameter& parameter : stack_.parameters()) {
      Index count = 1;
      for (const Index length : parameter.shape) count *= length;
      answers.gradients.emplace_back(
          parameter.name,
          host(gradients_, static_cast<Index>(parameter.gradient_offset / sizeof(float)), count, Storage::f32));
    }
  }
  CudaRecurrent::Forward forward() const {
    CudaRecurrent::Forward call;
    call.batch = batch();
    call.x = view(x_, shape().inputs);
    call.y = view(y_, shape().hidden);
    call.weights = weights_.address();
    call.tape = tape_.address();
    return call;
  }
  CudaRecurrent::Backward backward(const Buffer& dy) const {
    CudaRecurrent::Backward call;
    call.batch = batch();
    call.x = view(x_, shape().inputs), call.y = view(y_, shape().hidden);
    call.dy = view(dy, shape().hidden), call.dx = view(dx_, shape().inputs);
    call.weights = weights_.address(), call.gradients = gradients_.address();
    call.tape = tape_.address();
    return call;
  }

  Recurrent<float> layer_;
  CudaRecurrent stack_;
  Buffer weights_, x_, y_, gradients_, tape_, dx_, workspace_;
};

/// A call for every step, sequences time first.
class GpuLoop : public OnGpu {
 public:
  GpuLoop(const std::string& name, const Problem& problem)
      : OnGpu(problem),
        layer_(make_layer(problem, problem.weights_for(name))),
        stack_(make_stack(layer_, type(), CudaRegime::automatic)),
        weights_(room(stack_.weight_bytes())),
        x_(on_gpu(time_first(shape(), problem.x, shape().inputs))),
        y_(room_for(positions() * shape().hidden)),
        state_(room(static_cast<std::size_t>(shape().rows * shape().hidden) * sizeof(float))) {
    stack_.upload(layer_, weights_.address(), stream());
    stack_.prepare(step(shape().steps > 1 ? 1 : 0));  // no step is aligned worse than the second
  }

  Answers<float> last() override { return {.y = rows_of(y_, shape().hidden, true), .dx = {}, .gradients = {}}; }

 private:
  void run(const Buffer&) override {
    state_.fill(0);
    for (Index t = 0; t < shape().steps; ++t) stack_.step(step(t), 0, stream());
  }
  CudaRecurrent::Step step(Index t) const {
    const Index size = size_of(storage_);
    CudaRecurrent::Step call;
    call.rows = shape().rows;
    call.x = x_.address() + static_cast<CudaAddress>(t * shape().rows * shape().inputs * size);
    call.y = y_.address() + static_cast<CudaAddress>(t * shape().rows * shape().hidden * size);
    call.weights = weights_.address();
    call.state = state_.address();
    return call;
  }

  Recurrent<float> layer_;
  CudaRecurrent stack_;
  Buffer weights_, x_, y_, state_;
};

/// The scan by itself; its terms are its weights.
class GpuScan : public OnGpu {
 public:
  GpuScan(const std::string& name, const Problem& problem)
      : OnGpu(problem),
        scan_({.channels = problem.test.shape.hidden,
               .form = problem.test.cell == "scan-log" ? ScanForm::logarithmic : ScanForm::linear,
               .type = type(),
               .regime = regime_of(name)}),
        h_(room_for(positions() * shape().hidden)) {
    const std::vector<Array> terms = problem.weights_for(name);
    a_ = on_gpu(terms[0].values), b_ = on_gpu(terms[1].values);
    scan_.prepare(forward());
    if (training()) {
      dy_ = on_gpu(problem.dy);
      da_ = room_for(positions() * shape().hidden), db_ = room_for(positions() * shape().hidden);
      scan_.prepare(backward(dy_));
    }
    workspace_ = room(scan_.workspace_bytes());
  }

  Answers<float> last() override { return {.y = rows_of(h_, shape().hidden), .dx = {}, .gradients = {}}; }

 private:
  void run(const Buffer& dh) override {
    scan_.forward(forward(), workspace_.address(), stream());
    if (training()) scan_.backward(backward(dh), workspace_.address(), stream());
  }
  void add_gradients(Answers<float>& answers) override {
    answers.gradients.emplace_back("a", rows_of(da_, shape().hidden));
    answers.gradients.emplace_back("b", rows_of(db_, shape().hidden));
  }
  CudaSequence channels(const Buffer& buffer) const { return view(buffer, shape().hidden); }
  CudaScan::Forward forward() const { return {batch(), {channels(a_), channels(b_), {}}, channels(h_)}; }
  CudaScan::Backward backward(const Buffer& dh) const {
    return {batch(), {channels(a_), channels(b_), {}}, channels(h_), channels(dh), {channels(da_), channels(db_), {}}};
  }

  CudaScan scan_;
  Buffer a_, b_, h_, da_, db_, workspace_;
};

/// Additions and multiplications a second of a large product; of floats, a third of what tensor cores make of rounded
/// ones, as each is made of three.
double product_rate(const std::string& dtype) {
  static std::map<std::string, double> rates;
  if (const auto known = rates.find(dtype); known != rates.end()) return known->second;
  constexpr Index n = 4096;
  Stream stream(cuda::Device::get(0));
  Clock clock(stream);
  const Storage storage = storage_of(dtype);
  ProductShape shape{.storage = storage, .result = storage, .m = n, .n = n, .k = n};
  shape.b_transposed = true;
  shape.tf32 = storage == Storage::f32;
  shape.a_stride = shape.b_stride = shape.d_stride = n;
  const Product product(stream.device(), shape);
  const auto bytes = static_cast<std::size_t>(n * n * size_of(storage));
  Buffer a(stream, bytes), b(stream, bytes), d(stream, bytes), workspace(stream, product.workspace_bytes());
  a.fill(0), b.fill(0);
  const double ms = clock.median(
      [&] { product.run(a.address(), b.address(), d.address(), 0, workspace.address(), stream.handle()); });
  return rates[dtype] = 2.0 * n * n * n / (ms * 1e-3) / (shape.tf32 ? 3 : 1);
}

/// Bytes a second, read and written together, of a copy.
double copy_rate() {
  static const double rate = [] {
    constexpr std::size_t bytes = std::size_t{512} << 20;
    Stream stream(cuda::Device::get(0));
    Clock clock(stream);
    Buffer from(stream, bytes), to(stream, bytes);
    from.fill(1);
    const double ms = clock.median(
        [&] { check(driver().copy_on_device(to.address(), from.address(), bytes, stream.handle()), "copying"); });
    return 2.0 * static_cast<double>(bytes) / (ms * 1e-3);
  }();
  return rate;
}

}  // namespace

std::unique_ptr<Contender> make_ours_on_gpu(const std::string& name, const Problem& problem) {
  if (is_bare_scan(problem.test.cell)) return std::make_unique<GpuScan>(name, problem);
  if (name == "penstock-loop") return std::make_unique<GpuLoop>(name, problem);
  try {
    return std::make_unique<GpuLayer>(name, problem);
  } catch (const Error& error) {
    // A regime by name may be impossible; what the planner chooses may not.
    if (error.code() == ErrorCode::unsupported && name != "penstock") throw NotOffered{error.what()};
    throw;
  }
}

Limit limit_on_gpu(const Case& test) {
  const auto& [rows, steps, inputs, hidden] = test.shape;
  const double positions = static_cast<double>(rows) * static_cast<double>(steps);
  const double size = static_cast<double>(size_of(storage_of(test.dtype)));
  const bool training = test.pass == Pass::training;
  Limit limit;
  if (is_bare_scan(test.cell)) {
    // Forward: a, b, h. Backward: a, h, dh, da, db, and b as a logarithm.
    const double arrays = !training ? 3.0 : test.cell == "scan" ? 8.0 : 9.0;
    limit.bytes = arrays * size * positions * static_cast<double>(hidden);
    limit.seconds = limit.recurrent = limit.bytes / copy_rate();
    limit.bound = "memory";
    return limit;
  }
  const double outputs = static_cast<double>(find_cell(test.cell).gates * hidden);
  limit.flops = 2.0 * (training ? 3.0 : 1.0) * positions * outputs * static_cast<double>(inputs);
  limit.input = limit.seconds = limit.flops / product_rate(test.dtype);
  limit.bound = "products";
  const double moving = (training ? 2.0 : 1.0) * size * positions * static_cast<double>(inputs + hidden) / copy_rate();
  if (moving > limit.seconds) limit.seconds = moving, limit.bound = "memory";
  return limit;
}

}  // namespace penstock::bench
