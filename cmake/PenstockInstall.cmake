# The installed package: headers, the library and the solver by itself, the program, and what find_package(Penstock) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Penstock)

set(left_out "")
if(NOT PENSTOCK_TRAINING)
  set(left_out REGEX "/penstock/(data|train|forecast|classify)(\\.h)?$" EXCLUDE)
endif()
install(DIRECTORY include/penstock ${PROJECT_BINARY_DIR}/include/penstock
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" ${left_out})
install(FILES include/penstock_pool.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS penstock_core penstock_solver EXPORT PenstockTargets)
# The C runtime, which is a Debian package by itself as well: cpack -G DEB.
install(TARGETS penstock_runtime EXPORT PenstockRuntimeTargets ARCHIVE COMPONENT runtime)
install(EXPORT PenstockRuntimeTargets NAMESPACE Penstock:: DESTINATION ${package_dir} COMPONENT runtime)
install(FILES include/penstock.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT runtime)
file(RELATIVE_PATH PENSTOCK_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/penstock-runtime.pc.in ${PROJECT_BINARY_DIR}/penstock-runtime.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/penstock-runtime.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT runtime)
install(FILES LICENSE docs/runtime.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/penstock-runtime-dev COMPONENT runtime)
set(CPACK_PACKAGE_NAME penstock)
set(CPACK_PACKAGE_CONTACT "Penstock")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL runtime)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME penstock-runtime-dev)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "Recurrent models of Penstock as streams: header and static library")
include(CPack)
if(PENSTOCK_TRAINING)
  install(TARGETS penstock EXPORT PenstockTargets)
endif()
if(TARGET penstock-cli)
  install(TARGETS penstock-cli)
  # What `penstock bench` runs in Python, where there is one.
  install(DIRECTORY bench/peers/ DESTINATION ${CMAKE_INSTALL_DATADIR}/penstock/bench FILES_MATCHING
          PATTERN "server.py" PATTERN "*_peer.py" PATTERN "plot.py" PATTERN "__pycache__" EXCLUDE)
endif()
if(TARGET penstock-cli AND NOT CMAKE_CROSSCOMPILING)
  # The program itself knows its manual and how shells complete its options.
  install(CODE "
    set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
    foreach(folder man/man1 bash-completion/completions zsh/site-functions fish/vendor_completions.d)
      file(MAKE_DIRECTORY \"\${share}/\${folder}\")
    endforeach()
    execute_process(COMMAND $<TARGET_FILE:penstock-cli> man --folder \"\${share}/man/man1\" COMMAND_ERROR_IS_FATAL ANY)
    foreach(file bash-completion/completions/penstock zsh/site-functions/_penstock
                 fish/vendor_completions.d/penstock.fish)
      string(REGEX MATCH \"^[a-z]+\" shell \"\${file}\")
      execute_process(COMMAND $<TARGET_FILE:penstock-cli> completion \"\${shell}\" OUTPUT_FILE \"\${share}/\${file}\"
                      COMMAND_ERROR_IS_FATAL ANY)
    endforeach()")
endif()
install(EXPORT PenstockTargets NAMESPACE Penstock:: DESTINATION ${package_dir})

configure_package_config_file(cmake/PenstockConfig.cmake.in ${PROJECT_BINARY_DIR}/PenstockConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/PenstockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/PenstockConfig.cmake ${PROJECT_BINARY_DIR}/PenstockConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT runtime)  # so that the package of the runtime alone has them
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
