#pragma once

#include <memory>

#include "penstock/call_flags.h"
#include "penstock/recurrent.h"
#include "penstock/tensor.h"

namespace penstock {

/// Describes the calls of a convolution's program: everything except addresses, lengths and values.
struct ConvolutionCallForm {
  Index channels = 1;        ///< C
  Index taps = 4;            ///< K
  DType dtype = DType::f32;  ///< Type of x, y and their gradients. CPU: f32, f64; GPU: f32, bf16, f16.
  Index rows = 1;            ///< B
  Index steps = 1;           ///< T
  CallFlags flags = {};      ///< Of these: lengths, reset, training.

  bool has(CallFlag flag) const { return flags.has(flag); }
  bool operator==(const ConvolutionCallForm&) const = default;
};

/// A causal convolution over time of each channel by itself, y_t = bias + sum_j weight_j x_{t-j} with j from 0 to K -
/// 1, for one form of call, over the caller's memory. Before a row's first step and across a reset, inputs are those of
/// the state and zeros. Blocks of minimal RNNs have one before their layer.
///
/// A program never changes, and any number of threads may call it at once, as for RecurrentProgram. Tensors have no
/// gaps; on a GPU their addresses are multiples of 16 bytes. Weights and their gradients are [K, C], biases [C], and
/// the state, the inputs before the first step with the oldest first, is [B, K - 1, C]; all three are f32, or f64 if x
/// is.
class ConvolutionProgram {
 public:
  /// Returns the program for this form and execution, from a cache if possible. Any thread may call this.
  ///
  /// Throws Error: invalid_argument that names the impossible field; unsupported, with the reason, for a device or type
  /// that is not available.
  static std::shared_ptr<const ConvolutionProgram> get(const ConvolutionCallForm& form,
                                                       const Execution& execution = {});
  ~ConvolutionProgram();

  /// Bytes of workspace that a backward call needs. It needs no initial contents; one call may use it at a time.
  std::size_t workspace_bytes() const;

  /// Arguments of a forward call.
  struct Forward {
    Batch batch;
    Tensor x;      ///< [B, T, C]
    Tensor state;  ///< No data: zeros.
    Tensor weight, bias;
    Tensor y;  ///< [B, T, C]: written, with zeros beyond a row's length. Must not overlap anything else.
  };
  /// Computes y. Throws Error(invalid_argument) for arguments that do not match the form.
  void forward(const Context& context, const Forward& call) const;

  /// Arguments of a backward call. What it writes must not overlap anything else.
  struct Backward {
    Batch batch;  ///< As in the forward call, with x, state and weight.
    Tensor x, state;
    Tensor weight;
    Tensor dy;              ///< [B, T, C]
    Tensor dweight, dbias;  ///< Written.
    Tensor dx;              ///< Written, with zeros beyond a row's length.
    Memory workspace;       ///< At least workspace_bytes().
  };
  /// Computes the gradients of a forward call. Throws Error(invalid_argument) for arguments that do not match the form,
  /// or if the form is not of training.
  void backward(const Context& context, const Backward& call) const;

  struct Impl;

 private:
  explicit ConvolutionProgram(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
