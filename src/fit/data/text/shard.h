#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "io/file_descriptor.h"

namespace penstock::data {

/// The content of one of the files of a dataset, read where it is: small content in memory, a large plain file in the
/// page cache, and what has to be unpacked in a temporary file without a name, which the system removes.
class Shard {
 public:
  /// Throws an Error about content that begins like this, if it cannot be used.
  using CheckBeginning = std::function<void(std::string_view beginning)>;

  /// Opens a file, or standard input for "-". `memory` is the number of bytes that content may take in memory, from
  /// which the constructor subtracts what it takes. Unless `keep_open`, each read opens a plain file anew. `check` sees
  /// what is copied to memory or unpacked before that takes room. Throws Error: io_failure if the file cannot be read
  /// or unpacked; bad_input for damaged data.
  Shard(std::string path, std::size_t& memory, bool keep_open, const CheckBeginning& check);

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_ - offset_; }

  /// Copies `count` bytes from byte `at` on. Throws Error(io_failure) if the file is not there any more or has become
  /// shorter.
  void read(std::uint64_t at, std::size_t count, char* room) const;

  /// Passes over the first bytes, such as a header.
  void skip(std::uint64_t bytes) { offset_ += bytes; }
  /// Replaces the content.
  void replace(std::string content);

 private:
  /// Takes the content of a small or compressed file, or of a pipe, at most `limit` bytes.
  void take_unpacked(int file, std::uint64_t limit, std::size_t& memory, const CheckBeginning& check);

  std::string path_;
  std::string content_;          // all of it, unless it stays in a file
  io::FileDescriptor file_{-1};  // none: `path_` is opened for each read
  bool in_file_ = false;
  std::uint64_t size_ = 0, offset_ = 0;
};

}  // namespace penstock::data
