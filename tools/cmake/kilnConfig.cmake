# find_package(kiln) leads here; the target is kiln::kiln, for C++ and for C.
include(CMakeFindDependencyMacro)
# Debian: libexpected-dev. kiln::Result is made of it; kiln/c.h includes nothing of it.
get_property(kiln_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if("CXX" IN_LIST kiln_languages)
  find_dependency(tl-expected)
endif()
unset(kiln_languages)
include("${CMAKE_CURRENT_LIST_DIR}/kilnEmbed.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/kilnTargets.cmake")
if(TARGET tl::expected)
  target_link_libraries(kiln::kiln INTERFACE tl::expected)
endif()
