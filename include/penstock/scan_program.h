#pragma once

#include <memory>
#include <string>

#include "penstock/recurrent_program.h"
#include "penstock/scan.h"

/// Linear recurrences over the caller's memory: compiled forward and backward passes for one form of call.
namespace penstock {

/// Describes the calls of a scan's program: everything except addresses, lengths and values.
struct ScanCallForm {
  Index channels = 1;  ///< C
  ScanForm form = ScanForm::linear;
  bool factor = false;       ///< ScanForm::logarithmic: calls have the factor s of b.
  bool reverse = false;      ///< Every row starts at its last step.
  DType dtype = DType::f32;  ///< Type of the terms, h and their gradients. CPU: f32, f64; GPU: f32, bf16, f16.
  Index rows = 1;            ///< B
  Index steps = 1;           ///< T; for packed rows, the length of the longest row.
  Index positions = 0;       ///< Packed rows: sum of all row lengths. 0: rows are padded.
  CallFlags flags = {};      ///< Of these: lengths, reset, training.
  /// Calls update the outputs of an earlier call, which had another h0 (backward: another dhT), for the new h0. With
  /// decays below one, the difference soon rounds to zero; a GPU's threads stop there. A CPU computes everything again.
  bool correction = false;
  /// GPUs: alignment of every address and stride of a call in bytes: 16, or 2, 4 or 8.
  int alignment = 16;

  bool has(CallFlag flag) const { return flags.has(flag); }
  bool operator==(const ScanCallForm&) const = default;
};

/// The linear recurrence of Scan for one form of call, over the caller's memory.
///
/// A program never changes, and any number of threads may call it at once, as for RecurrentProgram. Tensors are
/// [B, T, C], packed [positions, C], with free strides of B and T. States are [B, C] without gaps, f32, or f64 if the
/// terms are. Denormal numbers count as zeros on a CPU, as in layers.
class ScanProgram {
 public:
  /// Returns the program for this form and execution, from a cache if possible. Any thread may call this.
  ///
  /// Throws Error: invalid_argument that names the impossible field; unsupported, with the reason, for a device or type
  /// that is not available.
  static std::shared_ptr<const ScanProgram> get(const ScanCallForm& form, const Execution& execution = {});
  ~ScanProgram();

  const ScanCallForm& form() const;
  const Execution& execution() const;
  /// Bytes of workspace that a call needs, forward or backward, whichever needs more. The workspace needs no initial
  /// contents. One call may use it at a time.
  std::size_t workspace_bytes() const;

  /// Terms of a call, or their gradients.
  struct Terms {
    Tensor a, b;    ///< Or la and lb in the logarithmic form.
    Tensor factor;  ///< s; present exactly if the form has a factor.
  };
  /// Arguments of a forward call.
  struct Forward {
    Batch batch;
    Terms terms;
    Tensor h;                ///< Written. May be the same memory as a term; must not overlap one otherwise.
    Tensor h0;               ///< No data: zeros.
    Tensor hT;               ///< Last state: written; no data: not wanted. May be h0; must not overlap anything else.
    Tensor earlier_h0 = {};  ///< With ScanCallForm::correction: h0 of the earlier call; no data: zeros.
    Memory workspace;        ///< At least workspace_bytes().
  };
  /// Computes h and hT. Throws Error(invalid_argument) for arguments that do not match the form.
  void forward(const Context& context, const Forward& call) const;

  /// Arguments of a backward call.
  struct Backward {
    Batch batch;              ///< As in the forward call.
    Terms terms;              ///< As in the forward call.
    Tensor h, dh;             ///< h of the forward call, and its gradient.
    Terms dterms;             ///< Gradients of the terms: written, with zeros beyond a row's length. They must overlap
                              ///< neither each other nor anything else.
    Tensor h0;                ///< As in the forward call.
    Tensor dhT;               ///< Gradient of hT; no data: zeros.
    Tensor dh0;               ///< Gradient of h0: written; no data: not wanted. May be dhT; must not overlap anything
                              ///< else.
    Tensor earlier_dhT = {};  ///< With ScanCallForm::correction: dhT of the earlier call; no data: zeros.
    Memory workspace;         ///< At least workspace_bytes().
  };
  /// Computes the gradients of a forward call. Throws Error(invalid_argument) for arguments that do not match the form,
  /// or if the form is not of training.
  void backward(const Context& context, const Backward& call) const;

  /// Returns text that says how the scan runs and why, forward and, in training, backward.
  std::string explain() const;

  struct Impl;

 private:
  explicit ScanProgram(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;

  /// Throws Error(invalid_argument) if the program was moved from.
  Impl& held() const;
};

}  // namespace penstock
