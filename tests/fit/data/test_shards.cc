#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>

#include "penstock/data.h"
#include "support/expect_error.h"
#include "support/gzip.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;
using test::gzip;
using test::TemporaryFolder;
using Tokens = std::vector<std::int32_t>;

/// What a dataset asks for in one pass of one row.
Tokens labels_of(Dataset& data) {
  Example example;
  data.next(1, data.training_steps(), example);
  return example.labels;
}

/// Moves a dataset to a place, for one row.
void start_at(Dataset& data, std::uint64_t place) {
  std::string position = data.position();
  const auto begin = position.find('[');
  data.restore(position.replace(begin, position.find(']') + 1 - begin, "[" + std::to_string(place) + "]"));
}

template <class T>
std::string bytes_of(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

std::string npy(const std::string& type, const std::string& shape, const std::string& content) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(118 - 1, ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" + content;
}

/// A frame of zstd with at most 255 bytes, as they are.
std::string zstd(const std::string& text) {
  const auto size = static_cast<unsigned>(text.size()), block = size << 3 | 1;
  std::string frame("\x28\xb5\x2f\xfd\x20", 5);
  for (const unsigned byte : {size, block & 255, block >> 8, 0U}) frame += static_cast<char>(byte);
  return frame + text;
}

/// Writes a file of zeros, which takes no space, with some text in it.
std::string sparse(const TemporaryFolder& folder, const std::string& name, std::uint64_t size, std::uint64_t at,
                   const std::string& text) {
  const std::string path = folder.write(name, "");
  std::filesystem::resize_file(path, size);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file << text;
  return path;
}

/// Bytes of memory that the process has touched and that are not of a file.
std::size_t own_memory() {
  std::ifstream file("/proc/self/statm");
  std::size_t size = 0, resident = 0, shared = 0;
  file >> size >> resident >> shared;
  return (resident - shared) * 4096;
}

TEST(Shards, FilesBeyondTheMemoryStayWhereTheyAre) {
  const TemporaryFolder folder;
  constexpr std::uint64_t size = std::uint64_t{10} << 30, middle = size / 2;
  const std::string path = sparse(folder, "huge", size, middle, "in the middle");
  const std::size_t before = own_memory();
  const auto data = open_text(path, {.validation_fraction = std::nullopt, .bytes = true});
  EXPECT_EQ(data->held_out_steps(), most_held_out_by_default);
  Example example;
  start_at(*data, middle - 5);
  data->next(1, 20, example);
  EXPECT_EQ(std::string(example.labels.begin() + 4, example.labels.begin() + 17), "in the middle");
  data->next(64, 512, example);
  EXPECT_EQ(example.tokens.size(), 64U * 512U);
  EXPECT_LT(own_memory() - std::min(before, own_memory()), std::size_t{32} << 20);
}

TEST(Shards, OneSequenceWhateverTheFiles) {
  const TemporaryFolder folder, shards;
  std::string text;
  for (int i = 0; i < 900; ++i) text += static_cast<char>('a' + i * 7 % 26);
  shards.write("0", text.substr(0, 1));
  shards.write("1.gz", gzip(text.substr(1, 400)));
  shards.write("2.zst", zstd(text.substr(401, 200)) + zstd(text.substr(601, 100)));
  shards.write("3", text.substr(701));
  const auto whole = open_text(folder.write("all", text));
  const auto data = open_text(shards.folder());
  const auto by_pattern = open_text(shards.path("[0-3]*"));
  EXPECT_EQ(data->reading(), std::vector<Message>{"4 files, one after the other"});
  EXPECT_EQ(data->position(), whole->position()) << "also the fingerprint";
  const Tokens expected = labels_of(*whole);
  EXPECT_EQ(labels_of(*data), expected);
  EXPECT_EQ(labels_of(*by_pattern), expected);
}

TEST(Shards, LargeCompressedFilesAreUnpackedToATemporaryFile) {
  const TemporaryFolder folder, temporary;
  ASSERT_EQ(setenv("TMPDIR", temporary.folder().c_str(), 1), 0);
  std::string text(std::size_t{70} << 20, 'x');
  for (std::size_t i = 0; i < text.size(); i += 1000) text[i] = static_cast<char>('a' + i % 26);
  const auto whole = open_text(folder.write("all", text));
  const std::string packed = folder.write("all.gz", gzip(text));
  const auto data = open_text(packed);
  EXPECT_EQ(data->position(), whole->position());
  EXPECT_EQ(temporary.count(), 0) << "the file has no name";
  Example expected, example;
  whole->next(7, 300, expected);
  data->next(7, 300, example);
  EXPECT_EQ(example.labels, expected.labels);
  ASSERT_EQ(setenv("TMPDIR", temporary.path("none").c_str(), 1), 0);
  expect_error(ErrorCode::io_failure, "all.gz: cannot be unpacked to a temporary file in " + temporary.path("none"),
               [&] { open_text(packed); });
  unsetenv("TMPDIR");
}

TEST(Shards, ArraysOfTokens) {
  const TemporaryFolder folder;
  std::vector<std::uint16_t> ids(300);
  std::iota(ids.begin(), ids.end(), std::uint16_t{40000});
  const Tokens expected(ids.begin() + 1, ids.end());
  const std::vector<std::int64_t> wide(ids.begin(), ids.end());
  const std::vector<std::uint32_t> middle(ids.begin(), ids.end());
  std::vector<std::uint32_t> header(256);
  header[0] = 20240520;
  const auto check = [&](const std::string& name, const std::string& content, std::optional<TokenType> type) {
    const auto data = open_text(folder.write(name, content), {.validation_fraction = 0, .tokens = type});
    EXPECT_EQ(data->description().vocabulary, 40300) << name;
    EXPECT_EQ(labels_of(*data), expected) << name;
  };
  check("a.bin", bytes_of(ids), TokenType::uint16);
  check("b.bin", bytes_of(header) + bytes_of(ids), TokenType::uint16);
  check("c.bin", bytes_of(middle), TokenType::uint32);
  check("d.npy", npy("<u2", "(300,)", bytes_of(ids)), std::nullopt);
  check("e.npy", npy("<i8", "(300,)", bytes_of(wide)), std::nullopt);
  check("f.npy.gz", gzip(npy("<u4", "(300,)", bytes_of(middle))), std::nullopt);
  const auto known = open_text(folder.path("a.bin"), {.tokens = TokenType::uint16, .vocabulary = 50257});
  EXPECT_EQ(known->description().output_size(), 50257);
  const auto bytes = open_text(folder.path("a.bin"), {.tokens = TokenType::uint8});
  EXPECT_EQ(bytes->description().vocabulary, 256);

  Example example;
  known->next(3, 50, example);
  const auto resumed = open_text(Sources{folder.path("a.bin")}, {.tokens = TokenType::uint16, .vocabulary = 50257});
  resumed->restore(known->position());
  known->next(3, 50, example);
  const Tokens next = example.tokens;
  resumed->next(3, 50, example);
  EXPECT_EQ(example.tokens, next);
}

TEST(Shards, FilesThatVanishOrEndEarly) {
  const TemporaryFolder folder;
  constexpr std::uint64_t size = std::uint64_t{70} << 20;
  const std::string first = sparse(folder, "first", size, 0, "a"), second = sparse(folder, "second", size, 0, "b");
  const auto data = open_text(Sources{first, second}, {.bytes = true});
  Example example;
  data->next(3, 100, example);
  std::filesystem::remove(first);
  data->next(3, 100, example);  // an open file stays
  std::filesystem::resize_file(second, 1000);
  expect_error(ErrorCode::io_failure, "second: the file had 73400320 bytes when it was opened and now ends at byte ",
               [&] { data->next(3, 100, example); });
}

TEST(Shards, MoreFilesThanAProcessMayHaveOpen) {
  const TemporaryFolder folder, shards;
  constexpr std::size_t memory = std::size_t{64} << 20;  // all that there is for content
  Sources all = {sparse(folder, "first", memory, 0, "a")};
  std::string text;
  for (int i = 10000; i < 11500; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    all.push_back(shards.write(std::to_string(i), line));
    text += line;
  }
  const auto data = open_text(all, {.validation_fraction = 0, .bytes = true});
  Example example;
  start_at(*data, memory - 1);
  data->next(1, static_cast<Index>(text.size()), example);
  EXPECT_EQ(std::string(example.labels.begin(), example.labels.end()), text);
  std::filesystem::remove(all.back());
  start_at(*data, memory);
  expect_error(ErrorCode::io_failure, "11499': No such file or directory",
               [&] { data->next(1, static_cast<Index>(text.size()) - 1, example); });
}

TEST(Shards, Refusals) {
  const TemporaryFolder folder;
  const std::string text = folder.write("a.txt", "a text"), empty = folder.write("empty", "");
  const std::string ids = folder.write("ids.npy", npy("<u2", "(3,)", "123456"));
  const auto refuse = [&](const Sources& files, const TextOptions& options, const std::string& message,
                          ErrorCode code = ErrorCode::bad_input) {
    expect_error(code, message, [&] { open_text(files, options); });
  };
  refuse({text, empty}, {}, "empty: the file is empty");
  refuse({text, ids}, {},
         "ids.npy holds token ids of 2 bytes each, but " + text + " holds a text: train on files of one");
  refuse({folder.write("wide.npy", npy("<u4", "(1,)", "1234")), ids}, {}, "ids of 2 bytes each, but ");
  refuse({folder.write("b.npy", npy("<u2", "(3,)", "12345"))}, {}, "b.npy: the array should have 6 bytes and has 5");
  refuse({folder.write("c.npy", npy("<u2", "(0,)", ""))}, {}, "c.npy: the array is empty");
  for (const char* type : {"<f4", ">u2", "<i2"}) {
    refuse({folder.write("d.npy", npy(type, "(1,)", "1234"))}, {},
           "d.npy: token ids have to be a list of whole numbers, and");
  }
  refuse({folder.write("e.npy", npy("<u2", "(1, 2)", "1234"))}, {}, "array.ravel().astype('uint16')");
  refuse({folder.write("f.npy", npy("<u2", "(3,)", "").substr(0, 40))}, {},
         "f.npy: the header of the NumPy array is damaged");
  refuse({folder.write("g.bin", "12345")}, {.tokens = TokenType::uint16},
         "g.bin: 5 bytes are no whole number of token ids of 2");
  refuse({folder.write("h.bin", std::string("a\0b\0", 4))}, {},
         "the option 'tokens=uint16' reads token ids of two bytes");
  expect_error(ErrorCode::bad_input,
               "ids.npy: token 1 is 12849, outside of 0 to 999; the option 'vocabulary' has to be",
               [&] { labels_of(*open_text(ids, {.vocabulary = 1000})); });
  refuse({ids}, {.vocabulary = -1}, "vocabulary must be at least 0, not -1", ErrorCode::invalid_argument);
  refuse({ids}, {.bytes = true, .tokens = TokenType::uint8}, "bytes and tokens contradict",
         ErrorCode::invalid_argument);
  refuse({folder.write("i.npy", npy("<i4", "(2,)", "1234\xff\xff\xff\xff"))}, {},
         "i.npy: token 2 is 4294967295, outside of");
  refuse({folder.write("cut.zst", zstd("some text").substr(0, 12))}, {},
         "cut.zst: damaged zstd data: they end too early");
  refuse({folder.write("bad.zst", zstd("some text") + "tail")}, {}, "bad.zst: damaged zstd data: ");
  refuse({folder.path("*.nothing")}, {}, "No such file or directory", ErrorCode::io_failure);
}

}  // namespace
}  // namespace penstock
