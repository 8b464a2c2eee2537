#include "bench/suite/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "base/free_memory.h"
#include "bench/contenders/onednn.h"
#include "bench/suite/solver.h"

namespace penstock::bench {
namespace {

using Outcome = Entry::Outcome;

struct Stopped {};

/// Idle threads of our own pool spin for a few milliseconds after a call; the next contender must not pay for them.
constexpr auto settling_time = std::chrono::milliseconds(10);

class Runner {
 public:
  /// `cases`: all that will be run, in their order.
  Runner(const Settings& settings, PythonPeers& python, Limits& limits, Watcher& watcher,
         const std::vector<std::vector<Case>>& cases)
      : settings_(settings),
        python_(python),
        limits_(limits),
        watcher_(watcher),
        solver_(problems(cases), settings.seed, solved_ahead(settings.device)) {}

  Line run(const Case& test, const std::vector<std::string>& names) {
    prepare(test);
    problem_.test = test;
    limits_.of(test);  // measured now, and once more at the end
    Line line{.test = test, .checked = problem_.checked(), .entries = {}, .limit = {}};
    std::vector<Candidate> candidates;
    for (const std::string& name : names) {
      candidates.emplace_back().entry.name = name;
      enter(candidates.back());
    }
    const bool ours_right = std::ranges::none_of(
        candidates, [](const Candidate& c) { return is_ours(c.entry.name) && c.entry.outcome == Outcome::wrong; });
    if (ours_right) race(candidates);
    for (Candidate& candidate : candidates) {
      finish(candidate, ours_right);
      line.entries.push_back(candidate.entry);
    }
    return line;
  }

 private:
  struct Candidate {
    Entry entry;
    std::unique_ptr<Contender> contender;  // null: out
    std::vector<double> times;
  };

  /// Returns whether two cases have the same inputs and answers: they differ in the number of threads at most.
  static bool same_problem(const Case& test, Case known) {
    known.threads = test.threads;
    return test.label() == known.label();
  }

  /// Each problem of cases that follow each other, once.
  static std::vector<Case> problems(const std::vector<std::vector<Case>>& cases) {
    std::vector<Case> all;
    for (const std::vector<Case>& of_table : cases) {
      for (const Case& test : of_table) {
        if (all.empty() || !same_problem(test, all.back())) all.push_back(test);
      }
    }
    return all;
  }

  /// Numbers and the oracle's answer, kept from case to case as long as only the number of threads changes.
  void prepare(const Case& test) {
    if (have_problem_ && same_problem(test, problem_.test)) return;
    Solved solved = solver_.next([&] { return watcher_.stop(); });
    problem_ = std::move(solved.problem);
    want_ = std::move(solved.want);
    have_problem_ = true;
  }

  std::unique_ptr<Contender> make(const std::string& name) {
    if (is_ours(name)) return problem_.test.on_gpu() ? make_ours_on_gpu(name, problem_) : make_ours(name, problem_);
    if (name == "onednn") return make_onednn(problem_);
    for (const Peer& peer : python_.list()) {
      if (peer.name == name && !peer.missing.empty()) throw NotOffered{"is not here"};
    }
    return python_.make(name, problem_);
  }

  /// Runs `work` for a candidate; whatever goes wrong is its outcome and not ours.
  template <class Work>
  void guarded(Candidate& candidate, const Work& work) {
    if (watcher_.stop()) throw Stopped();
    const auto leave = [&](Outcome outcome, const std::string& note) {
      candidate.entry.outcome = outcome;
      candidate.entry.note = note;
      candidate.contender.reset();
    };
    try {
      work();
    } catch (const NotOffered& why) {
      leave(Outcome::skipped, why.reason);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::interrupted || watcher_.stop()) throw Stopped();
      if (is_ours(candidate.entry.name)) throw;
      leave(Outcome::failed, error.what());
    }
  }

  /// Who keeps states in halves on a GPU, as a loop over steps does, rounds them in every step.
  double slack(const std::string& name) const {
    constexpr double rounded_states = 0.1;
    const bool halves = problem_.test.on_gpu() && problem_.test.dtype != "f32";
    return halves && !is_ours(name) ? rounded_states : 0.0;
  }

