#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>

#include "base/check.h"
#include "data/loaded_library.h"
#include "penstock/data/sound.h"
#include "penstock/file_writer.h"
#include "penstock/stop.h"

namespace penstock {
namespace {

/// libsndfile's interface, as far as it is needed: opened at run time, as sound is not what most programs are about.
struct SoundInfo {
  std::int64_t frames;
  int sample_rate, channels, format, sections, seekable;
};
struct SoundHandle;

class SoundLibrary {
 public:
  static constexpr int read_mode = 0x10;

  static const SoundLibrary& get() {
    static const SoundLibrary library;
    if (library.open == nullptr) {
      fail(ErrorCode::unsupported, "sound files need libsndfile, which is not installed (on Debian: libsndfile1)");
    }
    return library;
  }

  SoundHandle* (*open)(const char* path, int mode, SoundInfo* info) = nullptr;
  std::int64_t (*read)(SoundHandle* file, float* samples, std::int64_t frames) = nullptr;
  int (*close)(SoundHandle* file) = nullptr;
  const char* (*error)(SoundHandle* file) = nullptr;

 private:
  SoundLibrary() {
    const data::LoadedLibrary library({"libsndfile.so.1", "libsndfile.so", "libsndfile.dylib"});
    const bool all =
        library.find("sf_readf_float", read) && library.find("sf_close", close) && library.find("sf_strerror", error);
    if (all) library.find("sf_open", open);
  }
};

/// A file that is open for reading.
class SoundFile {
 public:
  SoundFile(const std::string& path, SoundInfo& info)
      : library_(SoundLibrary::get()), file_(library_.open(path.c_str(), SoundLibrary::read_mode, &info)) {
    if (file_ == nullptr) fail(ErrorCode::bad_input, "{}: {}", path, library_.error(nullptr));
  }
  ~SoundFile() { library_.close(file_); }
  SoundFile(const SoundFile&) = delete;
  SoundFile& operator=(const SoundFile&) = delete;

  std::int64_t read(float* samples, std::int64_t frames) { return library_.read(file_, samples, frames); }

 private:
  const SoundLibrary& library_;
  SoundHandle* file_;
};

void append_number(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

/// All that precedes the samples in a WAV file of 32-bit floats with one channel.
std::string wave_header(const Sound& sound) {
  constexpr std::uint64_t float_format = 3, channels = 1, sample_bytes = 4, format_bytes = 18, count_bytes = 4;
  constexpr std::uint64_t chunk_header = 8;
  const std::uint64_t samples = sound.samples.size(), data_bytes = samples * sample_bytes;
  const auto rate = static_cast<std::uint64_t>(sound.sample_rate);
  std::string out = "RIFF";
  append_number(out, 4 + 3 * chunk_header + format_bytes + count_bytes + data_bytes, 4);
  out += "WAVEfmt ";
  append_number(out, format_bytes, 4);
  append_number(out, float_format, 2);
  append_number(out, channels, 2);
  append_number(out, rate, 4);
  append_number(out, rate * sample_bytes, 4);
  append_number(out, channels * sample_bytes, 2);
  append_number(out, 8 * sample_bytes, 2);
  append_number(out, 0, 2);  // bytes of an extension
  out += "fact";
  append_number(out, count_bytes, 4);
  append_number(out, samples, 4);
  out += "data";
  append_number(out, data_bytes, 4);
  return out;
}

}  // namespace

Sound read_sound(const std::string& path) {
  constexpr int most_channels = 64;
  constexpr std::size_t most_samples = std::size_t{1} << 29;  // three hours at 48 kHz, 2 GiB
  SoundInfo info = {};
  if (std::FILE* file = std::fopen(path.c_str(), "rb"); file == nullptr) {
    fail(ErrorCode::io_failure, "cannot read '{}': no such file, or no permission", path);
  } else {
    std::fclose(file);
  }
  SoundFile file(path, info);
  if (info.channels < 1 || info.channels > most_channels || info.sample_rate < 1) {
    fail(ErrorCode::bad_input, "{}: {} channels at {} samples a second", path, info.channels, info.sample_rate);
  }
  Sound sound{.sample_rate = info.sample_rate, .samples = {}, .channels = info.channels};
  constexpr std::int64_t block = 4096;
  std::vector<float> frames(static_cast<std::size_t>(block * info.channels));
  for (std::int64_t got = file.read(frames.data(), block); got > 0; got = file.read(frames.data(), block)) {
    stop_if_asked();
    for (std::int64_t i = 0; i < got; ++i) {
      float sum = 0.0f;
      for (int c = 0; c < info.channels; ++c) sum += frames[i * info.channels + c];
      sound.samples.push_back(sum / static_cast<float>(info.channels));
    }
    if (sound.samples.size() > most_samples) fail(ErrorCode::bad_input, "{}: more than {} samples", path, most_samples);
  }
  for (const float sample : sound.samples) {
    if (!(sample >= -1e6f && sample <= 1e6f)) fail(ErrorCode::bad_input, "{}: samples that are not finite", path);
  }
  return sound;
}

void write_sound(const std::string& path, const Sound& sound) {
  constexpr std::size_t most_samples = (std::size_t{1} << 30) - 64;  // a WAV file counts its bytes in 32 bits
  require(sound.samples.size() <= most_samples, "sound must have at most {} samples for a WAV file, not {}",
          most_samples, sound.samples.size());
  require_argument(sound.sample_rate >= 1 && sound.sample_rate <= INT32_MAX, "sample_rate", sound.sample_rate,
                   "1 to {}", INT32_MAX);
  FileWriter file(path);
  file.write(wave_header(sound));
  if constexpr (std::endian::native == std::endian::little) {
    file.write({reinterpret_cast<const char*>(sound.samples.data()), sound.samples.size() * sizeof(float)});
  } else {
    std::string bytes;
    for (const float sample : sound.samples) append_number(bytes, std::bit_cast<std::uint32_t>(sample), 4);
    file.write(bytes);
  }
  file.finish();
}

}  // namespace penstock
