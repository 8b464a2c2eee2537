#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/data/dataset.h"

/// Datasets of texts and token ids: files as one sequence.
namespace penstock {

/// How the tokens of a file without a header are written, little-endian.
enum class TokenType { uint8, uint16, uint32 };
/// Returns the type of a name, such as "uint16". Throws Error(invalid_argument) for another name.
TokenType parse_token_type(std::string_view text);

/// Most steps that are held out of a text unless TextOptions says how many: enough for three digits of the loss, scored
/// in a minute or two.
inline constexpr Index most_held_out_by_default = Index{1} << 23;

/// Options of open_text().
struct TextOptions {
  /// Fraction of the bytes or tokens, at the end, that is held out: [0, 0.5]. Empty: 0.05, but at most
  /// `most_held_out_by_default`.
  std::optional<double> validation_fraction = std::nullopt;
  bool bytes = false;  ///< Accepts files that are not texts, such as programs and pictures.
  /// The files are arrays of token ids without a header, as nanoGPT writes them. Arrays of NumPy (.npy) need no type.
  std::optional<TokenType> tokens = std::nullopt;
  /// Number of different tokens: ids are below it. 0: 256 for ids of one byte, otherwise one more than the largest id,
  /// for which all files are read.
  Index vocabulary = 0;
};
/// Opens files as one sequence of bytes, or of token ids. They are read where they are, so they may be larger than the
/// memory; compressed ones and pipes are unpacked first, above 64 MB to a temporary file. Throws Error: io_failure if a
/// file cannot be read; bad_input for an empty file, a file that is not a text, files of different kinds, token ids
/// outside of the vocabulary, or too few steps for training and validation.
std::unique_ptr<Dataset> open_text(const Sources& sources, const TextOptions& options = {});
/// Opens one file.
std::unique_ptr<Dataset> open_text(const std::string& path, const TextOptions& options = {});

}  // namespace penstock
