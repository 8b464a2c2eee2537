#include "data/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/lower_case.h"
#include "data/text_encoding.h"
#include "io/file_descriptor.h"
#include "io/read_file.h"
#include "penstock/stop.h"

namespace penstock::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* standard_input = "-";

/// zlib's state of a decompression, released whatever happens.
class GzipStream {
 public:
  GzipStream(std::string_view compressed, const std::string& path) : path_(path) {
    constexpr int gzip_header = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, gzip_header) != Z_OK) fail(ErrorCode::io_failure, "cannot read '{}': no memory", path);
    // zlib does not write to its input; its interface is older than const.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
    left_ = compressed.size();
  }
  ~GzipStream() { inflateEnd(&stream_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  /// Decompresses into the room; the number of bytes written, 0 at the end.
  std::size_t read(char* room, std::size_t size) {
    stream_.next_out = reinterpret_cast<Bytef*>(room);
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out > 0 && !done_) step();
    return size - stream_.avail_out;
  }
  /// The compressed bytes ended before the decompressed ones did.
  bool truncated() const { return truncated_; }
  /// There is no more to decompress.
  bool ended() {
    char more = 0;
    return read(&more, 1) == 0 && !truncated_;
  }

 private:
  void step() {
    constexpr std::size_t most = std::size_t{1} << 30;  // zlib counts in 32 bits
    if (stream_.avail_in == 0) {
      stream_.avail_in = static_cast<uInt>(std::min(left_, most));
      left_ -= stream_.avail_in;
    }
    if (stream_.avail_in == 0) {
      truncated_ = done_ = true;
      return;
    }
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      // A file may hold several compressed ones, one after the other; what else stands behind them is padding.
      const bool more = stream_.avail_in + left_ > 1 && stream_.avail_in > 1 && stream_.next_in[0] == 0x1f;
      done_ = !more || inflateReset(&stream_) != Z_OK;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail(ErrorCode::bad_input, "{}: damaged gzip data: {}", path_,
           stream_.msg == nullptr ? "no reason given" : stream_.msg);
    }
  }

  const std::string& path_;
  z_stream stream_ = {};
  std::size_t left_ = 0;
  bool done_ = false, truncated_ = false;
};

constexpr std::size_t most_at_once = std::size_t{1} << 24;  // a tenth of a second

/// Returns what the end of gzip data says of their size: of the last member, modulo 4 GiB.
std::uint64_t size_at_end(std::string_view compressed) {
  std::uint64_t size = 0;
  for (std::size_t i = compressed.size(); i > 0 && i + 4 > compressed.size(); --i) {
    size = size << 8 | static_cast<unsigned char>(compressed[i - 1]);
  }
  return size;
}

/// Returns the size of what gzip has compressed.
std::uint64_t measure(std::string_view compressed, const std::string& path, std::uint64_t limit) {
  GzipStream stream(compressed, path);
  std::string room(std::size_t{1} << 18, '\0');
  std::uint64_t size = 0;
  for (std::size_t got = room.size(); got == room.size(); size += got) {
    if (size % most_at_once == 0) stop_if_asked();
    got = stream.read(room.data(), room.size());
    if (size + got <= limit) continue;
    fail(ErrorCode::bad_input, "{}: more than {} bytes once it is decompressed, and no more are read: split it", path,
         limit);
  }
  if (stream.truncated()) fail(ErrorCode::bad_input, "{}: damaged gzip data: they end too early", path);
  return size;
}

/// Decompresses into `content` as far as there is room. Returns the number of bytes.
std::uint64_t fill(GzipStream& stream, std::string& content) {
  std::uint64_t size = 0;
  for (std::size_t got = most_at_once; got == most_at_once; size += got) {
    stop_if_asked();
    got = stream.read(content.data() + size, std::min(content.size() - size, most_at_once));
  }
  return size;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry->path().filename().string().starts_with('.')) {
      if (entry->is_directory()) entry.disable_recursion_pending();
      continue;
    }
    if (entry->is_regular_file()) files.push_back(entry->path().string());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) fail(ErrorCode::bad_input, "{}: there are no files in this folder", folder);
  return files;
}

