#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/data/dataset.h"
#include "penstock/model.h"

namespace penstock {

/// Of labels.
struct LabelScore {
  Index scored = 0;
  double accuracy = 0.0;
  double macro_f1 = 0.0;                      ///< Mean over the classes that occur, in truth or in answers.
  std::vector<std::vector<Index>> confusion;  ///< [truth][answer]
  Index majority = 0;                         ///< The class that occurs most ...
  double majority_accuracy = 0.0;             ///< ... and what always answering it would score.
};

/// From counts [truth][answer].
LabelScore score_labels(std::vector<std::vector<Index>> confusion);

/// The logits of its classes for each text, [texts, classes]: many texts at a time.
std::vector<float> label_texts(const Model& model, std::span<const std::string_view> texts,
                               const Execution& execution = {});

/// Every text of a table by its label; empty `label_column`: the one of a usual name.
LabelScore score_labelled_texts(const Model& model, const Sources& sources, const std::string& label_column,
                                const Execution& execution = {});
LabelScore score_labelled_texts(const Model& model, const Table& table, const TableFormat& format,
                                const std::string& label_column, const Execution& execution = {});

}  // namespace penstock
