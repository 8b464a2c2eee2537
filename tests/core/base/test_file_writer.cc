#include "penstock/file_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "penstock/log_file.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

/// How many bytes file systems allow a name to have.
long allowed_name = 255;

}  // namespace
}  // namespace penstock

/// The system's, as far as the library asks it.
extern "C" long pathconf(const char*, int what) noexcept { return what == _PC_NAME_MAX ? penstock::allowed_name : -1; }

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;

void write(const std::string& path, std::string_view content) {
  FileWriter file(path);
  file.write(content.substr(0, content.size() / 2));
  file.write(content.substr(content.size() / 2));
  file.finish();
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

TEST(FileWriterTest, WritesAndReplaces) {
  const TemporaryFolder folder;
  write(folder.path("f"), "first, and longer");
  EXPECT_EQ(folder.read("f"), "first, and longer");
  write(folder.path("f"), "second");
  EXPECT_EQ(folder.read("f"), "second");
  write(folder.path("f"), "");
  EXPECT_EQ(folder.read("f"), "");
  EXPECT_EQ(folder.count(), 1);
}

TEST(FileWriterTest, BareNameGoesToTheCurrentFolder) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.folder());
  write("bare", "content");
  std::filesystem::current_path(before);
  EXPECT_EQ(folder.read("bare"), "content");
}

TEST(FileWriterTest, FullDiskLeavesTheOldFile) {
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

TEST(FileWriterTest, FoldersThatRefuse) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::io_failure, "missing/f': No such file or directory",
               [&] { write(folder.path("missing/f"), "x"); });
  folder.write("file", "x");
  expect_error(ErrorCode::io_failure, "file/f': Not a directory", [&] { write(folder.path("file/f"), "x"); });
  expect_error(ErrorCode::io_failure, "': Is a directory", [&] { write(folder.folder(), "x"); });
  expect_error(ErrorCode::io_failure, "cannot write '': ", [&] { write("", "x"); });
  write("/dev/null", "x");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  expect_error(ErrorCode::io_failure, "cannot write '/dev/full': No space left on device",
               [&] { write("/dev/full", "x"); });
  expect_error(ErrorCode::io_failure, "': its name has 256 bytes, and the file system allows 255; choose a shorter one",
               [&] { write(folder.path(std::string(256, 'n')), "x"); });
  expect_error(ErrorCode::io_failure, "': the name of one of its folders has 300 bytes, and the file system allows 255",
               [&] { write(folder.path(std::string(300, 'n')) + "/f", "x"); });
  std::string deep = folder.folder();
  while (deep.size() < 5000) deep += "/folder";
  EXPECT_EQ(why_not_written(deep, ENAMETOOLONG),
            fmt::format("the path has {} bytes, and the file system allows 4095; choose a shorter one", deep.size()));
  EXPECT_EQ(folder.count(), 1);
}

TEST(FileWriterTest, WithoutPermission) {
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

TEST(FileWriterTest, FollowsLinksAndKeepsPermissions) {
  const TemporaryFolder folder;
  folder.write("target", "old");
  ::chmod(folder.path("target").c_str(), 0640);
  std::filesystem::create_symlink("target", folder.path("link"));
  write(folder.path("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("link")));
  EXPECT_EQ(folder.read("target"), "new");
  EXPECT_EQ(static_cast<int>(std::filesystem::status(folder.path("target")).permissions()), 0640);
}

void write_cached(const std::string& path, std::string_view content) {
  FileWriter file(path, FileWriter::Kind::cache);
  file.write(content);
  file.finish();
}

TEST(FileWriterTest, FilesOfACacheReplaceWhateverIsThere) {
  const TemporaryFolder folder;
  const std::string path = folder.path("f");
  const auto mode = [&] { return static_cast<int>(std::filesystem::status(path).permissions()); };
  const mode_t before = ::umask(0);
  write_cached(path, "new");
  EXPECT_EQ(mode(), 0644);
  ::chmod(path.c_str(), 0666);
  write_cached(path, "newer");
  ::umask(before);
  EXPECT_EQ(mode(), 0644) << "others could write to the old file";
  EXPECT_EQ(folder.read("f"), "newer");
  folder.write("target", "of a link");
  std::filesystem::remove(path);
  std::filesystem::create_symlink("target", path);
  write_cached(path, "newest");
  EXPECT_FALSE(std::filesystem::is_symlink(path));
  EXPECT_EQ(folder.read("target"), "of a link");
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  write_cached(path, "no pipe");
  EXPECT_EQ(folder.read("f"), "no pipe");
  EXPECT_EQ(folder.count(), 2);
}

TEST(FileWriterTest, NewFilesObeyTheUmask) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(0027);
  write(folder.path("new"), "x");
  ::umask(before);
  EXPECT_EQ(static_cast<int>(std::filesystem::status(folder.path("new")).permissions()), 0640);
}

TEST(FileWriterTest, PrivateFilesStayPrivateWhileTheyAreWritten) {
  const TemporaryFolder folder;
  folder.write("f", "old");
  ::chmod(folder.path("f").c_str(), 0600);
  FileWriter file(folder.path("f"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.folder())) {
    EXPECT_EQ(static_cast<int>(entry.status().permissions()), 0600) << entry.path();
  }
}

TEST(FileWriterTest, FollowsLinksToNothingAndRefusesLoops) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("sub"));
  std::filesystem::create_symlink("sub/new", folder.path("link"));
  write(folder.path("link"), "x");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("link")));
  EXPECT_EQ(folder.read("sub/new"), "x");
  std::filesystem::create_symlink("loop", folder.path("loop"));
  expect_error(ErrorCode::io_failure, "loop': Too many levels of symbolic links",
               [&] { write(folder.path("loop"), "x"); });
}

