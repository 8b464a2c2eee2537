# The installed package: headers, the library and the solver by itself, the program, and what find_package(Penstock) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Penstock)

install(DIRECTORY include/penstock ${PROJECT_BINARY_DIR}/include/penstock
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS penstock penstock_solver EXPORT PenstockTargets)
if(TARGET penstock-cli)
  install(TARGETS penstock-cli)
  # What `penstock bench` runs in Python, where there is one.
  install(DIRECTORY bench/peers/ DESTINATION ${CMAKE_INSTALL_DATADIR}/penstock/bench FILES_MATCHING
          PATTERN "server.py" PATTERN "*_peer.py" PATTERN "plot.py" PATTERN "__pycache__" EXCLUDE)
endif()
install(EXPORT PenstockTargets NAMESPACE Penstock:: DESTINATION ${package_dir})

configure_package_config_file(cmake/PenstockConfig.cmake.in ${PROJECT_BINARY_DIR}/PenstockConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/PenstockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/PenstockConfig.cmake ${PROJECT_BINARY_DIR}/PenstockConfigVersion.cmake
        DESTINATION ${package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
