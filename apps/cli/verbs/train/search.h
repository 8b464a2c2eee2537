#pragma once

#include <string>

#include "penstock/train/search.h"
#include "terminal/describe.h"
#include "verbs/train/arguments.h"

namespace penstock::cli {

/// The file in which the search of a run is kept beside its checkpoint.
std::string search_record(const std::string& checkpoint);

/// `train --search`: looks for the model that suits the data, in what the options leave open, and says what it tried as
/// it goes. `spec` and `options` are what would be trained otherwise.
SearchResult search_model(const ModelSpec& spec, const Dataset& data, const TrainOptions& options,
                          const TrainArguments& arguments);

/// "31 trainings in 5:00; gru of width 64, ...: loss 0.41 on the rest of the training part, 0.46 as it began"
std::string describe_search(const SearchResult& result);
Json search_json(const SearchResult& result);

}  // namespace penstock::cli
