#include "answers/text_score.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/error.h"
#include "penstock/sequence_run.h"
#include "terminal/signals.h"
#include "terminal/units.h"

namespace penstock::cli {

void answer_bytes(const Model& model, Input& input, const Execution& execution, ByteAnswers& answers,
                  const std::function<void(std::string_view text)>& seen) {
  SequenceRun sequence(model, execution);
  const auto outputs = static_cast<std::size_t>(model.data().output_size());
  for (std::string_view text = input.read(); !text.empty(); text = input.read()) {
    seen(text);
    for (; !text.empty(); text.remove_prefix(std::min<std::size_t>(SequenceRun::piece, text.size()))) {
      const std::string_view piece = text.substr(0, SequenceRun::piece);
      for (const char byte : piece) sequence.add(static_cast<unsigned char>(byte));
      const auto logits = sequence.run();
      for (std::size_t i = 0; i < piece.size(); ++i) {
        answers.answer(static_cast<unsigned char>(piece[i]), logits.subspan(i * outputs, outputs));
      }
    }
  }
}

TextScore score_text(const Model& model, const std::string& path, const Execution& execution, ByteAnswers& answers,
                     bool shows_progress) {
  Input input(path);
  if (shows_progress) input.show_progress();
  TextScore score{.file = path};
  answer_bytes(model, input, execution, answers,
               [&](std::string_view text) { score.bytes += static_cast<Index>(text.size()); });
  if (score.bytes == 0 && !interrupted()) fail(ErrorCode::bad_input, "{}: the file is empty", printable(path));
  score.bits = answers.bits();
  score.scored = answers.scored();
  return score;
}

Json score_json(const TextScore& score) {
  Json json = {{"file", score.file}, {"bytes", score.bytes},     {"scored", score.scored},
               {"bits", score.bits}, {"bits_per_byte", nullptr}, {"loss", nullptr}};
  if (score.scored > 0) {
    json["bits_per_byte"] = score.bits_per_byte();
    json["loss"] = score.loss();
  }
  return json;
}

std::string score_row(const TextScore& score) {
  const bool known = score.scored > 0;
  return fmt::format("{:>9}  {:>9}  {:>15}  {}\n", known ? fmt::format("{:.4f}", score.bits_per_byte()) : "-",
                     known ? fmt::format("{:.4f}", score.loss()) : "-", with_commas(score.bytes), score.file);
}

}  // namespace penstock::cli
