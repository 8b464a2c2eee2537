#pragma once

#include <functional>
#include <numbers>
#include <string>
#include <string_view>

#include "answers/step_answers.h"
#include "penstock/model.h"
#include "terminal/describe.h"
#include "terminal/input.h"

namespace penstock::cli {

/// How surprising a text is to a model.
struct TextScore {
  std::string file;
  Index bytes = 0, scored = 0;
  double bits = 0.0;

  double bits_per_byte() const { return bits / static_cast<double>(scored); }
  double loss() const { return bits_per_byte() * std::numbers::ln2; }
};

/// Gives each byte of an input to `answers`; calls seen(text) for all that is read, as it comes.
void answer_bytes(const Model& model, Input& input, const Execution& execution, ByteAnswers& answers,
                  const std::function<void(std::string_view text)>& seen);

/// Reads a file, or standard input for "-", and gives each byte to `answers`. Throws Error(bad_input) for an empty one.
TextScore score_text(const Model& model, const std::string& path, const Execution& execution, ByteAnswers& answers,
                     bool shows_progress);

Json score_json(const TextScore& score);
/// A row of the table of texts.
std::string score_row(const TextScore& score);

}  // namespace penstock::cli
