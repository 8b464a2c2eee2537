# How Penstock's own code is compiled, and how the folders of src/core and src/fit become layers and then one library.

if(PENSTOCK_TRAINING)
  set(PENSTOCK_HAS_TRAINING 1)
else()
  set(PENSTOCK_HAS_TRAINING 0)
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/version.h.in ${PROJECT_BINARY_DIR}/include/penstock/version.h @ONLY)

add_library(penstock_plain_flags INTERFACE)
# Contraction would make a product's rounding depend on where the compiler inlined it; we write fused
# multiply-adds where we mean them, and results stay the same to the bit on every path.
target_compile_options(penstock_plain_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                       -Wno-sign-conversion -ffp-contract=off $<$<BOOL:${PENSTOCK_WERROR}>:-Werror>)
add_library(penstock_flags INTERFACE)
target_link_libraries(penstock_flags INTERFACE penstock_plain_flags)
# Fuzzers run these layers, under sanitizers; of the others it is enough that clang compiles them.
set(PENSTOCK_FUZZED base csp custom io forecast_linear data)
# Layers that a short call passes. GCC clears and copies their structs by string instructions, each of which takes as
# long to begin as a small step takes in all: loops of vectors instead.
set(PENSTOCK_CALLED ops graph nn stream)
set(PENSTOCK_SHORT_STRUCTS "")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(PENSTOCK_SHORT_STRUCTS -mmemset-strategy=vector_loop:2048:noalign,libcall:-1:noalign
                             -mmemcpy-strategy=vector_loop:2048:noalign,libcall:-1:noalign)
endif()
if(PENSTOCK_MARCH)
  target_compile_options(penstock_flags INTERFACE -march=${PENSTOCK_MARCH})
  # -march=x86-64-v3 has no PCLMUL and no AES, and nobody here needs them.
  target_compile_definitions(penstock_flags INTERFACE HWY_COMPILE_ONLY_STATIC HWY_DISABLE_PCLMUL_AES)
endif()
if(PENSTOCK_EMULATE_AMX)
  target_compile_definitions(penstock_flags INTERFACE PENSTOCK_EMULATE_AMX)
endif()
# Layers without exceptions have no type information either, unless UBSan, which finds the type of an object by it.
set(PENSTOCK_NO_RTTI -fno-rtti)
if(PENSTOCK_SANITIZE)
  set(PENSTOCK_NO_RTTI "")
  target_compile_options(penstock_flags INTERFACE -fsanitize=${PENSTOCK_SANITIZE} -fno-sanitize-recover=all
                         -fno-omit-frame-pointer)
  target_link_options(penstock_flags INTERFACE -fsanitize=${PENSTOCK_SANITIZE})
  if(PENSTOCK_SANITIZE MATCHES "thread")
    # Threads share memory in the same way with each instruction set, and the baseline compiles in a fraction of the time.
    target_compile_definitions(penstock_flags INTERFACE HWY_COMPILE_ONLY_STATIC)
  elseif(NOT PENSTOCK_SANITIZE MATCHES "fuzzer")
    target_compile_definitions(penstock_flags INTERFACE PENSTOCK_WITHOUT_AVX2)
  endif()
endif()

