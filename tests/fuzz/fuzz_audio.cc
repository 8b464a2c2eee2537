#include <memory>
#include <string>

#include "base/check.h"
#include "fuzz/refusal.h"
#include "io/audio/import.h"
#include "network/check_file.h"

using penstock::Error;
using penstock::ErrorCode;
namespace test = penstock::test;

/// A file that the reader accepts must become a network without contradictions.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string content(reinterpret_cast<const char*>(data), size);
  test::accepted([&] {
    try {
      const auto made =
          std::make_shared<const penstock::network::Network>(penstock::io::audio::import_audio(content, "fuzz"));
      test::check(penstock::network::check(*made).ok(), "a network that contradicts itself");
    } catch (const Error& error) {
      if (error.code() == ErrorCode::unsupported) penstock::fail(ErrorCode::bad_input, "{}", error.what());
      throw;
    }
  });
  return 0;
}
