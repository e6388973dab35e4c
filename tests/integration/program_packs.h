// The fixture for tests that send and fetch packs.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "cache/pack.h"
#include "tests/integration/program_machines.h"
#include "tests/support/object_server.h"
#include "tests/support/processes.h"
#include "tests/support/sample_object.h"
#include "tests/support/sample_pack.h"

namespace kiln {

class ProgramPacksTest : public ProgramMachinesTest {
 protected:
  using Arguments = test::KilnProgram::Arguments;

  ProgramPacksTest() {
    kiln_.set("KILN_REMOTE", server_.url() + ";unsigned=1");
    use_machine("node");
  }

  /// What one run of the program came to; peaks as they are in its last milliseconds.
  struct Run {
    test::Finished finished;
    double seconds;
    std::uint64_t kiln_mib;    // peak, of kiln
    std::uint64_t helper_mib;  // of kiln-remote
  };

  Run measured(Arguments arguments) {
    arguments.emplace_back("--json");
    const auto began = std::chrono::steady_clock::now();
    auto running = kiln_.start(arguments);
    Run run{};
    while (test::is_running(running.pid())) {
      // Between fork and exec it is that of this process; after its end it is none.
      if (const auto peak = test::peak_kib(running.pid()) >> 10U; peak != 0)
        run.kiln_mib = peak;
      for (const pid_t child : test::children_of(running.pid())) {
        std::error_code ended;  // and before it is another program it has its parent's
        const auto program = std::filesystem::read_symlink(
            "/proc/" + std::to_string(child) + "/exe", ended);
        if (program.filename() == "kiln-remote")
          run.helper_mib = std::max(run.helper_mib, test::peak_kib(child) >> 10U);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    run.finished = running.finish();
    run.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    std::cout << arguments.front() << ": " << run.seconds << " s, kiln " << run.kiln_mib
              << " MiB, kiln-remote " << run.helper_mib << " MiB\n";
    return run;
  }

  /// A pack of so many objects of so many bytes each.
  std::string write_pack(const std::string& name, int objects,
                         std::size_t bytes = 3U << 19U) {
    std::string payload(bytes, '\0');
    std::mt19937_64 random(7);
    for (char& each : payload) each = static_cast<char>('0' + random() % 64);
    const std::string begin =
        ".version 9.0\n.target sm_90a\n.address_size 64\n"
        ".visible .entry _Z1kIfEvv() { ret; }\n// ";
    payload.replace(0, begin.size(), begin);
    std::ofstream file(place(name), std::ios::binary);
    cache::PackWriter writer([&file](ByteView part) -> Result<void> {
      file << as_text(part);
      return {};
    });
    EXPECT_TRUE(writer.begin(test::sample_header()));
    for (int i = 0; i < objects; ++i) {
      test::SampleObject sample(i, payload);
      sample->kind = cache::Kind::kPtx;
      sample->target = "compute_90a";
      EXPECT_TRUE(writer.add(cache::StoredObject::make(*sample).value()));
    }
    EXPECT_TRUE(writer.finish({}));
    return place(name);
  }

  test::ObjectServer server_;
};

}  // namespace kiln
