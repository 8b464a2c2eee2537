#include <utility>

#include "base/check.h"
#include "base/plural.h"
#include "data/data_file.h"
#include "data/stream_dataset.h"
#include "data/text_encoding.h"
#include "penstock/data/source.h"
#include "penstock/data/text.h"

namespace penstock {
namespace {

/// Step p reads byte p and is asked for byte p + 1; the last training byte is the first input of validation, so every
/// held-out byte is asked for once.
class TextDataset final : public data::StreamDataset {
 public:
  TextDataset(std::string text, Index held_out)
      : StreamDataset("text", static_cast<Index>(text.size()) - held_out - 1, held_out), text_(std::move(text)) {
    description_.task = Task::language;
    description_.vocabulary = 256;
    fingerprint_ = data::fingerprint(text_, static_cast<std::uint64_t>(held_out));
  }

 private:
  std::int32_t byte(Index i) const { return static_cast<unsigned char>(text_[i]); }

  void fill(const std::vector<Index>& places, Part /*part*/, Example& example) const override {
    example.tokens.reserve(places.size());
    example.labels.reserve(places.size());
    for (const Index place : places) {
      example.tokens.push_back(place < 0 ? 0 : byte(place));
      example.labels.push_back(place < 0 ? -1 : byte(place + 1));
    }
  }

  std::string text_;
};

}  // namespace

std::unique_ptr<Dataset> open_text(const std::string& path, const TextOptions& options) {
  return open_text(Sources{path}, options);
}

std::unique_ptr<Dataset> open_text(const Sources& sources, const TextOptions& options) {
  data::check_validation_fraction(options.validation_fraction);
  const Sources files = io::files_to_read(sources);
  require(!files.empty(), "sources must name at least one file");
  std::string text;
  for (const std::string& file : files) {
    std::string content = io::read_data_file(file, largest_source - text.size());
    if (!options.bytes) content = io::as_utf8(std::move(content), file);
    const std::string kind = options.bytes ? "" : io::binary_kind(content);
    if (!kind.empty()) {
      const std::string advice = io::table_advice(kind);
      const Message anyway = {the_option("bytes"), " reads it anyway"};
      fail_with(ErrorCode::bad_input, advice.empty() ? anyway : Message(), "{}: this is {}, not a text{}", file, kind,
                advice);
    }
    if (content.empty()) fail(ErrorCode::bad_input, "{}: the file is empty", file);
    text = text.empty() ? std::move(content) : text + content;
  }
  const auto size = static_cast<Index>(text.size());
  const Index held_out = data::held_out(size, options.validation_fraction);
  if (size - held_out < 2) {
    fail(ErrorCode::bad_input, "{}: a text of {} is too short: training needs two and validation one", files.front(),
         counted(size, "byte"));
  }
  auto dataset = std::make_unique<TextDataset>(std::move(text), held_out);
  if (files.size() > 1) dataset->add_reading(fmt::format("{} files, one after the other", files.size()));
  return dataset;
}

}  // namespace penstock
