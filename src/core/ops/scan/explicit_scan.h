#pragma once

#include <array>
#include <memory>
#include <string>

#include "ops/op.h"
#include "penstock/scan_program.h"

namespace penstock::ops {

/// The terms of a call, or their gradients, in the order in which rules read them. Without a factor, the last has no
/// data.
inline std::array<const Tensor*, 3> in_order(const ScanProgram::Terms& terms) {
  return {&terms.a, &terms.b, &terms.factor};
}

/// One pass of a scan (penstock/scan.h says what it computes), ready to run over tensors of any strides, which is why
/// it is no op of a graph. One call at a time; running allocates nothing and, on a GPU, waits for nothing.
class ScanPass {
 public:
  virtual ~ScanPass() = default;
  /// Bytes of workspace; any content.
  virtual std::size_t workspace_bytes() const = 0;
  /// Run the pass; only the one that was prepared. The tensors have been checked against the form.
  virtual void forward(const Call& call, const ScanProgram::Forward& memory) = 0;
  virtual void backward(const Call& call, const ScanProgram::Backward& memory) = 0;
  virtual std::string explain() const = 0;
};

/// `target`: of the form. `backward`: which pass. Throws Error: invalid_argument for what cannot be, unsupported for
/// what the device has not.
std::unique_ptr<ScanPass> prepare_scan(const ScanCallForm& form, const Target& target, bool backward);
std::unique_ptr<ScanPass> prepare_cuda_scan(const ScanCallForm& form, const Target& target, bool backward);

/// Throws Error(invalid_argument) that names the tensors if what a call writes overlaps what it must not.
void require_apart(const ScanProgram::Forward& call);
void require_apart(const ScanProgram::Backward& call);

}  // namespace penstock::ops
