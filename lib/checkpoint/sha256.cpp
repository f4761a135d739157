#include "checkpoint/sha256.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "checkpoint/file_io.hpp"
#include "core/sha256.hpp"

namespace dtrain::checkpoint {
namespace {

constexpr std::int64_t kBurstBytes = 1 << 20;

}  // namespace

std::string sha256_of_file(const std::filesystem::path& path) {
  const RawFile file(path, RawFile::Access::read);
  const std::int64_t bytes = file.bytes();
  std::vector<std::byte> burst(static_cast<std::size_t>(std::min(bytes, kBurstBytes)));
  Sha256 digest;
  for (std::int64_t at = 0; at < bytes; at += kBurstBytes) {
    const auto part = std::span(burst).first(static_cast<std::size_t>(std::min(kBurstBytes, bytes - at)));
    file.read_at(at, part);
    digest.add(part.data(), part.size());
  }
  return digest.hexadecimal();
}

std::string sha256_of(std::string_view bytes) {
  Sha256 digest;
  digest.add(bytes.data(), bytes.size());
  return digest.hexadecimal();
}

}  // namespace dtrain::checkpoint
