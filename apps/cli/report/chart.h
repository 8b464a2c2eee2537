#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "terminal/describe.h"

namespace penstock::cli::reporting {

inline constexpr std::size_t colours = 8;  // that the style knows; beyond them lines are dotted

/// Numbers over numbers. A y that is not finite is a gap, and so is a point that an axis does not hold.
struct Line {
  enum class Style {
    solid,
    faint,    ///< Thinner and lighter: what jumps about.
    dashed,   ///< Values still to come.
    neutral,  ///< In the colour of text: the truth.
  };
  std::string name;
  std::size_t colour = 0;  ///< Number of the run, or of the line.
  Style style = Style::solid;
  std::vector<double> x = {}, y = {};
};

/// "faint"
std::string_view to_string(Line::Style style);

/// The space between two lines.
struct Band {
  std::string name;  ///< Empty: it continues the band before it, and the legend leaves it out.
  std::size_t colour = 0;
  std::vector<double> x, low, high;
};

struct Chart {
  std::string id;         ///< "gradient-norm": the name of its picture.
  std::string title;      ///< "Gradient norm"
  std::string note = {};  ///< A sentence on how to read it; may be empty.
  std::string x_name = {}, y_name = {};
  bool logarithmic = false;
  bool wide = false;  ///< Deserves the width of the page.
  std::vector<Line> lines = {};
  std::vector<Band> bands = {};

  /// If x numbers rows: their dates in seconds since the start of 1970, from row `first_row` on.
  std::vector<double> dates = {};
  double first_row = 0.0;

  bool empty() const { return lines.empty(); }
};

/// Range, ticks and labels of an axis.
struct Axis {
  double from = 0.0, to = 1.0;
  bool logarithmic = false;
  std::vector<double> ticks;
  std::vector<std::string> labels = {};  ///< Labels of the ticks.

  /// Returns whether a point can be drawn there: not beyond 1e300, where differences would overflow, and on a
  /// logarithmic axis not below 1e-300.
  bool holds(double value) const;
  /// 0 at `from`, 1 at `to`.
  double place(double value) const;
};

/// The axes that hold all finite numbers of a chart, of such a width in pixels.
Axis x_axis(const Chart& chart, int width);
Axis y_axis(const Chart& chart);
/// Returns the visible part of a line in so many points: the least and the greatest of each of `buckets` parts. Gaps
/// stay.
Line thinned(const Line& line, std::size_t buckets);

/// The classes of a line, which the style of the page draws.
std::string line_class(const Line& line);
/// An <svg> of that size, which takes its colours from the page's style.
std::string svg(const Chart& chart, int width, int height);

/// Returns the chart as JSON for a program that draws.
Json chart_json(const Chart& chart);

}  // namespace penstock::cli::reporting
