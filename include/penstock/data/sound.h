#pragma once

#include <memory>
#include <string>
#include <vector>

#include "penstock/data/dataset.h"

namespace penstock {

/// One channel of sound.
struct Sound {
  Index sample_rate = 0;       ///< Samples a second.
  std::vector<float> samples;  ///< Full scale is -1 to 1.
};

/// Reads a file that libsndfile knows (WAV, AIFF, FLAC, Ogg, ...); several channels become their mean.
/// Throws Error(unsupported) without that library, Error(io_failure | bad_input) for the file.
Sound read_sound(const std::string& path);
/// Writes a WAV file of 32-bit floats by a FileWriter. Throws Error(io_failure | invalid_argument).
void write_sound(const std::string& path, const Sound& sound);

struct SoundOptions {
  double validation_fraction = 0.2;  ///< The last part is held out; [0, 0.5].
};
/// An effect or an amplifier to be learnt: what went in, and what came out at the same moment. A forecast model of one
/// input and one target, each in units of its root mean square in the training part, so that a mean squared error is an
/// error-to-signal ratio. Throws Error(bad_input) for files of different sample rates or lengths, or of silence.
std::unique_ptr<Dataset> open_sound(const std::string& input, const std::string& target,
                                    const SoundOptions& options = {});

/// How far a sound is from what it should be.
struct SoundError {
  double error_to_signal = 0.0;  ///< ESR: power of the difference over that of the target.
  double dc = 0.0;               ///< Squared mean of the difference over the power of the target.
};
/// Throws Error(invalid_argument) unless both have as many samples, and the target is not silent.
SoundError compare_sounds(const Sound& sound, const Sound& target);

}  // namespace penstock