  void judge_candidate(Candidate& candidate, const Answers<float>& got, Extent extent) {
    const bool loose = candidate.contender->checks_in_double() && extent == Extent::without_weights;
    constexpr double some_likeness = 1.0;  // more than that is no rounding
    Entry& entry = candidate.entry;
    const double own = loose ? some_likeness : slack(entry.name);
    const Verdict verdict = judge(problem_, want_, got, extent, own);
    if (own > 0.0 && !loose) {
      entry.loses_digits = entry.loses_digits || !judge(problem_, want_, got, extent).right;
    }
    if (verdict.error > entry.error || entry.tolerance == 0.0) {
      entry.error = verdict.error;
      entry.tolerance = verdict.tolerance;
    }
    if (verdict.right) return;
    entry.outcome = Outcome::wrong;
    entry.note = verdict.complaint;
    candidate.contender.reset();
    candidate.times.clear();
  }

  void enter(Candidate& candidate) {
    guarded(candidate, [&] {
      candidate.contender = make(candidate.entry.name);
      judge_candidate(candidate, candidate.contender->check(), Extent::all);
    });
  }

  /// Lets all contenders run in turn, several times, each time in another order: whatever the machine does meanwhile
  /// (clocks, neighbours) affects all alike.
  void race(std::vector<Candidate>& candidates) {
    const double turn = settings_.seconds / settings_.rounds;
    for (int round = 0; round < settings_.rounds; ++round) {
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        Candidate& candidate = candidates[(i + static_cast<std::size_t>(round)) % candidates.size()];
        if (candidate.contender == nullptr || has_enough(candidate.times)) continue;
        std::this_thread::sleep_for(settling_time);
        guarded(candidate, [&] {
          const std::vector<double> times = candidate.contender->sample(turn);
          candidate.times.insert(candidate.times.end(), times.begin(), times.end());
        });
      }
    }
  }

  /// Three calls are enough of somebody who takes ten times the time that was meant for all of them.
  bool has_enough(const std::vector<double>& times) const {
    double total = 0.0;
    for (const double time : times) total += time;
    return times.size() >= 3 && total > 10.0 * settings_.seconds;
  }

  /// The results of the timed calls themselves must be right too.
  void finish(Candidate& candidate, bool ours_right) {
    if (candidate.contender == nullptr) return;
    guarded(candidate, [&] { judge_candidate(candidate, candidate.contender->last(), Extent::without_weights); });
    if (candidate.contender == nullptr) return;
    if (candidate.contender->checks_in_double()) {
      candidate.entry.note = "was compared in double; in float its rounding costs digits (see its error in the JSON)";
    }
    candidate.entry.time = spread(std::move(candidate.times));
    if (!ours_right) candidate.entry.outcome = Outcome::untimed;
  }

  const Settings& settings_;
  PythonPeers& python_;
  Limits& limits_;
  Watcher& watcher_;
  Solver solver_;
  Problem problem_;
  Answers<double> want_;
  bool have_problem_ = false;
};

bool is_wanted(const Settings& settings, const std::string& peer) {
  return !settings.peers || std::ranges::find(*settings.peers, peer) != settings.peers->end();
}

/// Ours, then the peers of the table that are wanted.
std::vector<std::string> contenders(const Table& table, const Settings& settings) {
  std::vector<std::string> names = table.ours;
  for (const std::string& peer : table.peers) {
    if (is_wanted(settings, peer)) names.push_back(peer);
  }
  return names;
}

void check_device(const Settings& settings) {
  if (settings.device != "cuda") return;
  if (const std::string missing = cuda_info().missing; !missing.empty()) {
    throw Error(ErrorCode::unsupported, fmt::format("device cuda cannot be used: {}", missing));
  }
}

void check_peers(const Settings& settings) {
  if (!settings.peers) return;
  const std::vector<std::string> known = peer_names(settings.device);
  for (const std::string& peer : *settings.peers) {
    require_about(std::ranges::find(known, peer) != known.end(), "peers", " must be among {}, or none, not '{}'",
                  fmt::join(known, ", "), peer);
  }
}

bool is_in_python(const std::string& name) { return !is_ours(name) && name != "onednn"; }

