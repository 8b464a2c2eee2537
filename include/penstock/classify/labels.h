#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/data/dataset.h"
#include "penstock/model.h"

/// Scores of predicted labels, and labelling of texts.
namespace penstock {

/// Scores of predicted labels.
struct LabelScore {
  Index scored = 0;                           ///< Number of sequences.
  double accuracy = 0.0;                      ///< Share of correct labels.
  double macro_f1 = 0.0;                      ///< Mean F1 over the classes that occur as true or predicted labels.
  std::vector<std::vector<Index>> confusion;  ///< [true class][predicted class]: counts.
  Index majority = 0;                         ///< The most frequent true class.
  double majority_accuracy = 0.0;             ///< Accuracy of the baseline that always predicts `majority`.
};

/// Returns the scores for counts [true class][predicted class]. Throws Error(invalid_argument) unless they are square.
LabelScore score_labels(std::vector<std::vector<Index>> confusion);

/// Returns the logits of each text, [texts, classes]. Runs many texts at a time. Throws Error(invalid_argument) unless
/// the model labels texts.
std::vector<float> label_texts(const Model& model, std::span<const std::string_view> texts,
                               const Execution& execution = {});

/// Compares the predicted label of every text in a table with its true label. `label_column`: column of the true
/// labels; empty: the one with a usual name. Throws Error: io_failure if a file cannot be read; bad_input for a bad
/// table or a label that the model does not know; invalid_argument if there is no such column.
LabelScore score_labelled_texts(const Model& model, const TableSources& sources, const std::string& label_column,
                                const Execution& execution = {});

}  // namespace penstock
