#include <algorithm>
#include <cmath>
#include <span>

#include "base/check.h"
#include "data/origin.h"
#include "data/stream_dataset.h"
#include "penstock/data/dataset.h"
#include "penstock/data/sound.h"
#include "penstock/data_description.h"

namespace penstock {
namespace {

/// Zero is silence, so that no mean is taken off.
Column fit_sound(const char* name, std::span<const float> samples, const std::string& source) {
  double power = 0.0;
  for (const float sample : samples) power += static_cast<double>(sample) * static_cast<double>(sample);
  const double scale = std::sqrt(power / static_cast<double>(samples.size()));
  if (!(scale > 1e-9)) fail(ErrorCode::bad_input, "{}: the part to train on is silent", source);
  return {name, 0.0, scale};
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
  SoundDataset(const Sound& input, const Sound& target, Index held_out, const std::string& input_path,
               const std::string& target_path, const DataDescription* origin)
      : StreamDataset("sound", static_cast<Index>(input.samples.size()) - held_out, held_out) {
    const auto training = static_cast<std::size_t>(training_steps());
    description_.task = Task::forecast;
    description_.inputs = {fit_sound("input", std::span(input.samples).first(training), input_path)};
    description_.targets = {fit_sound("output", std::span(target.samples).first(training), target_path)};
    description_.sample_rate = input.sample_rate;
    if (origin != nullptr) data::take_scaling(description_, *origin, input_path);
    input_ = scaled(input.samples, description_.inputs[0]);
    target_ = scaled(target.samples, description_.targets[0]);
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

}  // namespace

std::unique_ptr<Dataset> open_sound(const std::string& input, const std::string& target, const SoundOptions& options,
                                    const DataDescription* origin) {
  if (origin != nullptr) data::check_origin_use(*origin, "sound", input);
  data::check_validation_fraction(options.validation_fraction);
  const Sound in = read_sound(input), out = read_sound(target);
  if (in.sample_rate != out.sample_rate) {
    fail(ErrorCode::bad_input, "{}: {} samples a second, {} has {}", target, out.sample_rate, input, in.sample_rate);
  }
  if (in.samples.size() != out.samples.size()) {
    fail(ErrorCode::bad_input, "{}: {} samples, {} has {}; they must begin and end together", target,
         out.samples.size(), input, in.samples.size());
  }
  if (origin != nullptr && in.sample_rate != origin->sample_rate) {
    fail(ErrorCode::incompatible, "{}: {} samples a second, the model is for {}", input, in.sample_rate,
         origin->sample_rate);
  }
  const auto count = static_cast<Index>(in.samples.size());
  const Index held_out = data::held_out(count, options.validation_fraction);
  if (count - held_out < 2) fail(ErrorCode::bad_input, "{}: {} samples are too few to learn from", input, count);
  return std::make_unique<SoundDataset>(in, out, held_out, input, target, origin);
}

}  // namespace penstock
