#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Files that people have: texts and tables, perhaps compressed, perhaps several of them, perhaps none of either.
namespace penstock::io {

/// The content of a file, or of standard input for "-". What gzip or zstd has compressed is decompressed, whatever its
/// name. Throws Error(io_failure) as read_file does, Error(bad_input) for damaged data or more than `limit` bytes.
std::string read_data_file(const std::string& path, std::uint64_t limit);

/// Returns the decompressed content of zstd or, if it does not begin like that, gzip data, which may be several members
/// in a row; `path` names it in messages. Throws like read_data_file().
std::string decompress(std::string_view compressed, const std::string& path, std::uint64_t limit);

/// The first bytes of what read_data_file would give, at most `size`; nothing of standard input, which can be read only
/// once.
std::string read_data_head(const std::string& path, std::size_t size);

/// Replaces every folder by the files in it and in its subfolders, ordered by their paths, without hidden ones, and
/// every pattern with *, ? or [...] by the files that match it. Throws Error(bad_input) for a folder without files.
std::vector<std::string> expand_folders(const std::vector<std::string>& paths);

/// expand_folders for a reader of all these files. Throws Error(bad_input) as well if two paths lead to one file, by a
/// link or by another spelling: what it holds would count twice, and could stand on both sides of a split.
std::vector<std::string> files_to_read(const std::vector<std::string>& paths);

/// The name without a trailing ".gz" or ".zst", and of that the extension in lower case: ".csv" for "Data/A.CSV.gz".
std::string data_extension(const std::string& path);

/// The name without folders, extension and ".gz" or ".zst": "Berlin" for "shops/Berlin.csv.gz".
std::string data_name(const std::string& path);

/// Returns the kind of a file that is neither text nor table, with its article ("a Parquet file", "a PNG image",
/// "binary data (its byte 17 is 0)"); empty if it may be a text. Looks at the first bytes only.
std::string binary_kind(std::string_view content);

/// How a table in a file of such a kind becomes CSV: "; pandas turns one into CSV: ..."; empty where that is not known.
std::string table_advice(const std::string& binary_kind);

}  // namespace penstock::io
