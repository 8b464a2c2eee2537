#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "penstock/sound.h"

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
  static constexpr int read_mode = 0x10, write_mode = 0x20;
  static constexpr int wav = 0x010000, pcm_float = 0x0006;

  static const SoundLibrary& get() {
    static const SoundLibrary library;
    if (library.open == nullptr) {
      fail(ErrorCode::unsupported, "sound files need libsndfile, which is not there (on Debian: libsndfile1)");
    }
    return library;
  }

  SoundHandle* (*open)(const char* path, int mode, SoundInfo* info) = nullptr;
  std::int64_t (*read)(SoundHandle* file, float* samples, std::int64_t frames) = nullptr;
  std::int64_t (*write)(SoundHandle* file, const float* samples, std::int64_t frames) = nullptr;
  int (*close)(SoundHandle* file) = nullptr;
  const char* (*error)(SoundHandle* file) = nullptr;

 private:
  SoundLibrary() {
    void* library = nullptr;
    for (const char* name : {"libsndfile.so.1", "libsndfile.so", "libsndfile.dylib"}) {
      if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) return;
    const bool all = find(library, "sf_readf_float", read) && find(library, "sf_writef_float", write) &&
                     find(library, "sf_close", close) && find(library, "sf_strerror", error);
    if (all) find(library, "sf_open", open);
  }

  template <class Function>
  static bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }
};

/// An open file.
class SoundFile {
 public:
  SoundFile(const std::string& path, int mode, SoundInfo& info)
      : library_(SoundLibrary::get()), file_(library_.open(path.c_str(), mode, &info)) {
    if (file_ != nullptr) return;
    fail(mode == SoundLibrary::read_mode ? ErrorCode::bad_input : ErrorCode::io_failure, "{}: {}", path,
         library_.error(nullptr));
  }
  ~SoundFile() {
    if (file_ != nullptr) library_.close(file_);
  }
  SoundFile(const SoundFile&) = delete;
  SoundFile& operator=(const SoundFile&) = delete;

  std::int64_t read(float* samples, std::int64_t frames) { return library_.read(file_, samples, frames); }
  std::int64_t write(const float* samples, std::int64_t frames) { return library_.write(file_, samples, frames); }
  bool close() { return library_.close(std::exchange(file_, nullptr)) == 0; }

 private:
  const SoundLibrary& library_;
  SoundHandle* file_;
};

}  // namespace

Sound read_sound(const std::string& path) {
  constexpr int most_channels = 64;
  constexpr std::size_t most_samples = std::size_t{1} << 29;  // three hours at 48 kHz, 2 GiB
  SoundInfo info = {};
  if (std::FILE* file = std::fopen(path.c_str(), "rb"); file == nullptr) {
    fail(ErrorCode::io_failure, "cannot read '{}': no such file, or not for us to read", path);
  } else {
    std::fclose(file);
  }
  SoundFile file(path, SoundLibrary::read_mode, info);
  if (info.channels < 1 || info.channels > most_channels || info.sample_rate < 1) {
    fail(ErrorCode::bad_input, "{}: {} channels at {} samples a second", path, info.channels, info.sample_rate);
  }
  Sound sound{.sample_rate = info.sample_rate, .samples = {}};
  constexpr std::int64_t block = 4096;
  std::vector<float> frames(static_cast<std::size_t>(block * info.channels));
  for (std::int64_t got = file.read(frames.data(), block); got > 0; got = file.read(frames.data(), block)) {
    for (std::int64_t i = 0; i < got; ++i) {
      float sum = 0.0f;
      for (int c = 0; c < info.channels; ++c) sum += frames[static_cast<std::size_t>(i * info.channels + c)];
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
  const std::string temporary = path + ".tmp";
  SoundInfo info = {};
  info.sample_rate = static_cast<int>(sound.sample_rate);
  info.channels = 1;
  info.format = SoundLibrary::wav | SoundLibrary::pcm_float;
  const auto count = static_cast<std::int64_t>(sound.samples.size());
  bool whole = false;
  {
    SoundFile file(temporary, SoundLibrary::write_mode, info);
    whole = file.write(sound.samples.data(), count) == count;
    whole = file.close() && whole;
  }
  if (!whole || std::rename(temporary.c_str(), path.c_str()) != 0) {
    std::remove(temporary.c_str());
    fail(ErrorCode::io_failure, "cannot write '{}': the system refuses it", path);
  }
}

SoundError compare_sounds(const Sound& sound, const Sound& target) {
  require(sound.samples.size() == target.samples.size(), "target must have {} samples, not {}", sound.samples.size(),
          target.samples.size());
  double difference = 0.0, power = 0.0, sum = 0.0;
  for (std::size_t i = 0; i < target.samples.size(); ++i) {
    const double should = static_cast<double>(target.samples[i]);
    const double off = should - static_cast<double>(sound.samples[i]);
    difference += off * off;
    power += should * should;
    sum += off;
  }
  require(power > 0.0, "target must not be silent");
  return {difference / power, sum * sum / (static_cast<double>(target.samples.size()) * power)};
}

}  // namespace penstock
