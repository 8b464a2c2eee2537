#include "backend/cuda/scan/scan_rule.h"

#include "base/check.h"

namespace penstock::cuda {
ScanRule scan_rule(std::string_view cell) {
  const plan::CellTraits& traits = plan::cell_traits(cell);
  if (!traits.info.scan) fail(ErrorCode::unsupported, "cell {} does not run on a GPU yet; scan cells do", cell);
  ScanRule rule;
  rule.text = traits.text;
  rule.gates = rule.read_back = traits.gates();
  rule.learnt = traits.learnt;
  return rule;
}

}  // namespace penstock::cuda
