/* For tests in C: leaves a function with 1 if a condition is false, and says where. `error` is its penstock_error. */
#ifndef PENSTOCK_TESTS_C_REQUIRE_H
#define PENSTOCK_TESTS_C_REQUIRE_H

#include <stdio.h>

#define REQUIRE(condition)                                                            \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, error.text); \
      return 1;                                                                       \
    }                                                                                 \
  } while (0)

#endif /* PENSTOCK_TESTS_C_REQUIRE_H */
