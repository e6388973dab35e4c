# The Debian package: `cpack` in a build folder packs what `cmake --install` puts down, under /usr.
# Depends names the packages of the libraries that its files need; NVRTC and cuDNN are found at run time.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kiln)
set(CPACK_PACKAGE_CONTACT "Kiln <kiln@localhost>")  # the field Maintainer, which dpkg requires
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION "Compiles CUDA kernels with NVRTC, once for each GPU architecture, and caches them.
NVRTC 12 or 13 is not in it: the program finds an installed toolkit or a Python wheel.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(TARGET kiln-remote)  # which opens it when it starts
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libcurl4 (>= 7.85)")
endif()
set(CPACK_DEBIAN_PACKAGE_SUGGESTS libexpected-dev)  # the C++ headers include it
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/tools/cmake/KilnPackageZsh.cmake)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/tools/cmake/KilnPackageCheck.cmake)
include(CPack)
