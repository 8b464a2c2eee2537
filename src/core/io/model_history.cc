#include <fmt/chrono.h>

#include <charconv>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "base/check.h"
#include "base/quote.h"
#include "io/model_file.h"
#include "io/model_json.h"
#include "io/network_file.h"
#include "penstock/fields.h"
#include "penstock/model_file.h"

namespace penstock {
namespace {

constexpr const char* history_key = "penstock.history";
constexpr const char* training_key = "penstock.training";  // of checkpoints

History parse_history(const std::string& text, const std::string& source) {
  const nlohmann::json json = io::parse_object(text, source, history_key);
  History history;
  visit_fields(history, [&]<class T>(const char* name, T& value) {
    const nlohmann::json found = json.value(name, nlohmann::json());
    if (std::is_same_v<T, Index> ? found.is_number_integer() : found.is_string()) value = found.get<T>();
  });
  return history;
}

void read_training(const std::string& text, const std::string& source, ModelFile& file) {
  const nlohmann::json json = io::parse_object(text, source, training_key);
  if (json.contains("step") && json.at("step").is_number_integer()) file.step = json.at("step").get<Index>();
  if (json.contains("seconds") && json.at("seconds").is_number()) file.seconds = json.at("seconds").get<double>();
}

}  // namespace

std::optional<History> io::read_history(const SafetensorsFile& file) {
  const auto text = file.metadata().find(history_key);
  if (text == file.metadata().end()) return std::nullopt;
  return parse_history(text->second, file.source());
}

std::string utc_time() {
  std::time_t now = std::time(nullptr);
  if (const char* const fixed = std::getenv("SOURCE_DATE_EPOCH"); fixed != nullptr) {
    constexpr std::time_t latest = 253402300799;  // the last second of the year 9999
    const std::string_view text(fixed);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), now);
    require(error == std::errc() && end == text.data() + text.size() && now >= 0 && now <= latest,
            "SOURCE_DATE_EPOCH must be 0 to {}, in seconds since 1970, not {}: unset it for the time of now", latest,
            in_quotes(text));
  }
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

void save_model(const Model& model, const std::string& path, const History& history) {
  io::Metadata metadata = io::model_metadata(model.spec(), model.data());
  nlohmann::json fields;
  visit_fields(history, [&](const char* name, const auto& value) { fields[name] = value; });
  for (const char* const name : {"origin", "weight", "options", "scores"}) {
    if (fields[name].get_ref<const std::string&>().empty()) fields.erase(name);
  }
  metadata[history_key] = io::to_text(fields);
  io::write_model(path, io::model_tensors(model.impl()), metadata);
}

TensorFile read_tensor_file(const std::string& path) {
  const auto file = std::make_shared<const io::SafetensorsFile>(io::SafetensorsFile::open(path));
  TensorFile result{{}, file->metadata(), file};
  for (const io::TensorInfo& tensor : file->tensors()) {
    result.tensors.push_back(
        {tensor.name, std::string(io::to_string(tensor.dtype)), tensor.shape, file->bytes(tensor)});
  }
  return result;
}

ModelFile inspect_model_file(const std::string& path) {
  ModelFile result;
  try {
    const io::SafetensorsFile file = io::SafetensorsFile::open(path);
    result.kind = ModelFile::Kind::safetensors;
    result.checksum = file.checksum();
    result.verified = file.has_checksum();
    result.tensors = file.tensors().size();
    if (file.metadata().contains(io::network_key)) {
      (void)io::read_network(file);
      result.kind = ModelFile::Kind::network;
      return result;
    }
    (void)io::read_description(file);
    result.kind = ModelFile::Kind::model;
    const io::Metadata& metadata = file.metadata();
    result.history = io::read_history(file);
    if (const auto text = metadata.find(training_key); text != metadata.end()) {
      result.kind = ModelFile::Kind::checkpoint;
      read_training(text->second, path, result);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io_failure) throw;
    result.problem = error.what();
  }
  return result;
}

}  // namespace penstock
