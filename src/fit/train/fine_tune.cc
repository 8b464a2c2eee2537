#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "data/dataset.h"
#include "data/series/series_rows.h"
#include "io/model_json.h"
#include "nn/model/model_impl.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"
#include "penstock/train/fine_tune.h"
#include "penstock/train/train.h"

namespace penstock {

namespace {

/// Returns the fields on which a model's weights depend, without the form of files and descriptions of the data.
nlohmann::json form_of(const DataDescription& data) {
  nlohmann::json form = io::to_json(data);
  for (const char* const field :
       {"spread", "season", "delimiter", "decimal", "header", "missing", "undated", "latency"}) {
    form.erase(field);
  }
  for (auto& input : form.at("inputs")) input.erase("dates");
  for (auto& target : form.at("targets")) target.erase("non_negative");
  if (form.contains("groups")) form["groups"].erase("series");  // there may be others
  if (data.series.row_dates.irregular == Irregular::ignore) form.erase("row_dates");
  if (form.contains("row_dates")) form["row_dates"].erase("dates");
  return form;
}

/// Tells weights from others.
std::string fingerprint_of(const Model::Impl& model) {
  const auto bytes = std::as_bytes(std::as_const(*model.parameters).values());
  return fmt::format("{:016x}", data::fingerprint({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

}  // namespace

Model continue_from(const Model& origin, const Dataset& data, double dropout) {
  ModelSpec spec = origin.spec();
  require(spec.members == 1, "the model to go on from must be a single one, not an ensemble of {}", spec.members);
  require(spec.int8.empty(),
          "the model to go on from must have no weights of int8, which cannot be trained: go on from the one that was "
          "quantised");
  require(spec.blocks > 0, "the model to go on from must have layers, not filters alone: these are fitted anew");
  const std::string difference = io::difference("data", {"the model to go on from", form_of(origin.data())},
                                                {"the dataset", form_of(data.description())});
  if (!difference.empty()) fail(ErrorCode::incompatible, "the data are not those of the model: {}", difference);
  spec.dropout = dropout;
  if (!spec.corrects_branch()) spec.branch = nullptr;  // fitted anew once the layers are trained
  const bool linear = spec.corrects_branch() && training::has_linear_forecast(data);
  if (linear) use_linear_forecast(spec, data);
  Model model(spec, data.description());
  nn::copy_shared(*origin.impl().parameters, *model.impl().parameters);  // not the linear forecast's of other lags
  model.impl().origin = fingerprint_of(origin.impl());
  if (linear) fit_autoregression(model, data);
  return model;
}

}  // namespace penstock
