#include "data/data_file.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/lower_case.h"
#include "data/text_encoding.h"
#include "data/unpack.h"
#include "io/file_descriptor.h"
#include "io/read_file.h"
#include "penstock/stop.h"

namespace penstock::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* standard_input = "-";

constexpr std::size_t most_at_once = std::size_t{1} << 24;  // a tenth of a second

/// Returns what the end of gzip data says of their size: of the last member, modulo 4 GiB.
std::uint64_t size_at_end(std::string_view compressed) {
  std::uint64_t size = 0;
  for (std::size_t i = compressed.size(); i > 0 && i + 4 > compressed.size(); --i) {
    size = size << 8 | static_cast<unsigned char>(compressed[i - 1]);
  }
  return size;
}

/// Returns content as one piece.
Pieces whole(std::string_view content) {
  return [content]() mutable { return std::exchange(content, {}); };
}

/// Returns the size of decompressed content.
std::uint64_t measure(Packing packing, std::string_view compressed, const std::string& path, std::uint64_t limit) {
  const auto stream = unpack(packing, whole(compressed), path);
  std::string room(std::size_t{1} << 18, '\0');
  std::uint64_t size = 0;
  for (std::size_t got = room.size(); got == room.size(); size += got) {
    if (size % most_at_once == 0) stop_if_asked();
    got = stream->read(room.data(), room.size());
    if (size + got <= limit) continue;
    fail(ErrorCode::bad_input, "{}: more than {} bytes once it is decompressed, and no more are read: split it", path,
         limit);
  }
  if (stream->truncated()) fail_truncated(packing, path);
  return size;
}

/// Decompresses into `content` as far as there is room. Returns the number of bytes.
std::uint64_t fill(Unpacker& stream, std::string& content) {
  std::uint64_t size = 0;
  for (std::size_t got = most_at_once; got == most_at_once; size += got) {
    stop_if_asked();
    got = stream.read(content.data() + size, std::min(content.size() - size, most_at_once));
  }
  return size;
}

/// Returns whether a stream has ended as it should.
bool ended(Unpacker& stream) {
  char more = 0;
  return stream.read(&more, 1) == 0 && !stream.truncated();
}

/// Appends the files whose paths match a pattern with *, ? or [...], in their order. Returns whether there are any.
bool append_matches(const std::string& pattern, std::vector<std::string>& files) {
  if (pattern.find_first_of("*?[") == pattern.npos) return false;
  glob_t found = {};
  const bool any = ::glob(pattern.c_str(), 0, nullptr, &found) == 0;
  for (std::size_t i = 0; any && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  return any;
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

bool is_packed_name(const fs::path& name) {
  const std::string extension = lower_case(name.extension().string());
  return extension == ".gz" || extension == ".zst";
}

/// The length of a header, and the header in JSON.
bool is_safetensors(std::string_view content) {
  constexpr std::size_t length = 8;
  return content.size() > length && content[length] == '{' && content[length - 1] == '\0' &&
         content[length - 2] == '\0';
}

}  // namespace

std::string decompress(std::string_view compressed, const std::string& path, std::uint64_t limit) {
  // A text shrinks to a tenth; what shrinks more may hold any number of zeros, and is measured before it takes memory.
  constexpr std::uint64_t usual_ratio = 100;
  const Packing packing = packing_of(compressed) == Packing::zstd ? Packing::zstd : Packing::gzip;
  std::uint64_t size = packing == Packing::gzip ? size_at_end(compressed) : 0;
  bool measured = false;
  for (std::string content;; content = {}) {
    if (size == 0 || size > limit || size / usual_ratio > compressed.size()) {
      size = measure(packing, compressed, path, limit);
      measured = true;
    }
    content.resize(size);
    const auto stream = unpack(packing, whole(compressed), path);
    const std::uint64_t got = fill(*stream, content);
    if (got == size && (measured || ended(*stream))) return content;
    size = 0;  // that at the end was that of another member, or of none
  }
}

std::string read_data_file(const std::string& path, std::uint64_t limit) {
  std::string content = path == standard_input ? read_open_file(STDIN_FILENO, "-", limit) : read_file(path, limit);
  return packing_of(content) == Packing::none ? content : decompress(content, path, limit);
}

std::string read_data_head(const std::string& path, std::size_t size) {
  if (path == standard_input) return {};
  const FileDescriptor file(retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  std::string head(file.valid() ? size : 0, '\0');
  const ssize_t got = retry([&] { return ::read(file.get(), head.data(), head.size()); });
  head.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (const Packing packing = packing_of(head); packing != Packing::none) {
    std::string plain(size, '\0');
    plain.resize(unpack(packing, whole(head), path)->read(plain.data(), plain.size()));
    head = std::move(plain);
  }
  return is_utf16(head) ? utf16_to_utf8(whole_utf16(head), path) : head;
}

std::vector<std::string> expand_folders(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code not_there;
    if (!fs::is_directory(path, not_there)) {
      if (fs::exists(path, not_there) || !append_matches(path, files)) files.push_back(path);
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
  return lower_case((is_packed_name(name) ? name.stem() : name).extension().string());
}

std::string data_name(const std::string& path) {
  const fs::path name = fs::path(path).filename();
  return (is_packed_name(name) ? name.stem() : name).stem().string();
}

std::string table_advice(const std::string& binary_kind) {
  constexpr const char* pandas =
      "; pandas turns one into CSV: python3 -c \"import pandas; pandas.{}('in').to_csv('out.csv')\"";
  constexpr const char* numpy =
      "; NumPy turns one into CSV: python3 -c \"import numpy; numpy.savetxt('out.csv', {}, delimiter=',')\"";
  constexpr const char* unpacked = "; unpack it first: {}";
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
                            {"ZIP", unpacked, "unzip"},
                            {"xz", unpacked, "unxz"},
                            {"bzip2", unpacked, "bunzip2"},
                            {"7-Zip", unpacked, "7z x"}};
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
