// Makes the key of a checked request for a target, and the compile job that the key
// stands for. Both are made from the same values, so that neither can omit one.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <tuple>
#include <vector>

#include "codec/fields.h"
#include "compile/protocol/job.h"
#include "compile/protocol/link_job.h"
#include "key/header_hint.h"
#include "key/header_scan.h"
#include "key/key.h"
#include "kiln/result.h"
#include "request/resolve.h"
#include "toolchain/linker.h"
#include "toolchain/toolchain.h"
#include "util/mutex.h"

namespace kiln {

/// Of SourceOptions::as_nvrtc: `given` as an absolute path, or for "" this process's
/// working directory, by the name that NVRTC puts into debug information: that of PWD,
/// if it is one. Errors: kIo.
[[nodiscard]] Result<std::filesystem::path> working_directory(
    const std::filesystem::path& given);

/// A checked request. Copies share the headers, which are read once per toolkit: a
/// later change on disk needs a new request. Thread safety: any number of threads may
/// use one.
class PreparedRequest {
 public:
  PreparedRequest(request::ResolvedRequest resolved,
                  std::optional<key::SourceKeyInput> source,
                  std::vector<PreparedRequest> objects = {},
                  std::vector<compile::LinkInput> files = {});

  [[nodiscard]] const request::ResolvedRequest& resolved() const;
  /// What a link is made of; none for any other request.
  [[nodiscard]] const std::vector<PreparedRequest>& objects() const;
  /// Null for a source.
  [[nodiscard]] const request::TemplateRequest* as_template() const;
  /// Null for a template and a link.
  [[nodiscard]] const request::SourceRequest* as_source() const;
  /// "scaled_softmax_fwd:dtype=bf16,max_cols=any", or the file name of a source.
  [[nodiscard]] std::string label() const;
  /// The same, of a source with its kernels as `ls` lists them: "scale.cu:
  /// scale<half>". Kernels that only a header or a macro has are not named.
  [[nodiscard]] std::string name() const;
  /// Those of a source; of any other request none.
  [[nodiscard]] const std::vector<std::string>& kernels() const;
  /// The name of a source's program, which its object has as well; of a link the label.
  /// Empty for a template.
  [[nodiscard]] std::string file() const;
  /// True if both share one content, and so the same headers.
  [[nodiscard]] bool is_copy_of(const PreparedRequest& other) const {
    return content_ == other.content_;
  }

 private:
  friend class RequestKeys;
  struct Content;
  std::shared_ptr<Content> content_;  // never null
};

/// A request, a target and a toolchain: everything that determines the output.
struct KeyedRequest {
  PreparedRequest request;
  device::Target target;
  std::shared_ptr<const device::ToolchainChoice> toolchain;
  std::shared_ptr<const key::HeaderSnapshot> headers;  // empty for our own templates
  Digest key;
  /// Whether the key has the program's name; false only of what is as NVRTC's, and
  /// then RequestKeys::named() is the other key.
  bool has_name = true;
  // Of a link: what is compiled for it, and by what it is linked.
  std::vector<KeyedRequest> objects = {};
  std::shared_ptr<const device::Linker> linker = {};
};

/// Of SourceOptions::as_nvrtc: NVRTC's names are the caller's, whatever they name.
[[nodiscard]] bool is_as_nvrtc(const KeyedRequest& request);

/// Thread safety: every method may run concurrently.
class RequestKeys {
 public:
  /// `memo_folder` is `<cache root>/memo`, or empty to keep nothing. `standard_headers`
  /// is compile::find_standard_headers().
  explicit RequestKeys(const OwnFolder& memo_folder,
                       std::filesystem::path standard_headers = {});

  /// Normalizes a source's options, and reads the files of a link. Errors:
  /// kInvalidArgument, also for a file that is not there; kIo, kResourceLimit.
  [[nodiscard]] static Result<PreparedRequest> prepare(
      request::ResolvedRequest resolved);

  /// `linker` is for a link, and null for any other request. Errors: as
  /// HeaderScanner::scan. `stop` also ends the wait for a thread that scans
  /// the headers of the same request.
  [[nodiscard]] Result<KeyedRequest> key(
      const PreparedRequest& request, device::Target target,
      std::shared_ptr<const device::ToolchainChoice> toolchain,
      const std::stop_token& stop = {},
      std::shared_ptr<const device::Linker> linker = nullptr);

  /// Whether a source of this request can have the standard headers.
  [[nodiscard]] key::StandardHeaders standard_headers(
      const PreparedRequest& request, const device::Toolchain& toolchain) const;

  /// `request` under the key that has the program's name, which may be its own.
  [[nodiscard]] KeyedRequest named(const KeyedRequest& request);

  /// As NVRTC gets it; of a source.
  [[nodiscard]] static const std::string& name_of_program(
      const PreparedRequest& request);

  /// The preimage of `request.key`, field by field.
  [[nodiscard]] Fields preimage(const KeyedRequest& request);

  /// Renders the source and assembles the worker's job. Errors: as KernelSpec::render.
  [[nodiscard]] static Result<compile::CompileJob> job(const KeyedRequest& request);

  /// The job that links `request`, without the time limit. `objects` are what its
  /// objects were built to, in order.
  [[nodiscard]] static compile::LinkJob link_job(
      const KeyedRequest& request, std::vector<compile::LinkInput> objects);

 private:
  using TemplateKeyName = std::tuple<const render::KernelSpec*, device::Target,
                                     std::shared_ptr<const device::ToolchainChoice>>;

  [[nodiscard]] Result<std::shared_ptr<const key::HeaderSnapshot>> headers(
      const PreparedRequest& request, const device::Toolchain& toolchain,
      const std::stop_token& stop);
  [[nodiscard]] std::shared_ptr<const key::TemplateKeys> template_keys(
      const request::TemplateRequest& wanted, const KeyedRequest& request);

  const key::HeaderScanner scanner_;
  const std::filesystem::path standard_headers_;
  const std::shared_ptr<const key::HeaderSnapshot> no_headers_;

  Mutex mutex_;
  // The specs are kept alive by the catalog, which outlives this.
  std::map<TemplateKeyName, std::shared_ptr<const key::TemplateKeys>> template_keys_
      KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln
