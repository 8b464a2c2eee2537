#pragma once

#include <string>
#include <utility>

namespace penstock::network {

/// The outcome of a call. This layer is compiled without exceptions, because the C runtime has none.
struct [[nodiscard]] Status {
  enum class Code {
    ok,
    invalid_argument,  ///< The caller's fault: a shape, a name, a number.
    bad_input,         ///< A damaged or contradictory network.
    incompatible,      ///< A file of another version.
    unsupported,       ///< A network that is valid, but that this library does not run.
    out_of_memory,
  };
  Code code = Code::ok;
  std::string text = {};  ///< What is wrong, what is allowed, and the remedy; empty if all is well.

  bool ok() const { return code == Code::ok; }

  static Status invalid_argument(std::string text) { return {Code::invalid_argument, std::move(text)}; }
  static Status bad_input(std::string text) { return {Code::bad_input, std::move(text)}; }
  static Status unsupported(std::string text) { return {Code::unsupported, std::move(text)}; }
  static Status out_of_memory(std::string text) { return {Code::out_of_memory, std::move(text)}; }
};

}  // namespace penstock::network
