# Every library that Penstock is built from. tools/setup.sh reads this file too, to see whether a machine is ready;
# PenstockConfig.cmake.in repeats the ones that a program linking the static library needs.
set(penstock_missing "")
macro(penstock_need package)
  find_package(${package} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    list(APPEND penstock_missing ${package})
  endif()
endmacro()
penstock_need(fmt)
penstock_need(nlohmann_json)
penstock_need(OpenMP COMPONENTS CXX)
penstock_need(hwy 1.0)
penstock_need(dnnl)
if(NOT DEFINED PENSTOCK_TRAINING OR PENSTOCK_TRAINING)
  penstock_need(ZLIB)
  penstock_need(CLI11)
  # What the program compares models of text with; without it, there is one comparison less.
  find_package(LibLZMA QUIET)
endif()
# Hashes of compiled kernels; only its header is used.
find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(NOT XXHASH_INCLUDE_DIR)
  list(APPEND penstock_missing xxHash)
endif()
if(penstock_missing)
  foreach(package ${penstock_missing})
    message(NOTICE "CMake finds no ${package}")
  endforeach()
  message(FATAL_ERROR "Libraries that Penstock is built from are missing; they are named above.\n"
                      "On Debian and Ubuntu run tools/setup.sh in the checkout of Penstock: it installs their packages. "
                      "On other systems install the libraries that tools/setup.sh lists. Then repeat this command.")
endif()
