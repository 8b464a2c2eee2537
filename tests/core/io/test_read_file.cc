#include "io/read_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock::io {
namespace {

using test::expect_error;
using test::TemporaryFolder;

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
