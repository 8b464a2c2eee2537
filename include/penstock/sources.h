#pragma once

#include <string>
#include <vector>

#include "penstock/sources.h"

namespace penstock {

/// Where data come from: files, folders (every file in them, in the order of their names), or "-" for standard input.
/// What gzip has compressed is decompressed.
using Sources = std::vector<std::string>;

/// The files that sources name: every folder is replaced by the files in it and in its subfolders, in the order of
/// their paths, without hidden ones. Throws Error(bad_input) for a folder without files, or if two
/// paths lead to one file: what it holds would count twice.
Sources files_of(const Sources& sources);

/// What a message that a file cannot be read or written adds where `path` is an address such as "https://..." or
/// "s3://...": "; Penstock reads files, not addresses: first: curl ..."; empty for the path of a file.
std::string address_advice(const std::string& path, bool writing);

}  // namespace penstock
