#include <nanobind/nanobind.h>

#include <array>
#include <cstring>

#include "bindings.h"
#include "penstock/error.h"

namespace penstock::python {
namespace {

/// Classes of penstock.errors in the order of the codes.
constexpr std::array kClasses = {"InvalidArgument", "BadInput",    "Incompatible", "IoFailure",    "NumericalError",
                                 "Unsupported",     "Interrupted", "OutOfMemory",  "DeviceFailure"};
static_assert(kClasses.size() == static_cast<std::size_t>(ErrorCode::device_failure) + 1);

}  // namespace

void bind_errors(nanobind::module_&) {
  nanobind::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      PyObject* errors = PyImport_ImportModule("penstock.errors");
      const char* const name = kClasses[static_cast<std::size_t>(error.code())];
      PyObject* type = errors == nullptr ? nullptr : PyObject_GetAttrString(errors, name);
      // Names from damaged files are not always UTF-8.
      const auto size = static_cast<Py_ssize_t>(std::strlen(error.what()));
      PyObject* text = type == nullptr ? nullptr : PyUnicode_DecodeUTF8(error.what(), size, "backslashreplace");
      if (text != nullptr) PyErr_SetObject(type, text);
      Py_XDECREF(text);
      Py_XDECREF(type);
      Py_XDECREF(errors);
    }
  });
}

}  // namespace penstock::python
