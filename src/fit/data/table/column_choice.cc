#include "data/table/column_choice.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/lower_case.h"
#include "base/quote.h"
#include "data/table/dates.h"
#include "data/table/number.h"

namespace penstock::data {

namespace {

constexpr std::size_t most_categories = 32;          // of a column that nobody named
constexpr std::size_t most_named_categories = 1000;  // of one that somebody did
constexpr std::size_t least_rows = 10;               // on average, that show each of the former

}  // namespace

ColumnChooser::ColumnChooser(const TableHeader& header, char decimal, const ColumnQuestion& question)
    : header_(header),
      decimal_(decimal),
      find_categories_(question.categories.found),
      needs_number_(question.needs_number),
      any_(question.only.empty()),
      columns_(header.width()),
      counters_(question.counters),
      series_column_(question.series),
      undecided_(columns_.size()) {
  for (const std::size_t column : question.categories.named) columns_[column].kind = Kind::named;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const auto is_in = [&](const auto& list) { return std::ranges::find(list, i) != list.end(); };
    const bool wanted = question.only.empty() || is_in(question.only) || columns_[i].kind == Kind::named;
    if (wanted && !is_in(question.excluded)) continue;
    columns_[i].kind = Kind::excluded;
    columns_[i].done = true;
    --undecided_;
  }
}

void ColumnChooser::look(const std::vector<Field>& row) {
  ++rows_;
  const std::size_t series = series_of(row);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (!columns_[i].done) look(row[i], i, series);
  }
}

void ColumnChooser::restart() {
  for (Seen& seen : columns_) {
    if (seen.counter) seen.counter->restart();
  }
}

std::size_t ColumnChooser::series_of(const std::vector<Field>& row) {
  if (!series_column_) return 0;
  return series_.try_emplace(row[*series_column_].text(), series_.size()).first->second;
}

void ColumnChooser::look(const Field& field, std::size_t column, std::size_t series) {
  Seen& seen = columns_[column];
  if (field.is_missing()) {
    seen.missing = true;
    if (seen.counter) seen.counter->look(std::nullopt, series);
    return;
  }
  if (seen.kind == Kind::unknown) {
    seen.first = field.text();
    // 20200304 is a number unless its column says otherwise.
    seen.kind = header_.looks_numeric(field)  ? Kind::number
                : field.truth()               ? Kind::truth
                : looks_like_date(seen.first) ? Kind::date
                                              : Kind::text;
    seen.maybe_dates = seen.kind == Kind::number && may_name_dates(header_.names()[column]);
    const bool named = std::ranges::find(counters_, column) != counters_.end();
    if (seen.kind == Kind::number && any_ && !named) seen.counter.emplace(header_.names()[column]);
  }
  if (seen.kind == Kind::truth) {
    look_at_truth(field, seen);
  } else {
    seen.changes = seen.changes || field.text() != seen.first;
  }
  look_at_text(field, seen);
  look_at_number(field, series, seen);
  const bool read = seen.kind == Kind::number || seen.kind == Kind::truth;
  const bool may_be_categories = seen.kind == Kind::named || (seen.kind == Kind::text && find_categories_);
  const std::size_t most = seen.kind == Kind::named ? most_named_categories : most_categories;
  seen.done =
      may_be_categories ? seen.texts.size() > most : !read || (seen.changes && !seen.maybe_dates && !seen.counter);
  if (seen.done) --undecided_;
}

/// Checks a number for dates and counters. The reader of the column reports fields that are no number.
void ColumnChooser::look_at_number(const Field& field, std::size_t series, Seen& seen) const {
  if (!seen.maybe_dates && !seen.counter) return;
  double value = 0.0;
  const bool is_number = field.number(decimal_, value) == std::errc{} && std::isfinite(value);
  if (seen.maybe_dates) seen.numbers.push_back(is_number ? value : std::nan(""));
  if (!seen.counter) return;
  seen.counter->look(is_number ? std::optional(value) : std::nullopt, series);
  if (!seen.counter->may_be()) seen.counter.reset();
}

/// A pair of opposites makes a column one of truth values: "N" may also be a wind, as another one shows that comes
/// before any "Y".
void ColumnChooser::look_at_truth(const Field& field, Seen& seen) {
  const std::string& text = field.text();
  if (lower_case(text) == lower_case(seen.first)) return;
  seen.changes = true;
  seen.other = text;
  if (!are_opposites(seen.first, text)) seen.kind = Kind::text;
}

