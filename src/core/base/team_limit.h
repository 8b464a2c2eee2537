#pragma once

#include <chrono>

namespace penstock {

/// How long a team of threads took, seen by its caller, and how long its threads waited for a processor.
struct TeamTimes {
  using Duration = std::chrono::nanoseconds;
  Duration all{};     ///< From the start of the team to its end
  Duration useful{};  ///< Part of it that the caller spent in its own share, without waiting for others
  Duration caller_delayed{}, others_delayed{};  ///< Since the last report: the caller, and the slowest of the others
};

/// Decides how many threads the teams of one caller get. While other programs use the processors, the caller of a team
/// waits milliseconds for threads that do not run, and fewer threads are faster. So teams are halved where waiting
/// takes longer than computing, for a tenth of a second, and for twice as long each time that a larger team is late
/// again.
class TeamLimit {
 public:
  using Clock = std::chrono::steady_clock;

  /// Returns the size that a team of `wanted` threads gets.
  int granted(int wanted, Clock::time_point now);
  /// Returns whether the threads of the next team should report their delays, which takes some microseconds.
  bool wants_report() const { return first_ || sum_.all >= kWindow; }
  /// Takes the times of a team of `size` threads; `reported` says whether its threads reported their delays. Returns
  /// false where teams have been late so often that users should know.
  bool record(int size, const TeamTimes& times, bool reported, Clock::time_point now);

 private:
  /// Teams are judged by this time of them at least: an idle machine, too, delays a thread now and then.
  static constexpr std::chrono::milliseconds kWindow{20};
  static constexpr std::chrono::milliseconds kShortest{100}, kLongest{4000};

  bool late() const;

  bool first_ = true;  // delays before the first report have other reasons
  TeamTimes sum_;
  int largest_ = 1;  // of the teams in sum_
  int limit_ = 0;    // 0: none
  Clock::time_point until_;
  std::chrono::milliseconds pause_ = kShortest;
  int late_in_a_row_ = 0;
};

/// Returns the time that the calling thread has spent waiting for a processor; 0 if the system does not say.
std::chrono::nanoseconds delay_of_this_thread();

}  // namespace penstock
