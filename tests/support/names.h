#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace penstock::test {

/// GoogleTest allows letters, digits and underscores only: "elman-relu" becomes "elman_relu".
inline std::string test_name(const testing::TestParamInfo<std::string>& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace penstock::test
