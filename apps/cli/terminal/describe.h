#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "penstock/model.h"
#include "penstock/train.h"

/// Models and results in words, for a person and for a program.
namespace penstock::cli {

using Json = nlohmann::ordered_json;  ///< Keeps the order in which a person would want to read.

/// "minGRU" is written as its cell is named: "mingru, 2 blocks of width 256, 532,992 parameters"
std::string describe_model(const Model& model);
/// Describes each member of an ensemble, without the number of members.
std::string describe_layers(const ModelSpec& spec);

/// "2 of 8 series have a linear forecast of their own ...: north, south"; empty if none has.
std::string describe_own_forecasts(const DataDescription& data);

Json model_json(const Model& model);
/// Returns the losses as JSON, with bits_per_step and accuracy if the task has them.
Json evaluation_json(const DataDescription& data, const Evaluation& evaluation);

/// One line, also for texts that are not UTF-8 (their bytes are replaced).
std::string json_line(const Json& json);

/// Throws Error(invalid_argument) unless the model is there for this task: "WHAT is for forecast models, and FILE is a
/// language model".
void require_task(const Model& model, const std::string& path, Task task, const std::string& what);

/// Throws Error(invalid_argument) for an option of tables or of forecasts that was given for a model of another kind.
void refuse_foreign_options(const CLI::App& app, const Model& model, const std::string& path);

}  // namespace penstock::cli
