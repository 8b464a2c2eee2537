#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "penstock/train.h"

namespace penstock::training {

/// A file of JSON lines: one object a report, each written through at once, so that a reader can follow the run. Every
/// object has a "kind": "train", "validation", "final", and "resume" where a resumed run goes on.
class MetricsLog {
 public:
  /// An empty path writes nothing. Throws Error(io_failure) naming the path, now or at any record.
  MetricsLog(const std::string& path, bool append);

  void train(const Progress& progress, Loss loss);
  void validation(const Progress& progress, Loss loss, const Evaluation& evaluation);
  void final(const TrainResult& result, Loss loss);
  void resume(Index step);

 private:
  void write(const std::string& line);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace penstock::training
