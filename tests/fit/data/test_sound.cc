// Sounds and their targets: the latency, what is cut, and what is refused.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/random.h"
#include "penstock/data.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Index rate = 8000;

Sound noise(Index count, std::uint64_t seed) {
  Random random(seed);
  Sound sound{.sample_rate = rate, .samples = {}};
  for (Index t = 0; t < count; ++t) sound.samples.push_back(static_cast<float>(0.2 * random.normal()));
  return sound;
}

/// Notes of a plucked string: decaying, with harmonics, at random times and pitches.
Sound notes(Index count, std::uint64_t seed) {
  Random random(seed);
  Sound sound{.sample_rate = rate, .samples = std::vector<float>(static_cast<std::size_t>(count))};
  for (Index begin = 0; begin < count; begin += 500 + static_cast<Index>(random.below(1500))) {
    const double pitch = 0.07 * std::pow(2.0, static_cast<double>(random.below(24)) / 12.0);  // from 90 Hz
    for (Index t = begin; t < count; ++t) {
      const auto age = static_cast<double>(t - begin);
      double sample = 0.0;
      for (double harmonic = 1.0; harmonic < 8.0; ++harmonic) {
        sample += std::exp(-age * harmonic / 2500.0) * std::sin(harmonic * pitch * age) / harmonic;
      }
      sound.samples[t] += static_cast<float>(0.2 * sample);
    }
  }
  return sound;
}

/// A distorting amplifier, and a loudspeaker behind it that passes low frequencies: y_t = 0.6 y_{t-1} + 0.4 tanh(6
/// x_t).
Sound amplified(Sound sound) {
  float last = 0.0f;
  for (float& sample : sound.samples) sample = last = 0.6f * last + 0.4f * std::tanh(6.0f * sample);
  return sound;
}

/// `sound` that begins `samples` later, or earlier.
Sound later(const Sound& sound, Index samples) {
  Sound result = sound;
  const auto count = static_cast<Index>(sound.samples.size());
  for (Index t = 0; t < count; ++t) {
    result.samples[t] = t >= samples && t - samples < count ? sound.samples[t - samples] : 0.0f;
  }
  return result;
}

Sound product(Sound sound, float factor) {
  for (float& sample : sound.samples) sample *= factor;
  return sound;
}

TEST(Latency, IsFoundToTheSample) {
  for (const Index latency : {0, 7, 1999, 3900, -1, -3900}) {
    for (const auto& sound : {noise(10000, 1), notes(30000, 2)}) {
      const LatencyEstimate found = estimate_latency(sound, later(sound, latency));
      EXPECT_EQ(found.samples, latency);
      EXPECT_TRUE(found.clear) << latency << " " << found.contrast;
      EXPECT_EQ(estimate_latency(sound, later(product(sound, -0.01f), latency)).samples, latency) << "inverted, quiet";
    }
  }
}

TEST(Latency, IsFoundBehindAnAmplifier) {
  for (const Index latency : {0, 64, 2500, -90}) {
    for (const auto& sound : {noise(10000, 3), notes(40000, 4)}) {
      const LatencyEstimate found = estimate_latency(sound, later(amplified(sound), latency));
      EXPECT_TRUE(found.clear) << latency << " " << found.contrast;
      // The loudspeaker itself delays low frequencies by 0.6 / (1 - 0.6) = 1.5 samples.
      EXPECT_GE(found.samples, latency);
      EXPECT_LE(found.samples, latency + 2);
    }
  }
}

TEST(Latency, IsUnclearBetweenSoundsThatHaveNothingInCommon) {
  for (std::uint64_t seed = 10; seed < 20; ++seed) {
    const LatencyEstimate found = estimate_latency(noise(16000, seed), noise(16000, 100 + seed));
    EXPECT_FALSE(found.clear) << found.samples << " " << found.contrast;
  }
  EXPECT_FALSE(estimate_latency(noise(100, 1), product(noise(100, 1), 0.0f)).clear);
  for (const Index count : {0, 1, 2, 3}) EXPECT_FALSE(estimate_latency(noise(count, 1), noise(count, 1)).clear);
}

class OpenSound : public testing::Test {
 protected:
  void SetUp() override {
    const TemporaryFolder folder;
    write_sound(folder.path("a.wav"), noise(10, 1));
    try {
      read_sound(folder.path("a.wav"));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::unsupported) GTEST_SKIP() << error.what();
    }
  }
};

/// A folder with in.wav and out.wav.
struct Files {
  Files(const Sound& input, const Sound& target) {
    write_sound(in, input);
    write_sound(out, target);
  }

  TemporaryFolder folder;
  std::string in = folder.path("in.wav"), out = folder.path("out.wav");
};

std::string reading(const Dataset& data) { return data.reading().at(0).text(); }

/// All steps of the hold-out set, as (input, target) in the units of the files.
std::vector<std::pair<double, double>> pairs(const Dataset& data) {
  Example example;
  EXPECT_TRUE(data.validation(0, 1, data.held_out_steps(), example));
  std::vector<std::pair<double, double>> result;
  for (std::size_t i = 0; i < example.features.size(); ++i) {
    result.emplace_back(static_cast<double>(example.features[i]) * data.description().inputs[0].scale,
                        static_cast<double>(example.targets[i]) * data.description().targets[0].scale);
  }
  return result;
}

