#pragma once

#include <span>
#include <utility>
#include <vector>

#include "penstock/tensor.h"
#include "shim.h"
#include "views.h"

namespace penstock::torch_ops {

/// The gradients of weights in a program's type. Those of weights in 16 bits are parts of one tensor on a GPU, so that
/// one operation of PyTorch converts them all: in small calls, each takes as long as a kernel.
class WeightGradients {
 public:
  WeightGradients(const std::vector<TorchTensor>& weights, std::int32_t type, std::int32_t wanted)
      : weights_(weights), wanted_(wanted) {
    if (weights.empty()) return;
    const bool joins = weights.front().is_cuda() && wanted != type;
    for (const TorchTensor& weight : weights) {
      views_.push_back(view_of(weight));
      begins_.push_back(joins ? size_ : 0);
      if (joins) size_ += (weight.elements() + kAligned - 1) / kAligned * kAligned;
      if (!joins) parts_.push_back(weight.empty(weight.sizes(), type));
    }
    if (joins) all_ = weights.front().empty({size_}, type);
    for (std::size_t i = 0; i < views_.size(); ++i) {
      views_[i].dtype = dtype_of(type);
      views_[i].data = joins ? all_.data<float>() + begins_[i] : parts_[i].address();
    }
  }

  std::span<const Tensor> views() const { return views_; }

  /// Appends the gradients in the weights' type.
  void move_to(std::vector<TorchTensor>& gradients) {
    for (TorchTensor& part : parts_) gradients.push_back(std::move(part).to(wanted_));
    if (!all_) return;
    const TorchTensor converted = all_.to(wanted_);
    for (std::size_t i = 0; i < views_.size(); ++i) {
      gradients.push_back(converted.part(begins_[i], weights_[i].sizes()));
    }
  }

 private:
  static constexpr Index kAligned = 64;  // elements: kernels and PyTorch load vectors

  const std::vector<TorchTensor>& weights_;
  std::int32_t wanted_;
  Index size_ = 0;
  TorchTensor all_;                 // of all weights, or
  std::vector<TorchTensor> parts_;  // one each
  std::vector<Index> begins_;
  std::vector<Tensor> views_;
};

}  // namespace penstock::torch_ops
