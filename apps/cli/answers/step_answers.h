#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/data.h"
#include "penstock/model.h"
#include "terminal/terminal.h"

/// A model's answers to each step of its input, as text. `predict` and `stream` write the same.
namespace penstock::cli {

/// -log2 of the probability that the logits give to a token.
double surprise(std::span<const float> logits, Index token);

struct Choice {
  Index index = 0;
  double probability = 0.0;
};
/// The likeliest of the logits.
Choice likeliest(std::span<const float> logits);
/// Probabilities of all classes.
std::vector<double> probabilities(std::span<const float> logits);

/// Answers to the bytes of a text: how surprising each one was, and what is expected next. The first byte of a text was
/// expected by nobody and is not scored.
class ByteAnswers {
 public:
  enum class Style {
    silent,  ///< Only counts.
    table,   ///< Aligned columns for a person.
    bits,    ///< One number a line.
    json,    ///< JSON lines.
  };

  ByteAnswers(Output& output, Style style) : output_(output), style_(style) {}

  void header();
  /// `logits` are the model's for the byte behind this one.
  void answer(unsigned char byte, std::span<const float> logits);
  /// The next byte is the first of a new text.
  void restart() { expected_.clear(); }

  /// The logits for the byte to come, to go on with elsewhere; empty in front of the first.
  const std::vector<float>& expected() const { return expected_; }
  /// Throws Error(bad_input) unless there is one logit a byte.
  void expect(std::vector<float> logits);

  /// Returns whether anything is printed.
  bool writes() const { return style_ != Style::silent; }

  double bits() const { return bits_; }
  Index scored() const { return scored_; }

 private:
  Output& output_;
  Style style_;
  std::vector<float> expected_;  // logits for the byte to come; empty before the first
  double bits_ = 0.0;
  Index scored_ = 0;
};

/// Throws Error(numerical) unless all outputs of a model are finite.
void require_finite(std::span<const float> outputs);

/// Answers to rows: forecasts in raw units ("co2+1", "co2+2", ...), or the likeliest label and its probability.
/// Columns of the input that were asked for (`kept`) stand in front. Quantiles stand behind each forecast: "co2+1
/// q0.1".
class RowAnswers {
 public:
  RowAnswers(Output& output, const DataDescription& data, std::vector<std::string> kept, bool json,
             std::vector<double> quantiles = {});

  void header();
  /// The answers that follow are of a series whose description this is; it must live on.
  void of_series(const DataDescription& data) { data_ = &data; }
  /// The answer that follows has this distribution.
  void of_distribution(const ErrorDistribution& distribution) { distribution_ = &distribution; }
  void answer(std::span<const std::string> kept, std::span<const float> outputs);

 private:
  std::vector<std::string> cells(std::span<const float> outputs) const;
  void write_row(std::span<const std::string> front, std::span<const std::string> back);
  void write_json(std::span<const std::string> kept, std::span<const float> outputs);
  /// Returns a raw forecast, or its quantile if a level is given.
  double raw(std::span<const float> outputs, Index step, std::size_t target,
             std::optional<double> level = std::nullopt) const;

  Output& output_;
  const DataDescription* data_;
  const ErrorDistribution* distribution_;
  std::vector<std::string> kept_;
  bool json_;
  std::vector<double> quantiles_;
};

/// Throws Error unless these are levels, ascending, of quantiles that a model knows.
void check_quantiles(const Model& model, const std::string& path, std::span<const double> levels);

}  // namespace penstock::cli
