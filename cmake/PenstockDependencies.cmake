# Every library that Penstock is built from. tools/setup.sh reads this file too, to see whether a machine is ready;
# PenstockConfig.cmake.in repeats the ones that a program linking the static library needs.
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(hwy 1.0 REQUIRED)
find_package(dnnl REQUIRED)
if(NOT DEFINED PENSTOCK_TRAINING OR PENSTOCK_TRAINING)
  find_package(ZLIB REQUIRED)
  find_package(CLI11 REQUIRED)
  # What the program compares models of text with; without it, there is one comparison less.
  find_package(LibLZMA QUIET)
endif()
# Hashes of compiled kernels; only its header is used.
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
