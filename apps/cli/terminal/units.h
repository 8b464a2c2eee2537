#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "penstock/error.h"
#include "penstock/types.h"

/// Numbers, names and bytes as a person reads them, and errors that say them.
namespace penstock::cli {

/// Throws an Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// "4,332,554"
std::string with_commas(Index value);
/// Formats a double: short_number() if it is too large for an Index, "-" if it is not finite.
std::string whole_number(double value);
/// "1 row", "4,332,554 rows": of a noun whose plural is regular
std::string counted(Index count, std::string_view noun);
/// "1.24 MB" (powers of 1000), "812 B"
std::string byte_size(double bytes);
/// "1.24 M", "812", "1.24e+30": for rates of things other than bytes
std::string short_count(double value);
/// "0:07", "12:30", "1:02:03"; "-" if it is not known.
std::string clock_time(double seconds);
/// Four significant digits, never in exponent form where a person can do without: "1.312", "0.05", "123.4".
std::string short_number(double value);
/// A byte as one readable token: "'a'", "'\n'", "'\xc3'".
std::string readable_byte(unsigned char byte);
/// An argument as it can be pasted into a shell.
std::string shell_word(std::string_view text);
/// Text for a message or a terminal: control characters and bytes that are no UTF-8 become "\xNN"; long text is cut.
std::string printable(std::string_view text);
/// Replaces control characters like printable(), but without limiting the length, for whole messages.
std::string without_controls(std::string_view text);

}  // namespace penstock::cli
