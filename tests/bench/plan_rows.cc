// A cached execution plan, from the problem to a plan that cuDNN has loaded, beside
// cuDNN's own load of the same JSON. No device is needed: cuDNN is told of one.

#include <dlfcn.h>

#include <memory>

#include "cudnn/plan_service.h"
#include "cudnn/table.h"
#include "tests/bench/kernels.h"
#include "tests/bench/rows.h"
#include "tests/bench/scratch.h"
#include "tests/support/attention_problem.h"
#include "tests/support/paths.h"
#include "util/try.h"

namespace kiln::bench {
namespace {

namespace cudnn = attention::cudnn;

attention::Problem problem() {
  return test::backward_of(test::usual_attention_problem(
      [](auto& problem) { problem.mask = attention::Mask::kCausal; }));
}

/// cuDNN as the plan worker has it: told of a device, and with a driver that has none.
class DevicelessCudnn {
 public:
  static Result<std::shared_ptr<DevicelessCudnn>> open(
      const attention::CudnnLibrary& library, const std::string& device_json) {
    if (::dlopen(test::paths::kNoDeviceDriver, RTLD_NOW | RTLD_GLOBAL) == nullptr)
      return fail(ErrorCode::kUnavailable, "the driver without devices does not open");
    auto made = std::shared_ptr<DevicelessCudnn>(new DevicelessCudnn(library.table()));
    KILN_TRY(made->make(cudnn::DescriptorKind::kDeviceProperties, made->device_));
    KILN_TRY(made->set_text(made->device_, cudnn::Attribute::kDevicePropertiesJson,
                            device_json));
    KILN_TRY(made->check(made->table_.cudnnBackendFinalize(made->device_)));
    return made;
  }

  Result<void> load(const std::string& json) {
    cudnn::Descriptor plan = nullptr;
    KILN_TRY(make(cudnn::DescriptorKind::kExecutionPlan, plan));
    KILN_TRY(check(table_.cudnnBackendSetAttribute(
        plan, cudnn::Attribute::kPlanDeviceProperties,
        cudnn::AttributeType::kDescriptor, 1, &device_)));
    KILN_TRY(set_text(plan, cudnn::Attribute::kPlanJson, json));
    KILN_TRY(check(table_.cudnnBackendFinalize(plan)));
    return check(table_.cudnnBackendDestroyDescriptor(plan));
  }

 private:
  explicit DevicelessCudnn(const attention::CudnnTable& table) : table_(table) {}

  Result<void> make(cudnn::DescriptorKind kind, cudnn::Descriptor& made) const {
    return check(table_.cudnnBackendCreateDescriptor(kind, &made));
  }
  Result<void> set_text(cudnn::Descriptor of, cudnn::Attribute name,
                        const std::string& text) const {
    return check(table_.cudnnBackendSetAttribute(of, name, cudnn::AttributeType::kChar,
                                                 static_cast<std::int64_t>(text.size()),
                                                 text.data()));
  }
  [[nodiscard]] Result<void> check(cudnn::Status status) const {
    if (status == cudnn::Status::kSuccess)
      return {};
    return attention::cudnn_error(table_, status, "cuDNN's backend", "");
  }

  const attention::CudnnTable& table_;
  cudnn::Descriptor device_ = nullptr;  // until the end of the process
};

struct CachedPlan : ScratchService {
  std::unique_ptr<PlanService> plans;
  device::DeviceProperties device;
  std::shared_ptr<DevicelessCudnn> cudnn;
  std::string json;
};

Result<std::shared_ptr<CachedPlan>> cache_a_plan(const Settings& settings) {
  auto made = std::make_shared<CachedPlan>();
  static_cast<ScratchService&>(*made) = KILN_TRY(scratch_service(settings.folder));
  made->plans = std::make_unique<PlanService>(*made->service);
  made->device = KILN_TRY(device::read_device_properties("h200"));
  made->cudnn = KILN_TRY(DevicelessCudnn::open(KILN_TRY(made->plans->library()),
                                               made->device.cudnn_json()));
  const auto keyed = KILN_TRY(made->plans->key(problem(), made->device));
  const auto fetched = KILN_TRY(made->plans->fetch(keyed));
  if (fetched.object == nullptr)
    return fail(ErrorCode::kUnavailable, to_string(fetched.attempts));
  made->json = KILN_TRY(attention::decode_plan(fetched.object->payload())).json;
  return made;
  // The analyzer loses `made` in a Result. NOLINTNEXTLINE(clang-analyzer-cplusplus*)
}

/// The whole way: key, object read and verified, kernels checked, loaded.
Result<void> fetch_and_load(CachedPlan& cached) {
  const auto keyed = KILN_TRY(cached.plans->key(problem(), cached.device));
  const auto fetched = KILN_TRY(cached.plans->fetch(keyed));
  if (fetched.object == nullptr || fetched.outcome != FetchOutcome::kHit)
    return fail(ErrorCode::kNotFound, "a hit was a miss");
  const auto plan = KILN_TRY(attention::decode_plan(fetched.object->payload()));
  return cached.cudnn->load(plan.json);
}

}  // namespace

std::vector<Row> plan_rows(const Settings& settings) {
  const auto prepare = [=]() -> Result<Sides> {
    const auto cached = KILN_TRY(cache_a_plan(settings));
    Sides sides;
    sides.measured = [=] { return timed([&] { return fetch_and_load(*cached); }); };
    sides.floor = [=] {
      return timed([&] { return cached->cudnn->load(cached->json); });
    };
    return sides;
  };
  return {{.name = "plan/cached",
           .what = "attention problem -> cached plan, loaded by cuDNN",
           .floor = "cuDNN's own load of the same JSON in memory",
           .limit = {1.2},
           .prepare = prepare}};
}

}  // namespace kiln::bench