bool ColumnChooser::is_half_a_pair(const Seen& seen) {
  return seen.kind == Kind::truth && !seen.changes && !parse_boolean(seen.first);
}

/// Collects what may be categories: of a pair that turns out to be none, too.
void ColumnChooser::look_at_text(const Field& field, Seen& seen) const {
  if (seen.kind != Kind::named && (seen.kind == Kind::number || seen.kind == Kind::date || !find_categories_)) return;
  if (seen.texts.size() > (seen.kind == Kind::named ? most_named_categories : most_categories)) return;
  if (std::ranges::find(seen.texts, field.text()) == seen.texts.end()) seen.texts.push_back(field.text());
}

/// A single text makes a category only if other rows have no value.
bool ColumnChooser::are_categories(std::size_t column) const {
  const Seen& seen = columns_[column];
  if (seen.kind == Kind::named) return true;
  const bool few =
      seen.texts.size() <= most_categories && seen.texts.size() * least_rows <= static_cast<std::size_t>(rows_);
  const bool tells = seen.texts.size() > 1 || seen.missing;
  const bool index = column == 0 && header_.is_unnamed(0) && columns_.size() > 1;
  return (seen.kind == Kind::text || is_half_a_pair(seen)) && find_categories_ && few && tells && !index;
}

std::string ColumnChooser::reason(std::size_t column) const {
  const Seen& seen = columns_[column];
  if (column == 0 && header_.is_unnamed(0) && columns_.size() > 1) return "no name";
  if (seen.kind == Kind::unknown) return "no values";
  if (seen.kind == Kind::date) return "dates";
  if (seen.kind == Kind::text || is_half_a_pair(seen)) return "text";
  if (seen.maybe_dates && number_form(header_.names()[column], seen.numbers)) return "dates";
  return seen.changes || rows_ == 1 ? "" : "always the same";
}

void ColumnChooser::check_named(std::size_t column) const {
  const std::size_t count = columns_[column].texts.size();
  const auto refuse = [&](const std::string& what) {
    fail(ErrorCode::bad_input, "{}: column {} {}", header_.source(), in_quotes(header_.names()[column]), what);
  };
  if (count == 0) refuse("has no values");
  if (count > most_named_categories) {
    refuse(fmt::format("has more than {} different values, too many to be categories", most_named_categories));
  }
}

OpenTable::TruthColumn ColumnChooser::truth(std::size_t column) const {
  const Seen& seen = columns_[column];
  const bool yes = parse_truth(seen.first) == 1.0;
  return {column, yes ? seen.first : seen.other, yes ? seen.other : seen.first};
}

/// Unless nothing else is left.
void ColumnChooser::leave_out_counters(OpenTable::Choice& choice) const {
  const auto counts = [&](std::size_t column) {
    const auto& counter = columns_[column].counter;
    return counter && !counter->what().empty();
  };
  const bool only_counters = std::ranges::all_of(choice.columns, counts);
  if (only_counters && (needs_number_ || choice.categories.empty())) return;
  for (const std::size_t column : choice.columns) {
    if (counts(column)) choice.left_out.push_back({column, columns_[column].counter->what()});
  }
  std::erase_if(choice.columns, counts);
  std::ranges::sort(choice.left_out, {}, &OpenTable::LeftOut::column);
}

OpenTable::Choice ColumnChooser::choice() const {
  OpenTable::Choice choice;
  bool constant = false;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].kind == Kind::excluded) continue;
    if (are_categories(i)) {
      check_named(i);
      choice.categories.push_back({i, columns_[i].texts});
      continue;
    }
    const std::string why = reason(i);
    constant = constant || why == "always the same";
    if (why.empty()) {
      choice.columns.push_back(i);
      if (columns_[i].kind == Kind::truth) choice.truths.push_back(truth(i));
    } else {
      choice.left_out.push_back({i, why});
    }
  }
  leave_out_counters(choice);
  if (!any_) choice.left_out.clear();
  const bool none = any_ && choice.columns.empty() && (needs_number_ || choice.categories.empty());
  if (none && constant) {
    fail(ErrorCode::bad_input, "{}: no numeric column changes, so there is nothing to learn from among {}",
         header_.source(), header_.list());
  }
  if (none) {
    fail(ErrorCode::bad_input, "{}: no numeric column to use as input among {}", header_.source(), header_.list());
  }
  return choice;
}

}  // namespace penstock::data
