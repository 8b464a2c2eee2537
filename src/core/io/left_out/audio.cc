// Instead of io/audio in builds with -D PENSTOCK_AUDIO=OFF.

#include "base/check.h"
#include "io/audio/import.h"
#include "io/audio/rtneural_network_writer.h"
#include "penstock/rtneural.h"

namespace penstock {
namespace {

[[noreturn]] void no_amplifiers() {
  fail(ErrorCode::unsupported,
       "this build of Penstock reads and writes no models of amplifiers: build it without -D PENSTOCK_AUDIO=OFF");
}

}  // namespace

namespace io::audio {

network::Network import_audio(std::string_view, const std::string&) { no_amplifiers(); }
std::string write_rtneural(const network::Network&, const std::string&) { no_amplifiers(); }

}  // namespace io::audio

std::string to_rtneural(const Model&) { no_amplifiers(); }
void save_rtneural(const Model&, const std::string&) { no_amplifiers(); }

}  // namespace penstock
