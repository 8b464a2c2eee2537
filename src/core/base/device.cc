#include "penstock/device.h"

#include <algorithm>
#include <charconv>

#include "base/dtype.h"
#include "base/lower_case.h"
#include "base/names.h"
#include "base/quote.h"

namespace penstock {

std::string to_string(Device device) {
  return device.is_cuda() ? fmt::format("cuda:{}", device.index) : std::string("cpu");
}

namespace {

/// Returns the device meant by a name that other programs use: "did you mean cuda:1?" for "gpu:1".
std::string device_meant(std::string_view text) {
  const std::string name = lower_case(text);
  for (const char* other : {"mps", "metal", "rocm", "hip", "xpu", "tpu", "npu", "opencl", "vulkan"}) {
    if (name.starts_with(other)) return "Penstock uses NVIDIA GPUs only";
  }
  if (name == "cpu" || name.starts_with("cpu:")) return "did you mean cpu?";
  for (const std::string_view device : {"cpu", "cuda"}) {  // with letters in another order
    if (std::ranges::is_permutation(name, device)) return fmt::format("did you mean {}?", device);
  }
  const bool gpu = name.starts_with("gpu") || name.starts_with("cuda") || name.starts_with("nvidia");
  const std::size_t digit = name.find_first_of("0123456789");
  const bool number = digit != name.npos && name.find_first_not_of("0123456789", digit) == name.npos;
  if (!gpu && digit != 0) return "";
  return number ? fmt::format("did you mean cuda:{}?", name.substr(digit)) : "did you mean cuda?";
}

}  // namespace

Device parse_device(std::string_view text) {
  if (text == "cpu") return Device::cpu();
  constexpr std::string_view cuda = "cuda";
  if (text == cuda) return Device::cuda();
  if (text.starts_with("cuda:")) {
    const std::string_view number = text.substr(cuda.size() + 1);
    int index = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (error == std::errc() && end == number.data() + number.size() && index >= 0) return Device::cuda(index);
  }
  fail_argument({.argument = "device",
                 .value = std::string(text),
                 .allowed = "cpu, cuda or cuda:N with the number of a GPU",
                 .remedy = device_meant(text)},
                in_quotes(text));
}

std::string_view to_string(DType type) {
  constexpr Names<8> names = {"f32", "f64", "bf16", "f16", "i32", "i64", "u8", "i8"};
  return name_of(names, type);
}

}  // namespace penstock
