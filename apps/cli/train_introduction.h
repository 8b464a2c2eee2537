#pragma once

#include <string>

#include "open_data.h"
#include "penstock/model.h"
#include "train_arguments.h"

namespace penstock::cli {

/// What a run begins with.
struct RunStart {
  const TrainArguments& arguments;
  const TrainOptions& options;
  const OpenedData& data;
  const Model& model;
  std::string origin;  ///< The model that it goes on from; empty: fresh weights.
  bool planned;        ///< Whether its length was chosen by the size of the data.
};

/// The first lines of a run: the data and how they were read, the model, how long, when it stops, on what machine.
std::string introduction(const RunStart& start);

}  // namespace penstock::cli
