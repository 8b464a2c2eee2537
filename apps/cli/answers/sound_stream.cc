#include "answers/sound_stream.h"

#include <fmt/format.h>

#include "answers/score_report.h"
#include "options/output_file.h"
#include "penstock/error.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {

SoundStream::SoundStream(const std::string& input, double rate) : in_(read_sound(input)) {
  if (in_.channels > 1) say(fmt::format("{}: {} channels, averaged\n", printable(input), in_.channels));
  out_.sample_rate = in_.sample_rate;
  if (rate > 0 && static_cast<double>(in_.sample_rate) != rate) {
    fail(ErrorCode::bad_input, "{}: {} Hz, the model was trained at {} Hz", printable(input), in_.sample_rate, rate);
  }
}

void SoundStream::report(const std::string& target, Index shift, const Latency* latency) const {
  const double lasts = static_cast<double>(out_.samples.size()) / static_cast<double>(out_.sample_rate);
  std::string text = fmt::format("{}: {:.3f} s of sound in {:.3f} s, real-time factor {:.3f}\n", printable(output_),
                                 lasts, seconds_, lasts > 0.0 ? seconds_ / lasts : 0.0);
  if (!target.empty()) {
    text += sound_text(compare_sounds(out_, read_sound(target), shift));
    if (shift != 0) text += fmt::format("; the target moved by the model's latency of {} samples", shift);
    text += "\n";
  }
  if (latency != nullptr) text += latency->summary() + "\n";
  if (is_standard_output(output_)) return say(text);  // the sound went there
  print_answer(text);
}

}  // namespace penstock::cli
