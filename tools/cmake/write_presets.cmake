# Writes OUTPUT, a C++ file with the presets listed in the file LIST, each under its file's
# name. Run at build time whenever one of them changed.
file(STRINGS ${LIST} files)
set(text "#include \"ops/preset.h\"\n\nnamespace kiln::ops {\n\n")
string(APPEND text "std::span<const BuiltInPreset> built_in_presets() {\n")
string(APPEND text "  static constexpr BuiltInPreset kPresets[] = {\n")
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME_WLE)
  file(READ ${file} preset)
  string(APPEND text "      {\"${name}\", R\"kiln(${preset})kiln\"},\n")
endforeach()
string(APPEND text "  };\n  return kPresets;\n}\n\n}  // namespace kiln::ops\n")
file(WRITE ${OUTPUT}.new "${text}")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
