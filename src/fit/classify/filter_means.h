#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "classify/ridge_classifier.h"
#include "data/labelled/labelled_passes.h"
#include "nn/closed_form/filter_branch.h"
#include "nn/model/model_impl.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"
#include "penstock/stop.h"

/// The filters of a model of labelled sequences outside of it: they are drawn, their thresholds are fitted, and what
/// they let pass is averaged over each sequence.
namespace penstock::training {

/// Returns the length of an example's row.
Index length_of(const Example& example, Index row);

/// The sequences of one part of a dataset, batch by batch, and how many there are at most.
class Sequences {
 public:
  enum class Part { training, held_out };
  /// More sequences, or positions, change little of what is fitted to them and take minutes.
  static constexpr Index most = 10000, most_positions = Index{1} << 22;

  explicit Sequences(const Dataset& data);

  /// Returns the median length of the training sequences.
  Index median_length() const { return median_length_; }

  /// Calls `use` with every batch until so many positions have been seen.
  template <class Use>
  void each(Part part, Index enough, const Use& use) const {
    Example example;
    Index sequences = 0, positions = 0;
    for (Index i = 0; sequences < most && positions < enough && batch(part, i, example); ++i) {
      stop_if_asked();
      use(example);
      sequences += example.rows;
      positions += example.rows * example.steps;
    }
  }

 private:
  bool batch(Part part, Index i, Example& example) const {
    return part == Part::training ? data_.labelled_passes()->training(i, rows_, example)
                                  : data_.validation(i, rows_, 1, example);
  }

  const Dataset& data_;
  Index median_length_ = 1, rows_ = 1;  // of a batch
};

/// Means over sequences of what filters let pass, and what the sequences are. Filters come in pairs that differ in
/// their thresholds alone: of each, what the first lets pass, and how much more that is than what the second does. The
/// first says how much of a shape there is, the difference how often it occurs.
struct Means {
  Index width = 0;
  std::vector<float> values;  // [n, width]
  std::vector<std::int32_t> labels;

  std::size_t count() const { return labels.size(); }
  std::span<const float> of(std::size_t i) const {
    return std::span(values).subspan(i * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
  }
  void append(const Means& others) {
    values.insert(values.end(), others.values.begin(), others.values.end());
    labels.insert(labels.end(), others.labels.begin(), others.labels.end());
  }
};

/// How a classifier of such means weighs what each filter lets pass [classes, features].
std::vector<double> weights_of_filters(const RidgeClassifier& classifier);

class Filters;

/// The filters of all banks of a model, and how the means of a part of the data are taken.
class FilterMeans {
 public:
  FilterMeans(const nn::FilterBranch& filters, const DataDescription& data, const Execution& execution);
  ~FilterMeans();

  /// Taps and channels by the seed, thresholds by the training part.
  void draw(const Sequences& sequences, std::uint64_t seed);

  /// The filters that a model has, and back.
  void take_from(const Model& model);
  void give_to(Model& model) const;

  Means means(const Sequences& sequences, Sequences::Part part);
  RidgeClassifier fit(const Means& means) const;

 private:
  nn::FilterBranch filters_;
  DataDescription data_;
  Execution execution_;
  std::vector<std::unique_ptr<Filters>> banks_;
};

}  // namespace penstock::training
