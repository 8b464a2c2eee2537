#pragma once

#include <string>

#include "penstock/data_description.h"
#include "penstock/model.h"
#include "support/temporary_folder.h"

namespace penstock::test {

/// A small model of a series, which reads two columns and forecasts one of them.
inline Model series_model(const std::string& cell = "lstm", Index hidden = 16) {
  DataDescription data;
  data.task = Task::forecast;
  data.inputs = {{"a", 0.5, 1.5}, {"b", -1.0, 0.3}};
  data.targets = {{"a", 0.5, 1.5}};
  data.series.horizon = 2;
  return Model({.cell = cell, .width = 8, .blocks = 1, .hidden_size = hidden, .convolution = 3, .from_last = true},
               data, 7);
}

/// A small model of text.
inline Model text_model() {
  DataDescription data;
  data.vocabulary = 50;
  return Model({.cell = "gru", .width = 16, .blocks = 1}, data, 7);
}

/// The bytes of a model's file.
inline std::string file_of(const Model& model) {
  const TemporaryFolder folder;
  model.save(folder.path("model.safetensors"));
  return folder.read("model.safetensors");
}

}  // namespace penstock::test
