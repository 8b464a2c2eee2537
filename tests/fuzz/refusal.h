#pragma once

#include <stdexcept>
#include <string>

#include "penstock/error.h"

namespace penstock::test {

inline void check(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

/// How often accepted() returned true.
inline long accepted_inputs = 0;

/// Runs a parser on input that may be anything. True if it was accepted; a refusal must be an Error with one of the
/// two codes for bad files and one line of bounded length. Everything else (other exceptions, crashes) is a defect and
/// reaches the fuzzer.
template <class Parse>
bool accepted(Parse parse) {
  try {
    parse();
    ++accepted_inputs;
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    check(error.code() == ErrorCode::bad_input || error.code() == ErrorCode::incompatible, "a wrong error code");
    check(!message.empty() && message.size() < 2000, "a message of a strange length");
    check(message.find('\n') == message.npos, "a message of several lines");
    return false;
  }
}

}  // namespace penstock::test
