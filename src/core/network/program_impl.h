#pragma once

#include <memory>
#include <vector>

#include "network/program.h"
#include "network/step.h"

namespace penstock::network {

/// An input or an output.
struct Port {
  Type type = Type::f32;
  Shape shape;
  Place place;
};

/// A state: where it is read, where its next value is written, how large it is.
struct Carried {
  std::size_t input = 0;
  Place output;
  std::size_t bytes = 0;
};

struct Program::Impl {
  std::shared_ptr<const Network> network;
  std::vector<Port> inputs, outputs;
  std::vector<Carried> states;
  std::vector<Carried> copied;  ///< Those whose next value is not written where it is read.
  std::vector<Step> steps;
  Kernels kernels = kernels_in_use();
  std::vector<std::shared_ptr<const std::byte[]>> known;  ///< What was computed while it was prepared.
  std::size_t bytes = 0;
};

}  // namespace penstock::network
