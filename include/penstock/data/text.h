#pragma once

#include <memory>
#include <string>

#include "penstock/data/dataset.h"

namespace penstock {

struct TextOptions {
  double validation_fraction = 0.05;  ///< The last part of the file is held out; [0, 0.5].
  bool bytes = false;                 ///< Also files that are no texts, such as programs and pictures.
};
/// Files as one sequence of bytes. Throws Error(bad_input) if it is empty or too short for one step each, or a file is
/// no text.
std::unique_ptr<Dataset> open_text(const Sources& sources, const TextOptions& options = {});
std::unique_ptr<Dataset> open_text(const std::string& path, const TextOptions& options = {});

}  // namespace penstock
