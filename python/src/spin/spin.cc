// The module penstock._spin, which is loaded before GNU's OpenMP and needs nothing: how long threads should spin.

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000  // of Python 3.10
#include <Python.h>

#include "base/spin_turns.h"

namespace {

PyObject* turns(PyObject*, PyObject*) { return PyLong_FromLong(penstock::spin_turns(penstock::kSpinMicroseconds)); }

PyMethodDef methods[] = {{"turns", turns, METH_NOARGS, "turns()\n--\n\nReturns a value for GOMP_SPINCOUNT."},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_spin", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

// Python names it.
PyMODINIT_FUNC PyInit__spin() { return PyModule_Create(&module); }
