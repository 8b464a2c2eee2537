#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::io {

/// A message of Protocol Buffers, of which ONNX files consist, field by field. It is only ever written here, which
/// takes these few lines; the library that also reads it keeps one register of messages a process, and a program that
/// brings a second copy along, as ONNX's own and most runtimes do, may end with it.
class ProtobufMessage {
 public:
  /// Of int64 and enum fields; also a repeated one's next value.
  ProtobufMessage& integer(int field, std::int64_t value);
  /// Of float fields.
  ProtobufMessage& number(int field, float value);
  /// Of string, bytes and message fields; also a repeated one's next value.
  ProtobufMessage& bytes(int field, std::string_view value);
  ProtobufMessage& message(int field, const ProtobufMessage& value) { return bytes(field, value.encoded_); }

  const std::string& encoded() const { return encoded_; }

 private:
  void varint(std::uint64_t value);
  void tag(int field, int wire_type);

  std::string encoded_;
};

}  // namespace penstock::io
