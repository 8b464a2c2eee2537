#pragma once

#include <memory>

#include "base/check.h"

namespace penstock {

/// Returns the object that a handle owns. Throws Error(invalid_argument) if the handle, called `name`, was moved from.
template <class Impl>
Impl& alive(const std::unique_ptr<Impl>& impl, const char* name) {
  require(impl != nullptr, "{} must not have been moved from", name);
  return *impl;
}

}  // namespace penstock
