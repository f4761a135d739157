#include "data/formats/image_folder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "data/formats/split_names.hpp"
#include "data/formats/text_files.hpp"
#include "data/images/decode.hpp"
#include "data/images/image_decoder.hpp"
#include "data/import/source_list.hpp"
#include "data/shards/column_over.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPixelsAlwaysAllowed = std::int64_t{128} << 20;
constexpr std::int64_t kMostTimesMorePixels =
    1000;  // scanned pages of one bit become 250 to 500 times larger

bool has_image_name(const std::string& name) {
  std::string ending = fs::path(name).extension().string();
  std::ranges::transform(ending, ending.begin(),
                         [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  constexpr std::array<std::string_view, 4> kEndings = {".png", ".jpg", ".jpeg", ".jpe"};
  return std::ranges::find(kEndings, ending) != kEndings.end();
}

/// A class may be called Train, as the vehicle.
bool is_folder_of_split(const std::string& name) {
  const bool has_capitals =
      std::ranges::any_of(name, [](unsigned char letter) { return std::isupper(letter) != 0; });
  return !has_capitals && split_of_word(name);
}

/// Where an image lies.
struct ClassPlace {
  std::string split = "train";
  std::string label;
};

/// By the folder that it lies in, and the one above.
ClassPlace class_place_of(const std::string& name, const std::string& origin) {
  const fs::path folder = fs::path(name).parent_path();
  ClassPlace place{.label = folder.filename().string()};
  if (place.label.empty() || is_folder_of_split(place.label))
    throw data_error("lies in no class's folder", origin,
                     "put the images of each class into a folder with its name, CLASS/IMAGE or "
                     "train/CLASS/IMAGE");
  place.split = split_of_folders(folder.string()).value_or("train");
  return place;
}

/// Links may lead to anything on this machine, and what they lead to may change behind them.
void refuse_links(const fs::path& from) {
  std::error_code code;
  if (!fs::is_directory(from, code)) return;
  for (auto entry = fs::recursive_directory_iterator(from, code);
       !code && entry != fs::recursive_directory_iterator(); entry.increment(code)) {
    if (entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
      continue;
    }
    std::error_code ignored;
    if (entry->is_symlink(ignored))
      throw data_error("is a link, which may lead elsewhere", entry->path().string(),
                       "copy what it leads to, or name that folder with --from");
  }
}

/// The pictures of a split as they come.
struct Pictures {
  std::vector<std::uint8_t> planes;
  std::vector<std::string> labels;
};

std::string size_in_words(const ImageSize& size) { return fmt::format("{} x {}", size.height, size.width); }

/// Of what is decoded: sizes alike, broken ones told.
class Gathered {
 public:
  explicit Gathered(const StageOptions& options) : options_(options) {}

  void take(DecodedImage&& image) {
    if (!image.problem.empty()) {
      if (!options_.skip_broken)
        throw data_error(image.problem, image.origin,
                         "save it again, or leave broken images out with --skip-broken");
      broken_.push_back(image.name);
      return;
    }
    if (!first_size_) {
      first_size_ = image.stored;
      first_ = image.origin;
    }
    if (!options_.image_size.is_given() && image.stored != *first_size_)
      throw data_error(fmt::format("has {} pixels, and {} has {}", size_in_words(image.stored), first_,
                                   size_in_words(*first_size_)),
                       image.origin,
                       "bring all to one size with --image-size, such as --image-size 64 or 48x64");
    check_total(image);
    const ClassPlace place = class_place_of(image.name, image.origin);
    Pictures& pictures = splits_[place.split];
    pictures.planes.insert(pictures.planes.end(), image.planes.begin(), image.planes.end());
    pictures.labels.push_back(place.label);
    folders_.insert(fs::path(image.name).parent_path());
    all_grey_ = all_grey_ && image.grey;
    any_grey_ = any_grey_ || image.grey;
  }

  ImageSize size() const {
    return options_.image_size.is_given() ? options_.image_size : first_size_.value();
  }
  bool all_grey() const { return all_grey_; }
  bool mixed() const { return any_grey_ && !all_grey_; }
  std::map<std::string, Pictures>& splits() { return splits_; }
  const std::vector<std::string>& broken() const { return broken_; }
  const std::set<fs::path>& folders() const { return folders_; }  // of images, relative

 private:
  /// A blank page of some kilobytes becomes a hundred megabytes: many of them would fill the memory.
  void check_total(const DecodedImage& image) {
    file_bytes_ += image.file_bytes;
    pixel_bytes_ += static_cast<std::int64_t>(image.planes.size());
    if (pixel_bytes_ <= std::max(kPixelsAlwaysAllowed, kMostTimesMorePixels * file_bytes_)) return;
    throw data_error(fmt::format("is one of images that become {} MiB of pixels out of {} KiB of files",
                                 pixel_bytes_ >> 20, (file_bytes_ >> 10) + 1),
                     image.origin, "bring them to a smaller size with --image-size");
  }

  const StageOptions& options_;
  std::int64_t file_bytes_ = 0;
  std::int64_t pixel_bytes_ = 0;
  std::map<std::string, Pictures> splits_;
  std::vector<std::string> broken_;
  std::set<fs::path> folders_;
  std::optional<ImageSize> first_size_;
  std::string first_;
  bool all_grey_ = true;
  bool any_grey_ = false;
};

/// Of [n, 3, plane] the first of the three: those of grey images are equal.
std::vector<std::uint8_t> first_planes(const std::vector<std::uint8_t>& planes, std::size_t plane) {
  std::vector<std::uint8_t> grey;
  grey.reserve(planes.size() / 3);
  for (std::size_t at = 0; at < planes.size(); at += 3 * plane)
    grey.insert(grey.end(), planes.begin() + static_cast<std::ptrdiff_t>(at),
                planes.begin() + static_cast<std::ptrdiff_t>(at + plane));
  return grey;
}

/// Throws data_error for a folder beside those of classes that no image came from.
void refuse_empty_classes(const fs::path& from, const std::set<fs::path>& folders) {
  std::error_code code;
  if (!fs::is_directory(from, code)) return;
  std::set<fs::path> parents;
  for (const fs::path& folder : folders) parents.insert(folder.parent_path());
  for (const fs::path& parent : parents)
    for (const auto& entry : fs::directory_iterator(from / parent, code)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with('.') || !entry.is_directory(code)) continue;
      if (folders.contains(parent / name) || is_folder_of_split(name)) continue;
      const bool leads_on = std::ranges::any_of(parents, [&](const fs::path& other) {
        const auto inside = other.lexically_relative(parent / name);
        return !inside.empty() && *inside.begin() != "..";
      });
      if (leads_on) continue;
      throw data_error("is the folder of a class without images that can be read", entry.path().string(),
                       "put images into it, or remove it");
    }
}

/// Of all splits. Throws data_error for a class that train has no image of.
std::vector<std::string> classes_of_pictures(std::map<std::string, Pictures>& splits, const fs::path& from) {
  if (!splits.contains("train"))
    throw data_error("has no images in train", from.string(), "put some into train/CLASS");
  const auto& train = splits["train"].labels;
  const std::set<std::string> classes(train.begin(), train.end());
  for (const auto& [split, pictures] : splits)
    for (const auto& label : pictures.labels)
      if (!classes.contains(label))
        throw data_error(
            fmt::format("has images of the class {} in {}, and none in train", printable(label, 60), split),
            from.string(), "put some into train, or take the others away");
  return {classes.begin(), classes.end()};
}

std::vector<std::int64_t> targets_of_labels(const std::vector<std::string>& labels,
                                            const std::vector<std::string>& classes) {
  std::vector<std::int64_t> targets;
  for (const auto& label : labels)
    targets.push_back(std::ranges::lower_bound(classes, label) - classes.begin());
  return targets;
}

/// The classes that images from different folders share, such as 2020 of cats/2020 and dogs/2020.
void add_shared_classes(const std::set<fs::path>& folders, std::vector<std::string>& remarks) {
  std::map<std::string, fs::path> above;  // of each class, without folders of splits
  for (const fs::path& folder : folders) {
    fs::path parent;
    for (const auto& part : folder.parent_path())
      if (!is_folder_of_split(part.string())) parent /= part;
    const std::string label = folder.filename().string();
    const auto [first, is_new] = above.emplace(label, parent);
    if (is_new || first->second == parent) continue;
    remarks.push_back(
        fmt::format("a class is the innermost folder of an image: {} and {} are both of the class {}",
                    printable((first->second / label).generic_string(), 100),
                    printable((parent / label).generic_string(), 100), printable(label, 60)));
    return;
  }
}

void add_image_remarks(const Gathered& gathered, std::int64_t others, std::vector<std::string>& remarks) {
  if (!gathered.broken().empty())
    remarks.push_back(fmt::format("{} broken image{} left out: {}{}", gathered.broken().size(),
                                  gathered.broken().size() == 1 ? " is" : "s are",
                                  printable(gathered.broken().front(), 200),
                                  gathered.broken().size() == 1 ? "" : ", ..."));
  if (others > 0)
    remarks.push_back(fmt::format("{} file{} no PNG or JPEG by {} and left out", others,
                                  others == 1 ? " is" : "s are", others == 1 ? "its name" : "their names"));
  if (gathered.mixed()) remarks.push_back("grey images lie among coloured ones: all have three channels");
}

}  // namespace

