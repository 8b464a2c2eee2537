#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "fuzz/refusal.h"
#include "penstock/data/sound.h"

using namespace penstock;

/// A sound that the reader accepts has a rate and finite samples. The parser is libsndfile's, which reads a file: this
/// one is in memory.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = ::memfd_create("sound", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  test::check(::ftruncate(file, 0) == 0 && ::pwrite(file, data, size, 0) == static_cast<ssize_t>(size), "no file");
  test::accepted([&] {
    const Sound sound = read_sound(path);
    test::check(sound.sample_rate >= 1 && sound.channels >= 1, "a sound without a rate or channels");
    test::check(std::ranges::all_of(sound.samples, [](float sample) { return std::abs(sample) <= 1e6f; }),
                "a sample that is not finite");
  });
  return 0;
}
