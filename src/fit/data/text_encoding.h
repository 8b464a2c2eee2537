#pragma once

#include <string>
#include <string_view>

/// Texts in other encodings than UTF-8, as spreadsheets write them.
namespace penstock::io {

bool is_utf8(std::string_view text);

/// Returns whether content begins with the byte order mark of UTF-16.
bool is_utf16(std::string_view content);

/// Such content as UTF-8, without the mark; `path` names it in messages. Throws Error(bad_input) where it ends within a
/// character.
std::string utf16_to_utf8(std::string_view content, const std::string& path);

/// Such content without the character that its end cuts.
std::string_view whole_utf16(std::string_view content);

/// Content in UTF-16 as UTF-8, all other as it is.
std::string as_utf8(std::string content, const std::string& path);

/// Text in Windows' encoding of Western languages. Bytes that it has no character for become the control characters of
/// Latin-1, so that every text can be read.
std::string windows_1252_to_utf8(std::string_view text);

}  // namespace penstock::io
