#pragma once

#include <string>
#include <vector>

#include "penstock/quantize.h"
#include "terminal/describe.h"

/// What `quantize` says of models and of networks alike.
namespace penstock::cli {

/// "0.20 % lost", of a share.
std::string share_text(double loss);

/// Lines on what became of each layer. If all are int8, they say nothing unless `with_all`.
std::string layers_text(const std::vector<QuantizedLayer>& layers, bool with_all);
Json layers_json(const std::vector<QuantizedLayer>& layers);

/// The bytes of the files that were read and written.
struct FileSizes {
  FileSizes(const std::string& read, const std::string& written);

  /// The line on the file that was written.
  std::string text(const std::string& written) const;

  Index before, after;
};

}  // namespace penstock::cli
