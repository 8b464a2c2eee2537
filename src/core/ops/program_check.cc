#include "ops/program_check.h"

#include <algorithm>

#include "base/check.h"
#include "ops/tensor_check.h"

namespace penstock::ops {

void check_dtype(DType dtype, Device device, bool stores_bf16) {
  const bool cuda = device.is_cuda(), bf16 = dtype == DType::bf16;
  if (dtype == DType::f32 || (cuda ? bf16 || dtype == DType::f16 : dtype == DType::f64 || (bf16 && stores_bf16)))
    return;
  const char* const of_cpu = stores_bf16 ? "f32, f64 or bf16" : "f32 or f64";
  fail(ErrorCode::unsupported, "dtype must be {} on {}, not {}", cuda ? "f32, bf16 or f16" : of_cpu, to_string(device),
       to_string(dtype));
}

void check_extent(const FormExtent& extent, bool lengths) {
  constexpr Index most = Index{1} << 31;
  require_argument(extent.rows >= 1 && extent.rows < most, "rows", extent.rows, "1 to {}", most - 1);
  require_argument(extent.steps >= 1 && extent.steps < most, "steps", extent.steps, "1 to {}", most - 1);
  require_argument(extent.positions >= 0 && extent.positions <= extent.rows * extent.steps, "positions",
                   extent.positions, "0 to {} (rows x steps)", extent.rows * extent.steps);
  require(extent.positions == 0 || !lengths, "lengths and positions exclude each other: rows are padded or packed");
}

void check_alignment(int alignment, DType dtype) {
  const bool power = alignment == 2 || alignment == 4 || alignment == 8 || alignment == 16;
  require_argument(power && alignment >= static_cast<int>(std::min<std::size_t>(size_of(dtype), 16)), "alignment",
                   alignment, "{}, a power of two, to 16", size_of(dtype));
}

void require_device(const Context& context, Device device) {
  require(context.execution.device == device, "context.execution.device must be {}, not {}", to_string(device),
          to_string(context.execution.device));
}

void require_batch(const Batch& batch, const FormExtent& extent, bool lengths, bool reset, Device device) {
  require(batch.rows == extent.rows && batch.steps == extent.steps,
          "batch must have the {} rows and {} steps of the program's form, not {} and {}", extent.rows, extent.steps,
          batch.rows, batch.steps);
  const auto check = [](const void* given, bool wanted, const char* name) {
    require((given != nullptr) == wanted, "batch.{} must be {} by the program's form", name, wanted ? "there" : "null");
  };
  check(batch.lengths, lengths, "lengths");
  check(batch.cu_seqlens, extent.positions > 0, "cu_seqlens");
  check(batch.reset, reset, "reset");
  require(!batch.by_steps || (extent.positions > 0 && !device.is_cuda()),
          "batch.by_steps must be false unless rows are packed, on a CPU");
  if (extent.positions == 0 || device.is_cuda()) return;
  require(batch.cu_seqlens[batch.rows] == extent.positions,
          "batch.cu_seqlens must end with the {} positions of the program's form, not {}", extent.positions,
          batch.cu_seqlens[batch.rows]);
}

void require_sequence(const char* name, const Tensor& tensor, const FormExtent& extent, Index channels) {
  const bool packed = extent.positions > 0;
  const std::array<Index, 3> shape = packed ? std::array<Index, 3>{extent.positions, channels, 0}
                                            : std::array<Index, 3>{extent.rows, extent.steps, channels};
  const std::size_t rank = packed ? 2 : 3;
  require(has_shape(tensor, shape.data(), static_cast<int>(rank)), "{} must be [{}], not [{}]", name,
          fmt::join(shape.begin(), shape.begin() + rank, ", "),
          fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, ", "));
  require(channels == 1 || tensor.strides[rank - 1] == 1, "{} must have its channels side by side, not {} apart", name,
          tensor.strides[rank - 1]);
}

}  // namespace penstock::ops
