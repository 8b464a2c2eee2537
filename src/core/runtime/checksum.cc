// XXH3-64 for long inputs with the default secret, by its specification (https://github.com/Cyan4973/xxHash, doc).
// Whole files are hashed once, so there is nothing here but the plain form.
#include "runtime/checksum.h"

#include <algorithm>
#include <cstring>

namespace penstock::runtime {

namespace {

// The numbers are the specification's.
constexpr unsigned char kSecret[] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
    0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
    0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
    0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
    0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
    0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
    0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
    0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16,
    0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};
constexpr std::uint64_t kPrime32[] = {0x9E3779B1U, 0x85EBCA77U, 0xC2B2AE3DU};
constexpr std::uint64_t kPrime64[] = {0x9E3779B185EBCA87U, 0xC2B2AE3D27D4EB4FU, 0x165667B19E3779F9U,
                                      0x85EBCA77C2B2AE63U, 0x27D4EB2F165667C5U};
constexpr std::size_t kStripe = 64, kStripesOfBlock = (sizeof(kSecret) - kStripe) / 8;

std::uint64_t read64(const unsigned char* from) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// The halves of the 128-bit product, one xor the other, by products of 32 bits that every machine has.
std::uint64_t folded_product(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t low = 0xffffffffU;
  const std::uint64_t ll = (a & low) * (b & low), hl = (a >> 32) * (b & low), lh = (a & low) * (b >> 32),
                      hh = (a >> 32) * (b >> 32);
  const std::uint64_t cross = (ll >> 32) + (hl & low) + lh;
  return ((hl >> 32) + (cross >> 32) + hh) ^ ((cross << 32) | (ll & low));
}

struct Sums {
  std::uint64_t lane[8] = {kPrime32[2], kPrime64[0], kPrime64[1], kPrime64[2],
                           kPrime64[3], kPrime32[1], kPrime64[4], kPrime32[0]};

  void add(const unsigned char* stripe, const unsigned char* secret) {
    for (std::size_t i = 0; i < 8; ++i) {
      const std::uint64_t data = read64(stripe + 8 * i), key = data ^ read64(secret + 8 * i);
      lane[i ^ 1] += data;
      lane[i] += (key & 0xffffffffU) * (key >> 32);
    }
  }
  void scramble() {
    const unsigned char* const secret = kSecret + sizeof(kSecret) - kStripe;
    for (std::size_t i = 0; i < 8; ++i) {
      lane[i] = (lane[i] ^ (lane[i] >> 47) ^ read64(secret + 8 * i)) * kPrime32[0];
    }
  }
  std::uint64_t merged(std::uint64_t length) const {
    std::uint64_t sum = length * kPrime64[0];
    const unsigned char* const secret = kSecret + 11;
    for (std::size_t i = 0; i < 8; i += 2) {
      sum += folded_product(lane[i] ^ read64(secret + 8 * i), lane[i + 1] ^ read64(secret + 8 * i + 8));
    }
    sum = (sum ^ (sum >> 37)) * 0x165667919E3779F9U;
    return sum ^ (sum >> 32);
  }
};

/// A file whose checksum's digits read as zeros.
class Content {
 public:
  Content(std::string_view content, std::size_t place) : content_(content), place_(place) {}

  /// The stripe from byte `at` on, valid until the next call.
  const unsigned char* stripe(std::size_t at) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(content_.data()) + at;
    const std::size_t begin = std::max(at, place_), end = std::min(at + kStripe, place_ + checksum_digits);
    if (begin >= end) return bytes;
    std::memcpy(patched_, bytes, kStripe);
    std::memset(patched_ + (begin - at), '0', end - begin);
    return patched_;
  }

 private:
  std::string_view content_;
  std::size_t place_;
  unsigned char patched_[kStripe] = {};
};

}  // namespace

std::uint64_t checksum_of(std::string_view content, std::size_t place) {
  Content stripes(content, place);
  Sums sums;
  const std::size_t whole = (content.size() - 1) / kStripe;
  for (std::size_t i = 0; i < whole; ++i) {
    sums.add(stripes.stripe(i * kStripe), kSecret + 8 * (i % kStripesOfBlock));
    if (i % kStripesOfBlock == kStripesOfBlock - 1) sums.scramble();
  }
  sums.add(stripes.stripe(content.size() - kStripe), kSecret + sizeof(kSecret) - kStripe - 7);
  return sums.merged(content.size());
}

}  // namespace penstock::runtime
