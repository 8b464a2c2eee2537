#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "penstock/types.h"

/// Labels as they are read.
namespace penstock::data {

/// Numbers labels in the order in which they come, and sorts them at the end.
class LabelNumbers {
 public:
  std::int32_t number_of(const std::string& label);
  /// The labels in the order in which they came.
  const std::vector<std::string>& labels() const { return labels_; }
  /// Sorts them, by value if all are numbers (so that 2 stands before 10), by their bytes otherwise: returns the new
  /// number of each old one.
  std::vector<std::int32_t> sort();

 private:
  std::vector<std::string> labels_;
  std::map<std::string, std::int32_t> numbers_;
};

/// The number that a model's `classes` give to each of the labels. Throws Error(incompatible) for one that the model
/// does not know; it may know others.
std::vector<std::int32_t> numbers_among(const std::vector<std::string>& labels, const std::vector<std::string>& classes,
                                        const std::string& source);

}  // namespace penstock::data
