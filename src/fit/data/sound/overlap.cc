#include "data/sound/overlap.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/sound_errors.h"
#include "penstock/learning_rules.h"

namespace penstock {

data::Overlap data::overlap_of(const Sound& sound, const Sound& target, Index latency, const std::string& sound_name,
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

SoundError compare_sounds(const Sound& sound, const Sound& target, Index latency) {
  const data::Overlap both = data::overlap_of(sound, target, latency, "the sound", "the target");
  SoundErrors plain, filtered{.emphasis = pre_emphasis};
  for (std::size_t i = 0; i < both.sound.size(); ++i) {
    const auto should = static_cast<double>(both.target[i]);
    plain.add(static_cast<double>(both.sound[i]) - should, should);
    filtered.add(static_cast<double>(both.sound[i]) - should, should);
  }
  if (!(plain.power > 0.0)) fail(ErrorCode::bad_input, "the target is silent, so there is no ratio of an error to it");
  return {plain.esr(), filtered.esr(), plain.dc()};
}

}  // namespace penstock
