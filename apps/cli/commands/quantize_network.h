#pragma once

#include <string>
#include <vector>

#include "options/options.h"
#include "penstock/quantize.h"

namespace penstock::cli {

/// How the sound of --data becomes inputs of an imported network.
struct Frames {
  std::vector<double> shape = {};  ///< Of the input; empty: as the network has it.
  Index hop = 0;                   ///< Samples from one input to the next; 0: all of an input.
};

struct NetworkArguments {
  std::string network, data, output;
  Frames frames;
  QuantizeOptions options;
  bool json = false;
};

/// Writes an imported network with int8 weights, and prints what its outputs lose on a sound.
int quantize_network(const NetworkArguments& arguments);

}  // namespace penstock::cli
