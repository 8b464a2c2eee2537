#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The exception type of the library, its error codes and its messages.
namespace penstock {

/// Reason why an operation failed. Every Penstock exception has one.
enum class ErrorCode {
  invalid_argument,  ///< An argument is impossible; the message names it.
  bad_input,         ///< The content of a file or stream is invalid; the message says where.
  incompatible,      ///< A file is sound but belongs to another architecture, version or data set.
  io_failure,        ///< The operating system refused to read or write (missing file, full disk, ...).
  numerical,         ///< NaN or infinity that cannot be skipped.
  unsupported,       ///< Valid, but not available in this build or on this machine.
  interrupted,       ///< The user asked to stop; everything that must be saved is saved.
  out_of_memory,     ///< Too little free memory; the message says how much was requested.
  device_failure,    ///< The device or its driver reported a fault; results since the last synchronisation are lost.
};

/// Returns a caller's words for a setting of this library: "--clip 1" for ("clip", "1"), "--clip" for ("clip", "").
/// Returns "" if the caller has no such setting.
using SettingWords = std::function<std::string(const std::string& setting, const std::string& value)>;

/// A text for a person, in parts: parts that name a setting can be printed in the words of a program.
class Message {
 public:
  /// Plain text, or a mention of a setting.
  struct Part {
    // NOLINTBEGIN(google-explicit-constructor): a plain text is a part.
    Part(std::string plain) : text(std::move(plain)) {}
    Part(const char* plain) : text(plain) {}
    // NOLINTEND(google-explicit-constructor)
    Part(std::string words, std::string name, std::string given)
        : text(std::move(words)), setting(std::move(name)), value(std::move(given)) {}

    std::string text;     ///< The words of this library.
    std::string setting;  ///< Name of the setting in this library; empty: plain text.
    std::string value;    ///< Value to give it; empty: the setting as such.
  };

  Message() = default;
  Message(std::initializer_list<Part> parts) : parts_(parts) {}
  // NOLINTBEGIN(google-explicit-constructor): a plain text is a message.
  Message(std::string text) : parts_{std::move(text)} {}
  Message(const char* text) : parts_{text} {}
  // NOLINTEND(google-explicit-constructor)
  explicit operator std::string() const { return text(); }

  Message& operator+=(const Message& end) {
    parts_.insert(parts_.end(), end.parts_.begin(), end.parts_.end());
    return *this;
  }
  friend Message operator+(Message begin, const Message& end) { return begin += end; }
  friend bool operator==(const Message& a, const Message& b) { return a.text() == b.text(); }

  bool empty() const { return text().empty(); }
  /// Returns the text, settings in the given words, or in those of this library.
  std::string text(const SettingWords& words = {}) const {
    std::string all;
    for (const Part& part : parts_) {
      const std::string other = words && !part.setting.empty() ? words(part.setting, part.value) : "";
      all += other.empty() ? part.text : other;
    }
    return all;
  }

 private:
  std::vector<Part> parts_;
};

/// The subject of an error, as data. Fields that do not apply are empty.
struct ErrorFields {
  std::string argument = {};              ///< Name of the argument or setting in this library, such as "learning_rate".
  std::string value = {};                 ///< Its value as text, such as "-1".
  std::string allowed = {};               ///< What it has to be, such as "greater than 0".
  std::vector<std::string> choices = {};  ///< All values that it may have, if these are a few names.
  Message remedy = {};                    ///< What to do.
};

/// The exception type of all Penstock errors. `what()` is one line for a person.
class Error : public std::runtime_error {
 public:
  /// `message` is the whole sentence, the remedy included.
  Error(ErrorCode code, Message message, ErrorFields fields = {})
      : std::runtime_error(message.text()),
        code_(code),
        data_(std::make_shared<const Data>(Data{std::move(message), std::move(fields)})) {}

  ErrorCode code() const noexcept { return code_; }
  const Message& message() const noexcept { return data_->message; }
  const ErrorFields& fields() const noexcept { return data_->fields; }

  /// Returns this error with a text in front of its message, such as the place where it happened.
  Error within(const Message& place) const { return {code_, place + data_->message, data_->fields}; }

 private:
  struct Data {
    Message message;
    ErrorFields fields;
  };

  ErrorCode code_;
  std::shared_ptr<const Data> data_;  // shared, so that copying the exception cannot throw
};

/// Throws Error(invalid_argument) for a value that is none of a few names.
[[noreturn]] void fail_choice(std::string_view argument, std::string_view value, std::vector<std::string> choices);

/// Returns the exit status of a command-line program: 2 for invalid_argument, 1 for all other errors.
inline int exit_status(ErrorCode code) { return code == ErrorCode::invalid_argument ? 2 : 1; }

}  // namespace penstock
