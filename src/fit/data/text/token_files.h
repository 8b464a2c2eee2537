#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/shard.h"
#include "penstock/data/text.h"

namespace penstock::data {

/// Files as one sequence of tokens, one file behind the other: the bytes of texts, or arrays of token ids.
class TokenFiles {
 public:
  /// Opens files with the options of a text. Throws Error as open_text() does.
  TokenFiles(const Sources& files, const TextOptions& options);

  /// Number of tokens.
  Index size() const { return static_cast<Index>(bytes_) / width_; }
  Index files() const { return static_cast<Index>(shards_.size()); }
  const std::string& name() const { return shards_.front().path(); }
  /// Number of different tokens.
  Index vocabulary() const { return vocabulary_; }
  bool are_bytes() const { return width_ == 1; }

  /// Writes the tokens first, first + 1, ... Throws Error: io_failure as Shard::read does; bad_input for a token
  /// outside of the vocabulary.
  void read(Index first, std::vector<std::int32_t>& tokens) const;

  /// Returns a number that differs when the content does: of all bytes, or of samples of more than 2 GB.
  std::uint64_t fingerprint(std::uint64_t start) const;

 private:
  void take(Shard shard, const TextOptions& options);
  void read_bytes(std::uint64_t at, std::size_t count, char* room) const;
  std::int64_t token_at(const char* bytes) const;
  Index largest_token() const;
  [[noreturn]] void fail_token(std::int64_t token, Index place) const;

  std::vector<Shard> shards_;
  std::vector<std::uint64_t> begins_;  // of each shard among all bytes
  std::uint64_t bytes_ = 0;
  Index width_ = 0;   // bytes of a token; 0 before the first file
  std::string form_;  // what the first file holds, in words
  Index vocabulary_ = 256;
};

}  // namespace penstock::data
