# kiln_embed_texts(VARIABLE GLOB pattern HEADER file NAMESPACE name TYPE name FUNCTION name)
# Sets VARIABLE to a C++ file, written while building, in which NAMESPACE::FUNCTION() gives the
# texts of this folder's files that match, in order; see write_named_texts.cmake.
function(kiln_embed_texts variable)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "GLOB;HEADER;NAMESPACE;TYPE;FUNCTION" "")
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/write_named_texts.cmake)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${arg_FUNCTION}.cc)
  # The list is an input too: a file that is taken away must go from the program.
  set(list ${CMAKE_CURRENT_BINARY_DIR}/${arg_FUNCTION}.txt)
  file(GLOB files CONFIGURE_DEPENDS ${arg_GLOB})
  list(SORT files)
  list(JOIN files "\n" lines)
  file(CONFIGURE OUTPUT ${list} CONTENT "${lines}\n")
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DLIST=${list} -DHEADER=${arg_HEADER}
            -DNAMESPACE=${arg_NAMESPACE} -DTYPE=${arg_TYPE} -DFUNCTION=${arg_FUNCTION} -P ${script}
    DEPENDS ${files} ${list} ${script}
    COMMENT "Embedding ${arg_GLOB}"
    VERBATIM)
  set(${variable} ${output} PARENT_SCOPE)
endfunction()
