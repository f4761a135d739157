#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/images/image.hpp"

namespace dtrain::data {

/// A file that is to become a picture of a dataset.
struct ImageFile {
  std::string name;
  std::string origin;
  std::string content;
  bool wants_sha256 = false;
};

/// What became of one.
struct DecodedImage {
  std::string name;
  std::string origin;
  std::string problem;  ///< Why there is no picture, a whole sentence; empty where there is one.
  std::string sha256;   ///< Of the file's content, where that was wanted; also of a broken one.
  ImageSize stored;     ///< Of its file.
  std::int64_t file_bytes = 0;
  bool grey = false;
  std::vector<std::uint8_t> planes;  ///< [3, height, width], see resized_planes.
};

/// Decodes images on all cores that this process may use, while the caller reads the next files, and hands
/// them on, in the caller's thread, in the order in which they came: the result does not depend on the number
/// of threads. Of what is decoded and not yet handed on there is at most 600 MB at a time, and of files that
/// wait to be decoded 64 MiB.
class ImageDecoder {
 public:
  using Take = std::function<void(DecodedImage&& image)>;
  ImageDecoder(const ImageSize& size, Take take);
  ~ImageDecoder();
  ImageDecoder(const ImageDecoder&) = delete;
  ImageDecoder& operator=(const ImageDecoder&) = delete;

  /// Hands on images that are ready. Throws what `take` throws, and an Error that is no fault of an image.
  void add(ImageFile file);
  void finish();  ///< Hands on the others. Throws the same.

 private:
  class Pool;
  Take take_;
  std::unique_ptr<Pool> pool_;
};

}  // namespace dtrain::data
