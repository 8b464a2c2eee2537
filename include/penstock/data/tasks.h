#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/data/dataset.h"

namespace penstock {

struct TaskOptions {
  Index length = 40;              ///< Training length T of every sequence.
  Index validation_length = 256;  ///< Validation uses this length, to show what generalises.
  Index modulus = 5;              ///< modular arithmetic: 2..64
  Index copy_tokens = 10;         ///< selective copying: tokens to remember, 1..length/2
  std::uint64_t seed = 0;
};
/// Built-in tasks, generated without end: "parity", "modular", "copying". Throws Error(invalid_argument) otherwise.
std::unique_ptr<Dataset> open_task(const std::string& name, const TaskOptions& options = {});
const std::vector<std::string>& task_names();

}  // namespace penstock
