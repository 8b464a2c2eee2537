// The quota of processors that control groups of a made-up system leave.

#include "base/control_groups.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "support/temporary_folder.h"

namespace penstock::test {
namespace {

constexpr double none = std::numeric_limits<double>::infinity();

class System {
 public:
  explicit System(const std::string& groups) { write("proc/self/cgroup", groups); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(folder_.path(name)).parent_path());
    folder_.write(name, text);
  }
  double quota() const { return processor_quota(folder_.folder()); }

 private:
  TemporaryFolder folder_;
};

TEST(ProcessorQuota, IsInfiniteWhereNothingSaysIt) {
  const TemporaryFolder nothing;
  EXPECT_EQ(processor_quota(nothing.folder()), none);
  EXPECT_EQ(System("0::/users/one\n").quota(), none);
}

TEST(ProcessorQuota, IsTheSmallestOfAGroupAndItsParents) {
  const System system("0::/users/one\n");
  system.write("sys/fs/cgroup/users/one/cpu.max", "max 100000\n");
  EXPECT_EQ(system.quota(), none);
  system.write("sys/fs/cgroup/users/one/cpu.max", "400000 100000\n");
  EXPECT_EQ(system.quota(), 4);
  system.write("sys/fs/cgroup/users/cpu.max", "75000 50000\n");
  EXPECT_EQ(system.quota(), 1.5);
  system.write("sys/fs/cgroup/users/one/cpu.max", "50000 100000\n");
  EXPECT_EQ(system.quota(), 0.5);
}

TEST(ProcessorQuota, IsThatOfTheContainersOwnRoot) {
  const System system("0::/docker/of/the/host\n");  // a folder that a container does not see
  system.write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(system.quota(), 2);
}

TEST(ProcessorQuota, IsReadFromTheFirstVersion) {
  for (const std::string mount : {"sys/fs/cgroup/cpu/", "sys/fs/cgroup/cpu,cpuacct/"}) {
    const System system("9:memory:/a\n4:cpu,cpuacct:/a/b\n3:cpuset:/c\n0::/\n");
    system.write(mount + "a/b/cpu.cfs_quota_us", "-1\n");
    system.write(mount + "a/b/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(system.quota(), none);
    system.write(mount + "a/b/cpu.cfs_quota_us", "300000\n");
    EXPECT_EQ(system.quota(), 3);
    system.write(mount + "a/cpu.cfs_quota_us", "50000\n");
    system.write(mount + "a/cpu.cfs_period_us", "20000\n");
    EXPECT_EQ(system.quota(), 2.5);
  }
}

}  // namespace
}  // namespace penstock::test
