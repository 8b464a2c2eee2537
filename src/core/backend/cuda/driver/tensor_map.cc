#include "backend/cuda/driver/tensor_map.h"

#include "backend/cuda/driver/device.h"
#include "backend/cuda/driver/driver.h"
#include "base/check.h"

namespace penstock::cuda {

template <std::size_t rank>
TensorMap tensor_map(plan::Storage storage, DeviceAddress data, const std::array<MapAxis, rank>& axes, int line) {
  require(storage != plan::Storage::f32, "a tensor of the copy engine must be bf16 or f16, not f32");
  require(line == 64 || line == 128, "a line of the copy engine must be 64 or 128 bytes, not {}", line);
  std::array<std::uint64_t, rank> sizes{}, strides{};
  std::array<unsigned, rank> box{}, steps{};
  for (std::size_t n = 0; n < rank; ++n) {
    sizes[n] = static_cast<std::uint64_t>(axes[n].size);
    if (n > 0) strides[n - 1] = static_cast<std::uint64_t>(axes[n].stride);
    box[n] = static_cast<unsigned>(axes[n].box), steps[n] = 1;
  }
  constexpr int interleave_none = 0, fill_zeros = 0;
  TensorMap map;
  check(driver().tensor_map_encode(&map, storage == plan::Storage::bf16 ? map_bf16 : map_f16,
                                   static_cast<unsigned>(rank), device_pointer<void>(data), sizes.data(),
                                   strides.data(), box.data(), steps.data(), interleave_none,
                                   line == 64 ? map_swizzle_64 : map_swizzle_128, map_promote_256, fill_zeros),
        "describing a tensor to the copy engine");
  return map;
}

template TensorMap tensor_map<3>(plan::Storage, DeviceAddress, const std::array<MapAxis, 3>&, int);
template TensorMap tensor_map<4>(plan::Storage, DeviceAddress, const std::array<MapAxis, 4>&, int);

}  // namespace penstock::cuda
