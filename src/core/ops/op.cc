#include "ops/op.h"

namespace penstock::ops {

std::size_t Executable::opaque_bytes(int write) const {
  fail(ErrorCode::invalid_argument, "output {} of this op has a size of its own, which its shape says", write);
}

}  // namespace penstock::ops
