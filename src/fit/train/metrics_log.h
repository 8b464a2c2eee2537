#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "nn/model/model_impl.h"
#include "penstock/log_file.h"
#include "penstock/train/train.h"
#include "train/event_file.h"

namespace penstock::training {

/// A file of JSON lines: one object a report, each written through at once, so that a reader can follow the run. Every
/// object has a "kind": "run" comes first, then "train" and "validation", "final" in the end, and "resume" where a
/// resumed run goes on. The same numbers go to a folder of TensorBoard's.
class MetricsLog {
 public:
  /// Empty paths write nothing. Throws Error(io_failure) naming the path. A file that fails later is given up.
  MetricsLog(const std::string& path, const std::string& tensorboard_path, bool append);

  /// Writes what is trained, and how; `note` is TrainOptions::metrics_note.
  void run(const Model::Impl& model, const nlohmann::json& identity, const std::string& note);
  void train(const Progress& progress, Loss loss);
  void validation(const Progress& progress, Loss loss, const Evaluation& evaluation);
  void final(const TrainResult& result, Loss loss);
  void resume(Index step);

  /// Why files were given up since the last call; empty if none was.
  std::string take_error();

 private:
  void write(const std::string& line);

  LogFile file_;
  EventFile events_;
  bool said_file_ = false, said_events_ = false;  // that it was given up
};

}  // namespace penstock::training
