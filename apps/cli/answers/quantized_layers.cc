#include "answers/quantized_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "terminal/units.h"

namespace penstock::cli {

std::string share_text(double loss) {
  return loss >= 0.0 ? fmt::format("{:.2f} % lost", 100.0 * loss) : fmt::format("{:.2f} % gained", -100.0 * loss);
}

std::string layers_text(const std::vector<QuantizedLayer>& layers, bool with_all) {
  std::string out;
  if (std::ranges::all_of(layers, &QuantizedLayer::int8) && !with_all) return out;
  for (const QuantizedLayer& layer : layers) {
    out += fmt::format("{:<8} {:<30} {}{}\n", &layer == layers.data() ? "layers" : "", printable(layer.name),
                       layer.int8 ? "int8" : "left in float",
                       layer.loss ? fmt::format(", {} by itself", share_text(*layer.loss)) : "");
  }
  return out;
}

Json layers_json(const std::vector<QuantizedLayer>& layers) {
  Json all = Json::array();
  for (const QuantizedLayer& layer : layers) {
    Json entry = {{"name", layer.name}, {"int8", layer.int8}};
    if (layer.loss) entry["loss"] = *layer.loss;
    all.push_back(std::move(entry));
  }
  return all;
}

FileSizes::FileSizes(const std::string& read, const std::string& written)
    : before(static_cast<Index>(std::filesystem::file_size(read))),
      after(static_cast<Index>(std::filesystem::file_size(written))) {}

std::string FileSizes::text(const std::string& written) const {
  return fmt::format("file     {}, {} instead of {}\n", printable(written), byte_size(static_cast<double>(after)),
                     byte_size(static_cast<double>(before)));
}

}  // namespace penstock::cli
