#include "data/unpack.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "data/loaded_library.h"

namespace penstock::io {
namespace {

using namespace std::string_view_literals;

[[noreturn]] void fail_damaged(const char* format, const std::string& path, const char* why) {
  fail(ErrorCode::bad_input, "{}: damaged {} data: {}", path, format, why == nullptr ? "no reason given" : why);
}

/// zlib's state of a decompression, released whatever happens.
class GzipStream final : public Unpacker {
 public:
  GzipStream(Pieces pieces, std::string path) : pieces_(std::move(pieces)), path_(std::move(path)) {
    constexpr int gzip_header = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, gzip_header) != Z_OK) fail(ErrorCode::io_failure, "cannot read '{}': no memory", path_);
  }
  ~GzipStream() override { inflateEnd(&stream_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  std::size_t read(char* room, std::size_t size) override {
    stream_.next_out = reinterpret_cast<Bytef*>(room);
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out > 0 && !done_) step();
    return size - stream_.avail_out;
  }

 private:
  /// Returns whether there is more to decompress.
  bool refill() {
    constexpr std::size_t most = std::size_t{1} << 30;  // zlib counts in 32 bits
    if (stream_.avail_in > 0) return true;
    if (left_.empty()) left_ = pieces_();
    stream_.avail_in = static_cast<uInt>(std::min(left_.size(), most));
    // zlib does not write to its input; its interface is older than const.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(left_.data()));
    left_.remove_prefix(stream_.avail_in);
    return stream_.avail_in > 0;
  }

  void step() {
    if (!refill()) {
      truncated_ = done_ = true;
      return;
    }
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      // A file may hold several compressed ones, one after the other; what else stands behind them is padding.
      const bool more = refill() && stream_.next_in[0] == 0x1f;
      done_ = !more || inflateReset(&stream_) != Z_OK;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail_damaged("gzip", path_, stream_.msg);
    }
  }

  Pieces pieces_;
  std::string path_;
  z_stream stream_ = {};
  std::string_view left_;  // of the last piece
  bool done_ = false;
};

/// libzstd's interface, as far as it is needed: opened at run time, as few data are compressed so.
struct Zstd {
  struct Input {
    const void* data;
    std::size_t size, position;
  };
  struct Output {
    void* data;
    std::size_t size, position;
  };

  static const Zstd& get(const std::string& path) {
    static const Zstd library;
    if (library.decompress == nullptr) {
      fail(ErrorCode::unsupported,
           "{}: compressed by zstd, which needs libzstd (on Debian: libzstd1); or unpack it first: unzstd", path);
    }
    return library;
  }

  void* (*create)() = nullptr;
  std::size_t (*release)(void* state) = nullptr;
  unsigned (*is_error)(std::size_t result) = nullptr;
  const char* (*name_of_error)(std::size_t result) = nullptr;
  /// Returns 0 at the end of a frame.
  std::size_t (*decompress)(void* state, Output* output, Input* input) = nullptr;

 private:
  Zstd() {
    const data::LoadedLibrary library({"libzstd.so.1", "libzstd.so", "libzstd.1.dylib"});
    if (library.find("ZSTD_createDStream", create) && library.find("ZSTD_freeDStream", release) &&
        library.find("ZSTD_isError", is_error) && library.find("ZSTD_getErrorName", name_of_error)) {
      library.find("ZSTD_decompressStream", decompress);
    }
  }
};

class ZstdStream final : public Unpacker {
 public:
  ZstdStream(Pieces pieces, std::string path)
      : zstd_(Zstd::get(path)), pieces_(std::move(pieces)), path_(std::move(path)), state_(zstd_.create()) {
    if (state_ == nullptr) fail(ErrorCode::io_failure, "cannot read '{}': no memory", path_);
  }
  ~ZstdStream() override { zstd_.release(state_); }
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

  std::size_t read(char* room, std::size_t size) override {
    Zstd::Output output{room, size, 0};
    while (output.position < size && !done_) step(output);
    return output.position;
  }

 private:
  void step(Zstd::Output& output) {
    if (input_.position == input_.size && all_written_) {
      const std::string_view piece = pieces_();
      input_ = {piece.data(), piece.size(), 0};
      done_ = piece.empty();
      truncated_ = done_ && in_frame_;
      if (done_) return;
    }
    const std::size_t result = zstd_.decompress(state_, &output, &input_);
    if (zstd_.is_error(result) != 0) fail_damaged("zstd", path_, zstd_.name_of_error(result));
    in_frame_ = result != 0;
    all_written_ = !in_frame_ || output.position < output.size;
  }

  const Zstd& zstd_;
  Pieces pieces_;
  std::string path_;
  void* state_;
  Zstd::Input input_ = {};
  bool in_frame_ = false, all_written_ = true, done_ = false;
};

}  // namespace

Packing packing_of(std::string_view beginning) {
  if (beginning.starts_with("\x1f\x8b"sv)) return Packing::gzip;
  return beginning.starts_with("\x28\xb5\x2f\xfd"sv) ? Packing::zstd : Packing::none;
}

std::unique_ptr<Unpacker> unpack(Packing packing, Pieces pieces, const std::string& path) {
  if (packing == Packing::zstd) return std::make_unique<ZstdStream>(std::move(pieces), path);
  return std::make_unique<GzipStream>(std::move(pieces), path);
}

void fail_truncated(Packing packing, const std::string& path) {
  fail_damaged(packing == Packing::zstd ? "zstd" : "gzip", path, "they end too early");
}

}  // namespace penstock::io
