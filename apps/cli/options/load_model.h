#pragma once

#include <string>
#include <vector>

#include "penstock/model.h"

/// The model that a command is called with, and the data behind it.
namespace penstock::cli {

/// Returns whether a file begins like a model: with a length of at most 100 MB and a brace, as no text does.
bool begins_as_model(const std::string& path);

/// Returns whether a file is a network that 'penstock import' wrote.
bool is_network(const std::string& path);

/// Loads the first argument of a command. Throws Error(invalid_argument) with the command that was meant where it is no
/// model: where one of `others`, the arguments behind it, is, or where it holds data; and for a model of token ids
/// where the command reads bytes.
Model load_model(const std::string& command, const std::string& path, const std::vector<std::string>& others = {});

/// Returns whether a language model reads bytes, and not other token ids.
bool reads_bytes(const Model& model);

/// Throws Error(invalid_argument) if one of the files to train on is a model, with the command that was meant.
void refuse_models(const std::vector<std::string>& sources);

/// Throws Error(invalid_argument) unless `data` names a file: which of MODEL and DATA is missing, and what the model
/// reads.
void require_data(const std::string& command, const std::string& model, const std::vector<std::string>& data);

}  // namespace penstock::cli
