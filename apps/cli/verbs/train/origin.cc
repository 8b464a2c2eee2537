#include "verbs/train/origin.h"

#include <fmt/format.h>

#include "penstock/error.h"
#include "penstock/model_file.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

// What a model's weights and its data decide.
constexpr const char* decided[] = {
    "--cell",     "--width",       "--blocks",    "--hidden-size", "--heads",      "--conv",      "--ffn",
    "--norms",    "--no-changes",  "--no-linear", "--columns",     "--categories", "--horizon",   "--target-columns",
    "--calendar", "--date-column", "--transform", "--group",       "--known",      "--irregular", "--group-by-file"};

}  // namespace

TrainOrigin::TrainOrigin(const CLI::App& app, const std::string& path)
    : path_(path), model_(Model::load(path)), checksum_(inspect_model_file(path).checksum) {
  for (const char* const option : decided) {
    if (app.count(option) == 0) continue;
    fail(ErrorCode::invalid_argument, "{} must not be given with --init, which takes it from {}", option,
         printable(path));
  }
  if (model_.spec().members > 1) {
    fail(ErrorCode::incompatible,
         "--init {}: an ensemble of {} cannot be trained further: its file does not keep the members apart",
         printable(path), model_.spec().members);
  }
}

std::string TrainOrigin::describe() const { return fmt::format("{}, checksum {}", path_, checksum_); }

}  // namespace penstock::cli
