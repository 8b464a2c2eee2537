# The C runtime: src/core/runtime and what it needs of the layers below, compiled once more without exceptions, as one
# static library without other libraries. Include after penstock_flags are there.

set(PENSTOCK_RUNTIME_ISA "" CACHE STRING
    "Instruction set of the C runtime, as -march has it; empty: several, of which it chooses one when it opens a model")

file(GLOB runtime_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/core/runtime/*.cc)
set(runtime_shared base/denormals.cc custom/expression_graph.cc custom/program.cc)
list(TRANSFORM runtime_shared PREPEND ${PROJECT_SOURCE_DIR}/src/core/)
add_library(penstock_runtime STATIC ${runtime_sources} ${runtime_shared})
add_library(Penstock::runtime ALIAS penstock_runtime)
set_target_properties(penstock_runtime PROPERTIES EXPORT_NAME runtime CXX_VISIBILITY_PRESET hidden
                      VISIBILITY_INLINES_HIDDEN ON)
# It includes itself, once for each instruction set.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/core/runtime/step_kernels.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_include_directories(penstock_runtime PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
                           PRIVATE ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR}/src/core
                                   $<TARGET_PROPERTY:hwy::hwy,INTERFACE_INCLUDE_DIRECTORIES>)  # headers alone
# A namespace of its own keeps what is compiled without exceptions apart from the full library in the same program.
target_compile_definitions(penstock_runtime PRIVATE penstock=penstock_runtime PENSTOCK_SMALL_STEPS=1
                           HWY_DISABLE_PCLMUL_AES)  # which -march=x86-64-v3 does not have, and nobody here needs
target_compile_options(penstock_runtime PRIVATE -fno-exceptions -fno-rtti -ffunction-sections -fdata-sections
                                                $<$<CONFIG:Release>:-Os>)
# What a step runs is optimised for speed, and is by -O2 a third smaller than by -O3.
foreach(name step_kernels session session_step)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/core/runtime/${name}.cc PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O2>")
endforeach()
if(NOT PENSTOCK_SANITIZE)
  target_compile_options(penstock_runtime PRIVATE -fno-asynchronous-unwind-tables)
endif()
if(PENSTOCK_RUNTIME_ISA)
  target_compile_options(penstock_runtime PRIVATE -march=${PENSTOCK_RUNTIME_ISA})
  target_compile_definitions(penstock_runtime PRIVATE HWY_COMPILE_ONLY_STATIC)
endif()
target_link_libraries(penstock_runtime PRIVATE $<BUILD_INTERFACE:penstock_flags>)
