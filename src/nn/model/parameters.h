#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/weights.h"
#include "penstock/types.h"

namespace penstock::nn {

/// What a parameter is before any training.
struct Initial {
  enum class Kind {
    constant,      ///< `amount`
    normal,        ///< of standard deviation `amount`
    uniform,       ///< in +-`amount`
    pass_through,  ///< taps [taps, width]: 1 at the current step, 0 at the older ones, and uniform in +-`amount`
    gate_bias,     ///< 0, and what add_gate_bias() adds for `cell` of hidden size `amount`
  };

  Kind kind = Kind::constant;
  double amount = 0.0;
  std::string cell;
};

/// One named tensor in the flat store.
struct ParameterEntry {
  std::string name;  // "blocks.0.recurrent.weight_ih"
  std::vector<Index> shape;
  Index offset = 0;    // of its first value
  Index size = 0;      // number of values
  bool decay = false;  // weight decay applies: matrices, not gains, biases or convolution taps
  Index block = -1;    // index of the block it belongs to; -1: input, final norm, head
  Initial initial;
};

/// Which parameters a model has and where each lies in the flat store. Plain arithmetic: nothing of the parameters'
/// size is allocated, so that a file can be checked against it first.
class ParameterLayout {
 public:
  /// Appends a tensor and returns its offset. Each starts on a cache line (in float).
  Index add(std::string name, std::vector<Index> shape, bool decay, Initial initial = {});
  /// The block that the next tensors belong to; -1: none.
  void set_block(Index block) { block_ = block; }

  const std::vector<ParameterEntry>& entries() const { return entries_; }
  /// Null if there is none of that name.
  const ParameterEntry* find(std::string_view name) const;
  /// Length of the flat store, the gaps between tensors included.
  Index size() const { return size_; }
  /// Number of parameters.
  Index count() const { return count_; }

 private:
  std::vector<ParameterEntry> entries_;
  Index size_ = 0, count_ = 0, block_ = -1;
};

/// The values of all parameters of a model in the host's memory, in one contiguous array that is shared with whoever
/// computes with them. Gaps hold zeros and stay so.
template <class Real>
class Parameters {
 public:
  /// All zero.
  explicit Parameters(ParameterLayout layout);

  const ParameterLayout& layout() const { return layout_; }
  const std::shared_ptr<graph::Weights>& weights() const { return weights_; }

  std::span<Real> values() { return {data(), static_cast<std::size_t>(layout_.size())}; }
  std::span<const Real> values() const { return {data(), static_cast<std::size_t>(layout_.size())}; }
  std::span<Real> value(const ParameterEntry& entry) { return values().subspan(entry.offset, entry.size); }
  std::span<const Real> value(const ParameterEntry& entry) const { return values().subspan(entry.offset, entry.size); }
  /// Before values are written: whoever else reads them where they lie keeps them as they are, and these go on as a
  /// copy.
  void part_from_readers();
  /// To be called whenever values have been written.
  void changed() { weights_->changed(); }

 private:
  Real* data() const { return static_cast<Real*>(weights_->values().data()); }

  ParameterLayout layout_;
  std::shared_ptr<graph::Weights> weights_;
};

extern template class Parameters<float>;
extern template class Parameters<double>;

/// Copies what both have under one name and in one shape.
void copy_shared(const Parameters<float>& from, Parameters<float>& to);

}  // namespace penstock::nn