/// Returns the kind of an archive by the name of its first file.
std::string zip_kind(std::string_view content) {
  constexpr std::size_t length_at = 26, name_at = 30;
  if (content.size() < name_at) return "a ZIP archive";
  const auto byte = [&](std::size_t at) { return static_cast<std::size_t>(static_cast<unsigned char>(content[at])); };
  const std::string_view name = content.substr(name_at, byte(length_at) + 256 * byte(length_at + 1));
  for (const char* part : {"[Content_Types].xml", "xl/", "_rels/", "docProps/"}) {
    if (name.starts_with(part)) return "an Excel file, or another of Office";
  }
  if (name.ends_with(".npy")) return "a ZIP archive of NumPy arrays";
  if (name.ends_with("data.pkl")) return "a file of PyTorch";
  return "a ZIP archive";
}

/// The length of a header, and the header in JSON.
bool is_safetensors(std::string_view content) {
  constexpr std::size_t length = 8;
  return content.size() > length && content[length] == '{' && content[length - 1] == '\0' &&
         content[length - 2] == '\0';
}

}  // namespace

bool is_gzip(std::string_view content) { return content.starts_with("\x1f\x8b"); }

std::string decompress(std::string_view compressed, const std::string& path, std::uint64_t limit) {
  // A text shrinks to a tenth; what shrinks more may hold any number of zeros, and is measured before it takes memory.
  constexpr std::uint64_t usual_ratio = 100;
  std::uint64_t size = size_at_end(compressed);
  bool measured = false;
  for (std::string content;; content = {}) {
    if (size == 0 || size > limit || size / usual_ratio > compressed.size()) {
      size = measure(compressed, path, limit);
      measured = true;
    }
    content.resize(size);
    GzipStream stream(compressed, path);
    const std::uint64_t got = fill(stream, content);
    if (got == size && (measured || stream.ended())) return content;
    size = 0;  // that at the end was that of another member, or of none
  }
}

std::string read_data_file(const std::string& path, std::uint64_t limit) {
  std::string content = path == standard_input ? read_open_file(STDIN_FILENO, "-", limit) : read_file(path, limit);
  return is_gzip(content) ? decompress(content, path, limit) : content;
}

std::string read_data_head(const std::string& path, std::size_t size) {
  if (path == standard_input) return {};
  const FileDescriptor file(retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  std::string head(file.valid() ? size : 0, '\0');
  const ssize_t got = retry([&] { return ::read(file.get(), head.data(), head.size()); });
  head.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (is_gzip(head)) {
    GzipStream stream(head, path);
    std::string plain(size, '\0');
    plain.resize(stream.read(plain.data(), plain.size()));
    head = std::move(plain);
  }
  return is_utf16(head) ? utf16_to_utf8(whole_utf16(head), path) : head;
}

std::vector<std::string> expand_folders(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code not_there;
    if (!fs::is_directory(path, not_there)) {
      files.push_back(path);
      continue;
    }
    try {
      for (std::string& file : files_in(path)) files.push_back(std::move(file));
    } catch (const fs::filesystem_error& error) {
      fail(ErrorCode::io_failure, "cannot read '{}': {}", path, error.code().message());
    }
  }
  return files;
}

std::vector<std::string> files_to_read(const std::vector<std::string>& paths) {
  std::vector<std::string> files = expand_folders(paths);
  std::map<std::pair<dev_t, ino_t>, const std::string*> seen;
  for (const std::string& file : files) {
    struct stat is = {};
    const int failed = file == standard_input ? ::fstat(STDIN_FILENO, &is) : ::stat(file.c_str(), &is);
    if (failed != 0) continue;  // opening it reports the error
    const auto [first, is_new] = seen.try_emplace({is.st_dev, is.st_ino}, &file);
    if (is_new) continue;
    const std::string& before = *first->second;
    if (file == before)
      fail(ErrorCode::bad_input, "{}: given twice, so all it holds would count twice; give it once", file);
    fail(ErrorCode::bad_input, "{}: the same file as {}, so all it holds would count twice; leave one of the two out",
         file, before);
  }
  return files;
}

