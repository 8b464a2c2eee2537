#include "commands/stream_network.h"

#include "answers/sound_stream.h"
#include "options/options.h"
#include "penstock/network.h"
#include "terminal/signals.h"
#include "terminal/units.h"

namespace penstock::cli {

int stream_network(const NetworkStream& arguments) {
  const std::string path = printable(arguments.network);
  if (arguments.input.empty()) {
    fail(ErrorCode::invalid_argument,
         "{} is an imported network, which streams sound: 'penstock stream {} IN.wav OUT.wav'", path,
         shell_word(arguments.network));
  }
  require_given(arguments.output, "OUT.wav");
  const auto network = penstock::Network::load(arguments.network);
  NetworkShapes shapes;
  for (const NetworkTensor& input : network.inputs()) {
    shapes[input.name] = input.shape;
    for (Index& extent : shapes[input.name]) extent = extent < 0 ? 1 : extent;
  }
  NetworkSession session(network, shapes);
  if (session.inputs().size() != 1 || session.inputs()[0].type != "f32" || session.input(0).size() != sizeof(float) ||
      session.outputs().size() != 1 || session.outputs()[0].type != "f32" ||
      session.output(0).size() != sizeof(float)) {
    fail(ErrorCode::unsupported,
         "{} does not answer one sample with one sample: C++, Python and C run any network (docs/published_models.md)",
         path);
  }
  SoundStream sound(arguments.input, network.sample_rate());
  Latency latency;
  float& in = session.input<float>(session.inputs()[0].name)[0];
  const float& out = session.output<float>(session.outputs()[0].name)[0];
  const bool done = sound.run(arguments.output, [&](float sample) {
    const auto start = Latency::Clock::now();
    in = sample;
    session.run();
    latency.record(Latency::Clock::now() - start);
    return out;
  });
  if (!done) return interrupted_status();
  sound.report(arguments.target, 0, arguments.stats ? &latency : nullptr);
  return 0;
}

}  // namespace penstock::cli
