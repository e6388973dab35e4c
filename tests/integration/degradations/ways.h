// How a cache comes to do worse than it could, by real means. Each is a test's body: it
// may fail or skip it.

#pragma once

#include <string_view>

#include "tests/integration/degradations/place.h"

namespace kiln::test {

/// Where `text` stands last in a file.
[[nodiscard]] std::size_t find(const Bytes& file, std::string_view text);

void hold_lock(Place& place);
void seed_with_a_file(Place& place);
void upload_to_nobody(Place& place);
void hold_slot(Place& place);
void close_descriptors_of_a_lock(Place& place);
void plant_a_file(Place& place);
void fail_a_sync(Place& place);
void serve_another_key(Place& place);
void serve_another_target(Place& place);
void find_a_foreign_preimage(Place& place);
void let_others_write(Place& place);
void fail_to_read(Place& place);
void build_otherwise(Place& place);
void replace_the_compiler(Place& place);
void include_what_a_macro_names(Place& place);
void write_over_the_index(Place& place);
void put_a_folder_for_the_index(Place& place);
void trim_to_nothing(Place& place);
void leave_temporaries(Place& place);
void fill_the_quarantine(Place& place);
void ask_three_times(Place& place);
void ask_a_compiler_that_crashes(Place& place);
void ask_for_a_precompiled_header(Place& place);
/// With the fake compiler in that mode.
void compile_with(Place& place, const char* mode);

}  // namespace kiln::test
