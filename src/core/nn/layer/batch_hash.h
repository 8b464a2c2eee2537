#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "penstock/recurrent.h"

/// Hashes of batches, by which a backward pass recognises the batch of its forward pass.
namespace penstock::nn {

/// A 64-bit FNV-1a hash over words.
class Hash {
 public:
  explicit Hash(std::uint64_t start = 0xcbf29ce484222325ULL) : value_(start) {}

  template <class Number>
  requires std::is_integral_v<Number> || std::is_enum_v<Number> Hash& add(Number number) {
    value_ = (value_ ^ static_cast<std::uint64_t>(number)) * 0x100000001b3ULL;
    return *this;
  }
  Hash& add(std::string_view text) {
    add(text.size());
    for (const char letter : text) add(letter);
    return *this;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_;
};

/// Returns a hash of the lengths, row offsets and resets of a batch, which must be in host memory.
std::uint64_t hash_of(const Batch& batch);

}  // namespace penstock::nn
