// Races on purpose, so that a build under ThreadSanitizer shows that it finds them: between two threads, between the
// members of a team, and between two teams that know nothing of each other.

#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

#include "base/threads.h"

namespace {

int shared = 0;

void race_in_a_team(int* number) {
  // More than once: a member may be done before the other one starts, and the sanitizer sees no race in that.
  for (int round = 0; round < 1000; ++round) penstock::run_team(2, [&](int, int) { ++*number; });
}

/// All that OpenMP promises: the caller before each member, and each member before the caller.
void obey() {
  std::vector<int> numbers(2, 1);
  for (int round = 0; round < 100; ++round) {
    for (int& number : numbers) ++number;
    penstock::run_team(2, [&](int thread, int) { ++numbers[static_cast<std::size_t>(thread)]; });
  }
  std::printf("%d %d\n", numbers[0], numbers[1]);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view kind = argc > 1 ? argv[1] : "";
  if (kind == "none") {
    std::thread other(obey);
    obey();
    other.join();
  } else if (kind == "team") {
    race_in_a_team(&shared);
  } else if (kind == "threads" || kind == "two_teams") {
    const auto work = [&] {
      // Only one member writes, so that members of a team do not race with each other.
      const auto member = [](int thread, int) { shared += thread == 0 ? 1 : 0; };
      for (int i = 0; i < 100; ++i) {
        if (kind == "threads") {
          ++shared;
        } else {
          penstock::run_team(2, member);
        }
      }
    };
    std::thread other(work);
    work();
    other.join();
  } else {
    std::fprintf(stderr, "racy: none, threads, team or two_teams\n");
    return 2;
  }
  return 0;
}
