#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Encoding of Protocol Buffers messages.
namespace penstock::io {

/// Appends the lowest `bits` of a number, whatever the machine.
void append_little_endian(std::string& out, std::uint64_t value, int bits);

/// A message of Protocol Buffers, the format of ONNX files and TensorBoard events, built field by field.
///
/// Writing needs only these lines. The Protocol Buffers library has one registry of messages per process; a program
/// with a second copy of the library, as in most ONNX runtimes, may crash.
class ProtobufMessage {
 public:
  /// Adds an int64 or enum field, or the next value of a repeated one.
  ProtobufMessage& integer(int field, std::int64_t value);
  /// Adds a float or a double field.
  ProtobufMessage& number(int field, float value);
  ProtobufMessage& number(int field, double value);
  /// Adds a string, bytes or message field, or the next value of a repeated one.
  ProtobufMessage& bytes(int field, std::string_view value);
  ProtobufMessage& message(int field, const ProtobufMessage& value) { return bytes(field, value.encoded_); }

  const std::string& encoded() const { return encoded_; }

 private:
  void varint(std::uint64_t value);
  void tag(int field, int wire_type);

  std::string encoded_;
};

}  // namespace penstock::io
