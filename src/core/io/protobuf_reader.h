#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace penstock::io {

/// Steps through the fields of one untrusted message of Protocol Buffers. protobuf.h says why this is our own.
///
///     for (ProtobufReader reader(bytes, source); reader.next();) {
///       reader.read(1, name);
///     }
///
/// Nothing is copied: bytes() is a view into the message, which must outlive it. Lists take memory of at most 8 times
/// the size of the message. Throws Error(bad_input), with the place in the message, for damaged fields and for a field
/// of another kind than is asked for.
class ProtobufReader {
 public:
  /// `source` names the message in errors and must outlive the reader.
  ProtobufReader(std::string_view message, const std::string& source) : message_(message), source_(source) {}

  /// Moves to the next field. Returns false at the end of the message.
  bool next();
  int field() const { return field_; }

  // Return the value of the field. Booleans and enumerations are integers.
  std::int64_t integer() const;
  float number() const;
  std::string_view bytes() const;
  /// Sets `to`, or appends to a list, if the field has this number.
  template <class T>
  void read(int field, T& to) const {
    if (field_ != field) return;
    if constexpr (std::is_same_v<T, std::string_view>) {
      to = bytes();
    } else if constexpr (std::is_same_v<T, std::vector<std::string_view>>) {
      to.push_back(bytes());
    } else if constexpr (std::is_same_v<T, float>) {
      to = number();
    } else if constexpr (std::is_integral_v<T>) {
      to = static_cast<T>(integer());
    } else {
      append(to);
    }
  }
  /// Appends parse(bytes()) if the field has this number.
  template <class T, class Parse>
  void read(int field, std::vector<T>& to, const Parse& parse) const {
    if (field_ == field) to.push_back(parse(bytes()));
  }
  // Append the value, or all values, of a repeated field, packed or not.
  void append(std::vector<std::int64_t>& values) const;
  void append(std::vector<float>& values) const;
  void append(std::vector<double>& values) const;

 private:
  [[noreturn]] void refuse(const char* problem) const;
  std::uint64_t varint(std::string_view from, std::size_t& at) const;
  template <class Word, class Real>
  void append_numbers(std::vector<Real>& values, int wire_type) const;

  std::string_view message_;
  const std::string& source_;
  std::size_t at_ = 0;  ///< Behind the current field.
  int field_ = 0, wire_type_ = 0;
  std::uint64_t value_ = 0;  ///< Of a varint or a fixed field.
  std::string_view bytes_;
};

}  // namespace penstock::io