TEST(FileWriterTest, PlantedFilesBesideItAreLeftAlone) {
  const TemporaryFolder folder;
  folder.write("secret", "precious");
  std::filesystem::create_symlink("secret", folder.path("f.tmp"));
  std::filesystem::create_symlink("secret", folder.path(".penstock-f-0123456789abcdef"));
  ASSERT_EQ(::mkfifo(folder.path(".penstock-f-1123456789abcdef").c_str(), 0600), 0);
  write(folder.path("f"), "x");
  EXPECT_EQ(folder.read("f"), "x");
  EXPECT_EQ(folder.read("secret"), "precious");
  EXPECT_EQ(folder.count(), 5);
}

TEST(FileWriterTest, WritesThroughAFifo) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("fifo").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = folder.read("fifo"); });
  write(folder.path("fifo"), "content");
  reader.join();
  EXPECT_EQ(got, "content");
  EXPECT_TRUE(std::filesystem::is_fifo(folder.path("fifo")));
}

TEST(FileWriterTest, LongNames) {
  const TemporaryFolder folder;
  const std::string name(255, 'n');
  write(folder.path(name), "x");
  EXPECT_EQ(folder.read(name), "x");
  expect_error(ErrorCode::io_failure, "its name has 256 bytes", [&] { write(folder.path(name + "n"), "x"); });
}

TEST(FileWriterTest, TemporaryNamesObeyTheFileSystem) {
  const TemporaryFolder folder;
  const std::string prefix = ".penstock-";
  const auto temporary_of = [&](const std::string& name) {
    const FileWriter file(folder.path(name));
    std::string found;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path(""))) {
      if (entry.path().filename().string().starts_with(prefix)) found = entry.path().filename().string();
    }
    return found;
  };
  allowed_name = 143;  // of eCryptfs
  const std::size_t random_end = 1 + 16;
  EXPECT_EQ(temporary_of("short").size(), prefix.size() + 5 + random_end);
  const std::string cut = temporary_of(std::string(143, 'n'));
  EXPECT_EQ(cut.size(), 143u);
  EXPECT_TRUE(cut.starts_with(prefix + std::string(143 - prefix.size() - random_end, 'n') + "-"));
  // Characters of two bytes, of which the last one to fit would be cut.
  std::string word;
  for (int i = 0; i < 70; ++i) word += "ß";
  EXPECT_EQ(temporary_of("n" + word).size(), 142u);
  EXPECT_EQ(temporary_of("nn" + word).size(), 143u);
  write(folder.path(word), "x");
  EXPECT_EQ(folder.read(word), "x");
  EXPECT_EQ(folder.count(), 1);
  allowed_name = 1530;  // of FAT, which counts others
  EXPECT_EQ(temporary_of(std::string(255, 'n')).size(), 255u);
  allowed_name = 255;
}

TEST(FileWriterTest, WhatAKilledWriterLeftIsRemoved) {
  const TemporaryFolder folder;
  folder.write(".penstock-f-0123456789abcdef", "half a checkpoint, longer than the new one");
  folder.write(".penstock-f-0123456789abcde", "of another name");
  write(folder.path("f"), "whole");
  EXPECT_EQ(folder.read("f"), "whole");
  EXPECT_EQ(folder.count(), 2);
}

TEST(FileWriterTest, AnotherWriterIsNotDisturbed) {
  const TemporaryFolder folder;
  FileWriter other(folder.path("f"));
  other.write("other");
  write(folder.path("f"), "x");
  EXPECT_EQ(folder.read("f"), "x");
  other.finish();
  EXPECT_EQ(folder.read("f"), "other");
  EXPECT_EQ(folder.count(), 1);
}

TEST(LogFileTest, BeginsALineBehindATornOne) {
  const TemporaryFolder folder;
  folder.write("log", "{}\n{\"to");
  {
    LogFile log(folder.path("log"), LogFile::Begin::append, "cannot write metrics");
    log.write("{}\n");
  }
  EXPECT_EQ(folder.read("log"), "{}\n{\"to\n{}\n");
}

TEST(LogFileTest, AFullDiskEndsItBehindTheLastWholeRecord) {
  const TemporaryFolder folder;
  const FileSizeLimit limit(10);
  LogFile log(folder.path("log"), LogFile::Begin::replace, "cannot write metrics");
  log.write("1234567\n");
  EXPECT_EQ(log.error(), "");
  log.write("1234567\n");
  log.write("1\n");
  EXPECT_EQ(log.error(), folder.path("log") + ": cannot write metrics: File too large");
  EXPECT_EQ(folder.read("log"), "1234567\n");
}

TEST(FileWriterTest, WritersAtOnceNeverMix) {
  const TemporaryFolder folder;
  const std::string path = folder.path("f");
  write(path, std::string(1000, 'a'));
  std::atomic<int> written = 0;
  std::atomic<bool> done = false;
  std::vector<std::thread> writers;
  for (int id = 0; id < 8; ++id) {
    writers.emplace_back([&, id] {
      for (int i = 0; i < 200; ++i) {
        write(path, std::string(1000 + static_cast<std::size_t>(id), static_cast<char>('a' + id)));
        ++written;
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
  EXPECT_EQ(written, 1600);
  EXPECT_EQ(folder.count(), 1);
}

/// A process is killed at many moments of a rewrite: there is always one whole version.
TEST(FileWriterTest, SurvivesKill) {
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

}  // namespace
}  // namespace penstock
