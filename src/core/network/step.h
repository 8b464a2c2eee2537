#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "base/aligned.h"
#include "network/kernels.h"
#include "network/strided_loop.h"

namespace penstock::network {

/// Where a tensor lies in a run: in a constant, or in the session's memory.
struct Place {
  const std::byte* constant = nullptr;
  std::size_t offset = 0;
};

struct Step;

/// Packed weights. Copies share them until one of them changes: the rounds of a loop have the same.
class Weights {
 public:
  using Floats = AlignedVector<float>;

  bool empty() const { return size() == 0; }
  std::size_t size() const { return floats_ == nullptr ? 0 : floats_->size(); }
  const float* data() const { return floats_ == nullptr ? nullptr : floats_->data(); }
  /// To be changed.
  Floats& own() {
    if (floats_.use_count() != 1)
      floats_ = floats_ == nullptr ? std::make_shared<Floats>() : std::make_shared<Floats>(*floats_);
    return *floats_;
  }
  /// Shares those of another if they are the same. Returns whether they are.
  bool share(const Weights& other) {
    const bool same =
        size() == other.size() && (empty() || std::memcmp(data(), other.data(), size() * sizeof(float)) == 0);
    if (same) floats_ = other.floats_;
    return same;
  }

 private:
  std::shared_ptr<Floats> floats_;
};

/// A function of one number that ends an operation, such as the activation of a layer.
struct Ending {
  Unary op = Unary::none;
  float alpha = 0, beta = 1;
};

/// Images [channels, columns] that lie as [rows, channels]: a row for each column, and zeros around these.
struct ImageRows {
  Index rows = 0;    ///< With those of zeros; 0: images lie as ever.
  Index before = 0;  ///< Rows of zeros in front.
};

/// How a step of many images can write what the next one reads fastest.
struct ManyImages {
  ImageRows reads;   ///< It reads images faster if they lie so.
  ImageRows writes;  ///< It writes images that lie so.
  bool can_write_rows = false;
  bool has_rows = false;        ///< Read 0 lies as `reads`.
  bool is_spectrum = false;     ///< It writes real parts, then as many imaginary parts,
  bool has_magnitudes = false;  ///< or their magnitudes.
  bool is_part = false;         ///< It does nothing but copy a part of read 0 by `loops[0]`.
};

/// What a step runs on: where its tensors lie, and the loops of the instruction set in use.
struct Memory {
  std::byte* base;
  const Kernels& kernels;

  const std::byte* at(const Place& place) const {
    return place.constant != nullptr ? place.constant : base + place.offset;
  }
};

using Run = void (*)(const Step& step, const Memory& memory);

/// One operation of a program: what runs, on which tensors, with which numbers. What the members mean is up to `run`.
struct Step {
  Run run = nullptr;
  Run first = nullptr;  ///< What `run` calls first.
  std::vector<Place> reads, writes;
  Place scratch;
  std::size_t scratch_bytes = 0;
  int variant = 0;
  std::vector<Type> types;  ///< Of what it reads, then of what it writes.
  std::vector<Index> n;
  std::vector<float> f;
  std::vector<StridedLoop> loops;
  Weights packed;
  AlignedVector<float> bias;
  Product product;
  std::shared_ptr<const void> plan;  ///< More of what `run` needs.
  Ending ending;
  /// Takes y = gain y + shift with one number per channel (a column, or a map) into its weights; null: it cannot.
  bool (*absorb)(Step& step, Index channels, const float* gain, const float* shift) = nullptr;
  bool absorbs_columns = false;  ///< The channels of `absorb` are the last axis, not the second.
  Weights head;                  ///< Of a layer that ends in one output: [H], with the bias `f[0]`.
  bool takes_head = false;       ///< It can end so: it writes [T, 1, H] alone.
  bool is_column = false;        ///< It is such an output of rows, with the weights `packed` and the bias `bias`.
  bool keeps_scratch = false;    ///< The scratch is its own from run to run, and zero at first.
#if !PENSTOCK_RUNTIME
  /// Describes a kept scratch: steps with the same list keep zeros in the same places, and share it.
  std::vector<Index> zeros;
#endif
  bool carries_states = false;   ///< It reads states before it writes the next ones, which may lie in the same place.
  bool takes_ending = false;     ///< It applies `ending`.
  bool is_unary = false;         ///< It does nothing but apply `ending`.
  bool is_binary = false;        ///< It joins two tensors by Binary `variant`.
  bool scales_channels = false;  ///< It is such a gain and shift, in `packed`.
  ManyImages images;
  bool adds_zeros = false;  ///< It puts zeros around maps: `plan` has their Shape, before and after each axis.

  const std::byte* read(std::size_t i, const Memory& memory) const { return memory.at(reads[i]); }
  const float* floats(std::size_t i, const Memory& memory) const {
    return reinterpret_cast<const float*>(memory.at(reads[i]));
  }
  std::byte* write(std::size_t i, const Memory& memory) const { return memory.base + writes[i].offset; }
  float* result(std::size_t i, const Memory& memory) const { return reinterpret_cast<float*>(write(i, memory)); }
  float* spare(const Memory& memory) const { return reinterpret_cast<float*>(memory.base + scratch.offset); }
  Type read_type(std::size_t i) const { return types[i]; }
  Type write_type(std::size_t i) const { return types[reads.size() + i]; }
};

}  // namespace penstock::network
