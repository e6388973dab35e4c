# Writes OUTPUT.cc, for kiln_embed(): in NAMESPACE a function for each source that OUTPUT.txt lists, three
# lines a file: SOURCES or HEADERS, name, path. Run at build time whenever a file or the list changed.
# The texts become bytes in literals of at most 16 KiB each: no text ends a literal, is changed
# by the compiler's character set, or is longer than a compiler takes.
cmake_policy(VERSION 3.20)

# kiln_pieces(VARIABLE PATH): the bytes of the file, as literals of C++.
function(kiln_pieces variable path)
  file(SIZE ${path} size)
  set(pieces "")
  set(at 0)
  while(at LESS size)
    file(READ ${path} piece OFFSET ${at} LIMIT 16384 HEX)
    string(REGEX REPLACE "(..)" "\\\\x\\1" piece "${piece}")
    string(APPEND pieces "\n    \"${piece}\"sv,")
    math(EXPR at "${at} + 16384")
  endwhile()
  set(${variable} "${pieces}" PARENT_SCOPE)
endfunction()

# NVRTC finds a header in memory by the name that #include spells, and not beside the file that includes it.
function(kiln_warn_of_includes name path headers)
  get_filename_component(folder /${name} DIRECTORY)
  file(STRINGS ${path} lines REGEX "^[ \t]*#[ \t]*include[ \t]*\"[^\"]+\"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[^\"]*\"([^\"]+)\".*" "\\1" spelled "${line}")
    get_filename_component(meant "${folder}/${spelled}" ABSOLUTE)
    string(SUBSTRING "${meant}" 1 -1 meant)
    if(meant IN_LIST headers AND NOT spelled IN_LIST headers)
      message(NOTICE "${path}: warning: kiln_embed: #include \"${spelled}\" finds no header: write "
                     "\"${meant}\", its name below BASE")
    endif()
  endforeach()
endfunction()

file(STRINGS ${OUTPUT}.txt lines ENCODING UTF-8)
set(headers "")
set(header_texts "")
set(functions "")
set(remaining ${lines})
while(remaining)
  list(POP_FRONT remaining kind name path)
  if(kind STREQUAL "HEADERS")
    list(APPEND headers "${name}")
  endif()
endwhile()
while(lines)
  list(POP_FRONT lines kind name path)
  kiln_warn_of_includes("${name}" "${path}" "${headers}")
  kiln_pieces(pieces "${path}")
  string(REGEX REPLACE "([\\\"])" "\\\\\\1" quoted "${name}")
  if(kind STREQUAL "HEADERS")
    string(APPEND header_texts "      {\"${quoted}\", joined({${pieces}})},\n")
    continue()
  endif()
  string(MAKE_C_IDENTIFIER "${name}" function)
  string(APPEND functions "
kiln::SourceOptions ${function}() {
  kiln::SourceOptions made;
  made.source = joined({${pieces}});
  made.file_name = \"${quoted}\";
  made.headers = header_texts();
  return made;
}
")
endwhile()

get_filename_component(header ${OUTPUT}.h NAME)
file(WRITE ${OUTPUT}.cc "// Written by kiln_embed().
#include \"${header}\"

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

namespace ${NAMESPACE} {
namespace {

using namespace std::string_view_literals;

std::string joined(std::initializer_list<std::string_view> pieces) {
  std::string text;
  for (const std::string_view piece : pieces) text += piece;
  return text;
}

std::map<std::string, std::string> header_texts() {
  return {
${header_texts}  };
}

}  // namespace
${functions}
}  // namespace ${NAMESPACE}
")
