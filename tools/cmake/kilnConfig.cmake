# find_package(kiln) leads here; the target is kiln::kiln.
include(CMakeFindDependencyMacro)
find_dependency(tl-expected)  # Debian: libexpected-dev; kiln::Result is made of it
include("${CMAKE_CURRENT_LIST_DIR}/kilnTargets.cmake")
