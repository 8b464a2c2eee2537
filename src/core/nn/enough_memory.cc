#include "nn/enough_memory.h"

#include <fmt/format.h>

#include <cmath>

namespace penstock::nn {

void fail_for_memory(Device device, const MemoryNeed& need, const std::string& reason) {
  std::string amount = "more memory than there is";
  try {
    amount = fmt::format("{:.0f} MB of memory", std::ceil(static_cast<double>(need.bytes()) / 0x1p20));
  } catch (const std::exception&) {
    // There is too little to plan it, too.
  }
  fail_with(ErrorCode::out_of_memory, need.remedy, "{} needs {} on {}: {}", need.work, amount, to_string(device),
            reason);
}

}  // namespace penstock::nn
