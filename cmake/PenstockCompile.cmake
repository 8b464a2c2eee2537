# How Penstock's own code is compiled, and how a folder of src/ becomes a layer.

configure_file(${CMAKE_CURRENT_LIST_DIR}/version.h.in ${PROJECT_BINARY_DIR}/include/penstock/version.h @ONLY)

add_library(penstock_flags INTERFACE)
# Contraction would make a product's rounding depend on where the compiler inlined it; we write fused
# multiply-adds where we mean them, and results stay the same to the bit on every path.
target_compile_options(penstock_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                       -ffp-contract=off $<$<BOOL:${PENSTOCK_WERROR}>:-Werror>)
if(PENSTOCK_SANITIZE)
  target_compile_options(penstock_flags INTERFACE -fsanitize=${PENSTOCK_SANITIZE} -fno-sanitize-recover=all
                         -fno-omit-frame-pointer)
  target_link_options(penstock_flags INTERFACE -fsanitize=${PENSTOCK_SANITIZE})
endif()

# penstock_layer(<folder> LINKS <libraries>): src/<folder>/**.cc as static library penstock_<folder>.
function(penstock_layer folder)
  cmake_parse_arguments(arg "" "" "LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.cc)
  set(target penstock_${folder})
  if(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:penstock_flags>)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(${target} ${scope} ${arg_LINKS})
endfunction()

# The library that users link: everything in one.
function(penstock_library)
  add_library(penstock INTERFACE)
  target_link_libraries(penstock INTERFACE penstock_train penstock_stream)
  add_library(Penstock::penstock ALIAS penstock)
endfunction()
