// For h5py_test.py: `h5_samples write FILE` writes what h5py then checks; `h5_samples read FILE` prints what
// it finds in a file that h5py wrote.
#include <cstdio>
#include <string>
#include <vector>

#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "h5/library.hpp"

namespace {

using namespace dtrain;

void write(const std::string& path) {
  h5::File file = h5::create_file(path);
  h5::write_attribute(file.id(), "format", "größe");
  h5::write_attribute(file.id(), "version", 1);
  h5::write_attribute(file.id(), "ratio", 0.5);
  h5::write_attribute(file.id(), "units", std::vector<std::string>{"s", "samples/s"});
  const h5::Datatype bytes = h5::file_type(h5::ElementType::uint8);
  const h5::Dataset images = h5::create_chunked(file.id(), "inputs", bytes.id(), {3, 2, 2},
                                                {.chunk = {2, 2, 2}, .checksum = h5::Checksum::fletcher32});
  std::vector<std::uint8_t> pixels(12);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i);
  h5::write_slab<std::uint8_t>(images, {0, 0, 0}, {3, 2, 2}, pixels);
  h5::write_dataset<float>(file.id(), "/model/fc.weight", {1, 2}, std::vector<float>{0.5F, -1.5F});
  h5::write_strings(file.id(), "words", {"naïve", "a"});
}

void read(const std::string& path) {
  const h5::File file = h5::open_file(path, h5::Access::read);
  std::printf("%s|%s|%lld|", h5::read_string_attribute(file.id(), "variable").c_str(),
              h5::read_string_attribute(file.id(), "fixed").c_str(),
              static_cast<long long>(h5::read_int_attribute(file.id(), "version")));
  for (const std::string& word : h5::read_strings_attribute(file.id(), "list"))
    std::printf("%s,", word.c_str());
  std::printf("|");
  for (const std::string& word : h5::read_strings(h5::open_dataset(file.id(), "words")))
    std::printf("%s,", word.c_str());
  std::printf("|");
  const h5::Dataset big_endian = h5::open_dataset(file.id(), "deep/big");
  for (const float value : h5::read_all<float>(big_endian)) std::printf("%g,", static_cast<double>(value));
  std::printf("%s|", h5::info(big_endian).little_endian ? "little" : "big");
  const h5::Dataset marks = h5::open_dataset(file.id(), "marks");
  for (const std::uint8_t value : h5::read_all<std::uint8_t>(marks))
    std::printf("%d,", static_cast<int>(value));
  for (const char* name : {"marks", "moods"}) {
    const auto type = h5::info(h5::open_dataset(file.id(), name)).type;
    std::printf("|%s", std::string(h5::element_name(type)).c_str());
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  h5::Library library;
  const auto lock = library.lock();
  (std::string(argv[1]) == "write" ? write : read)(argv[2]);
  return 0;
}
