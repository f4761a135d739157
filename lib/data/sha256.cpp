#include "data/sha256.hpp"

#include <fstream>
#include <vector>

#include "core/error.hpp"
#include "core/sha256.hpp"

namespace dtrain::data {

std::string sha256_of_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw data_error("cannot be opened", file.string(), "check the path and its permissions");
  Sha256 digest;
  std::vector<char> buffer(std::size_t{1} << 20);
  while (stream) {
    stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    digest.add(buffer.data(), static_cast<std::size_t>(stream.gcount()));
  }
  if (stream.bad()) throw data_error("cannot be read to its end", file.string(), "check the disk");
  return digest.hexadecimal();
}

std::string sha256_of(std::span<const std::byte> bytes) {
  Sha256 digest;
  digest.add(bytes.data(), bytes.size());
  return digest.hexadecimal();
}

}  // namespace dtrain::data
