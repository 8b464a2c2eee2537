#pragma once

#include <string>
#include <utility>
#include <vector>

namespace penstock::cuda {

/// The texts that kernels are compiled from, by the name under which they include each other: kernels/ and the cells.
/// The build writes them into the program (cmake/embed_kernels.cmake).
const std::vector<std::pair<std::string, std::string>>& kernel_sources();

}  // namespace penstock::cuda
