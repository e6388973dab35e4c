#include "codec/private_key.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "codec/digest.h"
#include "util/own_path.h"
#include "util/posix_error.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln {
namespace {

constexpr std::uint64_t kLargestFile = 65536;

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;

std::shared_ptr<void> owned(EVP_PKEY* key) {
  return {key, [](void* p) { EVP_PKEY_free(static_cast<EVP_PKEY*>(p)); }};
}

/// Of a key with a password: there is nobody to ask.
int no_password(char* /*to*/, int /*size*/, int /*writes*/, void* /*context*/) {
  return -1;
}

Result<Ed25519Signature> sign_by(EVP_PKEY* key, ByteView message) {
  Ed25519Signature signature{};
  std::size_t size = signature.size();
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(
      EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (context == nullptr ||
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()),
                     &size, reinterpret_cast<const unsigned char*>(message.data()),
                     message.size()) != 1 ||
      size != signature.size())
    return fail(ErrorCode::kUnavailable, "this libcrypto cannot sign by Ed25519");
  return signature;
}

}  // namespace

PrivateKey::PrivateKey(std::shared_ptr<void> key) : key_(std::move(key)) {
  std::size_t size = public_.bytes.size();
  if (EVP_PKEY_get_raw_public_key(
          static_cast<EVP_PKEY*>(key_.get()),
          reinterpret_cast<unsigned char*>(public_.bytes.data()), &size) != 1)
    return;  // never, of an Ed25519 key; signatures would not verify
  const Digest digest = Digest::of(public_.bytes);
  std::copy_n(digest.bytes().begin(), public_.id.size(), public_.id.begin());
}

Result<PrivateKey> PrivateKey::generate() {
  EVP_PKEY* const key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  if (key == nullptr)
    return fail(ErrorCode::kUnavailable, "this libcrypto makes no Ed25519 key");
  return PrivateKey(owned(key));
}

Result<PrivateKey> PrivateKey::read(const std::filesystem::path& path) {
  const std::string text = KILN_TRY(read_text_file(path, kLargestFile));
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free);
  EVP_PKEY* const read = bio == nullptr ? nullptr
                                        : PEM_read_bio_PrivateKey(bio.get(), nullptr,
                                                                  no_password, nullptr);
  if (read == nullptr)
    return refuse(
        "{} is no private key in PEM without a password; `kiln key new` makes one",
        path.native());
  std::shared_ptr<void> key = owned(read);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return posix_error("stat", path, errno);
  if (!is_secret(info))
    return fail(ErrorCode::kUntrusted, "{} is a private key that others may use: {}",
                path.native(), kSecretRemedy);
  if (EVP_PKEY_get_base_id(read) != EVP_PKEY_ED25519)
    return refuse("{} is no Ed25519 key", path.native());
  return PrivateKey(std::move(key));
}

Result<std::string> PrivateKey::to_pem() const {
  const Bio bio(BIO_new(BIO_s_mem()), &BIO_free);
  if (bio == nullptr ||
      PEM_write_bio_PKCS8PrivateKey(bio.get(), static_cast<EVP_PKEY*>(key_.get()),
                                    nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return fail(ErrorCode::kUnavailable, "this libcrypto writes no PEM");
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<std::size_t>(size));
}

Signer PrivateKey::signer() const {
  return {public_.id, [key = key_](ByteView message) {
            return sign_by(static_cast<EVP_PKEY*>(key.get()), message);
          }};
}

}  // namespace kiln
