#pragma once

#include <string>
#include <vector>

#include "penstock/model.h"

namespace penstock {

/// What one kind of op took in a pass of a model.
struct ProfileEntry {
  std::string op;           ///< "linear", "lstm.backward", ...
  Index nodes = 0;          ///< How many of them the pass has.
  Index launches = 0;       ///< Kernels of a GPU that they launched; products of cuBLASLt are not among them.
  double seconds = 0.0;     ///< Of all of them, in the median pass
  double bytes = 0.0;       ///< What they read and write holds: what has to be moved at least.
  double operations = 0.0;  ///< Floating-point operations of their matrix products
};

/// Where the time of a model's passes goes.
struct Profile {
  std::vector<ProfileEntry> entries;  ///< The one that takes longest comes first.
  double seconds = 0.0;               ///< A pass when nobody looks on, the median: what is more than the sum is gaps.
  Index passes = 0;                   ///< How many were measured, of either kind.
  double copied = 0.0;                ///< Bytes that a copy reads and writes in a second on this device
  double products = 0.0;              ///< Floating-point operations in a second of one large product
};

enum class ProfiledPass { forward, training };

/// Runs passes of a model over B rows of T steps of made-up data and says where their time goes. The model stays as it
/// is: steps train a copy. `passes`: how many are measured. Throws Error as the passes would.
Profile profile(const Model& model, Index rows, Index steps, ProfiledPass pass, const Execution& execution = {},
                Index passes = 20);

}  // namespace penstock
