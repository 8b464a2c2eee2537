#pragma once

#include <string>
#include <vector>

#include "penstock/types.h"

/// Labels of sequences.
namespace penstock {

/// Describes the labels of sequences, and the texts that a model labels.
struct LabelDescription {
  std::vector<std::string> classes;  ///< Names of the labels.
  std::string text_column = {};      ///< Column of texts, each row a sequence of bytes; empty: rows are steps.
  Index longest_text = 0;            ///< Bytes that are read of each text; the rest is cut off.
};

}  // namespace penstock
