#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/data/dataset.h"

/// Sound: reading, writing and comparing sound files, and datasets of an effect's input and output.
namespace penstock {

/// One channel of sound.
struct Sound {
  Index sample_rate = 0;       ///< Samples per second.
  std::vector<float> samples;  ///< [T]; full scale is -1 to 1.
  Index channels = 1;          ///< Of the file. Samples are their averages.
};

/// Reads a sound file of a format that libsndfile supports: WAV, AIFF, FLAC, Ogg, ... Several channels are averaged.
/// Throws Error: unsupported without libsndfile; io_failure if the file cannot be read; bad_input for bad content.
Sound read_sound(const std::string& path);
/// Writes a WAV file of 32-bit floats with a FileWriter. Throws Error: io_failure; invalid_argument for an impossible
/// sample rate or too many samples for WAV.
void write_sound(const std::string& path, const Sound& sound);

/// How many samples a recorded target follows its input, and how sure that is.
struct LatencyEstimate {
  Index samples = 0;      ///< Below 0: the target is ahead of the input.
  bool clear = false;     ///< The best shift stands out. Otherwise none does, or two do.
  double contrast = 0.0;  ///< Correlation of the best shift / of the next best one; 0: there is none.
  Index next = 0;         ///< The next best shift.
  double at_zero = 0.0;   ///< Correlation without a shift / of the best one.
};
/// Estimates the latency by cross-correlation, with all frequencies that both sounds have weighted alike, over shifts
/// of at most half a second and half of the shorter sound. Reads up to 32 parts of long sounds.
LatencyEstimate estimate_latency(const Sound& input, const Sound& target);

/// Options of open_sound().
struct SoundOptions {
  double validation_fraction = 0.2;   ///< Fraction of the samples, at the end, that is held out: [0, 0.5].
  std::optional<Index> latency = {};  ///< Samples by which the target follows the input; empty: estimated.
};
/// Opens a dataset to learn an effect or an amplifier from: the sound that goes in, and the sound that comes out.
///
/// The target is shifted by the latency, and both sounds are cut to the samples that they then share;
/// Dataset::reading() says by how much. It is a forecast dataset with one input and one target. Each is scaled by its
/// root mean square in the training part, so a mean squared error is an error-to-signal ratio. Throws what read_sound()
/// throws, and Error(bad_input) for files of different sample rates, lengths that differ by more than half a second and
/// the latency, silent files, too few samples, or a latency that cross-correlation cannot tell. With the description of
/// a model's data as `origin`, the scaling is that of the model, and another sample rate is Error(incompatible).
std::unique_ptr<Dataset> open_sound(const std::string& input, const std::string& target,
                                    const SoundOptions& options = {}, const DataDescription* origin = nullptr);

/// Errors of a sound compared with its target.
struct SoundError {
  double error_to_signal = 0.0;  ///< ESR: power of the difference / power of the target.
  double pre_emphasised = 0.0;   ///< ESR after the filter x_t - pre_emphasis x_{t-1} (penstock/learning_rules.h).
  double dc = 0.0;               ///< Squared mean of the difference / power of the target.
};
/// Returns the errors of a sound; its sample p is compared with sample p + `latency` of the target, where both exist.
/// Throws Error(bad_input) if the rates differ, the lengths differ by more than open_sound() allows, or the target is
/// silent.
SoundError compare_sounds(const Sound& sound, const Sound& target, Index latency = 0);

}  // namespace penstock
