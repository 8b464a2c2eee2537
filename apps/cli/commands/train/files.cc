#include "commands/train/files.h"

#include <fmt/format.h>

#include <filesystem>

#include "options/output_file.h"
#include "terminal/describe.h"
#include "terminal/signals.h"

namespace penstock::cli {
namespace {

// Options that a model's weights and its data decide.
const std::vector<const char*> decided = {
    "--cell",     "--width",       "--blocks",    "--hidden-size", "--heads",      "--conv",      "--ffn",
    "--norms",    "--no-changes",  "--no-linear", "--columns",     "--categories", "--horizon",   "--target-columns",
    "--calendar", "--date-column", "--transform", "--group",       "--known",      "--irregular", "--group-by-file"};

/// Returns whether an output is a model that an interrupted run with this checkpoint has left.
bool continues(const std::string& checkpoint, const std::string& output) {
  if (!std::filesystem::exists(checkpoint) || !std::filesystem::exists(output)) return false;
  if (inspect_model_file(output).kind == ModelFile::Kind::other) return false;
  ModelSpec spec = Model::load(output).spec();
  if (!spec.corrects_branch()) spec.branch = nullptr;  // which no checkpoint has: filters are fitted at the end
  return describe_layers(Model::load(checkpoint).spec()) == describe_layers(spec);
}

}  // namespace

TrainFiles::TrainFiles(const TrainArguments& arguments)
    : arguments_(arguments), checkpoint_(arguments.fit.train.checkpoint_path) {
  check_no_clash();
  refuse_standard_output("--metrics", arguments.fit.train.metrics_path);
  check_writable_file("--output", arguments.output);
  output_lock_.emplace("--output", arguments.output);
  static_cast<void>(resumes(arguments.fit));  // which refuses to continue from nothing
  check_writable_file("--checkpoint", checkpoint_);
  checkpoint_lock_.emplace("--checkpoint", checkpoint_);
  check_nothing_is_lost();
}

/// Refuses to replace earlier results, unless the run continues them or --force is given.
void TrainFiles::check_nothing_is_lost() const {
  if (arguments_.force) return;
  if (arguments_.fit.resume) {
    if (continues(checkpoint_, arguments_.output)) return;
    check_not_there("--output", arguments_.output,
                    fmt::format("it does not belong to {}, and --force replaces it", printable(checkpoint_)));
    return;
  }
  for (Index i = 0; i < arguments_.fit.seeds; ++i) {
    check_not_there("--checkpoint", member_path(checkpoint_, i), "--resume continues that run, --force replaces it");
  }
  check_not_there("--output", arguments_.output, "--force replaces it, -o FILE writes another one");
}

void TrainFiles::check_no_clash() const {
  std::vector<InputFile> inputs = input_files("DATA", arguments_.data.sources);
  inputs.push_back({"--target", arguments_.data.target});
  inputs.push_back({"--init", arguments_.init});
  inputs.push_back({"--cell", arguments_.model.cell_file});
  std::vector<OutputFile> outputs = training_outputs(arguments_.fit.train, arguments_.fit.seeds);
  for (OutputFile& file : outputs) {
    if (file.role == "checkpoint_path") file.kind = FileKind::any;  // see check_nothing_is_lost()
  }
  outputs.insert(outputs.begin(), {"--output", arguments_.output});
  outputs.push_back({"the lock of --output", OutputLock::path_for(arguments_.output)});
  outputs.push_back({"the lock of --checkpoint", OutputLock::path_for(checkpoint_)});
  check_files(inputs, outputs, arguments_.force);
}

TrainOrigin::TrainOrigin(const CLI::App& app, const std::string& path)
    : path_(path), model_(Model::load(path)), checksum_(inspect_model_file(path).checksum) {
  refuse_given(app, decided, fmt::format("must not be given with --init, which takes it from {}", printable(path)));
  if (model_.spec().members > 1) {
    fail(ErrorCode::incompatible,
         "--init {}: an ensemble of {} cannot be trained further: its file does not keep the members apart",
         printable(path), model_.spec().members);
  }
}

std::string TrainOrigin::describe() const { return fmt::format("{}, checksum {}", path_, checksum_); }

}  // namespace penstock::cli
