#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/images/image.hpp"
#include "data/import/archive.hpp"
#include "data/import/originals.hpp"
#include "data/import/stage.hpp"
#include "data/shards/column.hpp"

namespace dtrain::data {

/// Whether a file is a PNG or JPEG image, by its content or its name.
bool is_image_file(const OriginalFile& start);

/// Images in a folder for each class, `CLASS/*.png`, or below folders of splits, `train/CLASS/*.jpg`, in a
/// folder or an archive. Classes are the folders' names, in the order of their bytes. options.image_size:
/// resized and cut (see resized_planes); without it all must have one size. One channel where all are grey,
/// else three. Files that are no images by their names are left out, and a remark says how many. Throws
/// data_error: an image outside the folders, a broken one (unless options.skip_broken, then a remark), images
/// of different sizes, a class without images, a link.
Originals read_image_folder(const StageOptions& options);

/// Images of unknown classes: all below `from`, by name, or the one that it is.
struct ImageFiles {
  std::shared_ptr<const Column> pixels;  ///< uint8 [n, C, H, W]
  std::vector<std::string> names;
};

/// Images as `shape`, [C, H, W] with C of 1 or 3: resized and cut, and made grey where C is 1 (ITU-R 601
/// luma). Throws data_error.
ImageFiles read_images(const std::filesystem::path& from, const std::vector<std::int64_t>& shape);

}  // namespace dtrain::data
