#pragma once

#include <memory>

#include "ops/memory/memory.h"
#include "penstock/tensor.h"

namespace penstock {

/// The queue behind a public stream. Whatever lies in memory of the queue holds on to it.
const std::shared_ptr<ops::Queue>& queue_of(const Stream& stream);

}  // namespace penstock
