#include "train/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock::training {
namespace {

std::string only_file(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  EXPECT_EQ(files.size(), 1u);
  std::ifstream file(files.at(0), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::uint64_t number_at(const std::string& bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes.at(at + i));
  return value;
}

/// The events of a file whose lengths and checksums are right.
std::vector<std::string> events(const std::string& bytes) {
  const auto masked = [](std::string_view text) {
    const std::uint32_t crc = crc32c(text);
    return static_cast<std::uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8u);
  };
  std::vector<std::string> all;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto size = static_cast<std::size_t>(number_at(bytes, at, 8));
    EXPECT_EQ(number_at(bytes, at + 8, 4), masked(bytes.substr(at, 8)));
    all.push_back(bytes.substr(at + 12, size));
    EXPECT_EQ(number_at(bytes, at + 12 + size, 4), masked(all.back()));
    at += 16 + size;
  }
  return all;
}

TEST(EventFile, ChecksumsAreCastagnolis) {
  // RFC 3720, B.4, and the usual check value.
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(EventFile, HoldsScalarsByTheirNames) {
  const test::TemporaryFolder folder;
  EventFile file(folder.path("runs/one"));
  file.scalars(300, {{"loss/train", 0.5}, {"b", -2.0}});
  const auto all = events(only_file(folder.path("runs/one")));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[0], testing::HasSubstr("brain.Event:2"));
  // Field 1 is the time, a double; field 2 the step, 300 = 0xac 0x02 as a varint; field 5 the summary, of values with a
  // name (1) and a float (2).
  std::string value = "\x0a\x0aloss/train\x15";
  value.append("\x00\x00\x00\x3f", 4);
  const std::string other(
      "\x0a\x01"
      "b\x15\x00\x00\x00\xc0",
      8);
  const std::string first = "\x0a" + std::string(1, static_cast<char>(value.size())) + value;
  const std::string summary = first + "\x0a\x08" + other;
  EXPECT_EQ(all[1].substr(0, 1), "\x09");
  EXPECT_EQ(all[1].substr(9), "\x10\xac\x02\x2a" + std::string(1, static_cast<char>(summary.size())) + summary);
}

TEST(EventFile, ARestartIsASessionThatStarts) {
  const test::TemporaryFolder folder;
  EventFile file(folder.path("run"));
  file.restart(5);
  EXPECT_EQ(events(only_file(folder.path("run"))).at(1).substr(9), "\x10\x05\x3a\x02\x08\x01");
}

TEST(EventFile, ASecondRunHasAFileOfItsOwn) {
  const test::TemporaryFolder folder;
  const EventFile first(folder.path("run")), second(folder.path("run"));
  const std::filesystem::directory_iterator files(folder.path("run"));
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

TEST(EventFile, SaysWhereItCannotWrite) {
  test::expect_error(ErrorCode::io_failure,
                     "/proc/penstock: cannot write events: ", [] { const EventFile file("/proc/penstock"); });
  EventFile nowhere("");
  nowhere.scalars(1, {{"x", 1.0}});
}

}  // namespace
}  // namespace penstock::training
