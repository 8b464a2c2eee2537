#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"

namespace penstock::data {

/// Data that are one long sequence, read in windows for truncated back-propagation. The sequence has
/// `training` steps, numbered from 0, then `validation` steps. Subclasses define the content of a step.
///
/// Training: row b of B starts at step b/B of the training part and advances from window to window; behind the last
/// step it starts again at step 0, which `reset` marks. Each row has its own position, so T may change at any time.
/// When B changes, the rows that remain continue, new ones start at their b/B, and that batch does not continue the one
/// before.
///
/// The sequence may be several, one behind the other: their first steps, `starts`, are marked by `reset` too.
///
/// Validation: cut into B contiguous rows whose lengths differ by at most one step (fewer rows if they would be
/// shorter than one window, because every row starts without a past), read side by side, each step once.
class StreamDataset : public Dataset {
 public:
  const DataDescription& description() const override { return description_; }
  Index training_steps() const override { return training_; }
  Index held_out_steps() const override { return validation_; }

  void next(Index rows, Index steps, Example& example) override;
  bool validation(Index i, Index rows, Index steps, Example& example) const override;

  std::vector<Message> reading() const override { return reading_; }
  void set_reading(std::vector<Message> findings) { reading_ = std::move(findings); }
  /// Adds a finding unless it is empty.
  void add_reading(Message finding) {
    if (!finding.empty()) reading_.push_back(std::move(finding));
  }

  std::string position() const override { return to_text({kind_, fingerprint_, positions_, std::nullopt}); }
  void restore(const std::string& position) override;

 protected:
  enum class Part { training, validation };

  /// `kind` names the data in positions; `starts` ascend.
  StreamDataset(const char* kind, Index training, Index validation, std::vector<Index> starts = {})
      : training_(training), validation_(validation), starts_(std::move(starts)), kind_(kind) {}

  /// Writes what the steps at `places` [B, T] show and are asked for; a place below 0 is beyond its row.
  virtual void fill(const std::vector<Index>& places, Part part, Example& example) const = 0;

  DataDescription description_;
  std::uint64_t fingerprint_ = 0;

 private:
  /// Marks a place of an example that begins a sequence, unless the example begins there without a past.
  void mark_start(Index step, Index row, Index t, Example& example) const;

  Index training_, validation_;  // steps
  std::vector<Index> starts_;
  std::vector<Index> positions_;  // next step of each row; empty before the first batch
  const char* kind_;
  std::vector<Message> reading_;
  std::vector<Index> places_;  // of the last training batch
};

}  // namespace penstock::data
