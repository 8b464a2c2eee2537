// The folder of compiled kernels: what comes back, what damage does, and that no fault of it is worse than a compile.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "backend/cuda/driver/disk_cache.h"
#include "support/temporary_folder.h"

namespace penstock::cuda {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMegabyte = 1 << 20;

TEST(ContentHash, TellsContentsApart) {
  const auto hash = [](const std::vector<std::string>& parts) {
    ContentHash all;
    for (const std::string& part : parts) all.add(part);
    return all.digits();
  };
  EXPECT_EQ(hash({"ab", "c"}), hash({"ab", "c"}));
  EXPECT_NE(hash({"ab", "c"}), hash({"a", "bc"}));
  EXPECT_NE(hash({"ab"}), hash({"ab", ""}));
  EXPECT_EQ(hash({"ab"}).size(), 32u);
}

TEST(DiskCache, GivesBackWhatWasPut) {
  const test::TemporaryFolder folder;
  const DiskCache cache(folder.path("new/deep"), kMegabyte);
  EXPECT_FALSE(cache.get("name").has_value());
  const std::string content("cu\0bin\n", 7);
  cache.put("name", content);
  EXPECT_EQ(cache.get("name"), content);
  cache.put("name", "other");
  EXPECT_EQ(cache.get("name"), "other");
  cache.put("empty", "");
  EXPECT_EQ(cache.get("empty"), "");
}

TEST(DiskCache, FindsEveryDamage) {
  const test::TemporaryFolder folder;
  const DiskCache cache(folder.folder(), kMegabyte);
  cache.put("name", "some compiled kernel");
  const std::string file = folder.read("name.cubin");
  testing::internal::CaptureStderr();
  for (std::size_t i = 0; i < file.size(); ++i) {
    std::string damaged = file;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    folder.write("name.cubin", damaged);
    EXPECT_FALSE(cache.get("name").has_value()) << "byte " << i;
    folder.write("name.cubin", file.substr(0, i));
    EXPECT_FALSE(cache.get("name").has_value()) << "cut at " << i;
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("is damaged; compiling it again"));
  cache.put("name", "once more");
  EXPECT_EQ(cache.get("name"), "once more");
}

TEST(DiskCache, RemovesWhatWasUnusedForLongest) {
  const test::TemporaryFolder folder;
  const DiskCache cache(folder.folder(), 3500);
  const std::string content(1000, 'x');
  const auto age = [&](const char* name, int minutes) {
    const auto then = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(minutes);
    std::filesystem::last_write_time(folder.path(std::string(name) + ".cubin"), then);
  };
  cache.put("a", content), age("a", 30);
  cache.put("b", content), age("b", 20);
  cache.put("c", content), age("c", 10);
  EXPECT_TRUE(cache.get("a").has_value());  // used just now
  cache.put("d", content);
  EXPECT_TRUE(cache.get("a").has_value());
  EXPECT_FALSE(cache.get("b").has_value());
  EXPECT_TRUE(cache.get("c").has_value());
  EXPECT_TRUE(cache.get("d").has_value());
}

TEST(DiskCache, NoFolderIsNoCache) {
  const DiskCache cache("", kMegabyte);
  cache.put("name", "content");
  EXPECT_FALSE(cache.get("name").has_value());
}

TEST(DiskCache, WarnsWhereItCannotWrite) {
  const test::TemporaryFolder folder;
  const std::string file = folder.write("file", "not a folder");
  const DiskCache cache(file, kMegabyte);
  testing::internal::CaptureStderr();
  cache.put("name", "content");
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warning, HasSubstr("penstock: warning: cannot keep compiled kernels in '" + file));
  EXPECT_THAT(warning, HasSubstr("PENSTOCK_CACHE_DIR"));
  EXPECT_FALSE(cache.get("name").has_value());
}

TEST(DiskCache, WarnsOfAReadOnlyFolder) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const test::TemporaryFolder folder;
  std::filesystem::permissions(folder.folder(),
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  testing::internal::CaptureStderr();
  DiskCache(folder.folder(), kMegabyte).put("name", "content");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("Permission denied"));
}

/// Returns the messages while a kernel is asked for; expects that the cache does not return it.
std::string refused(const DiskCache& cache, const char* name) {
  testing::internal::CaptureStderr();
  EXPECT_FALSE(cache.get(name).has_value());
  return testing::internal::GetCapturedStderr();
}

TEST(DiskCache, IgnoresFilesThatOthersCanWrite) {
  const test::TemporaryFolder folder;
  const DiskCache cache(folder.folder(), kMegabyte);
  const std::string path = folder.path("name.cubin");
  for (const mode_t mode : {0666, 0664, 0602}) {
    cache.put("name", "kernel");
    EXPECT_TRUE(cache.get("name").has_value());
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_THAT(refused(cache, "name"),
                HasSubstr(fmt::format("others may write to it (mode {:04o}): chmod go-w", mode)));
  }
  cache.put("name", "kernel");
  std::filesystem::create_symlink(path, folder.path("link.cubin"));
  EXPECT_FALSE(cache.get("link").has_value());
  ASSERT_EQ(::mkfifo(folder.path("fifo.cubin").c_str(), 0600), 0);
  EXPECT_THAT(refused(cache, "fifo"), HasSubstr("not a regular file"));
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  EXPECT_THAT(refused(cache, "name"), HasSubstr("it belongs to another user (number 65534)"));
}

TEST(DiskCache, IgnoresFoldersThatOthersCanWrite) {
  const test::TemporaryFolder folder;
  const DiskCache cache(folder.folder(), kMegabyte);
  cache.put("name", "kernel");
  ASSERT_EQ(::chmod(folder.folder().c_str(), 0770), 0);
  EXPECT_THAT(refused(cache, "name"), HasSubstr("others may write to it (mode 0770): chmod go-w"));
  cache.put("other", "kernel");
  EXPECT_EQ(folder.count(), 1);
  ASSERT_EQ(::chmod(folder.folder().c_str(), 0700), 0);
  EXPECT_TRUE(cache.get("name").has_value());
}

TEST(DiskCache, MakesAFolderOfTheUserAlone) {
  const test::TemporaryFolder folder;
  const mode_t before = ::umask(0);
  const DiskCache cache(folder.path("new"), kMegabyte);
  cache.put("name", "kernel");
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(folder.path("new").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
  EXPECT_TRUE(cache.get("name").has_value());
}

TEST(DiskCache, ManyWritersLeaveWholeFiles) {
  const test::TemporaryFolder folder;
  const std::string contents[] = {std::string(50000, 'a'), std::string(70000, 'b')};
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&, i] {
      const DiskCache cache(folder.folder(), kMegabyte);
      for (int n = 0; n < 50; ++n) {
        cache.put("name", contents[(i + n) % 2]);
        const auto found = cache.get("name");
        EXPECT_TRUE(found == contents[0] || found == contents[1]);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(folder.count(), 1) << "temporary files were left";
}

}  // namespace
}  // namespace penstock::cuda