# penstock_layer(<house> <layer> LINKS <libraries> [EXCEPT <folder>]): src/<house>/<layer>/**.cc as static library
# penstock_<layer>, so that a test (or a wrong call) sees only this layer and those below it; a_b is the folder a/b. Includes
# name a file from its house on; the house core does not see fit. EXCEPT: a folder in it that is a layer by itself. The
# objects are compiled once, for this and for the library that users link.
function(penstock_layer house layer)
  cmake_parse_arguments(arg "" "EXCEPT" "LINKS" ${ARGN})
  string(REPLACE _ / folder ${layer})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${house}/${folder}/*.cc)
  if(arg_EXCEPT)
    list(FILTER sources EXCLUDE REGEX "/src/${house}/${folder}/${arg_EXCEPT}/")
  endif()
  foreach(part ${PENSTOCK_LEFT_OUT})
    list(FILTER sources EXCLUDE REGEX "/src/${part}")
  endforeach()
  set(target penstock_${layer})
  set(objects penstock_${layer}_objects)
  if(NOT sources)
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${arg_LINKS})
    return()
  endif()
  add_library(${objects} OBJECT ${sources})
  set(flags penstock_flags)
  if(PENSTOCK_SANITIZE MATCHES "fuzzer" AND NOT layer IN_LIST PENSTOCK_FUZZED)
    set(flags penstock_plain_flags)
    target_compile_options(${objects} PRIVATE -O0 -g0)
  endif()
  if(layer IN_LIST PENSTOCK_CALLED)
    target_compile_options(${objects} PRIVATE ${PENSTOCK_SHORT_STRUCTS})
  endif()
  set(simd ${sources})
  list(FILTER simd INCLUDE REGEX "/src/core/(backend/cpu/|network/.*_kernels)")
  # They include themselves, once for each instruction set.
  set_source_files_properties(${simd} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(PENSTOCK_SANITIZE AND flags STREQUAL penstock_flags)
    # What makes code of SIMD vectors three to six times slower to compile goes, in the kernels alone: -Og for -O1;
    # UBSan's checks of pointers and of the sizes behind them, which find nothing that AddressSanitizer does not, as
    # vectors are loaded unaligned; and watching each local vector go out of scope, where no kernel keeps a pointer to one.
    # (A source's options come after the target's.)
    set_source_files_properties(${simd} PROPERTIES COMPILE_OPTIONS
                                "-O1;-fno-sanitize=null,alignment,pointer-overflow,object-size;-fno-sanitize-address-use-after-scope")
  endif()
  target_include_directories(${objects} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include
                                               ${PROJECT_SOURCE_DIR}/src/${house})
  target_link_libraries(${objects} PRIVATE ${flags} PUBLIC ${arg_LINKS})
  add_library(${target} STATIC $<TARGET_OBJECTS:${objects}>)
  target_include_directories(${target} PUBLIC $<TARGET_PROPERTY:${objects},INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(${target} PUBLIC ${arg_LINKS})
endfunction()

# penstock_embed_kernels(<layer>): the texts that NVRTC compiles at run time become part of that layer.
function(penstock_embed_kernels layer)
  file(GLOB_RECURSE texts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/core/backend/cuda/kernels/*.cuh
       ${PROJECT_SOURCE_DIR}/src/core/backend/cuda/kernels/*.h ${PROJECT_SOURCE_DIR}/src/core/plan/kernels/*.h
       ${PROJECT_SOURCE_DIR}/src/core/cells/*.h ${PROJECT_SOURCE_DIR}/src/core/base/training/*.h)
  list(APPEND texts ${PROJECT_SOURCE_DIR}/src/core/base/counter_random.h)
  if(NOT PENSTOCK_CUDA)
    set(texts "")
  endif()
  set(output ${PROJECT_BINARY_DIR}/generated/kernel_sources.cc)
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed_kernels.cmake)
  add_custom_command(OUTPUT ${output}
                     COMMAND ${CMAKE_COMMAND} -D root=${PROJECT_SOURCE_DIR}/src/core -D output=${output} "-D texts=${texts}" -P ${script}
                     DEPENDS ${texts} ${script} COMMENT "Embedding the texts of CUDA kernels" VERBATIM)
  target_sources(penstock_${layer}_objects PRIVATE ${output})
endfunction()

# penstock_library(<target> [SHARED] EXPORT <name> LAYERS <layers> LINKS <libraries>): some layers in one library, which
# shows its users the public headers and nothing else, as Penstock::<name>. Static unless SHARED or BUILD_SHARED_LIBS
# says otherwise.
function(penstock_library target)
  cmake_parse_arguments(arg "SHARED" "EXPORT" "LAYERS;LINKS" ${ARGN})
  set(kind "")
  if(arg_SHARED)
    set(kind SHARED)
  endif()
  set(objects "")
  foreach(layer ${arg_LAYERS})
    if(TARGET penstock_${layer}_objects)
      list(APPEND objects $<TARGET_OBJECTS:penstock_${layer}_objects>)
    endif()
  endforeach()
  add_library(${target} ${kind} ${objects})
  add_library(Penstock::${arg_EXPORT} ALIAS ${target})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} EXPORT_NAME ${arg_EXPORT}
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                             $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_link_libraries(${target} PRIVATE ${arg_LINKS})
  if(PENSTOCK_SANITIZE)
    target_link_options(${target} PUBLIC -fsanitize=${PENSTOCK_SANITIZE})
  endif()
endfunction()
