# The C runtime: src/core/runtime and what it needs of the layers below, compiled once more without exceptions, as one
# static library without other libraries. Include after penstock_flags are there.

set(PENSTOCK_RUNTIME_MARCH "" CACHE STRING
    "Instruction set of the C runtime, as -march has it; empty: several, of which it chooses one when it opens a model")

# Three groups of sources, so that a program links what it opens, even by linkers that keep or drop whole objects: what
# all programs need, models of `penstock train`, and networks of `penstock import`.
set(runtime_core ${PROJECT_SOURCE_DIR}/src/core)
file(GLOB runtime_sources CONFIGURE_DEPENDS ${runtime_core}/runtime/*.cc)
file(GLOB runtime_models CONFIGURE_DEPENDS ${runtime_core}/runtime/recurrent_*.cc)
file(GLOB runtime_networks CONFIGURE_DEPENDS ${runtime_core}/runtime/network_*.cc ${runtime_core}/network/*.cc)
list(APPEND runtime_models ${runtime_core}/runtime/c_open_models.cc ${runtime_core}/runtime/read_description.cc)
list(APPEND runtime_networks ${runtime_core}/runtime/c_open_networks.cc ${runtime_core}/base/memory_plan.cc)
# What is of the import, or of the full library alone; and the kernels, sources that include themselves once for each
# instruction set.
list(FILTER runtime_networks EXCLUDE REGEX "/(fold|library_cell|row_ranges|byte_operators|rounded_operators|builder_images|convolution_in_place|[a-z]*_kernels).cc$")
# What each step of a small network passes.
set(runtime_steps ${runtime_core}/network/contraction.cc ${runtime_core}/network/recurrent_operators.cc
    ${runtime_core}/network/session.cc ${runtime_core}/runtime/network_model.cc)
list(REMOVE_ITEM runtime_networks ${runtime_steps})
list(REMOVE_ITEM runtime_sources ${runtime_models} ${runtime_networks} ${runtime_steps})
list(FILTER runtime_sources EXCLUDE REGEX "/((step|int8)_kernels|c_open_int8).cc$")
list(APPEND runtime_sources ${runtime_core}/base/json_reader.cc
     ${runtime_core}/base/files/safetensors_header.cc
     ${runtime_core}/custom/expression_graph.cc ${runtime_core}/custom/program.cc)
add_library(penstock_runtime_kernels OBJECT ${runtime_core}/runtime/step_kernels.cc
            ${runtime_core}/runtime/int8_kernels.cc ${runtime_core}/network/gate_kernels.cc
            ${runtime_core}/network/pointwise_kernels.cc ${runtime_core}/network/product_kernels.cc)
add_library(penstock_runtime_networks OBJECT ${runtime_networks})
add_library(penstock_runtime_steps OBJECT ${runtime_steps})
add_library(penstock_runtime STATIC ${runtime_sources} ${runtime_models} ${runtime_core}/runtime/c_open_int8.cc
            $<TARGET_OBJECTS:penstock_runtime_networks> $<TARGET_OBJECTS:penstock_runtime_steps>
            $<TARGET_OBJECTS:penstock_runtime_kernels>)
foreach(group sources models)
  set_source_files_properties(${runtime_${group}} PROPERTIES UNITY_GROUP ${group})
endforeach()
set_target_properties(penstock_runtime PROPERTIES UNITY_BUILD_MODE GROUP)
set_target_properties(penstock_runtime_kernels PROPERTIES UNITY_BUILD OFF)
add_library(Penstock::runtime ALIAS penstock_runtime)
set_target_properties(penstock_runtime PROPERTIES EXPORT_NAME runtime)
target_include_directories(penstock_runtime PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)

foreach(target penstock_runtime penstock_runtime_networks penstock_runtime_steps penstock_runtime_kernels)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include ${runtime_core})
  target_include_directories(${target} SYSTEM PRIVATE $<TARGET_PROPERTY:hwy::hwy,INTERFACE_INCLUDE_DIRECTORIES>)  # headers alone
  # A namespace of its own keeps what is compiled without exceptions apart from the full library in the same program.
  target_compile_definitions(${target} PRIVATE penstock=penstock_runtime PENSTOCK_RUNTIME=1
                             HWY_DISABLE_PCLMUL_AES)  # which -march=x86-64-v3 does not have, and nobody here needs
  target_compile_options(${target} PRIVATE -fno-exceptions ${PENSTOCK_NO_RTTI})
  if(target STREQUAL "penstock_runtime")  # the functions of the others are all in tables, so that none can be left out
    target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections)
  endif()
  if(NOT PENSTOCK_SANITIZE)
    target_compile_options(${target} PRIVATE -fno-asynchronous-unwind-tables)
  endif()
  if(PENSTOCK_RUNTIME_MARCH)
    target_compile_options(${target} PRIVATE -march=${PENSTOCK_RUNTIME_MARCH})
    target_compile_definitions(${target} PRIVATE HWY_COMPILE_ONLY_STATIC)
  endif()
endforeach()
# What a step runs is optimised for speed, and is by -O2 a third smaller than by -O3; the rest for its size.
target_compile_options(penstock_runtime PRIVATE $<$<CONFIG:Release>:-Os>)
target_compile_options(penstock_runtime_networks PRIVATE $<$<CONFIG:Release>:-Os>)
target_compile_options(penstock_runtime_steps PRIVATE $<$<CONFIG:Release>:-O2>)
foreach(target penstock_runtime penstock_runtime_networks penstock_runtime_steps)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:penstock_flags>)
endforeach()
target_compile_options(penstock_runtime_kernels PRIVATE $<$<CONFIG:Release>:-O2>)
set_source_files_properties(${runtime_core}/runtime/session.cc ${runtime_core}/runtime/recurrent_step.cc
                            ${runtime_core}/runtime/c_sessions.cc ${runtime_core}/runtime/handles.cc PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O2>")
if(PENSTOCK_SANITIZE MATCHES "fuzzer")
  # Fuzzers look for faults of what reads files, and clang takes many minutes to instrument kernels.
  target_link_libraries(penstock_runtime_kernels PRIVATE penstock_plain_flags)
  target_compile_options(penstock_runtime_kernels PRIVATE -O0 -g0)
  foreach(target penstock_runtime penstock_runtime_networks penstock_runtime_steps
          penstock_runtime_kernels)  # they agree on what is there
    target_compile_definitions(${target} PRIVATE HWY_COMPILE_ONLY_STATIC)
  endforeach()
else()
  target_link_libraries(penstock_runtime_kernels PRIVATE penstock_flags)
  if(PENSTOCK_SANITIZE)  # as penstock_layer() has it for kernels
    target_compile_options(penstock_runtime_kernels PRIVATE -O1 -fno-sanitize=null,alignment,pointer-overflow,object-size
                           -fno-sanitize-address-use-after-scope)
  endif()
endif()
