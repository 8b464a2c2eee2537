#pragma once

#include <memory>
#include <string>
#include <vector>

#include "penstock/data/dataset.h"

/// Sound: reading, writing and comparing sound files, and datasets of an effect's input and output.
namespace penstock {

/// One channel of sound.
struct Sound {
  Index sample_rate = 0;       ///< Samples per second.
  std::vector<float> samples;  ///< [T]; full scale is -1 to 1.
};

/// Reads a sound file of a format that libsndfile supports: WAV, AIFF, FLAC, Ogg, ... Several channels are averaged.
/// Throws Error: unsupported without libsndfile; io_failure if the file cannot be read; bad_input for bad content.
Sound read_sound(const std::string& path);
/// Writes a WAV file of 32-bit floats with a FileWriter. Throws Error: io_failure; invalid_argument for an impossible
/// sample rate or too many samples for WAV.
void write_sound(const std::string& path, const Sound& sound);

/// Options of open_sound().
struct SoundOptions {
  double validation_fraction = 0.2;  ///< Fraction of the samples, at the end, that is held out: [0, 0.5].
};
/// Opens a dataset to learn an effect or an amplifier from: the sound that goes in, and the sound that comes out at the
/// same moment.
///
/// It is a forecast dataset with one input and one target. Each is scaled by its root mean square in the training part,
/// so a mean squared error is an error-to-signal ratio. Throws what read_sound() throws, and Error(bad_input) for files
/// of different sample rates or lengths, silent files, or too few samples. With the description of a model's data as
/// `origin`, the scaling is that of the model, and another sample rate is Error(incompatible).
std::unique_ptr<Dataset> open_sound(const std::string& input, const std::string& target,
                                    const SoundOptions& options = {}, const DataDescription* origin = nullptr);

/// Errors of a sound compared with its target.
struct SoundError {
  double error_to_signal = 0.0;  ///< ESR: power of the difference / power of the target.
  double dc = 0.0;               ///< Squared mean of the difference / power of the target.
};
/// Returns the errors of a sound. Throws Error(invalid_argument) if the lengths differ or the target is silent.
SoundError compare_sounds(const Sound& sound, const Sound& target);

}  // namespace penstock
