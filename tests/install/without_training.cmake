# Configures a small build: with -D PENSTOCK_TRAINING=OFF it has the layers that run networks, and neither the others nor
# the program; with -D PENSTOCK_MARCH=... its kernels are compiled for that instruction set alone.
cmake_minimum_required(VERSION 3.22)
file(REMOVE_RECURSE ${work_dir})
set(isa "")
if(CMAKE_HOST_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(isa x86-64-v3)
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -S ${source_dir} -B ${work_dir} -G ${generator} -D CMAKE_CXX_COMPILER=${compiler}
                        -D PENSTOCK_TRAINING=OFF -D PENSTOCK_TESTS=OFF -D PENSTOCK_MARCH=${isa}
                        -D CMAKE_EXPORT_COMPILE_COMMANDS=ON COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${work_dir} --target help OUTPUT_VARIABLE targets
                        COMMAND_ERROR_IS_FATAL ANY)
foreach(layer io stream)
  if(NOT targets MATCHES "penstock_${layer}[: ]")
    message(FATAL_ERROR "the layer ${layer} is missing")
  endif()
endforeach()
foreach(target penstock_data penstock_forecast penstock_classify penstock_train penstock-cli)
  if(targets MATCHES "${target}[: ]")
    message(FATAL_ERROR "${target} is there")
  endif()
endforeach()
file(READ ${work_dir}/compile_commands.json commands)
if(isa AND NOT commands MATCHES "-DHWY_COMPILE_ONLY_STATIC [^\n]*-march=${isa} [^\n]*/src/core/network/product_kernels.cc")
  message(FATAL_ERROR "kernels are not compiled for ${isa} alone")
endif()
