#pragma once

#include <memory>
#include <vector>

#include "network/kernels.h"
#include "network/preparation.h"

namespace penstock::network {

/// Memory for what is known, aligned to 64. A Status if `all` of it would exceed 1 GiB.
Status known_memory(std::size_t bytes, std::size_t& all, std::shared_ptr<const std::byte[]>& owner, std::byte*& memory);

/// Computes the results of a prepared node whose reads are known. `memory` keeps them, unless they are elements of a
/// read.
Status evaluate(Preparation& node, const Kernels& kernels, std::size_t& all, std::shared_ptr<const std::byte[]>& memory,
                std::vector<const std::byte*>& results);

}  // namespace penstock::network
