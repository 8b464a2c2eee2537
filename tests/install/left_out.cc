// The sources that a build compiles with -D PENSTOCK_NETWORKS=OFF, PENSTOCK_ONNX=OFF and PENSTOCK_AUDIO=OFF, in a
// program without what they stand for.
#include <gtest/gtest.h>

#include "io/audio/import.h"
#include "io/onnx/read/import.h"
#include "penstock/network.h"
#include "support/expect_error.h"

namespace penstock {
namespace {

using test::expect_error;
constexpr auto kUnsupported = ErrorCode::unsupported;

TEST(LeftOut, NetworksSayHowToGetThem) {
  const char* const why = "this build of Penstock has no imported networks: build it without -D PENSTOCK_NETWORKS=OFF";
  expect_error(kUnsupported, why, [] { Network::load("vad.safetensors"); });
  expect_error(kUnsupported, why, [] { Network::import_onnx("vad.onnx"); });
  expect_error(kUnsupported, why, [] { Network::import_onnx(std::span<const std::byte>()); });
  expect_error(kUnsupported, why, [] { Network::import_audio("amplifier.nam"); });
  expect_error(kUnsupported, why, [] { Network::import_audio(std::span<const std::byte>()); });
  expect_error(kUnsupported, why, [] { read_onnx_layers("vad.onnx"); });
}

TEST(LeftOut, FormatsSayHowToGetThem) {
  expect_error(kUnsupported, "no ONNX files: build it without -D PENSTOCK_ONNX=OFF", [] {
    io::onnx::import_network("", {"vad.onnx", "", 0}, {});
  });
  expect_error(kUnsupported, "no ONNX files", [] { io::onnx::read_layers("", {"vad.onnx", "", 0}, {}); });
  expect_error(kUnsupported, "no models of amplifiers: build it without -D PENSTOCK_AUDIO=OFF",
               [] { io::audio::import_audio("", "amplifier.nam"); });
}

}  // namespace
}  // namespace penstock
