# Writes OUTPUT, a C++ file with the texts listed in the file LIST, each under its file's
# name: NAMESPACE::FUNCTION() gives them as a span of TYPE {name, text}, which HEADER declares.
# Run at build time whenever one of them changed.
file(STRINGS ${LIST} files)
set(text "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\n")
string(APPEND text "std::span<const ${TYPE}> ${FUNCTION}() {\n")
string(APPEND text "  static constexpr ${TYPE} kTexts[] = {\n")
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME_WLE)
  file(READ ${file} content)
  string(APPEND text "      {\"${name}\", R\"kiln(${content})kiln\"},\n")
endforeach()
string(APPEND text "  };\n  return kTexts;\n}\n\n}  // namespace ${NAMESPACE}\n")
file(WRITE ${OUTPUT}.new "${text}")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
