# Installs the build in build_dir into an empty prefix, then builds and runs the project in source_dir against it.
cmake_minimum_required(VERSION 3.22)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(prefix ${work_dir}/prefix)
file(REMOVE_RECURSE ${work_dir})
run(${CMAKE_COMMAND} --install ${build_dir} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${source_dir} -B ${work_dir}/build -G ${generator} -D CMAKE_CXX_COMPILER=${compiler}
    -D CMAKE_PREFIX_PATH=${prefix} -D PENSTOCK_VERSION=${version})
run(${CMAKE_COMMAND} --build ${work_dir}/build)
run(${work_dir}/build/consumer)
run(${work_dir}/build/solver)
run(${work_dir}/build/c_consumer)

# The Python package is a component by itself, which a wheel asks for.
file(GLOB python ${prefix}/penstock/*)
if(python)
  message(FATAL_ERROR "the Python package was installed, too: ${python}")
endif()

file(GLOB program ${prefix}/bin/penstock)
if(program)
  run(${program} --version)
  run(${program} bench layer --cells lstm --shapes 1x3x2x5 --threads 1 --peers none --quick --quiet)
  if(NOT EXISTS ${prefix}/share/penstock/bench/server.py)
    message(FATAL_ERROR "the scripts of the benchmark's peers are not installed")
  endif()
endif()
