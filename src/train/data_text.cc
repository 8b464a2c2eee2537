#include <utility>

#include "base/check.h"
#include "io/read_file.h"
#include "train/stream_dataset.h"

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
  data::check_validation_fraction(options.validation_fraction);
  std::string text = io::read_file(path, data::largest_file);
  const auto size = static_cast<Index>(text.size());
  if (size == 0) fail(ErrorCode::bad_input, "{}: the file is empty", path);
  const Index held_out = data::held_out(size, options.validation_fraction);
  if (size - held_out < 2) {
    fail(ErrorCode::bad_input, "{}: {} bytes are too few: training needs two and validation one", path, size);
  }
  return std::make_unique<TextDataset>(std::move(text), held_out);
}

}  // namespace penstock
