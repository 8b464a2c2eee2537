#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "graph/weights.h"
#include "penstock/tensor.h"
#include "penstock/types.h"

/// Parameters of a model: their layout in one flat array, and their values.
namespace penstock::nn {

/// Initial values of a parameter.
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

/// One named tensor in the flat array.
struct ParameterEntry {
  std::string name;  // "blocks.0.recurrent.weight_ih"
  std::vector<Index> shape;
  Index offset = 0;    // index of its first value; of int8, in floats
  Index size = 0;      // number of values
  bool decay = false;  // whether weight decay applies: matrices, not gains, biases or convolution taps
  Index block = -1;    // index of the block it belongs to; -1: input, final norm, head
  Initial initial = {};
  DType dtype = DType::f32;  // f32, or i8 for a matrix, whose next entry has the scale of each row
  bool panels = false;       // of i8: the memory has panels of ops::pack_int8() instead of rows
};

/// The parameters of a model and their places in the flat array. Allocates nothing of the parameters' size, so a file
/// can be checked first.
class ParameterLayout {
 public:
  /// Appends a tensor and returns its offset. Each tensor starts on a cache line (in float).
  Index add(std::string name, std::vector<Index> shape, bool decay, Initial initial = {});
  /// The places of a matrix of int8 and of the scale of each of its rows.
  struct Int8Entries {
    Index values, scales;  ///< Offsets.
    Index floats, rows;    ///< Sizes; that of the matrix is in floats.
  };
  /// Appends a matrix [.., rows, columns] of int8, as rows or as panels, and the tensor of its scales.
  Int8Entries add_int8(const std::string& name, std::vector<Index> shape, bool panels);
  /// Sets the block that the next tensors belong to; -1: none.
  void set_block(Index block) { block_ = block; }

  const std::vector<ParameterEntry>& entries() const { return entries_; }
  /// Returns the entry of a name; null if there is none.
  const ParameterEntry* find(std::string_view name) const;
  /// Returns the length of the flat array, including gaps between tensors.
  Index size() const { return size_; }
  /// Returns the number of parameters, without gaps and the scales of int8.
  Index count() const { return count_; }

 private:
  Index append(ParameterEntry entry, Index floats);

  std::vector<ParameterEntry> entries_;
  Index size_ = 0, count_ = 0, block_ = -1;
};

/// The values of all parameters of a model in host memory, in one contiguous array. Sessions and programs share it.
/// Gaps are always zero.
template <class Real>
class Parameters {
 public:
  /// Makes parameters that are all zero.
  explicit Parameters(ParameterLayout layout);

  const ParameterLayout& layout() const { return layout_; }
  const std::shared_ptr<graph::Weights>& weights() const { return weights_; }

  std::span<Real> values() { return {data(), static_cast<std::size_t>(layout_.size())}; }
  std::span<const Real> values() const { return {data(), static_cast<std::size_t>(layout_.size())}; }
  std::span<Real> value(const ParameterEntry& entry) { return values().subspan(entry.offset, reals(entry)); }
  std::span<const Real> value(const ParameterEntry& entry) const {
    return values().subspan(entry.offset, reals(entry));
  }
  /// Call before writing values: other users of the array keep the old values, and this object continues with a copy.
  void part_from_readers();
  /// Call after writing values.
  void changed() { weights_->changed(); }

 private:
  static Index reals(const ParameterEntry& entry) {
    require(entry.dtype == DType::f32,
            "{} is int8, which this call cannot read or change: use the model that was "
            "quantised",
            entry.name);
    return entry.size;
  }
  Real* data() const { return static_cast<Real*>(weights_->values().data()); }

  ParameterLayout layout_;
  std::shared_ptr<graph::Weights> weights_;
};

extern template class Parameters<float>;
extern template class Parameters<double>;

/// Returns the values of a matrix of int8, row after row.
std::vector<std::int8_t> int8_rows(const Parameters<float>& parameters, const ParameterEntry& entry);
/// Sets a matrix of int8 and the scales of its rows.
void set_int8_rows(Parameters<float>& parameters, const ParameterEntry& entry, std::span<const std::int8_t> rows,
                   std::span<const float> scales);

/// Copies the tensors that both have with the same name and shape.
void copy_shared(const Parameters<float>& from, Parameters<float>& to);

}  // namespace penstock::nn
