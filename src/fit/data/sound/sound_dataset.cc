#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/sound_errors.h"
#include "data/model_to_continue.h"
#include "data/stream_dataset.h"
#include "penstock/data/dataset.h"
#include "penstock/data/sound.h"
#include "penstock/data_description.h"
#include "penstock/learning_rules.h"

namespace penstock {
namespace {

/// The samples that a sound and its target share once the target is shifted.
struct Overlap {
  std::span<const float> sound, target;  ///< [count] each.
};

/// Returns the part of both sounds in which sample p of `sound` belongs to sample p + `latency` of `target`. Throws
/// Error(bad_input), with the names of both, for different sample rates, lengths that differ by more than the latency
/// and half a second, or no such part.
Overlap overlap_of(const Sound& sound, const Sound& target, Index latency, const std::string& sound_name,
                   const std::string& target_name) {
  constexpr Index most = 10'000'000;
  require_argument(latency >= -most && latency <= most, "latency", latency, "{} to {} samples", -most, most);
  if (sound.sample_rate != target.sample_rate) {
    fail(ErrorCode::bad_input, "{}: {} samples a second, {} has {}", target_name, target.sample_rate, sound_name,
         sound.sample_rate);
  }
  const auto count = static_cast<Index>(sound.samples.size()), others = static_cast<Index>(target.samples.size());
  if (std::abs(count - others) > std::abs(latency) + sound.sample_rate / 2) {
    fail(ErrorCode::bad_input,
         "{}: {} samples, {} has {}; they must be one recording, whose lengths differ by at most half a second",
         target_name, others, sound_name, count);
  }
  const Index behind = std::max<Index>(latency, 0), ahead = std::max<Index>(-latency, 0);
  const Index shared = std::min(count - ahead, others - behind);
  if (shared < 1) {
    fail(ErrorCode::bad_input, "{}: a latency of {} samples leaves nothing of {} samples, and of {} samples in {}",
         target_name, latency, others, count, sound_name);
  }
  return {std::span(sound.samples).subspan(static_cast<std::size_t>(ahead), static_cast<std::size_t>(shared)),
          std::span(target.samples).subspan(static_cast<std::size_t>(behind), static_cast<std::size_t>(shared))};
}

/// Returns the root mean square of a part to train on.
double rms(std::span<const float> samples, const std::string& source) {
  double power = 0.0;
  for (const float sample : samples) power += static_cast<double>(sample) * static_cast<double>(sample);
  const double scale = std::sqrt(power / static_cast<double>(samples.size()));
  if (!(scale > 1e-9)) fail(ErrorCode::bad_input, "{}: the part to train on is silent", source);
  return scale;
}

std::vector<float> scaled(std::span<const float> samples, const Column& column) {
  std::vector<float> values(samples.size());
  std::transform(samples.begin(), samples.end(), values.begin(),
                 [&](float sample) { return static_cast<float>(static_cast<double>(sample) / column.scale); });
  return values;
}

/// Step p reads sample p of the input and is asked for sample p of the target.
class SoundDataset final : public data::StreamDataset {
 public:
  SoundDataset(const Overlap& both, Index sample_rate, Index latency, Index held_out, const std::string& input_path,
               const std::string& target_path, const DataDescription* origin)
      : StreamDataset("sound", static_cast<Index>(both.sound.size()) - held_out, held_out) {
    const auto training = static_cast<std::size_t>(training_steps());
    description_.task = Task::forecast;
    // Zero is silence, so that no mean is taken off.
    description_.inputs = {{"input", 0.0, rms(both.sound.first(training), input_path)}};
    description_.targets = {{"output", 0.0, rms(both.target.first(training), target_path)}};
    description_.sample_rate = sample_rate;
    description_.latency = latency;
    if (origin != nullptr) data::take_scaling(description_, *origin, input_path);
    input_ = scaled(both.sound, description_.inputs[0]);
    target_ = scaled(both.target, description_.targets[0]);
    for (const auto* values : {&input_, &target_}) {
      fingerprint_ = data::fingerprint(data::bytes_of(*values), fingerprint_ + 1);
    }
    fingerprint_ += static_cast<std::uint64_t>(held_out);
  }

 private:
  void fill(const std::vector<Index>& places, Part /*part*/, Example& example) const override {
    example.features.assign(places.size(), 0.0f);
    example.targets.assign(places.size(), 0.0f);
    example.weights.assign(places.size(), 0.0f);
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i] < 0) continue;
      const auto place = static_cast<std::size_t>(places[i]);
      example.features[i] = input_[place];
      example.targets[i] = target_[place];
      example.weights[i] = 1.0f;
    }
  }

  std::vector<float> input_, target_;  // [samples], normalised
};

