#pragma once

#include <memory>

#include "base/check.h"

namespace penstock {

/// What a handle holds. Throws Error(invalid_argument) after the handle, which messages call `name`, was moved from.
template <class Impl>
Impl& alive(const std::unique_ptr<Impl>& impl, const char* name) {
  require(impl != nullptr, "{} must not have been moved from", name);
  return *impl;
}

}  // namespace penstock
