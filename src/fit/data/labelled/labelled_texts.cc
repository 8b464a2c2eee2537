#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/plural.h"
#include "base/quote.h"
#include "data/dataset.h"
#include "data/labelled/labelled_passes.h"
#include "data/labelled/labels.h"
#include "data/labelled/shuffle.h"
#include "data/model_to_continue.h"
#include "data/table/open_table.h"
#include "data/table/text_columns.h"
#include "penstock/data/labelled_texts.h"
#include "penstock/data_description.h"

namespace penstock {
namespace {

using data::Field;
using data::OpenTable;

struct LabelledText {
  std::vector<std::int32_t> tokens;
  std::int32_t label = 0;  // class
};

struct LabelledTexts {
  std::vector<LabelledText> rows;
  std::vector<std::string> classes;
  Index cut = 0, left_out = 0;  // rows
};

/// Returns the options with a model's columns and lengths, and checks the rest.
LabelledTextOptions settled(LabelledTextOptions options, const DataDescription* origin, const std::string& source) {
  if (origin != nullptr) {
    if (!origin->labels_texts()) fail(ErrorCode::incompatible, "{}: the model is not for labelled texts", source);
    options.text_column = origin->labels.text_column;
    options.longest = origin->labels.longest_text;
  }
  constexpr Index most = Index{1} << 20;
  require_argument(options.longest >= 1 && options.longest <= most, "longest", options.longest, "1 to {}", most);
  require_argument(options.missing == Missing::refuse || options.missing == Missing::mask, "missing",
                   to_string(options.missing), "refuse or mask for texts, which cannot be replaced by others");
  data::check_validation_fraction(options.validation_fraction);
  return options;
}

data::TextColumns columns_of(const OpenTable& table, const LabelledTextOptions& options) {
  if (!options.text_column.empty()) (void)table.column(options.text_column, "text_column");
  if (!options.label_column.empty()) (void)table.column(options.label_column, "label_column");
  const auto columns = data::find_text_columns(table, options.text_column, options.label_column);
  if (!columns) {
    fail_with(ErrorCode::bad_input, {the_option("text_column"), " and ", the_option("label_column"), " name them"},
              "{}: no column of texts with a column of their labels was found among {}", table.header().source(),
              table.header().list());
  }
  require_about(columns->text != columns->label, "text_column", " and label_column are both {}",
                in_quotes(table.header().names()[columns->text]));
  return *columns;
}

/// Returns whether a row has a text and a label. Throws Error(bad_input) for a row without, if such rows are refused.
bool is_whole(const data::TableRows& rows, const data::TextColumns& columns, Missing missing) {
  for (const std::size_t column : {columns.text, columns.label}) {
    const Field& field = rows.fields()[column];
    if (!field.text().empty()) continue;
    if (missing == Missing::mask) return false;
    fail_with(ErrorCode::bad_input, {the_option("missing", "mask"), " leaves such rows out"},
              "{}:{}:{}: column {} is empty", rows.header().source(), field.line, field.column,
              in_quotes(rows.header().names()[column]));
  }
  return true;
}

LabelledTexts read_texts(const OpenTable& table, const data::TextColumns& columns, const DataDescription& description) {
  LabelledTexts texts;
  data::LabelNumbers labels;
  for (auto rows = table.rows(); rows.next();) {
    if (!is_whole(rows, columns, description.table.missing)) {
      ++texts.left_out;
      continue;
    }
    const std::string& text = rows.fields()[columns.text].text();
    texts.cut += static_cast<Index>(text.size()) > description.labels.longest_text ? 1 : 0;
    texts.rows.push_back(
        {text_tokens(description, text), labels.number_of(rows.header().label(rows.fields(), columns.label))});
  }
  const auto sorted = labels.sort();
  for (LabelledText& row : texts.rows) row.label = sorted[row.label];
  texts.classes = labels.labels();
  return texts;
}

/// Texts in batches of similar length, each with its label at the zero behind it.
class LabelledTextDataset final : public data::LabelledPasses {
 public:
  LabelledTextDataset(DataDescription description, std::vector<LabelledText> rows, double fraction, std::uint64_t seed)
      : LabelledPasses("labelled texts", seed), rows_(std::move(rows)) {
    description_ = std::move(description);
    hold_out(fraction);
    set_fingerprint();
    begin_pass(0);
  }

 private:
  /// Holds out the same share of every label, rounded; never all of one.
  void hold_out(double fraction) {
    std::vector<Index> quota(description_.labels.classes.size(), 0);
    for (const LabelledText& row : rows_) ++quota[row.label];
    for (Index& count : quota) {
      const auto share = static_cast<Index>(std::llround(fraction * static_cast<double>(count)));
      count = std::min(std::max<Index>(count - 1, 0), share);
    }
    for (const Index i : data::shuffled(static_cast<Index>(rows_.size()), seed_, 0)) {
      Index& left = quota[static_cast<std::size_t>(row(i).label)];
      (left > 0 ? validation_ : training_).push_back(i);
      left -= left > 0 ? 1 : 0;
    }
    // Batches of similar length take less time.
    std::ranges::stable_sort(validation_, {}, [&](Index i) { return length(i); });
  }