std::string data_extension(const std::string& path) {
  const fs::path name(path);
  const std::string extension = lower_case(name.extension().string());
  return extension == ".gz" ? lower_case(name.stem().extension().string()) : extension;
}

std::string data_name(const std::string& path) {
  const fs::path name = fs::path(path).filename();
  const bool compressed = name.extension() == ".gz" || name.extension() == ".GZ";
  return (compressed ? name.stem() : name).stem().string();
}

std::string table_advice(const std::string& binary_kind) {
  constexpr const char* pandas =
      "; pandas turns one into CSV: python3 -c \"import pandas; pandas.{}('in').to_csv('out.csv')\"";
  constexpr const char* numpy =
      "; NumPy turns one into CSV: python3 -c \"import numpy; numpy.savetxt('out.csv', {}, delimiter=',')\"";
  constexpr const char* unpack = "; unpack it first: {}";
  struct Advice {
    const char *kind, *format, *value;
  };
  // An archive of arrays is both a ZIP and of NumPy.
  constexpr Advice all[] = {{"Parquet", pandas, "read_parquet"},
                            {"Excel", pandas, "read_excel"},
                            {"Arrow", pandas, "read_feather"},
                            {"HDF5", pandas, "read_hdf"},
                            {"NumPy arrays", numpy, "numpy.load('in')['NAME']"},
                            {"NumPy", numpy, "numpy.load('in')"},
                            {"ZIP", unpack, "unzip"},
                            {"zstd", unpack, "unzstd"},
                            {"xz", unpack, "unxz"},
                            {"bzip2", unpack, "bunzip2"},
                            {"7-Zip", unpack, "7z x"}};
  for (const auto& [kind, format, value] : all) {
    if (binary_kind.find(kind) != binary_kind.npos) return fmt::format(fmt::runtime(format), value);
  }
  return {};
}

std::string binary_kind(std::string_view content) {
  using namespace std::string_view_literals;
  constexpr std::pair<std::string_view, const char*> formats[] = {
      {"PAR1"sv, "a Parquet file"},
      {"\xd0\xcf\x11\xe0"sv, "an old Excel or Word file"},
      {"\x89PNG"sv, "a PNG image"},
      {"\xff\xd8\xff"sv, "a JPEG image"},
      {"GIF8"sv, "a GIF image"},
      {"%PDF-"sv, "a PDF document"},
      {"RIFF"sv, "a sound or video file (RIFF)"},
      {"fLaC"sv, "a FLAC sound file"},
      {"OggS"sv, "an Ogg sound file"},
      {"\x89HDF"sv, "an HDF5 file"},
      {"\x93NUMPY"sv, "a NumPy array"},
      {"ARROW1"sv, "an Arrow file"},
      {"\x28\xb5\x2f\xfd"sv, "compressed by zstd"},
      {"\xfd"
       "7zXZ"sv,
       "compressed by xz"},
      {"BZh"sv, "compressed by bzip2"},
      {"7z\xbc\xaf"sv, "a 7-Zip archive"},
      {"\x7f"
       "ELF"sv,
       "a program"},
      {"SQLite format 3"sv, "an SQLite database"},
  };
  if (content.starts_with("PK\x03\x04"sv)) return zip_kind(content);
  if (is_safetensors(content)) return "a safetensors file";
  for (const auto& [magic, name] : formats) {
    if (content.starts_with(magic)) return name;
  }
  constexpr std::size_t looked_at = std::size_t{1} << 16;
  const std::size_t zero = content.substr(0, looked_at).find('\0');
  return zero == content.npos ? "" : fmt::format("binary data (byte {} is 0)", zero + 1);
}

}  // namespace penstock::io
