#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "penstock/sources.h"

namespace penstock {

namespace {

/// The scheme of an address: "https" for "https://example.org/a.csv"; empty for anything else.
std::string_view scheme_of(std::string_view path) {
  const std::size_t end = path.find("://");
  const auto is_letter = [](unsigned char c) { return std::isalnum(c) != 0; };
  if (end == path.npos || !std::ranges::all_of(path.substr(0, end), is_letter)) return {};
  return path.substr(0, end);
}

/// A command that copies between a store and a folder; empty where none is known.
std::string_view copier(std::string_view scheme) {
  if (scheme == "s3") return "aws s3 cp";
  if (scheme == "gs") return "gcloud storage cp";
  return {};
}

bool curl_fetches(std::string_view scheme) {
  return scheme == "http" || scheme == "https" || scheme == "ftp" || scheme == "ftps" || scheme == "sftp";
}

}  // namespace

std::string address_advice(const std::string& path, bool writing) {
  const std::string_view scheme = scheme_of(path);
  if (scheme.empty()) return "";
  if (scheme == "file") return fmt::format("; write the path alone, {}", path.substr(scheme.size() + 3));
  const std::string name = path.substr(path.rfind('/') + 1), copy(copier(scheme));
  const std::string local = name.empty() ? "FILE" : name;
  if (writing) {
    const std::string then =
        copy.empty() ? "copy it there afterwards" : fmt::format("then: {} {} {}", copy, local, path);
    return fmt::format("; Penstock writes files, not addresses: write {}, {}", local, then);
  }
  if (copy.empty() && !curl_fetches(scheme)) return "; Penstock reads files, not addresses: copy it to a folder first";
  const std::string fetch =
      copy.empty() ? fmt::format("curl -Lo {} '{}'", local, path) : fmt::format("{} {} .", copy, path);
  return fmt::format("; Penstock reads files, not addresses: first: {}", fetch);
}

}  // namespace penstock
