# Everything that is installed: the program with its pages, the workers, and the library
# with its public headers, for find_package(kiln) and for pkg-config; its licence. Paths are relative to
# each other throughout, so that the prefix can be moved afterwards.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# kiln_install_programs(BIN LIBEXEC OPTION...): the program, and in one folder what it starts or loads.
function(kiln_install_programs bin libexec)
  install(TARGETS kiln RUNTIME DESTINATION ${bin} ${ARGN})
  foreach(part kiln-worker kiln-audit kiln-remote kiln-plan-worker kiln-no-device-driver)
    if(TARGET ${part})
      install(TARGETS ${part} RUNTIME DESTINATION ${libexec} ${ARGN} LIBRARY DESTINATION ${libexec} ${ARGN})
    endif()
  endforeach()
  install(DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/standard_headers DESTINATION ${libexec} ${ARGN})
endfunction()
kiln_install_programs(${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_LIBEXECDIR}/kiln)
install(FILES ${PROJECT_BINARY_DIR}/share/man/man1/kiln.1
        DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
foreach(completion bash-completion/completions/kiln fish/vendor_completions.d/kiln.fish zsh/site-functions/_kiln)
  cmake_path(GET completion PARENT_PATH folder)
  install(FILES ${PROJECT_BINARY_DIR}/share/${completion} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder})
endforeach()

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE
        DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(examples ${PROJECT_SOURCE_DIR}/tests/examples)
install(FILES ${examples}/from_c.c ${examples}/kernel.cu ${examples}/kernels.jsonl ${examples}/mine.toml
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
install(FILES ${examples}/include/scale.h DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples/include)
install(DIRECTORY ${examples}/from_nvcc DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples
        USE_SOURCE_PERMISSIONS)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/kubernetes DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples
        FILES_MATCHING PATTERN "*.yaml")  # and no key that somebody has placed beside them

# The test kit: docs/testing.md.
if(TARGET kiln-simulated-driver)
  install(TARGETS kiln-simulated-driver
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/kiln/testing)
  install(FILES ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/driver/libcuda.so.1
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/kiln/testing/driver)
  set(kit ${PROJECT_SOURCE_DIR}/tests/support/simulated_driver)
  install(FILES ${kit}/simulated_device.h ${kit}/simulated_driver.h
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/kiln/testing)
  install(FILES ${examples}/own_kernel_test.cc
          DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
  install(PROGRAMS ${examples}/ci.sh
          DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
  # Of a wheel, which has no links: python/testing.
  install(PROGRAMS $<TARGET_FILE:kiln-simulated-driver> DESTINATION lib/driver RENAME libcuda.so.1
          COMPONENT kit EXCLUDE_FROM_ALL)
endif()

install(TARGETS kiln_library EXPORT kilnTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})  # CMake before 3.23 reads no file set

set(kiln_package ${CMAKE_INSTALL_LIBDIR}/cmake/kiln)
set(kiln_generated ${PROJECT_BINARY_DIR}/install)
install(EXPORT kilnTargets NAMESPACE kiln:: DESTINATION ${kiln_package})
# Before 1.0 a minor version may change what programs see.
write_basic_package_version_file(${kiln_generated}/kilnConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/kilnConfig.cmake
              ${CMAKE_CURRENT_LIST_DIR}/kilnEmbed.cmake
              ${CMAKE_CURRENT_LIST_DIR}/kilnEmbedTexts.cmake
              ${kiln_generated}/kilnConfigVersion.cmake
        DESTINATION ${kiln_package})

# From kiln.pc to the prefix, and from there to what it names.
file(RELATIVE_PATH kiln_pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
     ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" kiln_pc_prefix "${kiln_pc_prefix}")
file(RELATIVE_PATH kiln_pc_libdir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH kiln_pc_includedir ${CMAKE_INSTALL_PREFIX}
     ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(${CMAKE_CURRENT_LIST_DIR}/kiln.pc.in ${kiln_generated}/kiln.pc @ONLY)
install(FILES ${kiln_generated}/kiln.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
