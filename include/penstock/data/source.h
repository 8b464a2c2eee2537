#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "penstock/description/table.h"
#include "penstock/sources.h"

/// Reading data files as text, and guessing what kind of data they hold.
namespace penstock {

/// Kind of the data in a file.
enum class SourceKind { text, series, labelled, labelled_texts };
/// Guesses the kind of the data from the name and the first lines of the first file.
SourceKind guess_kind(const Sources& sources, const TableFormat& format = {});
/// Returns whether the first file is a table by its first lines but not by its name: .txt, .dat, .data, .asc, .out or
/// no extension. Throws Error(io_failure) if a folder cannot be read.
bool is_unnamed_table(const Sources& sources);
/// Returns whether the name of the first file is that of a table: .csv, .tsv, .tab, .psv, .ts, .json, .jsonl, .ndjson,
/// or a format that Penstock does not read. Throws as above.
bool is_named_table(const Sources& sources);

/// Most bytes that are read of a source, compressed and decompressed: they are held in memory, several times over once
/// parsed.
inline constexpr std::size_t largest_source = std::size_t{2} << 30;

/// Returns the content of a file, or of standard input for "-", decompressed from gzip and converted from UTF-16 to
/// UTF-8. Throws Error: io_failure if it cannot be read; bad_input if it cannot be decoded.
std::string read_source(const std::string& path);
/// Returns the content of a table as read_source() does, converted to CSV if needed: a .ts file becomes a table of its
/// sequences, and JSON objects (.jsonl, .ndjson, .json) become one row each.
std::string read_table(const std::string& path);
/// Returns whether read_table() converts a file of this name: .ts, .jsonl, .ndjson or .json.
bool is_converted_table(const std::string& path);
/// Returns whether content with this beginning must be decoded: it is compressed by gzip or in UTF-16.
bool is_encoded(std::string_view beginning);
/// Returns content decoded as read_source() does. `name` is its name in messages. Throws Error(bad_input) if it cannot
/// be decoded.
std::string decoded(const std::string& content, const std::string& name);

}  // namespace penstock
