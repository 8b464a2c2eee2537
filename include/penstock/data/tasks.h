#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/data/dataset.h"

/// Built-in tasks: generated datasets that test what a cell can learn.
namespace penstock {

/// Options of open_task().
struct TaskOptions {
  Index length = 40;                  ///< T of training sequences.
  Index validation_length = 256;      ///< T of validation sequences; longer ones show whether a model generalises.
  std::optional<Index> modulus = {};  ///< "modular": 2 to 64 [5].
  /// "copying": tokens to remember, from 1 to half of the shorter length; "recall": pairs to remember, from 1 to a
  /// third of it, at most 64 [10].
  std::optional<Index> copy_tokens = {};
  std::uint64_t seed = 0;
};
/// Opens a built-in task, which generates data without end: one of task_names(). Throws Error(invalid_argument) for
/// another name, and for options that are impossible or that the task does not have.
std::unique_ptr<Dataset> open_task(const std::string& name, const TaskOptions& options = {});
/// Returns the names of the built-in tasks.
const std::vector<std::string>& task_names();

}  // namespace penstock
