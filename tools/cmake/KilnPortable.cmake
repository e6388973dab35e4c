# KILN_PORTABLE: what a file of Kiln brings along, because in a process of Python libraries of the same
# name but of another version may be loaded already. SQLite, zstd, LZ4 and minizip stay shared, since
# Debian's archives of them are not position-independent: auditwheel copies them under names of their own.
# Defines the targets kiln_log_libraries (fmt, spdlog) and kiln_toml (toml++).
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(tomlplusplus REQUIRED)
add_library(kiln_log_libraries INTERFACE)
add_library(kiln_toml INTERFACE)
if(NOT KILN_PORTABLE)
  target_link_libraries(kiln_log_libraries INTERFACE fmt::fmt spdlog::spdlog)
  target_link_libraries(kiln_toml INTERFACE tomlplusplus::tomlplusplus)
  return()
endif()

find_package(Threads REQUIRED)
# Not spdlog::spdlog_header_only, which links libfmt.so.
target_include_directories(kiln_log_libraries SYSTEM INTERFACE
  $<TARGET_PROPERTY:spdlog::spdlog_header_only,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_definitions(kiln_log_libraries INTERFACE SPDLOG_FMT_EXTERNAL)
target_link_libraries(kiln_log_libraries INTERFACE fmt::fmt-header-only Threads::Threads)

# The target would link libtomlplusplus.so, whose exceptions are of another libstdc++.
target_include_directories(kiln_toml SYSTEM INTERFACE
  $<TARGET_PROPERTY:tomlplusplus::tomlplusplus,INTERFACE_INCLUDE_DIRECTORIES>)

set(OPENSSL_USE_STATIC_LIBS ON)
find_library(KILN_XXHASH_ARCHIVE libxxhash.a REQUIRED)
# Not -static-libgcc, whose unwinder asks for glibc 2.35; every system with glibc has libgcc_s.so.1.
target_link_options(kiln_settings INTERFACE -static-libstdc++
                                            -Wl,--exclude-libs,libcrypto.a:libxxhash.a)
# Asked for by name, as it comes before libstdc++ in the order of the linker.
add_library(kiln_arc4random STATIC ${CMAKE_CURRENT_LIST_DIR}/arc4random.cc)
target_compile_features(kiln_arc4random PRIVATE cxx_std_20)
target_link_libraries(kiln_settings INTERFACE kiln_arc4random)
target_link_options(kiln_settings INTERFACE -Wl,--undefined=arc4random)
