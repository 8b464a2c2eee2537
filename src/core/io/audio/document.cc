#include "io/audio/document.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/json_reader.h"

namespace penstock::io::audio {
namespace {

constexpr std::size_t kMostAxes = 4;       // of an array; a convolution over images has four
constexpr std::size_t kMostObjects = 512;  // layers, tensors of a state_dict, arrays of a layer

/// Fields with numbers or texts that a reader knows, of all objects but a state_dict.
constexpr std::array kKnown = {
    "activation", "architecture", "bias_fl", "dilation", "epsilon", "groups", "hidden_size", "in_channels", "in_gain",
    "in_shape", "in_skip", "input_size", "kernel_size", "model", "num_layers", "out_channels", "out_gain",
    "output_size", "padding", "sample_rate", "samplerate", "shape", "skip", "strides", "type", "unit_type", "weights",
    // of conv2d
    "kernel_size_feature", "kernel_size_time", "num_features_in", "num_filters_in", "num_filters_out"};

class DocumentReader {
 public:
  DocumentReader(std::string_view content, const std::string& source) : json_(content, "the model"), source_(source) {}

  Document read() {
    Document to;
    to.top.place = source_;
    const std::pair<std::string_view, Object*> objects[] = {{"model_data", &to.model_data},
                                                            {"state_dict", &to.state_dict},
                                                            {"config", &to.config},
                                                            {"metadata", &to.metadata}};
    const auto field = [&](std::string_view key) {
      if (key == "layers") return layers(to.layers);
      const auto* const found = std::ranges::find(objects, key, &std::pair<std::string_view, Object*>::first);
      if (found == std::end(objects) || json_.next() != '{') return value(to.top, key, is_known(key));
      found->second->place = fmt::format("{}: {}", source_, key);
      const bool all = key == "state_dict";
      return json_.object([&](std::string_view name) { return value(*found->second, name, all || is_known(name)); });
    };
    if (!json_.object(field) || !json_.finish()) fail(ErrorCode::bad_input, "{}: {}", source_, json_.problem());
    return to;
  }

 private:
  static bool is_known(std::string_view key) { return std::ranges::find(kKnown, key) != kKnown.end(); }

  bool layers(std::vector<Object>& all) {
    if (!all.empty()) return json_.mistake("one list of layers");
    return json_.array([&] {
      if (all.size() == kMostObjects) return json_.mistake("at most 512 layers");
      Object& layer = all.emplace_back();
      const bool read = json_.object([&](std::string_view key) {
        if (key != "weights") return value(layer, key, is_known(key));
        return json_.array([&] {
          if (layer.weights.size() == kMostObjects) return json_.mistake("at most 512 arrays of weights");
          return array(layer.weights.emplace_back());
        });
      });
      layer.place = fmt::format("{}: layers[{}] ({})", source_, all.size() - 1, one_word(layer.text("type")));
      return read;
    });
  }

  static std::string one_word(std::string_view type) {
    const bool plain = std::ranges::all_of(type, [](char c) { return c >= '-' && c <= 'z'; });
    return plain && type.size() < 40 ? std::string(type) : in_quotes(type);
  }

  bool value(Object& object, std::string_view key, bool known) {
    const char next = json_.next();
    if (!known || next == '{') return json_.skip();
    const std::string name(key);
    if (object.numbers.contains(name) || object.texts.contains(name)) return json_.mistake("each field once");
    if (object.numbers.size() == kMostObjects) return json_.mistake("at most 512 arrays");
    return next == '"' ? json_.string(object.texts[name]) : array(object.numbers[name]);
  }

  /// Nested lists of equal lengths.
  bool array(Array& to) {
    rank_ = kMostAxes + 1;
    return list(to, 0);
  }
  bool list(Array& to, std::size_t depth) {
    if (json_.next() != '[') {
      if (rank_ > kMostAxes) rank_ = depth;
      return rank_ == depth ? number(to.values.emplace_back()) : json_.mistake("lists of equal depth");
    }
    if (depth == kMostAxes) return json_.mistake("at most 4 lists in each other");
    Index count = 0;
    if (!json_.array([&] { return list(to, depth + 1) && ++count > 0; })) return false;
    if (count == 0 && depth > 0) return json_.mistake("a list of numbers");
    to.shape.resize(std::max(to.shape.size(), depth + 1), 0);
    if (to.shape[depth] != 0 && to.shape[depth] != count) return json_.mistake("lists of equal length");
    to.shape[depth] = count;
    return true;
  }
  bool number(float& to) {
    const char next = json_.next();
    to = next == 't' ? 1.0F : next == 'n' ? -1.0F : 0.0F;
    if (next == 't' || next == 'f' || next == 'n') return json_.skip();
    double value = 0;
    if (!json_.number(value)) return false;
    if (std::abs(value) > std::numeric_limits<float>::max()) return json_.mistake("a float of 32 bits");
    to = static_cast<float>(value);
    return true;
  }

  JsonReader json_;
  const std::string& source_;
  std::size_t rank_ = 0;  // of the array that is read; more than kMostAxes: not yet known
};

}  // namespace

double Object::number(std::string_view name, std::optional<double> otherwise) const {
  const auto found = numbers.find(name);
  if (found != numbers.end() && !found->second.values.empty()) return static_cast<double>(found->second.values.back());
  if (!otherwise) refuse(ErrorCode::bad_input, "the number {} is missing", name);
  return *otherwise;
}

Index Object::integer(std::string_view name, Index least, Index most, std::optional<Index> otherwise) const {
  const double value = number(name, otherwise ? std::optional(static_cast<double>(*otherwise)) : std::nullopt);
  if (!(value >= static_cast<double>(least) && value <= static_cast<double>(most) && value == std::floor(value))) {
    refuse(ErrorCode::bad_input, "{} is {}, expected a whole number from {} to {}", name, value, least, most);
  }
  return static_cast<Index>(value);
}

std::string_view Object::text(std::string_view name) const {
  const auto found = texts.find(name);
  return found == texts.end() ? std::string_view() : found->second;
}

const Array& Object::array(std::string_view name, const network::Shape& shape) const {
  const auto found = numbers.find(name);
  if (found == numbers.end()) refuse(ErrorCode::bad_input, "the array {} is missing", name);
  require_shape(name, found->second, shape);
  return found->second;
}

void Object::require_shape(std::string_view name, const Array& array, const network::Shape& shape) const {
  if (array.shape == shape) return;
  refuse(ErrorCode::bad_input, "{} has the shape [{}], expected [{}]", name, fmt::join(array.shape, ", "),
         fmt::join(shape, ", "));
}

Document read_document(std::string_view content, const std::string& source) {
  return DocumentReader(content, source).read();
}

}  // namespace penstock::io::audio
