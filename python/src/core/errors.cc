#include <nanobind/nanobind.h>

#include "bindings.h"
#include "penstock/error.h"

namespace penstock::python {
namespace {

/// Returns the class of penstock.errors for an error code.
const char* class_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "InvalidArgument";
    case ErrorCode::bad_input:
      return "BadInput";
    case ErrorCode::incompatible:
      return "Incompatible";
    case ErrorCode::io_failure:
      return "IoFailure";
    case ErrorCode::numerical:
      return "NumericalError";
    case ErrorCode::unsupported:
      return "Unsupported";
    case ErrorCode::interrupted:
      return "Interrupted";
    case ErrorCode::out_of_memory:
      return "OutOfMemory";
    case ErrorCode::device_failure:
      break;
  }
  return "DeviceFailure";
}

}  // namespace

void bind_errors(nanobind::module_&) {
  nanobind::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      PyObject* errors = PyImport_ImportModule("penstock.errors");
      PyObject* type = errors == nullptr ? nullptr : PyObject_GetAttrString(errors, class_of(error.code()));
      if (type != nullptr) PyErr_SetString(type, error.what());
      Py_XDECREF(type);
      Py_XDECREF(errors);
    }
  });
}

}  // namespace penstock::python
