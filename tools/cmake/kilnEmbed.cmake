# kiln_embed(TARGET target SOURCES file... [HEADERS file...] [BASE folder...] [NAMESPACE name] [NAME name])
# The target carries the CUDA sources and headers, and so needs no path at run time. Its C++ files include
# "NAME.h" ("kernels.h"), which declares a function for each source: NAMESPACE::NAME::scale_cu() returns
# the kiln::SourceOptions of scale.cu. NAMESPACE is by default the name of the target. A header has the
# name that it has below the nearest BASE, by default the current folder.
# In kilnConfig.cmake, and in a build that has Kiln as a part; docs/from-nvcc.md has an example.
cmake_policy(PUSH)
cmake_policy(VERSION 3.20)

# kiln_name_below(VARIABLE FILE FOLDERS): as #include spells it. An error if FILE is in none of FOLDERS.
function(kiln_name_below variable file folders)
  get_filename_component(path ${file} ABSOLUTE)
  get_source_file_property(is_made ${path} GENERATED)
  if(IS_DIRECTORY ${path} OR NOT (is_made OR EXISTS ${path}))
    message(FATAL_ERROR "kiln_embed: there is no file ${path}. A file that the build makes needs the "
                        "property GENERATED.")
  endif()
  set(shortest "")
  foreach(folder IN LISTS folders)
    get_filename_component(folder ${folder} ABSOLUTE)
    file(RELATIVE_PATH name ${folder} ${path})
    string(LENGTH "${name}" length)
    if(NOT name MATCHES "^\\.\\./" AND (NOT shortest OR length LESS least))
      set(shortest ${name})
      set(least ${length})
    endif()
  endforeach()
  if(shortest)
    set(${variable} ${shortest} PARENT_SCOPE)
    return()
  endif()
  list(JOIN folders ", " folders)
  message(FATAL_ERROR "kiln_embed: ${path} is outside of BASE (${folders}), so it has no name that #include "
                      "could spell. Let BASE name a folder above it; several are possible.")
endfunction()

function(kiln_embed)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET;NAMESPACE;NAME" "SOURCES;HEADERS;BASE")
  set(wrong ${arg_UNPARSED_ARGUMENTS} ${arg_KEYWORDS_MISSING_VALUES})
  if(wrong OR NOT arg_TARGET OR NOT arg_SOURCES)
    message(FATAL_ERROR "kiln_embed: TARGET and SOURCES are needed; not understood: '${wrong}'. "
                        "kiln_embed(TARGET target SOURCES file... [HEADERS file...] [BASE folder...] "
                        "[NAMESPACE name] [NAME name])")
  endif()
  set(unfit "")
  if(NOT TARGET ${arg_TARGET})
    set(unfit "is no target")
  else()
    get_target_property(folder ${arg_TARGET} SOURCE_DIR)
    get_target_property(kind ${arg_TARGET} TYPE)
    get_target_property(is_alias ${arg_TARGET} ALIASED_TARGET)
    get_target_property(is_imported ${arg_TARGET} IMPORTED)
    get_target_property(names ${arg_TARGET} KILN_EMBEDDED)
    if(is_alias OR is_imported OR kind STREQUAL "INTERFACE_LIBRARY" OR kind STREQUAL "UTILITY")
      set(unfit "compiles no source: name a library or an executable of this project")
    elseif(NOT folder STREQUAL CMAKE_CURRENT_SOURCE_DIR)
      set(unfit "is made in ${folder}: call kiln_embed there")
    endif()
  endif()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT unfit AND NOT "CXX" IN_LIST languages)
    set(unfit "cannot compile C++, in which the texts are written: add CXX to the project's LANGUAGES")
  endif()
  if(unfit)
    message(FATAL_ERROR "kiln_embed: the target ${arg_TARGET} ${unfit}.")
  endif()

  if(NOT arg_BASE)
    set(arg_BASE ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
  if(NOT arg_NAME)
    set(arg_NAME kernels)
  endif()
  if(NOT arg_NAMESPACE)
    string(MAKE_C_IDENTIFIER ${arg_TARGET} arg_NAMESPACE)
  endif()
  if(NOT "${arg_NAMESPACE}::${arg_NAME}" MATCHES "^([A-Za-z_][A-Za-z_0-9]*::)+[A-Za-z_][A-Za-z_0-9]*$")
    message(FATAL_ERROR "kiln_embed: '${arg_NAMESPACE}::${arg_NAME}', of NAMESPACE and NAME, is no "
                        "namespace of C++.")
  endif()
  if(arg_NAME IN_LIST names)
    message(FATAL_ERROR "kiln_embed: the target ${arg_TARGET} has a ${arg_NAME}.h of an earlier call. "
                        "Give this call another NAME.")
  endif()
  set_property(TARGET ${arg_TARGET} APPEND PROPERTY KILN_EMBEDDED ${arg_NAME})

  set(lines "")
  set(files "")
  set(declared "")
  foreach(kind SOURCES HEADERS)
    set(known "")
    foreach(file IN LISTS arg_${kind})
      kiln_name_below(name ${file} "${arg_BASE}")
      set(identity ${name})
      if(kind STREQUAL "SOURCES")
        string(MAKE_C_IDENTIFIER ${name} identity)
        string(APPEND declared "/// ${name}\n[[nodiscard]] kiln::SourceOptions ${identity}();\n")
      endif()
      if(identity IN_LIST known)
        message(FATAL_ERROR "kiln_embed: two of ${kind} have the name ${identity}; the second is ${file}.")
      endif()
      list(APPEND known ${identity})
      get_filename_component(path ${file} ABSOLUTE)
      list(APPEND files ${path})
      string(APPEND lines "${kind}\n${name}\n${path}\n")
    endforeach()
  endforeach()

  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/kilnEmbedTexts.cmake)
  set(namespace ${arg_NAMESPACE}::${arg_NAME})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/kiln_embed/${arg_TARGET})
  set(output ${folder}/${arg_NAME})
  file(WRITE ${output}.h.new "// Written by kiln_embed(). Each call copies the texts: keep the kiln::Request.
#pragma once

#include <kiln/request.h>

namespace ${namespace} {

${declared}
}  // namespace ${namespace}
")
  # The list is an input of the build: a file that is taken out of it must go from the target.
  file(WRITE ${output}.txt.new "${lines}")
  foreach(written ${output}.h ${output}.txt)
    configure_file(${written}.new ${written} COPYONLY)  # only if it differs
  endforeach()
  add_custom_command(
    OUTPUT ${output}.cc
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DNAMESPACE=${namespace} -P ${script}
    DEPENDS ${files} ${output}.txt ${script}
    COMMENT "Embedding the sources of ${namespace}"
    VERBATIM)
  target_sources(${arg_TARGET} PRIVATE ${output}.cc ${output}.h)
  target_include_directories(${arg_TARGET} PRIVATE ${folder})
endfunction()

cmake_policy(POP)
