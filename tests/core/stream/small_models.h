#pragma once

#include <string>

#include "penstock/model.h"

/// Descriptions of small models of each kind.
namespace penstock::test {

inline constexpr Index kClasses = 40;

inline DataDescription text() {
  DataDescription data;
  data.vocabulary = kClasses;
  return data;
}

inline DataDescription series() {
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = {{"a", 0.0, 1.0}, {"b", 0.0, 1.0}};
  data.targets = {{"a", 0.0, 1.0}};
  data.series.horizon = 2;
  return data;
}

inline ModelSpec spec_of(const std::string& cell) {
  return {.cell = cell, .width = 21, .blocks = 2, .hidden_size = 26, .convolution = 3, .feed_forward = 1.4};
}

}  // namespace penstock::test
