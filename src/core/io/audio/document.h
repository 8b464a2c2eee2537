#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "network/network.h"

/// Models of amplifiers and effects in JSON, as other programs write them.
namespace penstock::io::audio {

/// Numbers in nested lists, row-major. Booleans are 0 and 1; null is -1, as a free extent.
struct Array {
  network::Shape shape;  ///< Empty: a number without a list.
  std::vector<float> values;
};

/// An object of the file: the fields that a reader here knows.
struct Object {
  std::string place;  ///< "amp.json: layers[1] (lstm)", for messages.
  std::map<std::string, Array, std::less<>> numbers = {};
  std::map<std::string, std::string, std::less<>> texts = {};
  std::vector<Array> weights = {};  ///< Of a layer of RTNeural.

  template <class... Args>
  [[noreturn]] void refuse(ErrorCode code, fmt::format_string<Args...> reason, Args&&... args) const {
    fail(code, "{}: {}", place, fmt::format(reason, std::forward<Args>(args)...));
  }
  /// Returns the last number of a field, or `otherwise`. Throws Error(bad_input) if it is missing.
  double number(std::string_view name, std::optional<double> otherwise = {}) const;
  /// The same for a whole number. Throws Error(bad_input) if it is not one from `least` to `most`.
  Index integer(std::string_view name, Index least, Index most, std::optional<Index> otherwise = {}) const;
  /// Returns a text; empty if it is missing.
  std::string_view text(std::string_view name) const;
  /// Returns an array. Throws Error(bad_input) if it is missing or has another shape.
  const Array& array(std::string_view name, const network::Shape& shape) const;
  /// Throws Error(bad_input) if an array has another shape.
  void require_shape(std::string_view name, const Array& array, const network::Shape& shape) const;
};

/// A file of any of the formats. Fields that no reader knows are left out.
struct Document {
  Object top, model_data, state_dict, config, metadata;
  std::vector<Object> layers;
};

/// Reads untrusted JSON. `source` names it in messages. Memory is bounded by a multiple of the size of the text. Throws
/// Error(bad_input) with the place.
Document read_document(std::string_view content, const std::string& source);

}  // namespace penstock::io::audio
