#pragma once

#include <string>
#include <string_view>

#include "penstock/data_description.h"
#include "penstock/sources.h"

namespace penstock {

/// What kind of data a file seems to hold, by its name and its first lines.
enum class SourceKind { text, series, labelled, labelled_texts };
SourceKind guess_kind(const Sources& sources, const TableFormat& format = {});
/// Whether its first lines are those of a table although its name says nothing: one of .txt, .dat, .data, .asc and
/// .out, or without an extension. Throws Error(io_failure) where a folder cannot be read.
bool is_unnamed_table(const Sources& sources);

/// The content of a file, or of standard input for "-", as the functions above read it: decompressed, from UTF-16 to
/// UTF-8. Throws Error(io_failure | bad_input).
std::string read_source(const std::string& path);
/// The same of a table: a .ts file as the table of its sequences, and objects in JSON (.jsonl, .ndjson, .json), each a
/// row, as that of their fields.
std::string read_table(const std::string& path);
/// Whether a table in a file of this name is one of those that read_table() turns into another.
bool is_converted_table(const std::string& path);
/// Whether content with this beginning is no text as it is: compressed by gzip, or in UTF-16.
bool is_encoded(std::string_view beginning);
/// What such content, whole, stands for, as read_source has it; `name` is what messages call it. Throws
/// Error(bad_input).
std::string decoded(const std::string& content, const std::string& name);

}  // namespace penstock
