// Every file that the worker's compiler opens, as the process itself sees it: the
// implementation exports open, open64, fopen and fopen64, which the libraries then call
// in place of libc's. Includes can be computed, so no reading of the text finds all.
// Linked into kiln-worker only.

#pragma once

#include <filesystem>
#include <vector>

namespace kiln::compile {

/// Forgets what was opened so far and records from now on. Thread-safe.
void start_recording_opened_files();

/// Stops, and returns the files opened for reading meanwhile: absolute, each once, in
/// the order of first opening; nothing below /dev, /proc or /sys. Thread-safe.
[[nodiscard]] std::vector<std::filesystem::path> stop_recording_opened_files();

}  // namespace kiln::compile
