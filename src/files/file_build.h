// The turn of one caller to build files.

#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "build/build_service.h"
#include "build/cached_builds.h"
#include "codec/fields.h"
#include "files/inputs.h"
#include "files/private_folder.h"
#include "kiln/file_cache.h"
#include "kiln/result.h"
#include "util/fork_count.h"
#include "util/mutex.h"

namespace kiln::files {

/// What a cache and its builds share.
struct Shared {
  explicit Shared(std::unique_ptr<BuildService> opened)
      : service(std::move(opened)), inputs(service->memo_folder()) {}

  /// Tells how a request ended that began at `began`. `preimage`: of the files that
  /// were built.
  void tell(const FileRequest& request, const Digest& key,
            std::chrono::steady_clock::time_point began, const Result<Fetched>& fetched,
            const Fields& preimage);

  const std::unique_ptr<BuildService> service;
  InputReader inputs;
};

}  // namespace kiln::files

namespace kiln {

class FileBuild::Impl {
 public:
  /// `preimage`: of the key of `turn`.
  Impl(std::shared_ptr<files::Shared> shared, FileRequest request, Fields preimage,
       BuildTicket turn, std::chrono::milliseconds limit)
      : shared_(std::move(shared)),
        request_(std::move(request)),
        preimage_(std::move(preimage)),
        turn_(std::move(turn)),
        deadline_(begun_ + limit) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (!is_given_ && owner_.is_this())  // a forked child has it, too
      files::remove_whole(folder_);
  }

  Result<std::filesystem::path> folder();
  Result<Ran> run(const std::vector<std::string>& command,
                  const std::vector<std::string>& environment,
                  const std::stop_token& stop);
  Result<void> add_inputs(const std::vector<std::filesystem::path>& files,
                          const std::vector<std::string>& tools);
  Result<CachedFiles> commit(const std::vector<NamedFile>& files);
  Result<CachedFiles> commit_folder();
  void describe(const FileRequest& request);
  void fail(const Error& error);

 private:
  using Clock = std::chrono::steady_clock;

  struct WithInputs {
    Fields preimage;               // of the files
    Fields list;                   // the inputs that are in no look-up yet
    std::optional<Error> unfit{};  // why the files cannot be stored
  };

  [[nodiscard]] Result<void> check_process() const;
  [[nodiscard]] WithInputs with_inputs() const;
  [[nodiscard]] Result<Fetched> store(const std::vector<NamedFile>& files);

  // Constant after construction.
  const OwnerProcess owner_;
  const std::shared_ptr<files::Shared> shared_;  // `turn_` uses its service
  FileRequest request_;
  const Fields preimage_;
  BuildTicket turn_;
  const Clock::time_point begun_ = Clock::now();
  const std::chrono::system_clock::time_point begun_at_ =
      std::chrono::system_clock::now();
  const Clock::time_point deadline_;
  std::vector<std::string> inputs_;
  std::vector<std::string> tools_;

  Mutex mutex_;
  std::filesystem::path folder_ KILN_GUARDED_BY(mutex_);  // empty: not made yet
  bool is_given_ = false;                                 // it is a result, and stays
  bool is_told_ = false;                                  // how it ended
};

}  // namespace kiln
