#include "base/team_limit.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace penstock {

int TeamLimit::granted(int wanted, Clock::time_point now) {
  if (limit_ > 0 && now >= until_) limit_ = 0, first_ = true, sum_ = {};
  return limit_ > 0 ? std::min(wanted, limit_) : wanted;
}

bool TeamLimit::late() const {
  const auto lost = std::min(sum_.all - sum_.useful, sum_.others_delayed);
  return lost > sum_.useful - sum_.caller_delayed;
}

bool TeamLimit::record(int size, const TeamTimes& times, bool reported, Clock::time_point now) {
  largest_ = std::max(largest_, size);
  if (!first_) sum_.all += times.all, sum_.useful += times.useful;
  if (!reported) return true;
  sum_.caller_delayed = times.caller_delayed, sum_.others_delayed = times.others_delayed;
  const bool judged = !first_, was_late = judged && late();
  if (judged) late_in_a_row_ = was_late ? late_in_a_row_ + 1 : 0;
  if (was_late) {
    limit_ = std::max(1, largest_ / 2);
    until_ = now + pause_;
    pause_ = std::min(2 * pause_, kLongest);
  } else if (judged) {
    pause_ = kShortest;
  }
  first_ = false, sum_ = {}, largest_ = 1;
  constexpr int worth_a_note = 3;
  return late_in_a_row_ < worth_a_note;
}

std::chrono::nanoseconds delay_of_this_thread() {
  const int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::array<char, 64> text{};  // time on a processor, time waiting for one, turns
  const bool read_all = read(file, text.data(), text.size() - 1) > 0;
  close(file);
  if (!read_all) return {};
  char* second = nullptr;
  std::strtoll(text.data(), &second, 10);
  return std::chrono::nanoseconds(std::strtoll(second, nullptr, 10));
}

}  // namespace penstock
