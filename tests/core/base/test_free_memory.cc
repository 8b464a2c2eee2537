// How much memory is left, by what a system says: made-up ones in folders, and this one.

#include "base/free_memory.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/limited_memory.h"
#include "support/temporary_folder.h"

namespace penstock::test {
namespace {

constexpr std::size_t kilo = 1024, mega = 1024 * kilo;

/// A system of 100 MB of memory and 20 MB of swap, half of each left.
class System {
 public:
  System() {
    write("proc/meminfo", "MemTotal: 102400 kB\nMemAvailable: 51200 kB\nSwapTotal: 20480 kB\nSwapFree: 10240 kB\n");
  }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(folder_.path(name)).parent_path());
    folder_.write(name, text);
  }
  std::size_t left() const { return free_memory(folder_.folder()); }

 private:
  TemporaryFolder folder_;
};

TEST(FreeMemory, IsWhatTheSystemHas) {
  const System system;
  EXPECT_EQ(system.left(), 60 * mega);
}

TEST(FreeMemory, IsUnknownWhereNothingSaysIt) {
  const TemporaryFolder nothing;
  EXPECT_EQ(free_memory(nothing.folder()), 0u);
}

TEST(FreeMemory, ControlGroupsLimitIt) {
  const System system;
  system.write("proc/self/cgroup", "0::/users/one\n");
  const std::string users = "sys/fs/cgroup/users/", one = users + "one/";
  system.write(one + "memory.max", "max\n");
  system.write(one + "memory.current", "12345\n");
  EXPECT_EQ(system.left(), 60 * mega) << "a group without a limit";
  system.write(one + "memory.max", std::to_string(30 * mega));
  system.write(one + "memory.current", std::to_string(20 * mega));
  EXPECT_EQ(system.left(), 10 * mega);
  system.write(one + "memory.stat", "anon 5\ninactive_file 4096\nactive_file 8192\nfile 99999\n");
  EXPECT_EQ(system.left(), 10 * mega + 12 * kilo) << "copies of files make room";
  system.write(users + "memory.max", std::to_string(21 * mega));
  system.write(users + "memory.current", std::to_string(20 * mega));
  EXPECT_EQ(system.left(), 1 * mega) << "the group above has less";
  system.write(users + "memory.current", std::to_string(22 * mega));
  EXPECT_EQ(system.left(), 1u) << "nothing, which is not the same as unknown";
}

TEST(FreeMemory, ControlGroupsOfTheFirstVersionLimitIt) {
  const System system;
  system.write("proc/self/cgroup", "9:cpu,memory:/a\n8:pids:/b\n0::/\n");
  const std::string mount = "sys/fs/cgroup/memory/";
  // As in a container, which sees its own group as the outermost one: there is no folder "a".
  system.write(mount + "memory.limit_in_bytes", "9223372036854771712\n");
  system.write(mount + "memory.usage_in_bytes", std::to_string(20 * mega));
  EXPECT_EQ(system.left(), 60 * mega);
  system.write(mount + "memory.limit_in_bytes", std::to_string(24 * mega));
  EXPECT_EQ(system.left(), 4 * mega);
  system.write(mount + "memory.stat", "inactive_file 1\ntotal_inactive_file 1024\ntotal_active_file 2048\n");
  EXPECT_EQ(system.left(), 4 * mega + 3 * kilo);
}

#if !defined(__SANITIZE_ADDRESS__)  // which takes more addresses than any limit leaves
TEST(FreeMemory, OfThisProcessIsLimitedByItsAddresses) {
  const std::size_t before = free_memory();
  ASSERT_GT(before, 64 * mega);
  {
    const LimitedMemory limit(32 * mega);
    EXPECT_LE(free_memory(), 32 * mega);
    EXPECT_GT(free_memory(), 16 * mega);
  }
  EXPECT_GT(free_memory(), 64 * mega) << "the limit is gone";
}
#endif

}  // namespace
}  // namespace penstock::test
