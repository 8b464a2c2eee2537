#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "io/onnx/read/graph_to_network.h"

namespace penstock::io::onnx {
namespace {

constexpr double kMostExact = 9007199254740992.0;  // integers that a double has

}  // namespace

using network::Constant;
using network::Value;

Value input_of(const ValueMessage& message, const Source& source) {
  const std::string what = fmt::format("{}: input {}", source.name, in_quotes(message.name));
  if (!message.is_tensor) fail(ErrorCode::unsupported, "{} is not a tensor", what);
  if (!message.has_shape) {
    fail(ErrorCode::unsupported, "{} has no shape: export the model with one, with names for extents that vary", what);
  }
  Value value{.name = std::string(message.name), .type = type_of(message.type, what)};
  for (const ValueMessage::Extent& extent : message.shape) {
    value.shape.push_back(extent.size);
    // Converters write "?" for every extent that they do not know.
    const bool is_name = std::ranges::any_of(extent.name, [](unsigned char c) { return std::isalpha(c) != 0; });
    value.axes.emplace_back(is_name ? extent.name : "");
  }
  return value;
}

Constant fixed_value(const Value& input, const std::vector<double>& numbers) {
  network::Shape shape = input.shape;
  Index count = 1;
  for (Index& extent : shape) {
    if (extent < 0) extent = shape.size() == 1 ? static_cast<Index>(numbers.size()) : 1;
    if (extent > (1 << 20) || (count *= extent) > (1 << 20)) {
      require_about(false, "fixed", ": input {} has too many elements to be fixed", in_quotes(input.name));
    }
  }
  if (numbers.size() != 1 && static_cast<Index>(numbers.size()) != count) {
    require_about(false, "fixed", ": input {} has the shape [{}], so it needs 1 or {} numbers, not {}",
                  in_quotes(input.name), fmt::join(input.shape, ", "), count, numbers.size());
  }
  const auto fill = [&]<class T>(T /*type*/) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(count) * sizeof(T));
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const double number = numbers.size() == 1 ? numbers[0] : numbers[i];
      if constexpr (!std::is_floating_point_v<T>) {
        using Limits = std::numeric_limits<T>;
        const double least = std::max<double>(Limits::lowest(), -kMostExact);
        const double most = std::min<double>(static_cast<double>(Limits::max()), kMostExact);
        if (!(number >= least && number <= most) || std::trunc(number) != number) {
          require_about(false, "fixed", ": input {} needs integers from {} to {}, not {}", in_quotes(input.name), least,
                        most, number);
        }
      }
      const auto value = static_cast<T>(number);
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
    return make_constant(input.type, shape, bytes);
  };
  switch (input.type) {
    case network::Type::f32:
      return fill(float{});
    case network::Type::f64:
      return fill(double{});
    case network::Type::i8:
      return fill(std::int8_t{});
    case network::Type::u8:
      return fill(std::uint8_t{});
    case network::Type::i32:
      return fill(std::int32_t{});
    case network::Type::i64:
      return fill(std::int64_t{});
    case network::Type::boolean:
      break;
  }
  return fill(bool{});
}

}  // namespace penstock::io::onnx
