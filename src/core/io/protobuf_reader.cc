#include "io/protobuf_reader.h"

#include <bit>

#include "base/check.h"

namespace penstock::io {
namespace {

// How a field's value is written: https://protobuf.dev/programming-guides/encoding/
constexpr int kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5;

template <class Word>
Word little_endian(std::string_view bytes) {
  Word word = 0;
  for (std::size_t i = sizeof(Word); i-- > 0;) word = word << 8 | static_cast<unsigned char>(bytes[i]);
  return word;
}

}  // namespace

void ProtobufReader::refuse(const char* problem) const {
  fail(ErrorCode::bad_input, "{}: damaged at byte {} of a part of {} bytes: {}", source_, at_, message_.size(),
       problem);
}

std::uint64_t ProtobufReader::varint(std::string_view from, std::size_t& at) const {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at == from.size()) refuse("the part ends within a number");
    const auto byte = static_cast<unsigned char>(from[at++]);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  refuse("a number has more than 64 bits");
}

bool ProtobufReader::next() {
  if (at_ == message_.size()) return false;
  const std::uint64_t tag = varint(message_, at_);
  constexpr std::uint64_t most_fields = 1 << 29;
  if (tag >> 3 == 0 || tag >> 3 >= most_fields) refuse("a field has an impossible number");
  field_ = static_cast<int>(tag >> 3);
  wire_type_ = static_cast<int>(tag & 7);
  const auto take = [&](std::uint64_t size) {
    if (size > message_.size() - at_) refuse("a field is longer than the part that holds it");
    bytes_ = message_.substr(at_, size);
    at_ += size;
  };
  switch (wire_type_) {
    case kVarint:
      value_ = varint(message_, at_);
      break;
    case kFixed64:
      take(8);
      value_ = little_endian<std::uint64_t>(bytes_);
      break;
    case kFixed32:
      take(4);
      value_ = little_endian<std::uint32_t>(bytes_);
      break;
    case kDelimited:
      take(varint(message_, at_));
      break;
    default:
      refuse("a field has an unknown encoding");
  }
  return true;
}

std::int64_t ProtobufReader::integer() const {
  if (wire_type_ != kVarint) refuse("a field should be an integer");
  return static_cast<std::int64_t>(value_);
}

float ProtobufReader::number() const {
  if (wire_type_ != kFixed32) refuse("a field should be a float");
  return std::bit_cast<float>(static_cast<std::uint32_t>(value_));
}

std::string_view ProtobufReader::bytes() const {
  if (wire_type_ != kDelimited) refuse("a field should be a text or a part");
  return bytes_;
}

void ProtobufReader::append(std::vector<std::int64_t>& values) const {
  if (wire_type_ == kVarint) {
    values.push_back(static_cast<std::int64_t>(value_));
    return;
  }
  const std::string_view packed = bytes();
  for (std::size_t at = 0; at < packed.size();) values.push_back(static_cast<std::int64_t>(varint(packed, at)));
}

template <class Word, class Real>
void ProtobufReader::append_numbers(std::vector<Real>& values, int wire_type) const {
  if (wire_type_ == wire_type) {
    values.push_back(std::bit_cast<Real>(static_cast<Word>(value_)));
    return;
  }
  const std::string_view packed = bytes();
  if (packed.size() % sizeof(Word) != 0) refuse("a list of numbers ends within one");
  values.reserve(values.size() + packed.size() / sizeof(Word));
  for (std::size_t at = 0; at < packed.size(); at += sizeof(Word)) {
    values.push_back(std::bit_cast<Real>(little_endian<Word>(packed.substr(at, sizeof(Word)))));
  }
}

void ProtobufReader::append(std::vector<float>& values) const { append_numbers<std::uint32_t>(values, kFixed32); }

void ProtobufReader::append(std::vector<double>& values) const { append_numbers<std::uint64_t>(values, kFixed64); }

}  // namespace penstock::io
