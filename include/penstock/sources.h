#pragma once

#include <string>
#include <vector>

/// Sources of data: files, folders, and standard input.
namespace penstock {

/// Paths of data: files, folders (all files in them, in the order of their names), patterns such as "shards/*.bin", or
/// "-" for standard input. Files that gzip or zstd has compressed are decompressed when they are read.
using Sources = std::vector<std::string>;

/// Returns the files of sources. A folder is replaced by the files in it and in its subfolders, in the order of their
/// paths, without hidden ones. Throws Error: bad_input for a folder without files, or if two paths lead to one file,
/// whose content would count twice; io_failure if a folder cannot be read.
Sources files_of(const Sources& sources);

/// Returns advice for an error message about a file if `path` is an address such as "https://..." or "s3://...":
/// "; Penstock reads files, not addresses: first: curl ..."; otherwise empty. `writing`: the file was to be written.
std::string address_advice(const std::string& path, bool writing);

}  // namespace penstock