bool is_image_file(const OriginalFile& start) {
  return is_image(start.content) || has_image_name(start.name);
}

Originals read_image_folder(const StageOptions& options) {
  refuse_links(options.from);
  Gathered gathered(options);
  std::unordered_map<std::string, std::string> hashes;  // of files that are images as they lie on disk
  ImageDecoder decoder(options.image_size, [&](DecodedImage&& image) {
    if (!image.sha256.empty()) hashes.emplace(image.origin, image.sha256);
    gathered.take(std::move(image));
  });
  std::int64_t others = 0;
  visit_files(
      options.from,
      [&](OriginalFile& file) {
        decoder.add({.name = file.name,
                     .origin = file.origin,
                     .content = std::move(file.content),
                     .wants_sha256 = file.as_stored});
        return true;
      },
      [&](const std::string& name) {
        others += has_image_name(name) ? 0 : 1;
        return has_image_name(name);
      });
  decoder.finish();
  if (gathered.splits().empty())
    throw data_error("holds no image that can be read", options.from.string(), "give PNG or JPEG files");

  Originals found{.task = "image_classification"};
  refuse_empty_classes(options.from, gathered.folders());
  found.classes = classes_of_pictures(gathered.splits(), options.from);
  const ImageSize size = gathered.size();
  found.shape = {gathered.all_grey() ? 1 : 3, size.height, size.width};
  const auto plane = static_cast<std::size_t>(size.height * size.width);
  for (auto& [split, pictures] : gathered.splits()) {
    auto bytes = gathered.all_grey() ? first_planes(pictures.planes, plane) : std::move(pictures.planes);
    pictures.planes = {};
    found.splits[split] = {column_over(std::move(bytes), found.shape),
                           column_from(targets_of_labels(pictures.labels, found.classes), {})};
  }
  add_image_remarks(gathered, others, found.remarks);
  add_shared_classes(gathered.folders(), found.remarks);
  found.sources = source_list(options.from, hashes);
  return found;
}

