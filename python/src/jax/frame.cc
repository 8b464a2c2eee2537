#include "frame.h"

#include <algorithm>
#include <new>
#include <utility>

#include "frameworks/host_memory.h"

namespace penstock::jax {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

DType type_of(xla::DataType type) {
  switch (type) {
    case xla::f32:
      return DType::f32;
    case xla::f64:
      return DType::f64;
    case xla::bf16:
      return DType::bf16;
    case xla::f16:
      return DType::f16;
    case xla::s32:
      return DType::i32;
    case xla::s64:
      return DType::i64;
    case xla::u8:
    case xla::pred:
      return DType::u8;
  }
  refuse("arrays must be of float32, float64, bfloat16, float16, int32, int64, uint8 or bool");
}

void check_batch_argument(const Tensor& tensor, DType type, Index first, Index second, const char* name) {
  if (tensor.rank != 2 || tensor.dtype != type || tensor.shape[0] != first || tensor.shape[1] != second) {
    refuse(std::string(name) + " must be " + std::string(to_string(type)) + " [" + std::to_string(first) + ", " +
           std::to_string(second) + "]");
  }
}

/// Returns the code of Abseil that JAX turns into a Python exception: InvalidArgument, ResourceExhausted, Internal.
std::int32_t status_of(ErrorCode code) {
  return code == ErrorCode::invalid_argument ? 3 : code == ErrorCode::out_of_memory ? 8 : 13;
}

xla::Error* failure(const xla::CallFrame& frame, std::int32_t status, const char* message) {
  xla::ErrorArguments arguments{sizeof(xla::ErrorArguments), nullptr, message, status};
  return frame.api->error_create(&arguments);
}

/// Reads the device and the stream of a call on a GPU. Returns XLA's error.
xla::Error* take_place(const xla::CallFrame& frame, Context& context) {
  xla::DeviceOrdinalArguments device{sizeof(xla::DeviceOrdinalArguments), nullptr, frame.context, 0};
  if (xla::Error* const error = frame.api->device_ordinal_get(&device)) return error;
  xla::StreamArguments stream{sizeof(xla::StreamArguments), nullptr, frame.context, nullptr};
  if (xla::Error* const error = frame.api->stream_get(&stream)) return error;
  context.execution.device = Device::cuda(device.device_ordinal);
  context.stream = stream.stream;
  return nullptr;
}

}  // namespace

const void* Frame::attribute(const char* name, std::int32_t type) const {
  for (Index i = 0; i < frame_.attrs.size; ++i) {
    const xla::Text& found = *frame_.attrs.names[i];
    if (std::string_view(found.ptr, found.len) == name && frame_.attrs.types[i] == type) return frame_.attrs.values[i];
  }
  refuse(std::string("the call lacks the attribute '") + name + "', or it is of another type");
}

std::span<const Index> Frame::numbers(std::size_t count) const {
  const auto& array = *static_cast<const xla::Array*>(attribute("numbers", xla::kArrayAttribute));
  if (array.dtype != xla::s64 || array.size != count) {
    refuse("the attribute 'numbers' must be " + std::to_string(count) + " integers of 64 bits, not " +
           std::to_string(array.size));
  }
  return {static_cast<const Index*>(array.data), count};
}

std::string Frame::cell() const {
  const auto& text = *static_cast<const xla::Text*>(attribute("cell", xla::kTextAttribute));
  return {text.ptr, text.len};
}

Tensor Frame::next(const xla::Buffers& buffers, Index& place, bool wanted, const char* what) const {
  if (!wanted) return {};
  const Index i = place++;
  if (i >= buffers.size || buffers.types[i] != xla::kBuffer) {
    refuse("the call has too few " + std::string(what) + ": " + std::to_string(buffers.size));
  }
  const auto& buffer = *static_cast<const xla::Buffer*>(buffers.values[i]);
  if (buffer.rank < 1 || buffer.rank > Tensor::max_rank) {
    refuse("arrays must have 1 to " + std::to_string(Tensor::max_rank) + " axes, not " + std::to_string(buffer.rank));
  }
  Tensor tensor;
  tensor.data = buffer.data;
  tensor.dtype = type_of(buffer.dtype);
  tensor.device = context_.execution.device;
  tensor.rank = static_cast<int>(buffer.rank);
  Index stride = 1;
  for (auto axis = static_cast<std::size_t>(buffer.rank); axis-- > 0;) {
    tensor.shape[axis] = buffer.dims[axis];
    tensor.strides[axis] = stride;
    stride *= buffer.dims[axis];
  }
  return tensor;
}

