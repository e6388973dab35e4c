# Writes OUTPUT, a header with the SHA-256 of the sources listed in the file LIST, as the
# macro NAME (KILN_BUILD_ID if none is given).
# Run at build time whenever one of them changed.
if(NOT NAME)
  set(NAME KILN_BUILD_ID)
endif()
file(STRINGS ${LIST} sources)
set(digests "")
foreach(source IN LISTS sources)
  file(SHA256 ${source} digest)
  string(APPEND digests "${digest}\n")
endforeach()
string(SHA256 build_id "${digests}")
file(WRITE ${OUTPUT}.new "#pragma once\n#define ${NAME} \"${build_id}\"\n")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
