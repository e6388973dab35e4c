#include "tests/fault/corruption/real_objects.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "build/build_options.h"
#include "tests/support/service_requests.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::test {
namespace {

constexpr std::uint64_t kLargest = 1U << 20U;

Request kernel(const std::string& name, const std::string& statement) {
  SourceOptions source;
  source.source = "template <typename T>\n__global__ void " + name +
                  "(T* x, T by) {\n  T t = x[threadIdx.x];\n  " + statement +
                  "\n  x[threadIdx.x] = t;\n}\n";
  source.name_expressions = {name + "<float>"};
  return Request::from_source(std::move(source));
}

Result<RealObject> build(BuildService& service, const Request& request,
                         const device::BuildFor& build_for) {
  const PreparedRequest prepared = KILN_TRY(service.prepare(request));
  const auto keyed = std::get<KeyedRequest>(KILN_TRY(service.key(prepared, build_for)));
  const Fetched fetched = KILN_TRY(service.fetch(keyed));
  if (fetched.outcome != FetchOutcome::kCompiled || fetched.not_stored)
    return fail(ErrorCode::kIo, "an object was not built and stored");
  RealObject object;
  object.key = keyed.key;
  const ByteView payload = fetched.object->payload();
  object.payload.assign(payload.begin(), payload.end());
  const cache::Metadata metadata = KILN_TRY(fetched.object->metadata());
  for (const cache::EntryPoint& entry : metadata.entry_points)
    object.lowered_names.push_back(entry.lowered);
  const fs::path path = service.cache().layout().object(keyed.key);
  object.file = KILN_TRY(read_file(path, kLargest)).value_or(Bytes());
  return object;
}

}  // namespace

Result<RealObjects> build_real_objects() {
  const TempDir temp;
  const auto service =
      KILN_TRY(BuildService::open(service_config(temp.path() / "root")));
  const auto scale = [](const std::string& statement) {
    return kernel("scale", statement);
  };
  const device::Target sm_80{{{8, 0}}};
  const device::Target sm_90{{{9, 0}}};
  const ComputeCapability unknown{99, 0};
  std::string long_statement;
  for (int i = 3; i < 40; ++i)
    long_statement += "t = t * by + " + std::to_string(i) + ".5f;\n";
  const Request small = scale("t = t * by + 2.5f;");
  return RealObjects{
      .sm_80 = KILN_TRY(build(*service, small, sm_80)),
      .sm_90 = KILN_TRY(build(*service, small, sm_90)),
      .ptx = KILN_TRY(build(*service, small, unknown)),
      .other_code = KILN_TRY(build(*service, scale("t = t * by + 3.5f;"), sm_80)),
      .other_entry = KILN_TRY(build(*service, kernel("shift", "t = t + by;"), sm_80)),
      .larger = KILN_TRY(build(*service, scale(long_statement), sm_80))};
}

Answer ask(cache::Cache& cache, const RealObject& object) {
  const auto found = cache.find(object.key);
  if (!found)
    return Answer::kMiss;
  const auto names = found->lowered_names();
  const bool right = std::ranges::equal(found->payload(), object.payload) && names &&
                     std::ranges::equal(*names, object.lowered_names);
  return right ? Answer::kRight : Answer::kWrong;
}

cache::CacheOptions options_of(const fs::path& root) {
  Config config;
  config.cache_dir = root;
  config.jobs = 1;
  return cache_options(config);
}

void install(const cache::Layout& layout, const RealObject& object) {
  install(layout, object, object.file);
}

void install(const cache::Layout& layout, const RealObject& object, ByteView file) {
  const fs::path path = layout.object(object.key);
  const std::string folder = path.parent_path();
  EXPECT_EQ(cache::make_folders(cache::real_file_system(), folder), 0);
  const std::string temporary = cache::Layout::temporary_in(folder);
  std::ofstream(temporary, std::ios::binary) << as_text(file);
  fs::permissions(temporary, fs::perms::owner_read | fs::perms::owner_write);
  fs::rename(temporary, path);
}

}  // namespace kiln::test
