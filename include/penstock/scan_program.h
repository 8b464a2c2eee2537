#pragma once

#include <memory>
#include <string>

#include "penstock/recurrent_program.h"
#include "penstock/scan.h"

namespace penstock {

/// The form of the calls of a scan's program.
struct ScanCallForm {
  Index channels = 1;  ///< C
  ScanForm form = ScanForm::linear;
  bool factor = false;       ///< ScanForm::logarithmic: calls have a factor of b.
  bool reverse = false;      ///< Rows are walked from their last step.
  DType dtype = DType::f32;  ///< Of terms, h and their gradients. CPU: f32, f64; GPU: f32, bf16, f16.
  Index rows = 1;            ///< B
  Index steps = 1;           ///< T; of packed rows, the longest one's.
  Index positions = 0;       ///< Packed rows: steps of all rows together. 0: rows are padded.
  bool lengths = false;      ///< Calls have Batch::lengths.
  bool reset = false;        ///< Calls have Batch::reset.
  bool training = false;     ///< Backward calls will be made.
  /// Calls correct what earlier ones, from other states h0 (of backward calls, dhT), have left in their outputs, and
  /// need compute only what differs: with decays below one that is soon nothing, as states round to the same numbers.
  /// A GPU's threads stop there; a CPU computes everything again.
  bool correction = false;
  /// Bytes that every address and every stride of a call is a multiple of: 16, or 2, 4, 8.
  int alignment = 16;

  bool operator==(const ScanCallForm&) const = default;
};

/// The linear recurrence h_t = a_t h_{t-1} + b_t for one form of call, as RecurrentProgram is of layers: immutable,
/// shared by threads, over memory of the caller's. What it computes: Scan. Tensors are [B, T, C], packed [positions,
/// C], of free strides of B and T; states are [B, C] without gaps, f32 (f64 where the terms are). Denormal numbers
/// count as zeros on a CPU, as in layers.
class ScanProgram {
 public:
  static std::shared_ptr<const ScanProgram> get(const ScanCallForm& form, const Execution& execution = {});
  ~ScanProgram();

  const ScanCallForm& form() const;
  const Execution& execution() const;
  /// Of a forward or a backward call, whichever needs more; of any content, for one call at a time.
  std::size_t workspace_bytes() const;

  struct Terms {
    Tensor a, b;    ///< Or their logarithms.
    Tensor factor;  ///< If the form has one.
  };
  struct Forward {
    Batch batch;
    Terms terms;
    Tensor h;                ///< May take the place of a term, and overlaps none otherwise.
    Tensor h0;               ///< No data: zeros.
    Tensor hT;               ///< Written unless without data; may be h0, and overlaps nothing otherwise.
    Tensor earlier_h0 = {};  ///< Of the call that is corrected; no data: zeros.
    Memory workspace;
  };
  void forward(const Context& context, const Forward& call) const;

  struct Backward {
    Batch batch;
    Terms terms;  ///< As of the forward call.
    Tensor h, dh;
    Terms dterms;             ///< Written; zeros beyond a row's length. They overlap nothing, each other neither.
    Tensor h0;                ///< As of the forward call.
    Tensor dhT;               ///< No data: zeros.
    Tensor dh0;               ///< Written unless without data; may be dhT, and overlaps nothing otherwise.
    Tensor earlier_dhT = {};  ///< Of the call that is corrected; no data: zeros.
    Memory workspace;
  };
  void backward(const Context& context, const Backward& call) const;

  std::string explain() const;

  struct Impl;

 private:
  explicit ScanProgram(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;

  /// Throws where it was moved from.
  Impl& held() const;
};

}  // namespace penstock
