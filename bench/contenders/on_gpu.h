#pragma once

#include <string>
#include <vector>

#include "bench/contenders/contender.h"
#include "bench/contenders/rows.h"
#include "bench/kernels/measure.h"
#include "penstock/recurrent_program.h"

/// Parts that contenders on a GPU share.
namespace penstock::bench {

using namespace penstock::bench::cuda;  // NOLINT(google-build-using-namespace)

/// Returns the bytes of values in the dtype; the dtype holds them exactly, as make_problem() has drawn them.
inline std::vector<std::uint8_t> stored(const std::vector<float>& values, Storage storage) {
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

inline Storage storage_of(const std::string& dtype) {
  return dtype == "f32" ? Storage::f32 : dtype == "bf16" ? Storage::bf16 : Storage::f16;
}

/// Contender on the GPU: a stream, a clock, and memory filled in the dtype.
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
  /// Runs the timed part: forward, and for training backward from the gradients of the outputs.
  virtual void run(const Buffer& dy) = 0;
  /// Adds the gradients of the last run's training by name, except dx.
  virtual void add_gradients(Answers<float>&) {}

  bool training() const { return problem_.test.pass == Pass::training; }
  const Shape& shape() const { return problem_.test.shape; }
  Batch batch() const { return {.rows = shape().rows, .steps = shape().steps}; }
  Index positions() const { return shape().rows * shape().steps; }
  DType type() const {
    return storage_ == Storage::f32 ? DType::f32 : storage_ == Storage::bf16 ? DType::bf16 : DType::f16;
  }
  Context context(Algorithm algorithm = Algorithm::automatic) const {
    Context context;
    context.execution = {.algorithm = algorithm, .device = penstock::Device::cuda()};
    context.stream = stream_.handle();
    return context;
  }

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
  static void* data(const Buffer& buffer) { return device_pointer<void>(buffer.address()); }
  static Memory memory(const Buffer& buffer) { return {data(buffer), buffer.bytes()}; }
  Tensor sequence(const Buffer& buffer, Index channels) const {
    return Tensor::contiguous(data(buffer), type(), {shape().rows, shape().steps, channels}, penstock::Device::cuda());
  }
  /// Every tensor of a layer in memory of its own, and views of all.
  std::vector<Tensor> parameters(const Recurrent<float>& layer, DType as, bool zeros, std::vector<Buffer>& held) {
    std::vector<Tensor> tensors;
    for (const auto& parameter : layer.parameters()) {
      const std::vector<float> values(zeros ? std::vector<float>(parameter.value.size())
                                            : std::vector<float>(parameter.value.begin(), parameter.value.end()));
      const std::vector<std::uint8_t> bytes = stored(values, as == DType::f32 ? Storage::f32 : storage_);
      held.emplace_back(stream_, bytes.size());
      held.back().upload(bytes.data(), bytes.size());
      Tensor tensor = Tensor::contiguous(data(held.back()), as, {static_cast<Index>(parameter.value.size())},
                                         penstock::Device::cuda());
      tensor.rank = static_cast<int>(parameter.shape.size());
      Index stride = 1;
      for (std::size_t axis = parameter.shape.size(); axis-- > 0; stride *= parameter.shape[axis]) {
        tensor.shape[axis] = parameter.shape[axis], tensor.strides[axis] = stride;
      }
      tensors.push_back(tensor);
    }
    return tensors;
  }

  const Problem& problem_;
  Stream stream_;
  Clock clock_;
  Storage storage_;
  Buffer dy_;  // training
};

/// The recurrence of a dense cell alone, the product of the input given. Throws NotOffered for other cells.
std::unique_ptr<Contender> make_recurrence_on_gpu(const Problem& problem);

}  // namespace penstock::bench
