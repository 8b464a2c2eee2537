#include "options/load_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "penstock/error.h"
#include "penstock/model_file.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_model(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

/// The first model in a folder; empty if there is none.
std::string model_in(const std::string& folder) {
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable)) {
    if (entry.is_regular_file(unreadable) && begins_as_model(entry.path().string())) return entry.path().string();
  }
  return "";
}

bool is_readable(const std::string& path) { return std::ifstream(path, std::ios::binary).is_open(); }

std::string command_line(const std::string& command, const std::string& model, const std::string& rest) {
  return fmt::format("'penstock {} {}{}{}'", command, shell_word(model), rest.empty() ? "" : " ", rest);
}

/// Returns the input that a model reads, for messages.
std::string reads(const DataDescription& data) {
  if (data.task == Task::language) return "a text";
  if (data.labels_texts()) return fmt::format("a table with the column {}", printable(data.labels.text_column));
  if (data.vocabulary > 0) return "lines of tokens, or task:NAME";
  std::vector<std::string> names;
  for (const Column& input : data.inputs) {
    const std::string name = printable(input.name);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return fmt::format("a table with the column{} {}", names.size() == 1 ? "" : "s", fmt::join(names, ", "));
}

Model find_model(const std::string& command, const std::string& path, const std::vector<std::string>& others) {
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) {
    const std::string inside = model_in(path);
    refuse_model(fmt::format("MODEL {} is a folder{}", printable(path),
                             inside.empty() ? ", not a model" : ", not a file such as " + shell_word(inside)));
  }
  if (!is_readable(path) || begins_as_model(path)) return Model::load(path);  // which says why it cannot be read
  for (const std::string& other : others) {
    if (!begins_as_model(other)) continue;
    refuse_model(fmt::format("{} is not a model, but {} is: {}", printable(path), printable(other),
                             command_line(command, other, shell_word(path))));
  }
  const bool empty = fs::is_regular_file(path, unknown) && fs::file_size(path, unknown) == 0;
  if (empty || fs::path(path).extension() == ".safetensors") return Model::load(path);  // which says what is wrong
  refuse_model(fmt::format("{} is not a model: 'penstock train {}' trains one", printable(path), shell_word(path)));
}

}  // namespace

bool begins_as_model(const std::string& path) {
  std::array<char, 9> begin = {};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(begin.data(), begin.size())) return false;
  return begin[4] == 0 && begin[5] == 0 && begin[6] == 0 && begin[7] == 0 && begin[8] == '{';
}

bool is_network(const std::string& path) {
  return begins_as_model(path) && inspect_model_file(path).kind == ModelFile::Kind::network;
}

Model load_model(const std::string& command, const std::string& path, const std::vector<std::string>& others) {
  Model model = find_model(command, path, others);
  const std::array reading = {"evaluate", "generate", "predict", "stream"};
  const bool reads = std::ranges::find(reading, command) != reading.end();
  if (reads && model.data().task == Task::language && !reads_bytes(model)) {
    refuse_model(fmt::format("{} reads token ids, not bytes: in Python, penstock.Session reads and generates them",
                             printable(path)));
  }
  return model;
}

bool reads_bytes(const Model& model) { return model.data().vocabulary == 256; }

void refuse_models(const std::vector<std::string>& sources) {
  const auto model = std::ranges::find_if(sources, begins_as_model);
  if (model == sources.end()) return;
  const auto data = std::ranges::find_if_not(sources, begins_as_model);
  refuse_model(fmt::format("{} is a model, not data: 'penstock train {} --init {}' trains it further",
                           printable(*model), data == sources.end() ? "DATA" : shell_word(*data), shell_word(*model)));
}

void require_data(const std::string& command, const std::string& model, const std::vector<std::string>& data) {
  if (!data.empty() && !data.front().empty()) return;
  if (is_readable(model) && !begins_as_model(model)) {
    refuse_model(fmt::format("MODEL is missing: {}", command_line(command, "model.safetensors", shell_word(model))));
  }
  const Model loaded = load_model(command, model);
  refuse_model(
      fmt::format("DATA is missing: {}, where FILE is {}", command_line(command, model, "FILE"), reads(loaded.data())));
}

}  // namespace penstock::cli
