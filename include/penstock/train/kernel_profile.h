#pragma once

#include <string>
#include <vector>

#include "penstock/recurrent.h"
#include "penstock/train/profile.h"

/// Profiles of the GPU kernels that the ops of a pass launch.
namespace penstock {

/// Launches of one of Penstock's kernels by the ops of one kind in a pass.
struct KernelProfile {
  std::string op, kernel;
  Index launches = 0;
  double seconds = 0.0;  ///< Their total time, mean over passes.
};

/// Measures the kernels of passes as profile() measures ops, in order of decreasing time; empty on a CPU. Each launch
/// is timed by itself, so their times may add up to more than those of the ops. Kernels of cuBLASLt are not among them.
std::vector<KernelProfile> profile_kernels(const Model& model, Index rows, Index steps, ProfiledPass pass,
                                           const Execution& execution = {}, Index passes = 20);
std::vector<KernelProfile> profile_kernels(const RecurrentSpec& spec, Index rows, Index steps, ProfiledPass pass,
                                           const Execution& execution = {}, Index passes = 20);

}  // namespace penstock
