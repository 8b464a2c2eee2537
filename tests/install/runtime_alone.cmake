# Installs the C runtime of the build in build_dir, and nothing else, into an empty prefix; builds and runs a program in C
# against it, by CMake and by pkg-config, and against its Debian package.
cmake_minimum_required(VERSION 3.22)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(build_by_cmake prefix)
  run(${CMAKE_COMMAND} -S ${source_dir} -B ${prefix}_build -G ${generator} -D CMAKE_CXX_COMPILER=${compiler}
      -D CMAKE_PREFIX_PATH=${prefix} -D PENSTOCK_VERSION=${version})
  run(${CMAKE_COMMAND} --build ${prefix}_build)
  run(${prefix}_build/consumer)
endfunction()

set(prefix ${work_dir}/prefix)
file(REMOVE_RECURSE ${work_dir})
run(${CMAKE_COMMAND} --install ${build_dir} --component runtime --prefix ${prefix})
build_by_cmake(${prefix})

find_program(pkg_config pkg-config)
find_program(cc cc)
if(pkg_config AND cc)
  file(GLOB_RECURSE pc ${prefix}/penstock-runtime.pc)
  get_filename_component(pc_folder "${pc}" DIRECTORY)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc_folder} ${pkg_config} --cflags --libs penstock-runtime
                  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  run(${cc} ${source_dir}/main.c -o ${work_dir}/by_pkg_config ${flags})
  run(${work_dir}/by_pkg_config)
endif()

find_program(dpkg_deb dpkg-deb)
if(dpkg_deb)
  run(${CMAKE_CPACK_COMMAND} -G DEB --config ${build_dir}/CPackConfig.cmake -B ${work_dir}/package)
  file(GLOB package ${work_dir}/package/*.deb)
  run(${dpkg_deb} -x ${package} ${work_dir}/unpacked)
  build_by_cmake(${work_dir}/unpacked/usr)
endif()