ImageFiles read_images(const fs::path& from, const std::vector<std::int64_t>& shape) {
  refuse_links(from);
  ImageFiles found;
  std::vector<std::uint8_t> bytes;
  const auto plane = static_cast<std::size_t>(shape.at(1) * shape.at(2));
  ImageDecoder decoder({shape.at(1), shape.at(2)}, [&](DecodedImage&& image) {
    if (!image.problem.empty())
      throw data_error(image.problem, image.origin, "save it again, or take it away");
    found.names.push_back(image.name);
    if (shape.at(0) == 3) {
      bytes.insert(bytes.end(), image.planes.begin(), image.planes.end());
      return;
    }
    for (std::size_t i = 0; i < plane; ++i) {
      const double luma =
          0.299 * image.planes[i] + 0.587 * image.planes[plane + i] + 0.114 * image.planes[2 * plane + i];
      bytes.push_back(static_cast<std::uint8_t>(luma + 0.5));
    }
  });
  visit_files(
      from,
      [&](OriginalFile& file) {
        decoder.add({.name = file.name, .origin = file.origin, .content = std::move(file.content)});
        return true;
      },
      has_image_name);
  decoder.finish();
  if (found.names.empty())
    throw data_error("holds no PNG or JPEG image", from.string(), "give images, or a .npy array of them");
  found.pixels = column_over(std::move(bytes), shape);
  return found;
}

}  // namespace dtrain::data
