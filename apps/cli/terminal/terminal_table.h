#pragma once

#include <cstddef>
#include <string>

namespace penstock::cli {

/// A page of Markdown for a terminal: the columns of its tables line up, and a table that is wider than `width` is cut
/// into several, one below the other, each with the columns that say which row it is. Other text is wrapped.
std::string for_terminal(const std::string& markdown, std::size_t width);

}  // namespace penstock::cli
