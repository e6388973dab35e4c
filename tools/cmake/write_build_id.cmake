# Writes OUTPUT, a header with the SHA-256 of the sources listed in the file LIST.
# Run at build time whenever one of them changed.
file(STRINGS ${LIST} sources)
set(digests "")
foreach(source IN LISTS sources)
  file(SHA256 ${source} digest)
  string(APPEND digests "${digest}\n")
endforeach()
string(SHA256 build_id "${digests}")
file(WRITE ${OUTPUT}.new "#pragma once\n#define KILN_BUILD_ID \"${build_id}\"\n")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
