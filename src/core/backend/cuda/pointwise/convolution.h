#pragma once

#include "backend/cuda/pointwise/launch.h"

namespace penstock::cuda {

/// y_t = bias + the sum over j < K of weight[j] x_{t-j}, channel by channel. Before the start of a sequence, and across
/// a reset, inputs count as zero. The state of a row is its last K - 1 inputs, the oldest first.
struct Convolution {
  Positions positions = {};
  Index width = 1, taps = 4;  ///< W, K
  plan::Storage storage = plan::Storage::bf16;
  bool add = false;            ///< Gradients of weight and bias are added to, instead of replaced
  int alignment = kAlignment;  ///< Alignment of all tensors but states, which follow those of other layers
};

struct ConvolutionForwardCall {
  DeviceAddress lengths = 0;    ///< int64 [B], or 0
  DeviceAddress reset = 0;      ///< uint8 [B, T], or 0: nonzero restarts a row before a step
  DeviceAddress x = 0;          ///< [B, T, W]
  DeviceAddress weight = 0;     ///< float [K, W]
  DeviceAddress bias = 0;       ///< float [W]
  DeviceAddress y = 0;          ///< [B, T, W]; zeros beyond the lengths
  DeviceAddress state_in = 0;   ///< float [B, K - 1, W], or 0 for zeros
  DeviceAddress state_out = 0;  ///< float [B, K - 1, W], or 0; may be state_in for up to 32 steps
};

class ConvolutionForwardExecutable {
 public:
  ConvolutionForwardExecutable(Device& device, const Convolution& spec);
  void run(const ConvolutionForwardCall& call, StreamHandle stream) const;

 private:
  Convolution spec_;
  const Kernel* kernel_;
  const Kernel* state_ = nullptr;  // writes the state, where the kernel does not
};

struct ConvolutionBackwardCall {
  DeviceAddress lengths = 0, reset = 0, x = 0, weight = 0, state_in = 0;  ///< As of the forward pass
  DeviceAddress dy = 0;                                                   ///< [B, T, W]
  DeviceAddress dx = 0;                                                   ///< [B, T, W], or 0: not wanted; not dy
  DeviceAddress weight_gradient = 0;                                      ///< float [K, W]
  DeviceAddress bias_gradient = 0;                                        ///< float [W]
};

class ConvolutionBackwardExecutable {
 public:
  ConvolutionBackwardExecutable(Device& device, const Convolution& spec);
  std::size_t workspace_bytes() const { return sums_.bytes(); }
  void run(const ConvolutionBackwardCall& call, DeviceAddress workspace, StreamHandle stream) const;

 private:
  Convolution spec_;
  Index parts_;
  const Kernel* kernel_;
  const Kernel* weights_ = nullptr;  // sums the gradients of weights, where the kernel does not
  SumParts sums_;
};

/// Kernels of a spec. Few taps move through registers; many are read again for each value (`is_long`).
enum class ConvolutionPart { forward, state, backward, weights };
bool is_long(const Convolution& spec);
KernelSource convolution_source(const Convolution& spec, ConvolutionPart part);

}  // namespace penstock::cuda
