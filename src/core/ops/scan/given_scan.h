#pragma once

#include <array>
#include <memory>
#include <string>

#include "ops/op.h"
#include "penstock/scan_program.h"

namespace penstock::ops {

/// The linear recurrence over terms that are given (penstock/scan.h says what it computes).
struct GivenScan {
  Index channels = 1;  ///< C
  ScanForm form = ScanForm::linear;
  bool factor = false;
  bool reverse = false;
  bool correction = false;  ///< ScanCallForm::correction
  int alignment = 16;       ///< GPUs: bytes that all addresses and strides are multiples of
};

/// A sequence [B, T, C] on the target's device.
struct ScanSequence {
  void* data = nullptr;
  SequenceStrides strides = {};
};

struct GivenScanForward {
  std::array<ScanSequence, 3> terms;  ///< a, b, and the factor if there is one
  ScanSequence h;
  const void* h0 = nullptr;  ///< [B, C]; null: zeros
  void* hT = nullptr;        ///< Null: not wanted
  const void* earlier_h0 = nullptr;
  void* workspace = nullptr;
};

struct GivenScanBackward {
  std::array<ScanSequence, 3> terms;
  ScanSequence h, dh;
  std::array<ScanSequence, 3> dterms;
  const void* h0 = nullptr;
  const void* dhT = nullptr;
  void* dh0 = nullptr;
  const void* earlier_dhT = nullptr;
  void* workspace = nullptr;
};

/// One pass of a scan, ready to run over tensors of any strides, which is why it is no op of a graph. One call at a
/// time; running allocates nothing and, on a GPU, waits for nothing.
class ScanPass {
 public:
  virtual ~ScanPass() = default;
  /// Bytes of workspace; any content.
  virtual std::size_t workspace_bytes() const = 0;
  /// Run the pass; only the one that was prepared.
  virtual void forward(const Call& call, const GivenScanForward& memory) = 0;
  virtual void backward(const Call& call, const GivenScanBackward& memory) = 0;
  virtual std::string explain() const = 0;
};

/// `backward`: which pass. Throws Error: invalid_argument for what cannot be, unsupported for what the device has not.
std::unique_ptr<ScanPass> prepare_scan(const GivenScan& shape, const Target& target, bool backward);
std::unique_ptr<ScanPass> prepare_cuda_scan(const GivenScan& shape, const Target& target, bool backward);

/// Throws Error(invalid_argument) that names the tensors if what a call writes overlaps what it must not.
void require_apart(const ScanProgram::Forward& call);
void require_apart(const ScanProgram::Backward& call);

}  // namespace penstock::ops
