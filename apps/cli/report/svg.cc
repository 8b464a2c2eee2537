#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "report/chart.h"
#include "report/date_texts.h"
#include "report/page.h"

namespace penstock::cli::reporting {
namespace {

constexpr int least_margin_left = 52, margin_right = 14, margin_top = 10, margin_bottom = 38;

/// The rectangle that lines are drawn in, and the numbers at its edges.
struct Frame {
  double left, top, width, height;
  Axis x, y;

  bool holds(double along, double up) const { return x.holds(along) && y.holds(up); }
  double across(double value) const { return left + width * x.place(value); }
  double down(double value) const { return top + height * (1.0 - y.place(value)); }
};

/// "12.5,30" of every point, with a blank between them.
std::string points(const Frame& frame, const std::vector<double>& x, const std::vector<double>& y, std::size_t begin,
                   std::size_t end) {
  std::string text;
  for (std::size_t i = begin; i < end; ++i) {
    text += fmt::format("{}{:.1f},{:.1f}", i == begin ? "" : " ", frame.across(x[i]), frame.down(y[i]));
  }
  return text;
}

/// Calls visit(begin, end) for each run of points without a gap.
void for_each_run(std::size_t count, const auto& drawable, const auto& visit) {
  for (std::size_t begin = 0, end = 0; begin < count; begin = ++end) {
    while (end < count && drawable(end)) ++end;
    if (end > begin) visit(begin, end);
  }
}

std::string polylines(const Frame& frame, const Line& line) {
  std::string out;
  const auto drawable = [&](std::size_t i) { return frame.holds(line.x[i], line.y[i]); };
  for_each_run(line.x.size(), drawable, [&](std::size_t begin, std::size_t end) {
    if (end - begin == 1) {
      out += fmt::format(R"(<circle class="dot c{}" cx="{:.1f}" cy="{:.1f}" r="3"/>)", line.colour % colours,
                         frame.across(line.x[begin]), frame.down(line.y[begin]));
    }
    out += fmt::format(R"(<polyline class="{}" data-name="{}" points="{}"/>)", line_class(line), html(line.name),
                       points(frame, line.x, line.y, begin, end));
  });
  return out;
}

std::string band_shape(const Frame& frame, const Band& band) {
  std::string out;
  const auto drawable = [&](std::size_t i) {
    return frame.holds(band.x[i], band.low[i]) && frame.holds(band.x[i], band.high[i]);
  };
  for_each_run(band.x.size(), drawable, [&](std::size_t begin, std::size_t end) {
    std::string shape = points(frame, band.x, band.high, begin, end);
    for (std::size_t i = end; i-- > begin;) {
      shape += fmt::format(" {:.1f},{:.1f}", frame.across(band.x[i]), frame.down(band.low[i]));
    }
    out += fmt::format(R"(<polygon class="band c{}" points="{}"/>)", band.colour % colours, shape);
  });
  return out;
}

std::string grid(const Frame& frame) {
  std::string out;
  const double right = frame.left + frame.width, bottom = frame.top + frame.height;
  for (std::size_t i = 0; i < frame.y.ticks.size(); ++i) {
    const double y = frame.down(frame.y.ticks[i]);
    out +=
        fmt::format(R"(<line class="grid" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", frame.left, y, right, y);
    out += fmt::format(R"(<text class="tick end" x="{:.1f}" y="{:.1f}">{}</text>)", frame.left - 6, y + 4,
                       frame.y.labels[i]);
  }
  for (std::size_t i = 0; i < frame.x.ticks.size(); ++i) {
    out += fmt::format(R"(<text class="tick middle" x="{:.1f}" y="{:.1f}">{}</text>)", frame.across(frame.x.ticks[i]),
                       bottom + 16, frame.x.labels[i]);
  }
  return out + fmt::format(R"(<line class="axis" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", frame.left,
                           bottom, right, bottom);
}

}  // namespace

std::string_view to_string(Line::Style style) {
  constexpr std::string_view names[] = {"solid", "faint", "dashed", "neutral"};
  return names[static_cast<std::size_t>(style)];
}

std::string line_class(const Line& line) {
  const std::string style = line.style == Line::Style::solid ? "" : fmt::format(" {}", to_string(line.style));
  return fmt::format("line c{}{}{}", line.colour % colours, style, line.colour >= colours ? " dotted" : "");
}

std::string svg(const Chart& chart, int width, int height) {
  const Axis y = y_axis(chart);
  int margin_left = least_margin_left;
  constexpr int digit = 7, room = 10;  // pixels of a digit, and beside it
  for (const std::string& label : y.labels)
    margin_left = std::max(margin_left, digit * static_cast<int>(label.size()) + room);
  const Frame frame{.left = static_cast<double>(margin_left),
                    .top = margin_top,
                    .width = static_cast<double>(width - margin_left - margin_right),
                    .height = static_cast<double>(height - margin_top - margin_bottom),
                    .x = x_axis(chart, width),
                    .y = y};
  std::string out = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}" data-frame="{} {} {} {}" )",
                                width, height, html(chart.title), frame.left, frame.top, frame.width, frame.height);
  out += fmt::format(R"(data-x="{} {}" data-y="{} {} {}" data-xname="{}")", frame.x.from, frame.x.to, frame.y.from,
                     frame.y.to, frame.y.logarithmic ? "log" : "linear", html(chart.x_name));
  if (!chart.dates.empty()) {
    out += fmt::format(R"( data-row="{}" data-dates="{}")", chart.first_row, fmt::join(date_texts(chart.dates), "|"));
  }
  out += '>';
  out += grid(frame);
  for (const Band& band : chart.bands) out += band_shape(frame, band);
  for (const Line& line : chart.lines) out += polylines(frame, thinned(line, static_cast<std::size_t>(width)));
  out += fmt::format(R"(<text class="name middle" x="{:.1f}" y="{}">{}</text>)", frame.left + frame.width / 2,
                     height - 4, html(chart.x_name));
  return out + "</svg>";
}

Json chart_json(const Chart& chart) {
  Json lines = Json::array(), bands = Json::array();
  for (const Line& line : chart.lines) {
    lines.push_back(
        {{"name", line.name}, {"colour", line.colour}, {"style", to_string(line.style)}, {"x", line.x}, {"y", line.y}});
  }
  for (const Band& band : chart.bands) {
    bands.push_back(
        {{"name", band.name}, {"colour", band.colour}, {"x", band.x}, {"low", band.low}, {"high", band.high}});
  }
  Json json = {{"id", chart.id},         {"title", chart.title},      {"note", chart.note},
               {"x_name", chart.x_name}, {"y_name", chart.y_name},    {"log", chart.logarithmic},
               {"wide", chart.wide},     {"lines", std::move(lines)}, {"bands", std::move(bands)}};
  if (!chart.dates.empty()) {
    constexpr int width = 1000, narrow = 420;  // as on the page
    const Axis axis = x_axis(chart, chart.wide ? width : narrow);
    json["ticks"] = {{"places", axis.ticks}, {"labels", axis.labels}};
  }
  return json;
}

}  // namespace penstock::cli::reporting
