#include "data/text/token_files.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <regex>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/plural.h"
#include "base/quote.h"
#include "data/data_file.h"
#include "data/dataset.h"
#include "data/text_encoding.h"
#include "penstock/data/source.h"
#include "penstock/stop.h"
#include "penstock/types.h"

namespace penstock::data {
namespace {

/// The header of an array that NumPy has written (.npy).
struct NpyHeader {
  Index width = 0;        ///< Bytes of a number.
  Index count = 0;        ///< Numbers in the array.
  std::size_t bytes = 0;  ///< Length of the header.
};

using namespace std::string_view_literals;

constexpr std::size_t version_at = 6, length_at = 8;
constexpr std::size_t longest_npy_header = 256;  // of such a header, without blanks at its end

/// Returns whether a file begins like an array of NumPy.
bool is_npy(std::string_view beginning) { return beginning.starts_with("\x93NUMPY"sv); }

/// Reads the header of a list of whole numbers. `beginning` has at least the header. Throws Error(bad_input) for
/// another array, or a damaged header.
NpyHeader read_npy_header(std::string_view beginning, const std::string& path) {
  const auto byte = [&](std::size_t i) { return i < beginning.size() ? static_cast<unsigned char>(beginning[i]) : 0U; };
  const std::size_t length_bytes = byte(version_at) == 1 ? 2 : 4, begin = length_at + length_bytes;
  std::size_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | byte(length_at + i);
  if (begin + length > beginning.size()) {
    fail(ErrorCode::bad_input, "{}: the header of the NumPy array is damaged", path);
  }
  std::string header(beginning.substr(begin, length));
  header.resize(header.find_last_not_of(" \n") + 1);
  static const std::regex list(
      R"(\{'descr': '[<|](u1|u2|u4|u8|i4|i8)', 'fortran_order': \w+, 'shape': \((\d{1,15}),\), *\})");
  std::smatch found;
  if (header.size() > longest_npy_header || !std::regex_match(header, found, list)) {
    fail(ErrorCode::bad_input,
         "{}: token ids have to be a list of whole numbers, and the array has the header {}: "
         "numpy.save('ids.npy', array.ravel().astype('uint16'))",
         path, in_quotes(header));
  }
  return {.width = found.str(1)[1] - '0', .count = std::stoll(found.str(2)), .bytes = begin + length};
}

constexpr std::size_t most_in_memory = std::size_t{1} << 26;
constexpr std::size_t most_open = 256;  // a process may usually have 1,024 files open
constexpr std::size_t head_bytes = std::size_t{1} << 16, hashed_piece = std::size_t{1} << 20;

std::string head_of(const Shard& shard) {
  std::string head(std::min<std::uint64_t>(shard.size(), head_bytes), '\0');
  shard.read(0, head.size(), head.data());
  return head;
}

/// Throws Error(bad_input) for a file that is no text, with what to do about it.
void check_text(std::string_view head, const std::string& path) {
  const std::string kind = io::binary_kind(head);
  if (kind.empty()) return;
  const std::string advice = io::table_advice(kind);
  const Message others = {the_option("bytes"), " reads it anyway; ", the_option("tokens", "uint16"),
                          " reads token ids of two bytes"};
  fail_with(ErrorCode::bad_input, advice.empty() ? others : Message(), "{}: this is {}, not a text{}", path, kind,
            advice);
}

/// Content in UTF-16 becomes content in UTF-8.
void convert_text(Shard& shard) {
  if (shard.size() > largest_source)
    fail(ErrorCode::bad_input, "{}: more than {} bytes of UTF-16", shard.path(), largest_source);
  std::string content(shard.size(), '\0');
  shard.read(0, content.size(), content.data());
  shard.replace(io::utf16_to_utf8(content, shard.path()));
}

template <class T>
std::int64_t number_at(const char* bytes) {
  T number;
  std::memcpy(&number, bytes, sizeof number);
  return static_cast<std::int64_t>(number);
}

/// What a file holds: the bytes of a token, and a name of that.
struct Form {
  Index width;
  std::string name;
};

Form form_of_npy(Shard& shard, const std::string& head) {
  const NpyHeader header = read_npy_header(head, shard.path());
  shard.skip(header.bytes);
  const auto expected = static_cast<std::uint64_t>(header.count * header.width);
  if (shard.size() != expected) {
    fail(ErrorCode::bad_input, "{}: the array should have {} bytes and has {}: the file is damaged", shard.path(),
         expected, shard.size());
  }
  if (header.count == 0) fail(ErrorCode::bad_input, "{}: the array is empty", shard.path());
  return {header.width, fmt::format("token ids of {} each", counted(header.width, "byte"))};
}

/// Returns what a file holds, and makes it the content of the shard: without a header, in UTF-8.
Form form_of(Shard& shard, std::optional<TokenType> type) {
  const std::string head = head_of(shard);
  if (is_npy(head)) return form_of_npy(shard, head);
  if (type) {
    const Index width = Index{1} << static_cast<int>(*type);
    // Some tools write a header of 256 numbers in front of the tokens. Its first number is this one.
    constexpr std::uint32_t mark = 20240520;
    constexpr std::size_t header = 1024;
    if (head.size() > header && number_at<std::uint32_t>(head.data()) == mark) shard.skip(header);
    return {width, fmt::format("token ids of {} each", counted(width, "byte"))};
  }
  if (io::is_utf16(head)) convert_text(shard);
  check_text(io::is_utf16(head) ? head_of(shard) : head, shard.path());
  return {1, "a text"};
}

}  // namespace

TokenFiles::TokenFiles(const Sources& files, const TextOptions& options) {
  require(!options.bytes || !options.tokens, "bytes and tokens contradict each other: a file holds either");
  require_argument(options.vocabulary >= 0, "vocabulary", options.vocabulary, "at least 0");
  std::size_t memory = most_in_memory;
  for (const std::string& file : files) {
    const auto check = [&](std::string_view head) {
      if (!options.bytes && !options.tokens && !is_npy(head) && !io::is_utf16(head)) check_text(head, file);
    };
    take(Shard(file, memory, shards_.size() < most_open, check), options);
  }
  if (width_ > 1) vocabulary_ = std::numeric_limits<std::int32_t>::max();  // until it is known
  if (options.vocabulary > 0) {
    vocabulary_ = options.vocabulary;
  } else if (width_ > 1) {
    vocabulary_ = largest_token() + 1;
  }
}

void TokenFiles::take(Shard shard, const TextOptions& options) {
  if (shard.size() == 0) fail(ErrorCode::bad_input, "{}: the file is empty", shard.path());
  const auto [width, form] = options.bytes ? Form{1, "bytes"} : form_of(shard, options.tokens);
  if (shards_.empty()) {
    width_ = width;
    form_ = form;
  } else if (form != form_) {
    fail(ErrorCode::bad_input, "{} holds {}, but {} holds {}: train on files of one kind", shard.path(), form, name(),
         form_);
  }
  if (shard.size() % static_cast<std::uint64_t>(width) != 0) {
    fail(ErrorCode::bad_input,
         "{}: {} bytes are no whole number of {}: the file is cut, or its tokens have another type", shard.path(),
         shard.size(), form);
  }
  begins_.push_back(bytes_);
  bytes_ += shard.size();
  shards_.push_back(std::move(shard));
}

void TokenFiles::read_bytes(std::uint64_t at, std::size_t count, char* room) const {
  auto i = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), at) - begins_.begin()) - 1;
  for (; count > 0; ++i) {
    const std::uint64_t inside = at - begins_[i];
    const std::size_t part = std::min<std::uint64_t>(count, shards_[i].size() - inside);
    shards_[i].read(inside, part, room);
    at += part;
    room += part;
    count -= part;
  }
}