  void set_fingerprint() {
    fingerprint_ = data::fingerprint(fmt::format("{};", validation_.size()), seed_);
    for (const LabelledText& row : rows_) {
      fingerprint_ = data::fingerprint(data::bytes_of(row.tokens), fingerprint_);
      fingerprint_ = data::fingerprint(fmt::format("{};", row.label), fingerprint_);
    }
  }

  /// Short runs are of similar length, so that batches hold little padding.
  void arrange(std::vector<Index>& order, std::uint64_t purpose) const override {
    constexpr Index chunk = 1024, run = 32;
    const auto count = static_cast<Index>(order.size());
    std::vector<Index> mixed;
    for (Index first = 0; first < count; first += chunk) {
      const auto part = std::span(order).subspan(first, std::min(chunk, count - first));
      std::ranges::stable_sort(part, {}, [&](Index i) { return length(i); });
      const auto size = static_cast<Index>(part.size());
      for (const Index i : data::shuffled((size + run - 1) / run, seed_ + static_cast<std::uint64_t>(first), purpose)) {
        const auto taken = part.subspan(i * run, std::min(run, size - i * run));
        mixed.insert(mixed.end(), taken.begin(), taken.end());
      }
    }
    order = std::move(mixed);
  }

  const LabelledText& row(Index i) const { return rows_[i]; }
  Index length(Index i) const override { return static_cast<Index>(row(i).tokens.size()); }
  std::int32_t label(Index i) const override { return row(i).label; }

  void fill_inputs(std::span<const Index> chosen, Example& example) const override {
    example.tokens.assign(static_cast<std::size_t>(example.rows * example.steps), 0);
    for (Index b = 0; b < example.rows; ++b) {
      std::ranges::copy(row(chosen[b]).tokens, example.tokens.begin() + b * example.steps);
    }
  }

  std::vector<LabelledText> rows_;
};

DataDescription describe(const OpenTable& table, const data::TextColumns& columns, const LabelledTextOptions& options) {
  DataDescription description;
  description.task = Task::classify;
  description.vocabulary = 256;
  description.labels.text_column = table.header().names()[columns.text];
  description.labels.longest_text = options.longest;
  description.table = data::describe_table(table.format(), options.missing);
  return description;
}

std::vector<Message> findings_of(const OpenTable& table, const data::TextColumns& columns, const LabelledTexts& texts,
                                 const DataDescription& description) {
  const auto& names = table.header().names();
  std::vector<Message> findings = table.reading({columns.text, columns.label}, {});
  findings.insert(
      findings.begin(),
      {fmt::format("texts from column {}, labels from column {} (", names[columns.text], names[columns.label]),
       the_option("text_column"), " and ", the_option("label_column"), " choose others)"});
  if (texts.cut > 0) {
    findings.push_back(
        {fmt::format("{} cut after {} bytes (", counted(texts.cut, "text"), description.labels.longest_text),
         the_option("longest"), ")"});
  }
  if (texts.left_out > 0) {
    findings.push_back(fmt::format("{} without a text or a label left out", counted(texts.left_out, "row")));
  }
  return findings;
}

}  // namespace

std::vector<std::int32_t> text_tokens(const DataDescription& data, std::string_view text) {
  std::vector<std::int32_t> tokens;
  for (const char c : text.substr(0, static_cast<std::size_t>(data.labels.longest_text))) {
    tokens.push_back(static_cast<unsigned char>(c));
  }
  tokens.push_back(0);
  return tokens;
}

std::unique_ptr<Dataset> open_labelled_texts(const TableSources& sources, const LabelledTextOptions& given,
                                             const DataDescription* origin) {
  const LabelledTextOptions options = settled(given, origin, sources.name());
  const OpenTable table(sources, options.format);
  const std::string& path = table.header().source();
  const data::TextColumns columns = columns_of(table, options);
  DataDescription description = describe(table, columns, options);
  LabelledTexts texts = read_texts(table, columns, description);
  if (texts.classes.size() < 2) {
    fail(ErrorCode::bad_input, "{}: {} with {}; there must be at least two labels", path,
         counted(texts.rows.size(), "text"),
         texts.classes.empty() ? "no label" : "the label " + in_quotes(texts.classes.front()) + " alone");
  }
  if (origin != nullptr) {
    const auto numbers = data::numbers_among(texts.classes, origin->labels.classes, path);
    for (LabelledText& row : texts.rows) row.label = numbers[row.label];
    texts.classes = origin->labels.classes;
  }
  std::vector<Message> findings = findings_of(table, columns, texts, description);
  description.labels.classes = std::move(texts.classes);
  auto dataset = std::make_unique<LabelledTextDataset>(std::move(description), std::move(texts.rows),
                                                       options.validation_fraction, options.seed);
  dataset->set_reading(std::move(findings));
  return dataset;
}

}  // namespace penstock
