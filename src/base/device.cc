#include "penstock/device.h"

#include <charconv>

#include "base/check.h"
#include "base/dtype.h"
#include "base/quote.h"

namespace penstock {

std::string to_string(Device device) {
  return device.is_cuda() ? fmt::format("cuda:{}", device.index) : std::string("cpu");
}

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
  fail(ErrorCode::invalid_argument, "device must be cpu, cuda or cuda:N with the number of a GPU, not {}",
       in_quotes(text));
}

std::string_view to_string(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
  }
  return "?";
}

}  // namespace penstock
