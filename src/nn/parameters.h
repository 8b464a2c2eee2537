#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "penstock/types.h"

namespace penstock::nn {

/// One named tensor in the flat store.
struct ParameterEntry {
  std::string name;  // "blocks.0.recurrent.weight_ih"
  std::vector<Index> shape;
  Index offset = 0;    // of its first value
  Index size = 0;      // number of values
  bool decay = false;  // weight decay applies: matrices, not gains, biases or convolution taps
  Index block = -1;    // index of the block it belongs to; -1: input, final norm, head
};

/// Which parameters a model has and where each lies in the flat store. Plain arithmetic: nothing of the parameters'
/// size is allocated, so that a file can be checked against it first.
class ParameterLayout {
 public:
  /// Appends a tensor and returns its offset. Each starts on a cache line (in float).
  Index add(std::string name, std::vector<Index> shape, bool decay);
  /// The block that the next tensors belong to; -1: none.
  void set_block(Index block) { block_ = block; }

  const std::vector<ParameterEntry>& entries() const { return entries_; }
  /// Length of the flat store, the gaps between tensors included.
  Index size() const { return size_; }
  /// Number of parameters.
  Index count() const { return count_; }

 private:
  std::vector<ParameterEntry> entries_;
  Index size_ = 0, count_ = 0, block_ = -1;
};

/// The values of all parameters, and of their gradients while training, each in one contiguous array. Gaps hold zeros
/// in both and stay so.
template <class Real>
class Parameters {
 public:
  /// All zero.
  explicit Parameters(ParameterLayout layout);

  const ParameterLayout& layout() const { return layout_; }
  std::span<Real> values() { return {values_.get(), static_cast<std::size_t>(layout_.size())}; }
  std::span<const Real> values() const { return {values_.get(), static_cast<std::size_t>(layout_.size())}; }
  std::span<Real> value(const ParameterEntry& entry) { return values().subspan(entry.offset, entry.size); }
  std::span<const Real> value(const ParameterEntry& entry) const { return values().subspan(entry.offset, entry.size); }

  /// Empty until allocate_gradients().
  std::span<Real> gradients() { return {gradients_.get(), gradients_ ? static_cast<std::size_t>(layout_.size()) : 0}; }
  std::span<Real> gradient(const ParameterEntry& entry) { return gradients().subspan(entry.offset, entry.size); }
  void allocate_gradients();
  void zero_gradients();

 private:
  struct Free {
    void operator()(Real* memory) const;
  };
  std::unique_ptr<Real[], Free> allocate() const;

  ParameterLayout layout_;
  std::unique_ptr<Real[], Free> values_, gradients_;
};

extern template class Parameters<float>;
extern template class Parameters<double>;

}  // namespace penstock::nn
