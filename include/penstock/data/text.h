#pragma once

#include <memory>
#include <string>

#include "penstock/data/dataset.h"

/// Datasets of texts: files as one sequence of bytes.
namespace penstock {

/// Options of open_text().
struct TextOptions {
  double validation_fraction = 0.05;  ///< Fraction of the bytes, at the end, that is held out: [0, 0.5].
  bool bytes = false;                 ///< Accepts files that are not texts, such as programs and pictures.
};
/// Opens files as one sequence of bytes. Throws Error: io_failure if a file cannot be read; bad_input for an empty
/// file, a file that is not a text, or too few bytes for one training and one validation step.
std::unique_ptr<Dataset> open_text(const Sources& sources, const TextOptions& options = {});
/// Opens one file.
std::unique_ptr<Dataset> open_text(const std::string& path, const TextOptions& options = {});

}  // namespace penstock
