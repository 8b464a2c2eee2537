#pragma once

#include <string>

#include "penstock/data/sound.h"
#include "terminal/latency.h"
#include "terminal/signals.h"

namespace penstock::cli {

/// A sound file answered sample by sample, as a device would: the time that takes shows whether it keeps up.
class SoundStream {
 public:
  /// Reads the sound. Throws Error as read_sound() does; bad_input for a sampling rate other than `rate`; 0: any.
  SoundStream(const std::string& input, double rate);

  /// Calls float answer(float) for each sample and writes the answers to `output`. Returns false, without writing, if
  /// the user interrupts.
  template <class Answer>
  bool run(const std::string& output, const Answer& answer) {
    out_.samples.reserve(in_.samples.size());
    const auto start = Latency::Clock::now();
    for (const float sample : in_.samples) {
      if (interrupted()) return false;
      out_.samples.push_back(answer(sample));
    }
    seconds_ = std::chrono::duration<double>(Latency::Clock::now() - start).count();
    write_sound(output_ = output, out_);
    return true;
  }
  /// Prints the real-time factor, the error against the sound `target` unless it is empty, and `latency` unless null.
  /// The target follows the input by `shift` samples.
  void report(const std::string& target, Index shift, const Latency* latency) const;

 private:
  Sound in_, out_;
  std::string output_;
  double seconds_ = 0.0;
};

}  // namespace penstock::cli
