#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/protobuf.h"
#include "io/protobuf_reader.h"
#include "support/expect_error.h"

namespace penstock::io {
namespace {

using testing::ElementsAre;

const std::string kSource = "a.onnx";

void read_all(const std::string& bytes) {
  for (ProtobufReader reader(bytes, kSource); reader.next();) (void)reader.integer();
}

TEST(ProtobufReader, ReadsWhatTheWriterWrites) {
  ProtobufMessage message;
  message.integer(1, -5).number(2, 0.5F).bytes(3, "text").integer(200, 7);
  ProtobufReader reader(message.encoded(), kSource);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.field(), 1);
  EXPECT_EQ(reader.integer(), -5);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.number(), 0.5F);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.bytes(), "text");
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.field(), 200);
  EXPECT_FALSE(reader.next());
}

TEST(ProtobufReader, ReadsListsPackedOrNot) {
  ProtobufMessage floats;  // packed by hand
  std::string packed;
  append_little_endian(packed, 0x3f800000U, 32);
  append_little_endian(packed, 0x40000000U, 32);
  floats.bytes(4, packed).number(4, 3.0F).bytes(7, std::string("\x01\x96\x01", 3)).integer(7, 4);
  std::vector<float> numbers;
  std::vector<std::int64_t> integers;
  for (ProtobufReader reader(floats.encoded(), kSource); reader.next();) {
    reader.field() == 4 ? reader.append(numbers) : reader.append(integers);
  }
  EXPECT_THAT(numbers, ElementsAre(1, 2, 3));
  EXPECT_THAT(integers, ElementsAre(1, 150, 4));
}

TEST(ProtobufReader, RefusesDamagedFields) {
  const auto refuses = [](const std::string& bytes, const std::string& why) {
    test::expect_error(ErrorCode::bad_input, why, [&] { read_all(bytes); });
  };
  refuses("\x08", "the part ends within a number");
  refuses(std::string("\x08") + std::string(10, '\xff') + "\x01", "a number has more than 64 bits");
  refuses(
      "\x0a\x05"
      "ab",
      "a field is longer than the part that holds it");
  refuses(std::string("\x00\x01", 2), "a field has an impossible number");
  refuses("\x0b", "a field has an unknown encoding");
  refuses(
      "\x0a\x01"
      "a",
      "a field should be an integer");
  refuses(std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10), "a field is longer than the part");
}

}  // namespace
}  // namespace penstock::io
