#include <nanobind/nanobind.h>

#include <nanobind/stl/string.h>

#include <array>
#include <charconv>
#include <string>
#include <system_error>

#include "arrays.h"
#include "bindings.h"
#include "penstock/error.h"
#include "penstock/train/settings.h"

namespace penstock::python {
namespace {

/// Classes of penstock.errors in the order of the codes.
constexpr std::array kClasses = {"InvalidArgument", "BadInput",    "Incompatible", "IoFailure",    "NumericalError",
                                 "Unsupported",     "Interrupted", "OutOfMemory",  "DeviceFailure"};
static_assert(kClasses.size() == static_cast<std::size_t>(ErrorCode::device_failure) + 1);

/// Returns a text of Python; None for an empty one. Names from damaged files are not always UTF-8.
nb::object text_or_none(const std::string& text) {
  if (text.empty()) return nb::none();
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

}  // namespace

nb::object exception_of(const Error& error) {
  const char* const name = kClasses[static_cast<std::size_t>(error.code())];
  const nb::object type = nb::module_::import_("penstock.errors").attr(name);
  nb::object raised = type(text_or_none(error.message().text(argument_words)));
  const std::string renamed = argument_words(error.fields().argument, "");
  raised.attr("argument") = text_or_none(renamed.empty() ? error.fields().argument : renamed);
  raised.attr("value") = text_or_none(error.fields().value);
  raised.attr("allowed") = text_or_none(error.fields().allowed);
  raised.attr("remedy") = text_or_none(error.fields().remedy.text(argument_words));
  return raised;
}

std::string argument_words(const std::string& setting, const std::string& value) {
  if (setting == "norms" && !value.empty()) return std::string("end_norms") + (value == "all" ? "=True" : "=False");
  if (setting == "state" && value == "none") return "find_states=False";
  if (const std::size_t split = value.find('='); setting == "state" && split != value.npos) {
    return "states={'" + value.substr(0, split) + "': '" + value.substr(split + 1) + "'}";
  }
  if (setting == "time" && !value.empty()) return "stream='" + value + "'";
  const std::string name = argument_of(setting);
  if (value.empty()) return name == setting ? "" : name;  // an argument of the same name needs no other words
  double number = 0.0;
  const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool is_number = failure == std::errc() && end == value.data() + value.size();
  return name + "=" + (is_number ? value : nb::cast<std::string>(nb::repr(text_or_none(value))));
}

void bind_errors(nanobind::module_&) {
  nanobind::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      try {
        const nb::object raised = exception_of(error);
        PyErr_SetObject(raised.type().ptr(), raised.ptr());
      } catch (nb::python_error& another) {
        another.restore();
      }
    }
  });
}

}  // namespace penstock::python
