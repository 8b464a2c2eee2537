#pragma once

#include <string>
#include <vector>

#include "options/data_options.h"
#include "penstock/model.h"
#include "verbs/train/arguments.h"

namespace penstock::cli {

/// What a run begins with.
struct RunStart {
  const TrainArguments& arguments;
  const TrainOptions& options;
  const OpenedData& data;
};

/// The first lines of a run: the data and how they were read, the model, how long, when it stops, on what machine.
/// `origin` is the model that it goes on from, empty for fresh weights; `planned` whether its length was chosen by the
/// size of the data.
std::string introduction(const RunStart& start, const Model& model, const std::string& origin, bool planned);

/// Those of one that trains nothing, since the linear forecast of a series answers alone.
std::string introduction_of_linear(const RunStart& start, const Model& model);

/// Those of one that trains nothing, since filters answer alone, in spite of the options `given` for layers.
std::string introduction_of_filters(const RunStart& start, const std::vector<std::string>& given);

}  // namespace penstock::cli
