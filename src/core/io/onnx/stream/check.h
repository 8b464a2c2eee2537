#pragma once

#include <string>
#include <vector>

#include "io/onnx/stream/streamer.h"
#include "network/network.h"

namespace penstock::io::onnx {

/// How a network and its stream are compared: time's axis of each input, the number of steps, the multiple that chunks
/// have to be, and when outputs are there.
struct StreamCheck {
  std::vector<Index> axes;
  Index steps, period;
  const std::vector<Timing>& outputs;
};

/// Runs both on the same random inputs and throws Error(unsupported) if the frames of chunks differ from those of the
/// whole sequence.
void check_stream(const network::Network& whole, const network::Network& stream, const StreamCheck& about,
                  const std::string& source);

}  // namespace penstock::io::onnx
