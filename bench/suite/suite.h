#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/timing.h"
#include "bench/contenders/contender.h"
#include "bench/suite/limits.h"
#include "bench/suite/machine.h"
#include "bench/suite/python_peers.h"
#include "bench/suite/tables.h"

namespace penstock::bench {

struct Settings {
  double seconds = 0.3;  ///< Seconds of timed calls, for each contender in each case.
  int rounds = 5;        ///< How often they take turns.
  std::uint64_t seed = 1;
  std::string device = "cpu";  ///< Or "cuda".
  std::string python = "python3";
  std::string peers_folder;                       ///< With the scripts; empty: none.
  std::optional<std::vector<std::string>> peers;  ///< Nothing: all that the table knows.
};

/// How one contender did in one case.
struct Entry {
  enum class Outcome {
    timed,
    wrong,    ///< Its results disagree with the oracle; there is no time.
    skipped,  ///< It has no such case; there is no time.
    failed,   ///< It ended or threw; there is no time.
    untimed,  ///< Right, but ours were wrong, and nothing stands beside a wrong result.
  };
  std::string name;
  Outcome outcome = Outcome::timed;
  std::string note;  ///< Why there is no time, or what is loose about it.
  TimeSpread time;   ///< Seconds per call.
  double error = 0.0, tolerance = 0.0;
  /// A peer that is held to a tolerance of its own and would miss the one that we are held to.
  bool loses_digits = false;
};

/// One case and everybody in it.
struct Line {
  Case test;
  std::string checked;
  std::vector<Entry> entries;
  Limit limit;

  const Entry* find(const std::string& name) const;
  /// False where our time is well below the limit: then the limit was measured too low, because something else used the
  /// machine meanwhile, and no share of it means anything.
  bool has_sound_limit() const;
};

struct Measured {
  const Table* table;
  std::vector<Line> lines;
};

/// "the limit of 3 cases, ... is wrong", and what to do about it; empty if all limits are sound.
std::string wrong_limits(const Measured& measured);

/// A whole run, as the reports have it.
struct Report {
  std::string command;
  Machine machine;
  Settings settings;
  std::string python;  ///< Version, or empty.
  std::vector<Peer> peers;
  std::vector<Measured> tables;
  Limits limits;
  bool interrupted = false;

  /// Did anybody's results disagree with the oracle, or fail?
  bool all_right() const;
};

/// Hears how far a run is; says whether to stop.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void at(std::size_t done, std::size_t total, const std::string& what) = 0;
  virtual bool stop() = 0;
};

/// Runs all cases of all tables. Before anything is timed, throws Error(invalid_argument) if a case is impossible or
/// needs more memory than there is.
Report run(const std::vector<const Table*>& wanted, const Choice& choice, const Settings& settings, Watcher& watcher);

}  // namespace penstock::bench
