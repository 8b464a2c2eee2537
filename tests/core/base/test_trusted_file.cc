// Files of a cache: read only if nobody else can have changed them, and without waiting.

#include "base/files/trusted_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::TemporaryFolder;
using testing::HasSubstr;

/// Why a file is not read; its content otherwise.
std::string read(const std::string& path, Trust trust) {
  std::string problem = "of an earlier file";
  const std::optional<std::string> text = read_trusted(path, trust, problem);
  EXPECT_TRUE(!text || problem.empty());
  return text ? *text : problem;
}

TEST(TrustedFile, ReadsTheWholeFile) {
  const TemporaryFolder folder;
  const std::string large(1'000'000, 'x');
  EXPECT_EQ(read(folder.write("large", large), Trust::owner), large);
  EXPECT_EQ(read(folder.write("empty", ""), Trust::owner), "");
  EXPECT_EQ(read(folder.path("missing"), Trust::owner), "");
}

TEST(TrustedFile, SaysWhatItDoesNotRead) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(read(folder.path("fifo"), Trust::owner), "it is not a regular file");
  EXPECT_EQ(read("/dev/zero", Trust::owner), "it is not a regular file");
  for (const Trust trust : {Trust::anyone, Trust::owner}) {
    EXPECT_EQ(read(folder.folder(), trust), "it is a folder, not a file");
  }
  const std::string file = folder.write("file", "content");
  EXPECT_EQ(read(file + "/inside", Trust::anyone), "Not a directory");
  std::filesystem::create_symlink(file, folder.path("link"));
  EXPECT_EQ(read(folder.path("link"), Trust::owner), "it is a link");
  EXPECT_EQ(read(folder.path("link"), Trust::anyone), "content");
  std::filesystem::create_symlink("loop", folder.path("loop"));
  EXPECT_EQ(read(folder.path("loop"), Trust::anyone), "Too many levels of symbolic links");
}

TEST(TrustedFile, TrustsTheUserAndRootAlone) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "content");
  for (const mode_t mode : {0666, 0664, 0602}) {
    ASSERT_EQ(::chmod(file.c_str(), mode), 0);
    EXPECT_THAT(read(file, Trust::owner), HasSubstr("others may write to it"));
    EXPECT_THAT(who_else_writes(file), HasSubstr("chmod go-w"));
    EXPECT_EQ(read(file, Trust::anyone), "content");
  }
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  EXPECT_EQ(read(file, Trust::owner), "content");
  EXPECT_EQ(who_else_writes(file), "");
  EXPECT_EQ(who_else_writes(folder.path("missing")), "");
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chown(file.c_str(), 65534, 65534), 0);
  EXPECT_EQ(read(file, Trust::owner), "it belongs to another user (number 65534)");
}

TEST(TrustedFile, MakesAFolderOfTheUserAlone) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(0);
  make_private_folder(folder.path("deep/new"));
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(folder.path("deep/new").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
  EXPECT_EQ(who_else_writes(folder.path("deep/new")), "");
}

}  // namespace
}  // namespace penstock
