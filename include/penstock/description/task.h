#pragma once

#include <string_view>

/// Purpose of a model.
namespace penstock {

/// Purpose of a model. It decides the loss, the shape of the targets and the answers on a stream.
enum class Task {
  language,  ///< Predicts the next byte of a text: tokens in, 256 logits out at every step.
  forecast,  ///< Predicts the next `horizon` values of chosen columns of a time series, at every step.
  classify,  ///< Predicts one label per sequence, or per step in some built-in tasks: logits over `classes`.
};
std::string_view to_string(Task task);
/// Throws Error(invalid_argument) for an unknown name.
Task parse_task(std::string_view text);

}  // namespace penstock
