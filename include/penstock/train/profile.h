#pragma once

#include <string>
#include <vector>

#include "penstock/model.h"

/// Profiles: the time of a model's passes, by kind of op.
namespace penstock {

/// Cost of all ops of one kind in a pass of a model.
struct ProfileEntry {
  std::string op;           ///< Kind of op: "linear", "lstm.backward", ...
  Index nodes = 0;          ///< Number of these ops in the pass.
  Index launches = 0;       ///< GPU kernels that they launched, without products by cuBLASLt.
  double seconds = 0.0;     ///< Their total time, median over passes.
  double bytes = 0.0;       ///< Size of all they read and write: a lower bound of the memory traffic.
  double operations = 0.0;  ///< Floating-point operations of their matrix products.
};

/// Time of a pass of a model, by kind of op.
struct Profile {
  std::vector<ProfileEntry> entries;  ///< In order of decreasing time.
  double seconds = 0.0;   ///< Median time of a pass without profiling; its excess over the sum of `entries` is gaps.
  Index passes = 0;       ///< Passes that were measured with profiling, and as many without.
  double copied = 0.0;    ///< Bytes per second that a copy reads and writes on this device.
  double products = 0.0;  ///< Floating-point operations per second of one large product on this device.
};

/// The pass to profile: a forward pass, or a training step.
enum class ProfiledPass { forward, training };

/// Measures passes of a model over synthetic data of B = `rows` rows and T = `steps` steps. `passes` is the number of
/// measured passes. The model is not changed: training steps run on a copy. Throws Error as the passes would, and
/// invalid_argument for sizes below 1.
Profile profile(const Model& model, Index rows, Index steps, ProfiledPass pass, const Execution& execution = {},
                Index passes = 20);

}  // namespace penstock
