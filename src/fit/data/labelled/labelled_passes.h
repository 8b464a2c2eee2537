#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "penstock/data/dataset.h"
#include "penstock/data_description.h"

namespace penstock::data {

/// Items with a label each, sequences or texts, as batches of whole items: T is the longest of a batch, and the last
/// valid step of each carries its label. Each pass over the training part has its own order, drawn from the seed and
/// the number of the pass.
class LabelledPasses : public Dataset {
 public:
  const DataDescription& description() const override { return description_; }
  Index training_steps() const override { return static_cast<Index>(training_.size()); }
  Index held_out_steps() const override { return static_cast<Index>(validation_.size()); }
  std::vector<Message> reading() const override { return reading_; }
  void set_reading(std::vector<Message> findings) { reading_ = std::move(findings); }

  void next(Index rows, Index steps, Example& example) override;
  bool validation(Index i, Index rows, Index steps, Example& example) const override;
  const LabelledPasses* labelled_passes() const override { return this; }
  /// Fills `example` with the i-th batch of at most `rows` training sequences, in an order that the seed alone decides.
  /// Returns false and leaves it unchanged if there is no such batch.
  bool training(Index i, Index rows, Example& example) const;
  /// Returns the length of the longest item.
  Index longest() const;
  /// Returns the labels whose items are all held out.
  std::vector<std::string> labels_held_out() const;
  std::string position() const override;
  void restore(const std::string& position) override;

 protected:
  /// `kind`: what positions are of.
  LabelledPasses(const char* kind, std::uint64_t seed) : seed_(seed), kind_(kind) {}

  virtual Index length(Index item) const = 0;
  virtual std::int32_t label(Index item) const = 0;
  /// Writes what a model reads of these items: example [rows, steps], in which lengths and labels are set.
  virtual void fill_inputs(std::span<const Index> chosen, Example& example) const = 0;
  /// May change the order of a pass, which is random.
  virtual void arrange(std::vector<Index>& /*order*/, std::uint64_t /*purpose*/) const {}

  /// Begins a pass; the training part must be known.
  void begin_pass(Index pass);

  DataDescription description_;
  std::vector<Index> training_, validation_;  // items
  std::uint64_t seed_;
  std::uint64_t fingerprint_ = 0;

 private:
  bool fill_batch(std::span<const Index> part, Index i, Index rows, Example& example) const;
  void fill(std::span<const Index> chosen, Example& example) const;

  const char* kind_;
  std::vector<Message> reading_;
  std::vector<Index> order_;  // of the training part, in this pass
  Index pass_ = 0;
  Index done_ = 0;  // items of this pass that were handed out
};

}  // namespace penstock::data