std::int64_t TokenFiles::token_at(const char* bytes) const {
  switch (width_) {
    case 1:
      return number_at<std::uint8_t>(bytes);
    case 2:
      return number_at<std::uint16_t>(bytes);
    case 4:
      return number_at<std::uint32_t>(bytes);
    default:
      return number_at<std::int64_t>(bytes);
  }
}

void TokenFiles::read(Index first, std::vector<std::int32_t>& tokens) const {
  std::vector<char> bytes(tokens.size() * static_cast<std::size_t>(width_));
  read_bytes(static_cast<std::uint64_t>(first * width_), bytes.size(), bytes.data());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int64_t token = token_at(bytes.data() + static_cast<Index>(i) * width_);
    if (token < 0 || token >= vocabulary_) fail_token(token, first + static_cast<Index>(i));
    tokens[i] = static_cast<std::int32_t>(token);
  }
}

Index TokenFiles::largest_token() const {
  Index largest = 0;
  std::vector<std::int32_t> tokens;
  for (Index first = 0; first < size(); first += static_cast<Index>(tokens.size())) {
    stop_if_asked();
    tokens.resize(static_cast<std::size_t>(std::min<Index>(hashed_piece, size() - first)));
    read(first, tokens);
    largest = std::max<Index>(largest, *std::max_element(tokens.begin(), tokens.end()));
  }
  return largest;
}

void TokenFiles::fail_token(std::int64_t token, Index place) const {
  const auto at = static_cast<std::uint64_t>(place * width_);
  const auto i = std::upper_bound(begins_.begin(), begins_.end(), at) - begins_.begin() - 1;
  fail_with(ErrorCode::bad_input, {the_option("vocabulary"), " has to be larger than every id"},
            "{}: token {} is {}, outside of 0 to {}", shards_[i].path(), (at - begins_[i]) / width_ + 1, token,
            vocabulary_ - 1);
}

std::uint64_t TokenFiles::fingerprint(std::uint64_t start) const {
  // Samples of large files: nobody waits until a disk has read them all.
  constexpr std::uint64_t samples = 4096, sample_bytes = std::uint64_t{1} << 14;
  const bool whole = bytes_ <= largest_source;
  const std::uint64_t piece = whole ? hashed_piece : sample_bytes;
  const std::uint64_t count = whole ? (bytes_ + piece - 1) / piece : samples;
  const std::uint64_t step = whole ? piece : (bytes_ - piece) / (samples - 1);
  std::string bytes;
  Fingerprint result(bytes_, start);
  for (std::uint64_t i = 0; i < count; ++i) {
    stop_if_asked();
    bytes.resize(std::min(piece, bytes_ - i * step));
    read_bytes(i * step, bytes.size(), bytes.data());
    result.add(bytes);
  }
  return result.value();
}

}  // namespace penstock::data
