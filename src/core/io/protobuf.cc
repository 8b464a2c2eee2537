#include "io/protobuf.h"

#include <bit>

namespace penstock::io {

namespace {

// How a field's value is written: https://protobuf.dev/programming-guides/encoding/
constexpr int wire_varint = 0, wire_fixed64 = 1, wire_length_delimited = 2, wire_fixed32 = 5;

}  // namespace

void append_little_endian(std::string& out, std::uint64_t value, int bits) {
  for (int shift = 0; shift < bits; shift += 8) out += static_cast<char>(value >> shift & 0xffU);
}

void ProtobufMessage::varint(std::uint64_t value) {
  constexpr std::uint64_t more = 0x80;
  for (; value >= more; value >>= 7) encoded_ += static_cast<char>(value | more);
  encoded_ += static_cast<char>(value);
}

void ProtobufMessage::tag(int field, int wire_type) {
  varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire_type));
}

ProtobufMessage& ProtobufMessage::integer(int field, std::int64_t value) {
  tag(field, wire_varint);
  varint(static_cast<std::uint64_t>(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::number(int field, float value) {
  tag(field, wire_fixed32);
  append_little_endian(encoded_, std::bit_cast<std::uint32_t>(value), 32);
  return *this;
}

ProtobufMessage& ProtobufMessage::number(int field, double value) {
  tag(field, wire_fixed64);
  append_little_endian(encoded_, std::bit_cast<std::uint64_t>(value), 64);
  return *this;
}

ProtobufMessage& ProtobufMessage::bytes(int field, std::string_view value) {
  tag(field, wire_length_delimited);
  varint(value.size());
  encoded_ += value;
  return *this;
}

}  // namespace penstock::io
