// A fuzz target with any compiler: the files of its corpus, which it has to accept, and thousands of damaged copies.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz/damage.h"
#include "fuzz/refusal.h"

/// The fuzz target that this program is linked with, and what it does to a damaged copy, if anything.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" [[gnu::weak]] std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t room,
                                                             unsigned seed);

namespace penstock::test {
namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The words of a dictionary of libFuzzer: a line each, in quotes, with \xAB, \\ and \" for other bytes.
std::vector<std::string> words_of(const std::string& path) {
  std::vector<std::string> words;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::string& word = words.emplace_back();
    for (std::size_t i = 1; i + 1 < line.size(); ++i) {
      const bool is_escaped = line[i] == '\\';
      if (is_escaped) ++i;
      if (is_escaped && line[i] == 'x') {
        word += static_cast<char>(std::stoi(line.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        word += line[i];
      }
    }
  }
  return words;
}

const std::string corpus = PENSTOCK_FUZZ_CORPUS;
Random source(1);

}  // namespace
}  // namespace penstock::test

/// What libFuzzer does between the lines of a target's own mutator.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t room) {
  using namespace penstock::test;  // NOLINT(google-build-using-namespace): a function of C
  static const std::vector<std::string> words = words_of(corpus + ".dict");
  const std::string damaged =
      mutated({reinterpret_cast<const char*>(data), size}, {words.begin(), words.end()}, source);
  size = std::min(damaged.size(), room);
  if (size > 0) std::memcpy(data, damaged.data(), size);
  return size;
}

namespace penstock::test {
namespace {

std::string damaged_copy(const std::string& seed) {
  std::string copy = seed;
  copy.resize(2 * seed.size() + 4096);
  auto* const data = reinterpret_cast<std::uint8_t*>(copy.data());
  const auto mutate = [&](std::size_t size) {
    if (LLVMFuzzerCustomMutator == nullptr) return LLVMFuzzerMutate(data, size, copy.size());
    return LLVMFuzzerCustomMutator(data, size, copy.size(), static_cast<unsigned>(source.below(1 << 30)));
  };
  copy.resize(mutate(seed.size()));
  return copy;
}

void feed(const std::string& input, const std::string& name) {
  try {
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  } catch (const std::exception& error) {
    FAIL() << name << ": " << error.what() << "\n" << testing::PrintToString(input);
  }
}

TEST(Fuzz, DamagedCopiesOfTheCorpus) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(corpus)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> seeds;
  for (const auto& path : paths) {
    const long before = accepted_inputs;
    feed(seeds.emplace_back(content_of(path)), path.filename());
    EXPECT_GT(accepted_inputs, before) << path << " is refused";
  }
  ASSERT_FALSE(seeds.empty());
  for (std::size_t i = 0; i < 5000 && !HasFailure(); ++i) {
    feed(damaged_copy(seeds[i % seeds.size()]), "copy " + std::to_string(i));
  }
}

}  // namespace
}  // namespace penstock::test
