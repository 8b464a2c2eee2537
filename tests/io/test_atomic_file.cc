#include "io/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "io/read_file.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock::io {
namespace {

using test::expect_error;
using test::TemporaryFolder;

void write(const std::string& path, std::string_view content) {
  const auto bytes = std::as_bytes(std::span(content));
  const std::vector<std::span<const std::byte>> pieces = {bytes.first(bytes.size() / 2),
                                                          bytes.subspan(bytes.size() / 2)};
  write_atomically(path, pieces);
}

/// Lets no file grow beyond so many bytes, as a full disk would, until it goes out of scope.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit now{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_{};
  void (*handler_)(int);
};

TEST(AtomicFile, WritesAndReplaces) {
  const TemporaryFolder folder;
  write(folder.path("f"), "first, and longer");
  EXPECT_EQ(folder.read("f"), "first, and longer");
  write(folder.path("f"), "second");
  EXPECT_EQ(folder.read("f"), "second");
  write(folder.path("f"), "");
  EXPECT_EQ(folder.read("f"), "");
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFile, BareNameGoesToTheCurrentFolder) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.folder());
  write("bare", "content");
  std::filesystem::current_path(before);
  EXPECT_EQ(folder.read("bare"), "content");
}

TEST(AtomicFile, FullDiskLeavesTheOldFile) {
  const TemporaryFolder folder;
  write(folder.path("f"), "precious");
  const std::string large(100'000, 'x');
  {
    const FileSizeLimit limit(65'536);
    expect_error(ErrorCode::io_failure, "cannot write '" + folder.path("f") + "': File too large",
                 [&] { write(folder.path("f"), large); });
    expect_error(ErrorCode::io_failure, "cannot write '" + folder.path("new") + "': File too large",
                 [&] { write(folder.path("new"), large); });
  }
  EXPECT_EQ(folder.read("f"), "precious");
  EXPECT_EQ(folder.count(), 1) << "no temporary file is left";
  write(folder.path("f"), large);
  EXPECT_EQ(folder.read("f"), large);
}

TEST(AtomicFile, FoldersThatRefuse) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::io_failure, "missing/f': No such file or directory",
               [&] { write(folder.path("missing/f"), "x"); });
  folder.write("file", "x");
  expect_error(ErrorCode::io_failure, "file/f': Not a directory", [&] { write(folder.path("file/f"), "x"); });
  expect_error(ErrorCode::io_failure, "': Is a directory", [&] { write(folder.folder(), "x"); });
  expect_error(ErrorCode::io_failure, "cannot write '': ", [&] { write("", "x"); });
  expect_error(ErrorCode::io_failure, "cannot write '/dev/null': not a regular file", [&] { write("/dev/null", "x"); });
  expect_error(ErrorCode::io_failure, "File name too long", [&] { write(folder.path(std::string(255, 'n')), "x"); });
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFile, WithoutPermission) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const TemporaryFolder folder;
  folder.write("f", "precious");
  ::chmod(folder.path("f").c_str(), 0444);
  expect_error(ErrorCode::io_failure, "f': Permission denied", [&] { write(folder.path("f"), "x"); });
  ::chmod(folder.path("f").c_str(), 0644);
  ::chmod(folder.folder().c_str(), 0555);
  expect_error(ErrorCode::io_failure, "f': Permission denied", [&] { write(folder.path("f"), "x"); });
  EXPECT_EQ(folder.read("f"), "precious");
}

TEST(AtomicFile, FollowsLinksAndKeepsPermissions) {
  const TemporaryFolder folder;
  folder.write("target", "old");
  ::chmod(folder.path("target").c_str(), 0640);
  std::filesystem::create_symlink("target", folder.path("link"));
  write(folder.path("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("link")));
  EXPECT_EQ(folder.read("target"), "new");
  EXPECT_EQ(static_cast<int>(std::filesystem::status(folder.path("target")).permissions()), 0640);
}

TEST(AtomicFile, WhatAKilledWriterLeftIsReused) {
  const TemporaryFolder folder;
  folder.write("f.tmp", "half a checkpoint, longer than the new one");
  write(folder.path("f"), "whole");
  EXPECT_EQ(folder.read("f"), "whole");
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFile, AnotherWriterIsNotDisturbed) {
  const TemporaryFolder folder;
  folder.write("f.tmp", "being written");
  const int other = ::open(folder.path("f.tmp").c_str(), O_WRONLY);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  expect_error(ErrorCode::io_failure, "f': another process is writing it", [&] { write(folder.path("f"), "x"); });
  EXPECT_EQ(folder.read("f.tmp"), "being written");
  ::close(other);
}

TEST(AtomicFile, WritersAtOnceNeverMix) {
  const TemporaryFolder folder;
  const std::string path = folder.path("f");
  write(path, std::string(1000, 'a'));
  std::atomic<int> written = 0;
  std::atomic<bool> done = false;
  std::vector<std::thread> writers;
  for (int id = 0; id < 8; ++id) {
    writers.emplace_back([&, id] {
      for (int i = 0; i < 1000; ++i) {
        try {
          write(path, std::string(1000 + static_cast<std::size_t>(id), static_cast<char>('a' + id)));
          ++written;
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), testing::EndsWith("f': another process is writing it"));
        }
      }
    });
  }
  std::thread reader([&] {
    while (!done) {
      const std::string content = folder.read("f");
      ASSERT_EQ(content, std::string(1000 + static_cast<std::size_t>(content[0] - 'a'), content[0]));
    }
  });
  for (auto& writer : writers) writer.join();
  done = true;
  reader.join();
  EXPECT_GT(written, 0);
  EXPECT_EQ(folder.count(), 1);
}

/// A process is killed at many moments of a rewrite: there is always one whole version.
TEST(AtomicFile, SurvivesKill) {
  const TemporaryFolder folder;
  const std::string versions[] = {std::string(300'000, 'a'), std::string(200'000, 'b')};
  write(folder.path("f"), versions[0]);
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int i = 0;; ++i) write(folder.path("f"), versions[i % 2]);
    }
    ::usleep(static_cast<useconds_t>(500 + 700 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::string content = folder.read("f");
    EXPECT_TRUE(content == versions[0] || content == versions[1]) << "round " << round;
  }
}

TEST(ReadFile, WholeFileOrPipe) {
  const TemporaryFolder folder;
  const std::string content(200'000, 'z');
  EXPECT_EQ(read_file(folder.write("f", content), 200'000), content);
  EXPECT_EQ(read_file(folder.write("empty", ""), 0), "");
  const std::string pipe = folder.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { folder.write("pipe", content); });
  EXPECT_EQ(read_file(pipe, 200'000), content);
  writer.join();
}

TEST(ReadFile, Refusals) {
  const TemporaryFolder folder;
  folder.write("f", "12345");
  expect_error(ErrorCode::bad_input, "f: more than 4 bytes", [&] { read_file(folder.path("f"), 4); });
  expect_error(ErrorCode::bad_input, "/dev/zero: more than 100000 bytes", [&] { read_file("/dev/zero", 100'000); });
  expect_error(ErrorCode::io_failure, "cannot read '" + folder.path("none") + "': No such file or directory",
               [&] { read_file(folder.path("none"), 4); });
  expect_error(ErrorCode::io_failure, "': Is a directory", [&] { read_file(folder.folder(), 4); });
}

}  // namespace
}  // namespace penstock::io
