#pragma once

#include <string>
#include <string_view>

#include "penstock/types.h"

namespace penstock {

/// Reads untrusted JSON once, from the front: no tree, no more memory than the strings that the caller keeps. All calls
/// return false after a mistake, which problem() then describes. Needs no exceptions.
class JsonReader {
 public:
  /// `what` names the text in messages.
  JsonReader(std::string_view text, const char* what) : text_(text), what_(what) {}

  /// Calls field(std::string_view key), which reads the value, for each field of an object.
  template <class Field>
  bool object(const Field& field) {
    std::string key;
    if (!enter('{', "an object")) return false;
    for (bool first = true; !leaves('}'); first = false) {
      if (!first && !expect(',')) return false;
      if (!string(key) || !expect(':') || !field(std::string_view(key))) return false;
    }
    return leave();
  }
  /// Calls item(), which reads the value, for each item of an array.
  template <class Item>
  bool array(const Item& item) {
    if (!enter('[', "an array")) return false;
    for (bool first = true; !leaves(']'); first = false) {
      if (!first && !expect(',')) return false;
      if (!item()) return false;
    }
    return leave();
  }
  bool string(std::string& value);
  bool number(double& value);
  /// A whole number without a point or an exponent.
  bool integer(Index& value);
  bool boolean(bool& value);
  /// Reads any value, checks its form and forgets it.
  bool skip();
  /// Returns the first character of the next value; '\0' at the end.
  char next() {
    blanks();
    return peek();
  }
  /// Requires that nothing but blanks follows.
  bool finish();

  /// Returns false; the message names the place.
  bool mistake(const char* expected);
  /// Returns the first mistake and its place; empty if there is none.
  const std::string& problem() const { return problem_; }

 private:
  bool enter(char bracket, const char* what);
  bool leaves(char bracket);
  bool leave();
  bool expect(char c);
  bool word(std::string_view word);
  bool escape(std::string& value);
  bool unicode(std::string& value);
  bool hex(unsigned& value);
  bool utf8(std::string& value);
  std::string_view number_token();
  void blanks();
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  std::string_view text_;
  const char* what_;
  std::string problem_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace penstock