TEST_F(OpenSound, LinesUpTheTarget) {
  const Sound sound = noise(10000, 5);
  for (const Index latency : {0, 40, -25}) {
    const Files files(sound, later(product(sound, 0.5f), latency));
    for (const auto& given : {std::optional<Index>(), std::optional<Index>(latency)}) {
      const auto data = open_sound(files.in, files.out, {.latency = given});
      EXPECT_EQ(data->description().latency, latency);
      EXPECT_EQ(data->training_steps() + data->held_out_steps(), 10000 - std::abs(latency));
      for (const auto& [in, out] : pairs(*data)) ASSERT_NEAR(out, 0.5 * in, 1e-6);
    }
  }
  const Files files(sound, later(sound, 40));
  EXPECT_THAT(reading(*open_sound(files.in, files.out)),
              HasSubstr("latency 40 samples (5 ms), by cross-correlation: its peak is "));
}

TEST_F(OpenSound, SaysWhatIsCut) {
  const Sound sound = noise(10000, 6);
  Sound longer = later(sound, 40);
  longer.samples.resize(10100);
  const Files files(sound, longer);
  EXPECT_THAT(reading(*open_sound(files.in, files.out)),
              HasSubstr("; the first 40 samples of the target are cut; the last 60 samples of the target are cut"));
  EXPECT_EQ(
      reading(*open_sound(files.in, files.out, {.latency = -8})),
      "latency -8 samples (-1 ms: the target is ahead), as given; the first 8 samples of the input are cut; the last "
      "108 samples of the target are cut");
  EXPECT_EQ(reading(*open_sound(files.in, files.in, {.latency = 0})), "latency 0 samples (0 ms), as given");
}

TEST_F(OpenSound, TakesASteadyToneAsItIs) {
  Sound tone{.sample_rate = rate, .samples = {}};
  for (Index t = 0; t < 4000; ++t) tone.samples.push_back(std::sin(static_cast<float>(t) / 7.0f));
  const Files files(tone, product(tone, 0.5f));
  const auto data = open_sound(files.in, files.out);
  EXPECT_EQ(data->description().latency, 0);
}

TEST_F(OpenSound, RefusesWhatIsNoPair) {
  const Sound sound = noise(8000, 7);
  const auto refused = [](const Sound& in, const Sound& out, const std::string& message,
                          const SoundOptions& options = {}) {
    const Files files(in, out);
    expect_error(options.latency && message.starts_with("latency") ? ErrorCode::invalid_argument : ErrorCode::bad_input,
                 message, [&] { open_sound(files.in, files.out, options); });
  };
  Sound other_rate = sound;
  other_rate.sample_rate = 16000;
  refused(sound, other_rate, "16000 samples a second");
  refused(sound, noise(8000, 8), "cross-correlation cannot tell how far it follows");
  refused(sound, noise(8000, 8), "the option 'latency=0' if both begin together, else their distance in samples");
  refused(sound, product(sound, 0.0f), "out.wav: the part to train on is silent");
  refused(product(sound, 0.0f), sound, "in.wav: the part to train on is silent");
  refused(sound, noise(2000, 7), "whose lengths differ by at most half a second");
  refused(noise(1, 1), noise(1, 1), "1 samples are too few to learn from", {.latency = 0});
  refused(sound, sound, "a latency of 8000 samples leaves nothing of 8000 samples", {.latency = 8000});
  refused(sound, sound, "latency must be -10000000 to 10000000 samples, not",
          {.latency = std::numeric_limits<Index>::min()});
  Sound broken = sound;
  broken.samples[100] = std::numeric_limits<float>::quiet_NaN();
  refused(sound, broken, "samples that are not finite");
}

TEST(CompareSounds, AgreesWithTheDefinition) {
  const Sound target{rate, {1.0f, -1.0f, 2.0f}}, sound{rate, {1.5f, -1.0f, 1.0f}};
  const SoundError error = compare_sounds(sound, target);
  EXPECT_NEAR(error.error_to_signal, (0.25 + 0.0 + 1.0) / 6.0, 1e-12);
  EXPECT_NEAR(error.dc, 0.5 * 0.5 / (3.0 * 6.0), 1e-12);
  EXPECT_NEAR(error.pre_emphasised, (0.25 + 0.425 * 0.425 + 1.0) / (1.0 + 1.85 * 1.85 + 2.85 * 2.85), 1e-7);
  const Sound shifted{rate, {0.0f, 0.0f, 1.0f, -1.0f, 2.0f}};
  EXPECT_EQ(compare_sounds(target, shifted, 2).error_to_signal, 0.0);
  EXPECT_EQ(compare_sounds(shifted, target, -2).error_to_signal, 0.0);
  expect_error(ErrorCode::bad_input, "the target is silent", [&] {
    compare_sounds(sound, Sound{rate, {0.0f, 0.0f, 0.0f}});
  });
  expect_error(ErrorCode::bad_input, "9000 samples a second", [&] { compare_sounds(sound, Sound{9000, {1.0f}}); });
}

}  // namespace
}  // namespace penstock
