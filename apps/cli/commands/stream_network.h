#pragma once

#include <string>

namespace penstock::cli {

struct NetworkStream {
  std::string network, input, output, target;
  bool stats = false;
};

/// Streams a sound through an imported network, one sample in and one out. Returns the exit status.
int stream_network(const NetworkStream& arguments);

}  // namespace penstock::cli
