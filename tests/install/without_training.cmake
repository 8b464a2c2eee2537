# Configures a build with -D PENSTOCK_TRAINING=OFF: it has the layers that run networks, and neither the others nor the
# program.
cmake_minimum_required(VERSION 3.22)
file(REMOVE_RECURSE ${work_dir})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${source_dir} -B ${work_dir} -G ${generator} -D CMAKE_CXX_COMPILER=${compiler}
                        -D PENSTOCK_TRAINING=OFF -D PENSTOCK_TESTS=OFF COMMAND_ERROR_IS_FATAL ANY)
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