void check_memory(const std::vector<Case>& all, const std::vector<std::string>& names) {
  const auto available = static_cast<double>(free_memory());
  const auto in_python = static_cast<int>(std::ranges::count_if(names, is_in_python));
  for (const Case& test : all) {
    const double needed = memory_needed(test, static_cast<int>(names.size()) - in_python, in_python);
    constexpr double giga = 1e9;
    require_about(available <= 0.0 || needed <= available, "shapes",
                  ": {} needs about {:.1f} GB of memory, and {:.1f} GB are free", test.label(), needed / giga,
                  available / giga);
  }
}

}  // namespace

bool Line::has_sound_limit() const {
  constexpr double most = 1.25;  // rates differ by that much between the size of a case and the size that was measured
  const Entry& first = entries.front();
  return first.outcome != Entry::Outcome::timed || limit.seconds <= most * first.time.median;
}

std::string wrong_limits(const Measured& measured) {
  const auto wrong = [](const Line& line) { return !line.has_sound_limit(); };
  const auto first = std::ranges::find_if(measured.lines, wrong);
  if (first == measured.lines.end()) return "";
  const auto count = std::ranges::count_if(measured.lines, wrong);
  return fmt::format(
      "The limit of {} case{} is wrong, first that of {}: it allows {:.3g} us and the case took {:.3g} us, so the "
      "machine "
      "was busy while the limit was measured. No share of it is shown; run again while nothing else runs",
      count, count == 1 ? "" : "s", first->test.label(), 1e6 * first->limit.seconds,
      1e6 * first->entries.front().time.median);
}

const Entry* Line::find(const std::string& name) const {
  const auto entry = std::ranges::find(entries, name, &Entry::name);
  return entry == entries.end() ? nullptr : &*entry;
}

bool Report::all_right() const {
  for (const Measured& measured : tables) {
    for (const Line& line : measured.lines) {
      for (const Entry& entry : line.entries) {
        if (entry.outcome == Outcome::wrong || entry.outcome == Outcome::failed) return false;
      }
    }
  }
  return true;
}

Report run(const std::vector<const Table*>& wanted, const Choice& choice, const Settings& settings, Watcher& watcher) {
  check_peers(settings);
  std::vector<std::vector<Case>> plan;
  std::size_t total = 0, done = 0;
  std::vector<std::string> in_python;
  for (const Table* table : wanted) {
    const std::vector<std::string> names = contenders(*table, settings);
    for (const std::string& name : names) {
      if (is_in_python(name) && std::ranges::find(in_python, name) == in_python.end()) in_python.push_back(name);
    }
    plan.push_back(cases(*table, choice));
    check_memory(plan.back(), names);
    total += plan.back().size();
  }

  require_about(total > 0, "cells", " must be of the kind that the table has, such as {}, not '{}'",
                wanted.front()->groups.front().cells.front(), fmt::join(choice.cells, ","));

  check_device(settings);
  Report report;
  report.machine = describe_machine();
  if (settings.device == "cuda") report.machine.gpu = cuda_info();
  report.settings = settings;
  report.limits = Limits(std::min(settings.seconds, 0.05));
  PythonPeers python(settings.python, settings.peers_folder, in_python, [&watcher] { return watcher.stop(); });
  Runner runner(settings, python, report.limits, watcher, plan);
  try {
    if (settings.device == "cpu" && is_wanted(settings, "onednn")) report.peers.push_back(onednn());
    if (!in_python.empty()) {
      watcher.at(0, total, "asking for peers");
      report.peers.insert(report.peers.end(), python.list().begin(), python.list().end());
      report.python = python.python_version();
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      report.tables.push_back({wanted[i], {}});
      const std::vector<std::string> names = contenders(*wanted[i], settings);
      for (const Case& test : plan[i]) {
        watcher.at(done++, total, test.label());
        if (watcher.stop()) throw Stopped();
        report.tables.back().lines.push_back(runner.run(test, names));
      }
    }
    watcher.at(total, total, "done");
  } catch (const Stopped&) {
    report.interrupted = true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::interrupted) throw;
    report.interrupted = true;  // while Python was asked who is there
  }
  report.limits.refresh();
  for (Measured& measured : report.tables) {
    for (Line& line : measured.lines) line.limit = report.limits.of(line.test);
  }
  return report;
}

}  // namespace penstock::bench