/// Returns the latency that cross-correlation finds; `finding` becomes how. Where all shifts are much alike, as
/// for a steady tone, the files are taken as they are.
Index found_latency(const Sound& input, const Sound& target, const std::string& input_path,
                    const std::string& target_path, Message& finding) {
  constexpr double alike = 0.9;
  rms(input.samples, input_path);
  rms(target.samples, target_path);
  const LatencyEstimate found = estimate_latency(input, target);
  if (found.clear) {
    finding = fmt::format(", by cross-correlation: its peak is {:.1f} times the next", found.contrast);
    return found.samples;
  }
  if (found.at_zero < alike) {
    fail_with(
        ErrorCode::bad_input, {the_option("latency", "0"), " if both begin together, else their distance in samples"},
        "{}: cross-correlation cannot tell how far it follows {}: a shift of {} samples matches only {:.2f} times "
        "as well as one of {}",
        target_path, input_path, found.samples, found.contrast, found.next);
  }
  finding = Message{", as recorded: other shifts match nearly as well; ", the_option("latency"), " sets another"};
  return 0;
}

/// Returns "latency 12 samples (1.5 ms)" with `how` it is known, and what is cut.
Message describe_latency(Index latency, const Message& how, const Sound& input, const Sound& target, Index shared) {
  const auto cut = [&](const char* name, std::size_t samples, Index begin) {
    const Index end = static_cast<Index>(samples) - begin - shared;
    std::string text;
    if (begin > 0) text += fmt::format("; the first {} samples of the {} are cut", begin, name);
    if (end > 0) text += fmt::format("; the last {} samples of the {} are cut", end, name);
    return text;
  };
  const double milliseconds = 1e3 * static_cast<double>(latency) / static_cast<double>(input.sample_rate);
  return Message(fmt::format("latency {} samples ({:.3g} ms{})", latency, milliseconds,
                             latency < 0 ? ": the target is ahead" : "")) +
         how +
         (cut("input", input.samples.size(), std::max<Index>(-latency, 0)) +
          cut("target", target.samples.size(), std::max<Index>(latency, 0)));
}

}  // namespace

SoundError compare_sounds(const Sound& sound, const Sound& target, Index latency) {
  const Overlap both = overlap_of(sound, target, latency, "the sound", "the target");
  SoundErrors plain, filtered{.emphasis = pre_emphasis};
  for (std::size_t i = 0; i < both.sound.size(); ++i) {
    const auto should = static_cast<double>(both.target[i]);
    plain.add(static_cast<double>(both.sound[i]) - should, should);
    filtered.add(static_cast<double>(both.sound[i]) - should, should);
  }
  if (!(plain.power > 0.0)) fail(ErrorCode::bad_input, "the target is silent, so there is no ratio of an error to it");
  return {plain.esr(), filtered.esr(), plain.dc()};
}

std::unique_ptr<Dataset> open_sound(const std::string& input, const std::string& target, const SoundOptions& options,
                                    const DataDescription* origin) {
  if (origin != nullptr) data::check_origin_use(*origin, "sound", input);
  data::check_validation_fraction(options.validation_fraction);
  const Sound in = read_sound(input), out = read_sound(target);
  overlap_of(in, out, options.latency.value_or(0), input, target);  // refuses sounds that are no pair
  if (origin != nullptr && in.sample_rate != origin->sample_rate) {
    fail(ErrorCode::incompatible, "{}: {} samples a second, the model is for {}", input, in.sample_rate,
         origin->sample_rate);
  }
  Message how = ", as given";
  const Index latency = options.latency ? *options.latency : found_latency(in, out, input, target, how);
  const Overlap both = overlap_of(in, out, latency, input, target);
  const auto count = static_cast<Index>(both.sound.size());
  const Index held_out = data::held_out(count, options.validation_fraction);
  if (count - held_out < 2) fail(ErrorCode::bad_input, "{}: {} samples are too few to learn from", input, count);
  auto dataset = std::make_unique<SoundDataset>(both, in.sample_rate, latency, held_out, input, target, origin);
  dataset->add_reading(describe_latency(latency, how, in, out, count));
  for (const auto& [path, sound] : {std::pair(&input, &in), std::pair(&target, &out)}) {
    if (sound->channels > 1) dataset->add_reading(fmt::format("{}: {} channels, averaged", *path, sound->channels));
  }
  return dataset;
}

}  // namespace penstock
