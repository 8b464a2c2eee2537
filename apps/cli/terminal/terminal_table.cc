#include "terminal/terminal_table.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "options/options.h"

namespace penstock::cli {
namespace {

using Row = std::vector<std::string>;

bool is_row(const std::string& line) { return line.starts_with('|'); }
bool is_rule(const std::string& line) { return line.starts_with("|-"); }

Row fields_of(const std::string& line) {
  Row fields;
  for (std::string field : CLI::detail::split(line.substr(1, line.rfind('|') - 1), '|')) {
    fields.push_back(CLI::detail::trim(field));
  }
  return fields;
}

/// Characters, as far as UTF-8 shows them.
std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

class TableWriter {
 public:
  explicit TableWriter(std::vector<Row> rows) : rows_(std::move(rows)), widths_(rows_[0].size(), 0) {
    for (Row& row : rows_) {
      row.resize(widths_.size());
      for (std::size_t c = 0; c < row.size(); ++c) widths_[c] = std::max(widths_[c], columns_of(row[c]));
    }
  }

  std::string text(std::size_t width) {
    const std::size_t kept = keys(width);
    std::string out;
    std::size_t next = kept;
    do {
      std::vector<std::size_t> chosen;
      std::size_t used = 0;
      for (std::size_t c = 0; c < kept; ++c) take(c, chosen, used);
      do {
        if (next < widths_.size()) take(next++, chosen, used);
      } while (next < widths_.size() && used + gap + widths_[next] <= width);
      out += (out.empty() ? "" : "\n") + lines(chosen);
    } while (next < widths_.size());
    return out;
  }

 private:
  static constexpr std::size_t gap = 2;

  /// The first columns tell the rows apart: as many as it takes, if they leave room for others.
  std::size_t keys(std::size_t width) const {
    std::size_t used = 0;
    for (std::size_t count = 1; count <= widths_.size(); ++count) {
      used += widths_[count - 1] + gap;
      if (used > width / 2) return std::max<std::size_t>(1, count - 1);
      std::vector<Row> seen;
      for (std::size_t r = 1; r < rows_.size(); ++r)
        seen.emplace_back(rows_[r].begin(), rows_[r].begin() + static_cast<std::ptrdiff_t>(count));
      std::sort(seen.begin(), seen.end());
      if (std::adjacent_find(seen.begin(), seen.end()) == seen.end()) return count;
    }
    return 1;
  }

  void take(std::size_t column, std::vector<std::size_t>& chosen, std::size_t& used) const {
    used += widths_[column] + (chosen.empty() ? 0 : gap);
    chosen.push_back(column);
  }

  std::string lines(const std::vector<std::size_t>& chosen) const {
    std::string out;
    for (const Row& row : rows_) {
      std::string line;
      for (const std::size_t c : chosen) line += row[c] + std::string(widths_[c] - columns_of(row[c]) + gap, ' ');
      out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return out;
  }

  std::vector<Row> rows_;
  std::vector<std::size_t> widths_;
};

}  // namespace

std::string for_terminal(const std::string& markdown, std::size_t width) {
  std::string out;
  std::vector<Row> table;
  const auto end_table = [&] {
    if (!table.empty()) out += TableWriter(std::move(table)).text(width);
    table.clear();
  };
  for (const std::string& line : CLI::detail::split(markdown, '\n')) {
    if (is_row(line)) {
      if (!is_rule(line)) table.push_back(fields_of(line));
      continue;
    }
    end_table();
    for (const std::string& part : wrap(line, width)) out += part + "\n";
  }
  end_table();
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

}  // namespace penstock::cli