Tensor Frame::by_rows(Tensor tensor, bool time_first) {
  if (time_first) {
    std::swap(tensor.shape[0], tensor.shape[1]);
    std::swap(tensor.strides[0], tensor.strides[1]);
  }
  return tensor;
}

Batch Frame::batch(Index rows, Index steps, bool lengths, bool reset, bool packed) {
  Batch batch;
  batch.rows = rows, batch.steps = steps;
  if (const Tensor given = argument(lengths)) {
    check_batch_argument(given, DType::i32, rows, 2, "lengths");
    const std::span<const Index> values(static_cast<const Index*>(given.data), static_cast<std::size_t>(rows));
    for (const Index length : on_gpu() ? std::span<const Index>() : values) {
      if (length < 0 || length > steps) {
        refuse("lengths must be 0 to T = " + std::to_string(steps) + ", not " + std::to_string(length));
      }
    }
    batch.lengths = values.data();
  }
  if (const Tensor given = argument(reset)) {
    check_batch_argument(given, DType::u8, rows, steps, "the mask of resets");
    batch.reset = static_cast<const std::uint8_t*>(given.data);
  }
  if (const Tensor given = argument(packed)) {
    check_batch_argument(given, DType::i32, rows + 1, 2, "the offsets of packed rows");
    batch.cu_seqlens = static_cast<const Index*>(given.data);
  }
  return batch;
}

Memory Frame::bytes_of(const Tensor& array) {
  if (array.rank != 1 || array.dtype != DType::u8) refuse("the workspace and the tape must be u8 [bytes]");
  return {array.data, static_cast<std::size_t>(array.shape[0])};
}

Memory Frame::workspace(std::size_t bytes) {
  const Tensor given = result(on_gpu());
  finish();
  return on_gpu() ? bytes_of(given) : Memory{frameworks::scratch(bytes), bytes};
}

void Frame::finish() const {
  if (argument_ != frame_.args.size || result_ != frame_.rets.size) {
    refuse("the call must have " + std::to_string(argument_) + " arguments and " + std::to_string(result_) +
           " results, not " + std::to_string(frame_.args.size) + " and " + std::to_string(frame_.rets.size));
  }
}

xla::Error* answer(xla::CallFrame* frame, Platform platform, void (*handle)(Frame& frame)) noexcept {
  if (xla::Extension* const asked = frame->extension_start; asked && asked->type == xla::kMetadataExtension) {
    xla::Metadata& metadata = *reinterpret_cast<xla::MetadataExtension*>(asked)->metadata;
    metadata.api_version.major_version = xla::kMajorVersion;
    metadata.api_version.minor_version = xla::kMinorVersion;
    metadata.traits = platform == Platform::cuda ? xla::kCommandBufferCompatible : 0;
    return nullptr;
  }
  try {
    Context context;
    if (platform == Platform::cuda) {
      if (xla::Error* const error = take_place(*frame, context)) return error;
    }
    Frame read(*frame, context);
    handle(read);
    return nullptr;
  } catch (const Error& error) {
    return failure(*frame, status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return failure(*frame, status_of(ErrorCode::out_of_memory), "too little free memory for this call");
  } catch (const std::exception& error) {
    return failure(*frame, status_of(ErrorCode::device_failure), error.what());
  }
}

int complain(char* message, std::size_t size, const std::function<void()>& compute) noexcept {
  const auto fail = [&](ErrorCode code, std::string_view text) {
    message[text.copy(message, size - 1)] = '\0';
    return 1 + static_cast<int>(code);
  };
  try {
    compute();
    return 0;
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::exception& error) {
    return fail(ErrorCode::invalid_argument, error.what());
  }
}

}  // namespace penstock::jax
