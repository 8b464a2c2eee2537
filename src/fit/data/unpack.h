#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

/// Decompression of data files, piece by piece.
namespace penstock::io {

/// How a file is compressed.
enum class Packing { none, gzip, zstd };

/// Returns how content with this beginning is compressed.
Packing packing_of(std::string_view beginning);

/// Returns the next bytes of a file, which are valid until the next call; nothing at its end.
using Pieces = std::function<std::string_view()>;

/// A decompression.
class Unpacker {
 public:
  virtual ~Unpacker() = default;
  /// Writes the next decompressed bytes to the room. Returns their number, which is less than `size` only at the end.
  /// Throws Error(bad_input) for damaged data.
  virtual std::size_t read(char* room, std::size_t size) = 0;
  /// Returns whether the compressed bytes ended before the decompressed ones did.
  bool truncated() const { return truncated_; }

 protected:
  bool truncated_ = false;
};

/// Starts to decompress a file that gzip or zstd has compressed, perhaps in several members or frames; `path` names it
/// in messages. Throws Error(unsupported) if zstd's library is not installed.
std::unique_ptr<Unpacker> unpack(Packing packing, Pieces pieces, const std::string& path);

/// Throws Error(bad_input): the file ends too early.
[[noreturn]] void fail_truncated(Packing packing, const std::string& path);

}  // namespace penstock::io
