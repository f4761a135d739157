#include "data/formats/cifar10.hpp"

#include <fmt/format.h>

#include <cstring>
#include <sstream>

#include "core/error.hpp"
#include "data/formats/text_files.hpp"
#include "data/import/source_list.hpp"

namespace dtrain::data {
namespace {

constexpr std::size_t kImageBytes = 3 * 32 * 32;
constexpr std::size_t kRecordBytes = 1 + kImageBytes;
constexpr std::size_t kClasses = 10;
constexpr const char* kMeta = "batches.meta.txt";

bool is_batch(const std::string& name, const char* kind) {
  const std::string_view base = base_name(name);
  return base.starts_with(kind) && base.ends_with(".bin");
}

bool is_wanted(const std::string& name) {
  return is_batch(name, "data_batch") || is_batch(name, "test_batch") || base_name(name) == kMeta;
}

/// One file's records, taken apart.
struct Records {
  std::string origin;
  std::shared_ptr<const Column> images;  // uint8 [n, 3, 32, 32]
  std::vector<std::int64_t> labels;
};

Records take_apart(const OriginalFile& file) {
  const std::size_t count = file.content.size() / kRecordBytes;
  if (count == 0 || file.content.size() % kRecordBytes != 0)
    throw data_error(fmt::format("is {} bytes long, so record {} is cut off (each has {})",
                                 file.content.size(), count + 1, kRecordBytes),
                     file.origin, "fetch it again");
  Records records{.origin = file.origin};
  HostArray images;
  images.reset(ElementType::uint8, {static_cast<std::int64_t>(count), 3, 32, 32});
  auto* to = static_cast<char*>(images.data());
  for (const char* record = file.content.data(); records.labels.size() < count; record += kRecordBytes) {
    records.labels.push_back(static_cast<unsigned char>(*record));
    std::memcpy(to, record + 1, kImageBytes);
    to += kImageBytes;
  }
  records.images = MemoryColumn::of(std::move(images));
  return records;
}

std::vector<std::string> class_names(const std::string& meta, const std::string& origin) {
  std::vector<std::string> names;
  std::istringstream lines(meta);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (names.size() < 2) throw data_error("names no classes", origin, "give one class a line");
  return names;
}

std::vector<std::shared_ptr<const Column>> joined(const std::vector<Records>& files,
                                                  const std::vector<std::string>& classes) {
  std::vector<std::shared_ptr<const Column>> images;
  std::int64_t count = 0;
  for (const Records& file : files) count += file.images->rows();
  HostArray labels;
  labels.reset(ElementType::int64, {count});
  std::int64_t* to = labels.as<std::int64_t>().data();
  for (const Records& file : files) {
    images.push_back(file.images);
    for (std::size_t i = 0; i < file.labels.size(); ++i) {
      if (file.labels[i] >= static_cast<std::int64_t>(classes.size()))
        throw data_error(fmt::format("has the label {} in record {}, outside the classes 0 to {}",
                                     file.labels[i], i + 1, classes.size() - 1),
                         file.origin, "fetch it again, or give the batches.meta.txt that belongs to it");
      *to++ = file.labels[i];
    }
  }
  return {JoinedColumn::of(std::move(images)), MemoryColumn::of(std::move(labels))};
}

}  // namespace

bool is_cifar10_file(const OriginalFile& file) { return is_wanted(file.name); }

Originals read_cifar10(const std::filesystem::path& from) {
  Originals found{.task = "image_classification", .shape = {3, 32, 32}};
  std::map<std::string, std::vector<Records>> splits;
  for (std::size_t name = 0; name < kClasses; ++name) found.classes.push_back(std::to_string(name));
  visit_files(
      from,
      [&](const OriginalFile& file) {
        if (base_name(file.name) == kMeta) {
          found.classes = class_names(file.content, file.origin);
        } else {
          splits[is_batch(file.name, "test_batch") ? "test" : "train"].push_back(take_apart(file));
        }
        return true;
      },
      is_wanted);
  if (!splits.contains("train"))
    throw data_error("holds no data_batch_*.bin to train on", from.string(),
                     "give the folder or archive of CIFAR-10's binary version");
  for (const auto& [split, files] : splits) found.splits[split] = joined(files, found.classes);
  found.sources = source_list(from);
  return found;
}

}  // namespace dtrain::data
