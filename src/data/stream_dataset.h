#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "data/stream_windows.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"

namespace penstock::data {

/// Data that are one long stream, walked through by StreamWindows. What a step holds is for heirs to say.
class StreamDataset : public Dataset {
 public:
  const DataDescription& description() const override { return description_; }
  Index training_steps() const override { return windows_.training(); }
  Index held_out_steps() const override { return windows_.held_out(); }

  void next(Index rows, Index steps, Example& example) override {
    windows_.next(rows, steps, example, places_);
    fill(places_, Part::training, example);
  }
  bool validation(Index i, Index rows, Index steps, Example& example) const override {
    std::vector<Index> places;
    if (!windows_.validation(i, rows, steps, example, places)) return false;
    fill(places, Part::validation, example);
    return true;
  }

  std::vector<std::string> reading() const override { return reading_; }
  void set_reading(std::vector<std::string> findings) { reading_ = std::move(findings); }
  /// Adds a finding unless it is empty.
  void add_reading(std::string finding) {
    if (!finding.empty()) reading_.push_back(std::move(finding));
  }

  std::string position() const override { return to_text({kind_, fingerprint_, windows_.positions(), std::nullopt}); }
  void restore(const std::string& position) override {
    if (!windows_.restore(parse_position(position, kind_, fingerprint_).numbers)) bad_position(kind_);
  }

 protected:
  /// Leaves the first `training` + `validation` steps alone, and starts anew. For a copy that is a part of its
  /// original.
  void narrow(Index training, Index validation) {
    std::vector<Index> starts = windows_.starts();
    std::erase_if(starts, [&](Index start) { return start >= training + validation; });
    windows_ = StreamWindows(training, validation, std::move(starts));
    fingerprint_ = fingerprint(fmt::format("the first {} and {}", training, validation), fingerprint_);
  }

  enum class Part { training, validation };

  /// `kind` names the data in positions; the numbers of steps are StreamWindows'.
  StreamDataset(const char* kind, Index training, Index validation, std::vector<Index> starts = {})
      : windows_(training, validation, std::move(starts)), kind_(kind) {}

  /// Writes what the steps at `places` show and are asked for; a place below 0 is beyond its row.
  virtual void fill(const std::vector<Index>& places, Part part, Example& example) const = 0;

  DataDescription description_;
  std::uint64_t fingerprint_ = 0;

 private:
  StreamWindows windows_;
  const char* kind_;
  std::vector<std::string> reading_;
  std::vector<Index> places_;  // of the last training batch
};

}  // namespace penstock::data
