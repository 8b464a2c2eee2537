#include "penstock/classify/labels.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/quote.h"
#include "data/table/open_table.h"
#include "data/table/text_columns.h"
#include "penstock/data/dataset.h"
#include "penstock/data/labelled_texts.h"
#include "penstock/data_description.h"
#include "penstock/sources.h"
#include "penstock/stop.h"

// Labels of texts by models of labelled texts, and their accuracy.
namespace penstock {

namespace {

using data::OpenTable;

/// Names of columns stand where training found them.
OpenTable open(const TableSources& sources, const DataDescription& data, TableFormat format) {
  format.header = format.header.value_or(data.table.header);
  return {sources, format};
}

std::vector<TextRow> read_rows(const OpenTable& table, const DataDescription& data,
                               const std::vector<std::size_t>& kept) {
  const std::size_t text = table.column(data.labels.text_column, "the model's text_column");
  std::vector<TextRow> result;
  for (auto rows = table.rows(); rows.next();) {
    TextRow row{.text = rows.fields()[text].text(), .kept = {}};
    for (const std::size_t column : kept) row.kept.push_back(rows.fields()[column].text());
    result.push_back(std::move(row));
  }
  return result;
}

/// Writes the logits [texts, classes] of the texts `rows`, which are of similar length: runs them from their first
/// bytes to the last ones, some steps at a time.
void label(const Model& model, std::span<const std::size_t> rows, std::span<const std::vector<std::int32_t>> texts,
           const Execution& execution, std::span<float> logits) {
  constexpr std::size_t most_steps = 256, step_unit = 32;
  const auto classes = static_cast<std::size_t>(model.data().output_size());
  const std::size_t longest = texts[rows.back()].size();
  ModelState state = model.state(static_cast<Index>(rows.size()));
  std::vector<std::int32_t> tokens;
  std::vector<float> outputs;
  for (std::size_t first = 0; first < longest; first += most_steps) {
    stop_if_asked();
    // Few different numbers of steps: each is a program by itself.
    const std::size_t steps = (std::min(longest - first, most_steps) + step_unit - 1) / step_unit * step_unit;
    tokens.assign(rows.size() * steps, 0);
    for (std::size_t b = 0; b < rows.size(); ++b) {
      const std::vector<std::int32_t>& text = texts[rows[b]];
      const std::size_t end = std::min(text.size(), first + steps);
      for (std::size_t t = first; t < end; ++t) tokens[b * steps + t - first] = text[t];
    }
    outputs.resize(tokens.size() * classes);
    model.forward(static_cast<Index>(rows.size()), static_cast<Index>(steps), tokens, outputs, state, execution);
    for (std::size_t b = 0; b < rows.size(); ++b) {
      const std::size_t last = texts[rows[b]].size() - 1;
      if (last < first || last >= first + steps) continue;
      const auto own = std::span(outputs).subspan((b * steps + last - first) * classes, classes);
      std::ranges::copy(own, logits.begin() + static_cast<std::ptrdiff_t>(rows[b] * classes));
    }
  }
}

}  // namespace

std::vector<TextRow> read_text_rows(const TableSources& sources, const DataDescription& data, const TableFormat& given,
                                    const std::vector<std::string>& keep) {
  const OpenTable table = open(sources, data, given);
  std::vector<std::size_t> kept;
  for (const std::string& name : keep) kept.push_back(table.column(name, "keep"));
  return read_rows(table, data, kept);
}

std::vector<float> label_texts(const Model& model, std::span<const std::string_view> texts,
                               const Execution& execution) {
  const DataDescription& data = model.data();
  require(data.labels_texts(), "the model is not for labelled texts");
  std::vector<std::vector<std::int32_t>> tokens;
  for (const std::string_view text : texts) tokens.push_back(text_tokens(data, text));
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return tokens[i].size(); });
  std::vector<float> logits(texts.size() * static_cast<std::size_t>(data.output_size()));
  constexpr std::size_t most_rows = 64;
  for (std::size_t first = 0; first < order.size(); first += most_rows) {
    const auto rows = std::span(order).subspan(first, std::min(most_rows, order.size() - first));
    label(model, rows, tokens, execution, logits);
  }
  return logits;
}

LabelScore score_labelled_texts(const Model& model, const TableSources& sources, const std::string& label_column,
                                const Execution& execution) {
  const DataDescription& data = model.data();
  const OpenTable table = open(sources, data, {});
  const auto usual = label_column.empty() ? data::usual_label(table.header()) : std::nullopt;
  const std::size_t label =
      usual ? *usual : table.column(label_column.empty() ? "label" : label_column, "label_column");
  const std::vector<TextRow> rows = read_rows(table, data, {label});
  std::vector<std::string_view> texts;
  std::vector<std::size_t> truths;
  for (const TextRow& row : rows) {
    const auto truth = std::ranges::find(data.labels.classes, row.kept.front());
    if (truth == data.labels.classes.end()) {
      fail(ErrorCode::bad_input, "{}: label {} is none that the model knows", table.header().source(),
           in_quotes(row.kept.front()));
    }
    texts.emplace_back(row.text);
    truths.push_back(static_cast<std::size_t>(truth - data.labels.classes.begin()));
  }
  const std::size_t classes = data.labels.classes.size();
  const std::vector<float> logits = label_texts(model, texts, execution);
  std::vector<std::vector<Index>> confusion(classes, std::vector<Index>(classes, 0));
  for (std::size_t i = 0; i < truths.size(); ++i) {
    const auto own = std::span(logits).subspan(i * classes, classes);
    ++confusion[truths[i]][static_cast<std::size_t>(std::ranges::max_element(own) - own.begin())];
  }
  return score_labels(std::move(confusion));
}

}  // namespace penstock
