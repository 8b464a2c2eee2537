#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "bench/suite/report.h"

namespace penstock::bench {
namespace {

using Outcome = Entry::Outcome;
using Row = std::vector<std::string>;

/// A table whose columns line up, so that it reads in a terminal as well.
std::string aligned(const Row& head, const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < head.size(); ++c) {
    std::size_t width = std::max<std::size_t>(3, head[c].size());
    for (const Row& row : rows) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  std::string text;
  const auto write = [&](const Row& row) {
    for (std::size_t c = 0; c < row.size(); ++c) text += fmt::format("| {:<{}} ", row[c], widths[c]);
    text += "|\n";
  };
  write(head);
  for (const std::size_t width : widths) text += fmt::format("|{}", std::string(width + 2, '-'));
  text += "|\n";
  for (const Row& row : rows) write(row);
  return text;
}

/// Three significant digits; two of a value below a tenth.
std::string digits(double value) {
  const double size = std::abs(value);
  return size >= 100.0  ? fmt::format("{:.0f}", value)
         : size >= 10.0 ? fmt::format("{:.1f}", value)
         : size >= 1.0  ? fmt::format("{:.2f}", value)
         : size >= 0.1  ? fmt::format("{:.3f}", value)
                        : fmt::format("{:.2g}", value);
}

struct Unit {
  const char* name;
  double per_second;
};

Unit unit_of(const Table& table) {
  return table.percentiles || table.passes.front() == Pass::step ? Unit{"us", 1e6} : Unit{"ms", 1e3};
}

std::string shown_time(const Entry& entry, const Unit& unit) {
  switch (entry.outcome) {
    case Outcome::timed:
      return digits(entry.time.median * unit.per_second);
    case Outcome::wrong:
      return "WRONG";
    case Outcome::failed:
      return "failed";
    case Outcome::untimed:
      return "not timed";
    case Outcome::skipped:
      break;
  }
  return "-";
}

bool is_timed(const Entry* entry) { return entry != nullptr && entry->outcome == Outcome::timed; }

/// A percentile of fewer calls than this would be their slowest.
constexpr Index calls_for_99 = 100, calls_for_999 = 1000;

std::string shown_percentile(const Entry& entry, double seconds, Index fewest, const Unit& unit) {
  return is_timed(&entry) && entry.time.samples >= fewest ? digits(seconds * unit.per_second) : "-";
}

/// "12.3 (1.84x)": a peer's time, and its ratio to ours; in a table of percentiles "12.3, p99 15.0 (1.84x)".
std::string shown_peer(const Line& line, const Entry& entry, const Unit& unit) {
  const Entry& first = line.entries.front();
  std::string text = shown_time(entry, unit);
  if (is_timed(&entry) && is_timed(&first)) {
    if (line.test.each_call && entry.time.samples >= calls_for_99) {
      text += ", p99 " + shown_percentile(entry, entry.time.percentile_99, calls_for_99, unit);
    }
    text += fmt::format(" ({:.2f}x)", entry.time.median / first.time.median);
    if (!entry.note.empty()) text += "*";
    if (entry.loses_digits) text += fmt::format(" error {:.0e}!", entry.error);
  }
  return text;
}

/// "16,1024,768,768", with several heads "16,1024,768,12x64".
std::string shown_shape(const Shape& s) {
  const std::string hidden =
      s.heads == 1 ? fmt::format("{}", s.hidden) : fmt::format("{}x{}", s.heads, s.hidden / s.heads);
  return fmt::format("{},{},{},{}", s.rows, s.steps, s.inputs, hidden);
}

/// The rate that we reach: GFLOP/s of the products, or GB/s where a case only reads and writes.
std::string shown_rate(const Line& line) {
  const Entry& first = line.entries.front();
  if (!is_timed(&first)) return "-";
  constexpr double giga = 1e9;
  if (line.limit.bytes > 0.0) return digits(line.limit.bytes / first.time.median / giga) + " GB/s";
  const double rate = line.limit.flops / first.time.median / giga;
  constexpr double many = 10000.0, kilo = 1000.0;
  return rate < many ? digits(rate) + " GFLOP/s" : digits(rate / kilo) + " TFLOP/s";
}

/// The limit as a share of our time; "-" if the limit was measured wrong.
std::string shown_share_of_limit(const Line& line) {
  const Entry& first = line.entries.front();
  if (!is_timed(&first) || !line.has_sound_limit()) return "-";
  return fmt::format("{:.0f} %", 100 * line.limit.seconds / first.time.median);
}

/// Shares of our time: the products with the input and the recurrence at the speed of the limits, and the rest (gates,
/// memory, packing, waiting).
std::string shown_shares(const Line& line) {
  const Entry& first = line.entries.front();
  if (!is_timed(&first) || !line.has_sound_limit()) return "-";
  const double total = first.time.median;
  const double input = line.limit.input / total, recurrent = line.limit.recurrent / total;
  return fmt::format("{:.0f} + {:.0f} + {:.0f} %", 100 * input, 100 * recurrent,
                     100 * std::max(0.0, 1 - input - recurrent));
}

/// The line of B = 1 that is otherwise equal; null if there is none.
const Line* alone(const Measured& measured, const Case& test) {
  const auto same = std::ranges::find_if(measured.lines, [&](const Line& line) {
    const Case& other = line.test;
    return other.shape.rows == 1 && other.cell == test.cell && other.threads == test.threads &&
           other.pass == test.pass && other.dtype == test.dtype && other.shape.steps == test.shape.steps &&
           other.shape.inputs == test.shape.inputs && other.shape.hidden == test.shape.hidden &&
           other.shape.heads == test.shape.heads;
  });
  return same == measured.lines.end() ? nullptr : &*same;
}

std::string shown_speed_up(const Measured& measured, const Line& line) {
  const Line* one = alone(measured, line.test);
  const Entry& first = line.entries.front();
  if (one == nullptr || !is_timed(&first) || !is_timed(&one->entries.front())) return "-";
  const double rows = static_cast<double>(line.test.shape.rows);
  return fmt::format("{:.2f}x", rows * one->entries.front().time.median / first.time.median);
}

/// Contenders that took part in any case, in the order of the table.
std::vector<std::string> columns(const Measured& measured) {
  std::vector<std::string> names;
  for (const Line& line : measured.lines) {
    for (const Entry& entry : line.entries) {
      const bool known = std::ranges::find(names, entry.name) != names.end();
      if (!known && entry.outcome != Outcome::skipped) names.push_back(entry.name);
    }
  }
  return names;
}

/// Lists why contenders are missing or failed, each reason once: "onnxruntime has no slstm (4 cases)".
std::string notes(const Measured& measured) {
  std::vector<std::pair<std::string, int>> reasons;
  for (const Line& line : measured.lines) {
    for (const Entry& entry : line.entries) {
      if (entry.note.empty() || entry.note == "is not here") continue;
      const bool skipped = entry.outcome == Outcome::skipped;
      const std::string text = entry.outcome == Outcome::timed ? fmt::format("\\* {} {}", entry.name, entry.note)
                               : skipped                       ? fmt::format("{} {}", entry.name, entry.note)
                                         : fmt::format("{} in {}: {}", entry.name, line.test.label(), entry.note);
      const auto known = std::ranges::find(reasons, text, &std::pair<std::string, int>::first);
      if (known == reasons.end()) {
        reasons.emplace_back(text, 1);
      } else {
        ++known->second;
      }
    }
  }
  std::string text;
  for (const auto& [reason, count] : reasons) {
    text += fmt::format("- {}{}\n", reason, count == 1 ? "" : fmt::format(" ({} cases)", count));
  }
  const std::string wrong = wrong_limits(measured);
  if (!wrong.empty()) text += "- " + wrong + "\n";
  return text.empty() ? text : "\n" + text;
}

std::string table_text(const Measured& measured) {
  const Table& table = *measured.table;
  const Unit unit = unit_of(table);
  const std::vector<std::string> names = columns(measured);
  const std::string& ours = table.ours.front();
  Row head = {"cell", "B,T,I,H", "pass", "thr", fmt::format("{} {}", ours, unit.name), "min - max"};
  if (table.percentiles) head.insert(head.end(), {"p99", "p99.9"});
  if (table.per_sequence) head.insert(head.end(), {"sequences/s", "per sequence"});
  for (const char* name : {"rate", "limit", "of limit", "bound by", "input + recurrence + rest"})
    head.emplace_back(name);
  for (const std::string& name : names) {
    if (name != ours) head.push_back(name);
  }
  head.emplace_back("error");
  std::vector<Row> rows;
  for (const Line& line : measured.lines) {
    const Entry& first = line.entries.front();
    const Shape& s = line.test.shape;
    Row row = {line.test.cell,
               shown_shape(s),
               fmt::format("{} {}", to_string(line.test.pass), line.test.dtype),
               fmt::format("{}", line.test.threads),
               shown_time(first, unit),
               is_timed(&first) ? fmt::format("{} - {}", digits(first.time.minimum * unit.per_second),
                                              digits(first.time.maximum * unit.per_second))
                                : "-"};
    if (table.percentiles) {
      row.push_back(shown_percentile(first, first.time.percentile_99, calls_for_99, unit));
      row.push_back(shown_percentile(first, first.time.percentile_999, calls_for_999, unit));
    }
    if (table.per_sequence) {
      row.push_back(is_timed(&first) ? digits(static_cast<double>(s.rows) / first.time.median) : "-");
      row.push_back(shown_speed_up(measured, line));
    }
    row.push_back(shown_rate(line));
    row.push_back(digits(line.limit.seconds * unit.per_second));
    row.push_back(shown_share_of_limit(line));
    row.push_back(line.limit.bound);
    row.push_back(shown_shares(line));
    for (const std::string& name : names) {
      if (name == ours) continue;
      const Entry* entry = line.find(name);
      row.push_back(entry == nullptr ? "-" : shown_peer(line, *entry, unit));
    }
    row.push_back(first.tolerance > 0.0 ? fmt::format("{:.1e} of {:.1e}", first.error, first.tolerance) : "-");
    rows.push_back(row);
  }
  return fmt::format("\n## {}\n\n`penstock bench {}`. {}\n\n{}{}", table.title, table.name, table.about,
                     aligned(head, rows), notes(measured));
}

/// The speeds that the limits rest on, a row for each size and a column for each number of threads.
std::string limits_text(const Report& report) {
  if (report.settings.device == "cuda") return "";
  constexpr double giga = 1e9, kibi = 1024;
  std::vector<int> threads;
  for (const auto& [key, rate] : report.limits.product_rates()) threads.push_back(key.second);
  for (const auto& [key, rate] : report.limits.read_rates()) threads.push_back(key.first);
  std::ranges::sort(threads);
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  if (threads.empty()) return "";
  Row head = {"speed"};
  for (const int count : threads) head.push_back(fmt::format("{} thr", count));
  std::vector<Row> rows;
  const auto enter = [&](const std::string& what, int count, const std::string& rate) {
    auto row = std::ranges::find(rows, what, [](const Row& known) { return known.front(); });
    if (row == rows.end()) {
      rows.emplace_back(head.size(), "-").front() = what;
      row = rows.end() - 1;
    }
    (*row)[static_cast<std::size_t>(std::ranges::find(threads, count) - threads.begin()) + 1] = rate;
  };
  for (const auto& [key, rate] : report.limits.product_rates()) {
    enter("products of [1024, 1024] matrices, " + key.first, key.second, digits(rate / giga) + " GFLOP/s");
  }
  for (const auto& [key, rate] : report.limits.read_rates()) {
    enter(fmt::format("reading {:.0f} KiB", key.second / kibi), key.first, digits(rate / giga) + " GB/s");
  }
  return "\nThe limits rest on these speeds, measured in the same run:\n\n" + aligned(head, rows);
}

std::string preamble(const Report& report) {
  const Machine& machine = report.machine;
  const SystemInfo& system = machine.system;
  constexpr double giga = 1e9;
  std::string text = fmt::format(
      "# Benchmarks on a {}\n\n    {}\n\n* **Machine:** Penstock {} ({}) on {}, {} thread{}, {:.0f} GB, {}; {}; {}; "
      "load "
      "{:.2f} at the start; {} UTC.\n",
      report.settings.device == "cuda" ? "GPU" : "CPU", report.command, system.version, system.isa, system.cpu,
      system.threads, system.threads == 1 ? "" : "s", machine.memory_bytes / giga, machine.kernel, machine.compiler,
      system.gemm, machine.load, machine.date);
  if (!machine.gpu.gpus.empty()) {
    text += fmt::format(
        "* **GPU:** {}, driver for CUDA {}, NVRTC {}, cuBLASLt {}; timed with CUDA events, L2 overwritten before each "
        "call.\n",
        machine.gpu.gpus.front().name, machine.gpu.driver, machine.gpu.compiler, machine.gpu.products);
  }
  std::string here, missing;
  for (const Peer& peer : report.peers) {
    std::string& list = peer.missing.empty() ? here : missing;
    if (!list.empty()) list += ", ";
    list += peer.missing.empty() ? fmt::format("{} {}", peer.name, peer.version)
                                 : fmt::format("{} ({})", peer.name, peer.missing);
  }
  if (!here.empty())
    text += fmt::format("* **Peers:** {}{}.\n", here, report.python.empty() ? "" : "; Python " + report.python);
  if (!missing.empty()) text += fmt::format("* **Peers left out:** {}.\n", missing);
  text += fmt::format(
      "* **Times** are medians of the calls within {} s, in {} turns in which the contenders of a row alternate. "
      "\"(1.50x)\" means 1.50 times Penstock's time.\n"
      "* **Correctness:** every result was compared with double precision in the same run; a wrong result has no time. "
      "Compared are all steps of the first and the last row (of the first alone where that takes minutes), and for "
      "training the gradients of x and of all weights.\n"
      "* **error** is Penstock's largest error and the tolerance, both relative to the largest value. \"error 2e-02!\" "
      "after a peer's time: its error is larger than Penstock's may be.\n"
      "* **limit** is the least time for the arithmetic and the memory traffic of the case. The next columns say which "
      "share of Penstock's time that is, and what bounds it (\"reading R\": reading the recurrent weights in every "
      "step).\n"
      "* **input + recurrence + rest** are shares of Penstock's time: the products with the input and the recurrence, "
      "both at the speed of the limits, and the rest (gates, sequences in memory, packing, waiting).\n",
      report.settings.seconds, report.settings.rounds);
  if (report.interrupted) text += "\nThe run was interrupted; the page has the results up to then.\n";
  return text;
}

/// Breaks paragraphs and list items at blanks into lines of at most `width` characters. Tables, headings and code stay.
std::string wrapped(const std::string& page, std::size_t width) {
  std::string out;
  for (std::size_t begin = 0; begin < page.size();) {
    const std::size_t end = std::min(page.find('\n', begin), page.size());
    std::string line = page.substr(begin, end - begin);
    begin = end + 1;
    const bool prose = !line.starts_with("|") && !line.starts_with("#") && !line.starts_with("    ");
    const std::string indent = line.starts_with("* ") || line.starts_with("- ") ? "  " : "";
    while (prose && line.size() > width) {
      const std::size_t blank = line.rfind(' ', width);
      if (blank == std::string::npos || blank < indent.size()) break;
      out += line.substr(0, blank) + "\n";
      line = indent + line.substr(blank + 1);
    }
    out += line + "\n";
  }
  return out;
}

}  // namespace

std::string report_markdown(const Report& report, std::size_t width) {
  std::string text = preamble(report) + limits_text(report);
  for (const Measured& measured : report.tables) {
    if (!measured.lines.empty()) text += table_text(measured);
  }
  return width == 0 ? text : wrapped(text, width);
}

}  // namespace penstock::bench
