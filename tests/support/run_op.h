#pragma once

#include <cstring>
#include <vector>

#include "base/aligned.h"
#include "ops/op.h"

namespace penstock::test {

/// Prepares an op for a target and runs it once on the given operands, first those it reads, then those it writes.
/// Scratch holds what is no number, as nobody may read it before writing it.
inline void run_op(const ops::Op& op, const ops::Target& target, const ops::Call& call, std::vector<void*> operands) {
  const std::unique_ptr<ops::Executable> executable = op.prepare(target);
  AlignedVector<double> scratch(executable->scratch_bytes() / sizeof(double) + 1);
  AlignedVector<double> persistent(executable->persistent_bytes() / sizeof(double) + 1);
  std::memset(scratch.data(), 0xff, scratch.size() * sizeof(double));
  std::memset(persistent.data(), 0, persistent.size() * sizeof(double));
  executable->run(call, {operands.data(), scratch.data(), persistent.data()});
}

/// An operand that is only read.
template <class T>
void* reads(const std::vector<T>& values) {
  return const_cast<T*>(values.data());
}

}  // namespace penstock::test
