#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/names.h"
#include "base/plural.h"
#include "data/data_file.h"
#include "data/stream_dataset.h"
#include "data/text/token_files.h"
#include "penstock/data/text.h"

namespace penstock {
namespace {

/// Step p reads token p and is asked for token p + 1; the last training token is the first input of validation, so
/// every held-out token is asked for once.
class TextDataset final : public data::StreamDataset {
 public:
  TextDataset(data::TokenFiles tokens, Index held_out)
      : StreamDataset("text", tokens.size() - held_out - 1, held_out), tokens_(std::move(tokens)) {
    description_.task = Task::language;
    description_.vocabulary = tokens_.vocabulary();
    fingerprint_ = tokens_.fingerprint(static_cast<std::uint64_t>(held_out));
  }

 private:
  /// Reads runs of places that follow each other at once.
  void fill(const std::vector<Index>& places, Part /*part*/, Example& example) const override {
    std::vector<std::int32_t> read;
    for (auto begin = places.begin(); begin != places.end();) {
      auto end = begin + 1;
      while (end != places.end() && *end == (*begin < 0 ? *begin : end[-1] + 1)) ++end;
      const auto count = end - begin;
      read.assign(static_cast<std::size_t>(count + 1), 0);
      if (*begin >= 0) tokens_.read(*begin, read);
      example.tokens.insert(example.tokens.end(), read.begin(), read.end() - 1);
      if (*begin < 0) std::fill(read.begin(), read.end(), -1);
      example.labels.insert(example.labels.end(), read.begin() + 1, read.end());
      begin = end;
    }
  }

  data::TokenFiles tokens_;
};

Index held_out_of(Index size, std::optional<double> fraction) {
  constexpr double usual = 0.05;
  const Index count = data::held_out(size, fraction.value_or(usual));
  return fraction ? count : std::min(count, most_held_out_by_default);
}

}  // namespace

TokenType parse_token_type(std::string_view text) {
  constexpr Names<3> names = {"uint8", "uint16", "uint32"};
  return parse_name<TokenType>("tokens", names, text);
}

std::unique_ptr<Dataset> open_text(const std::string& path, const TextOptions& options) {
  return open_text(Sources{path}, options);
}

std::unique_ptr<Dataset> open_text(const Sources& sources, const TextOptions& options) {
  if (options.validation_fraction) data::check_validation_fraction(*options.validation_fraction);
  const Sources files = io::files_to_read(sources);
  require(!files.empty(), "sources must name at least one file");
  data::TokenFiles tokens(files, options);
  const Index held_out = held_out_of(tokens.size(), options.validation_fraction);
  if (tokens.size() - held_out < 2) {
    fail(ErrorCode::bad_input, "{}: a text of {} is too short: training needs two and validation one", tokens.name(),
         counted(tokens.size(), tokens.are_bytes() ? "byte" : "token"));
  }
  auto dataset = std::make_unique<TextDataset>(std::move(tokens), held_out);
  if (files.size() > 1) dataset->add_reading(fmt::format("{} files, one after the other", files.size()));
  return dataset;
}

}  // namespace penstock
