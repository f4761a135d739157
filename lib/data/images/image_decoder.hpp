#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/images/image.hpp"

namespace dtrain::data {

/// A file that is to become a picture of a dataset.
struct ImageFile {
  std::string name;
  std::string origin;
  std::string content;
};

/// What became of one.
struct DecodedImage {
  std::string name;
  std::string origin;
  std::string problem;  ///< Why there is no picture, a whole sentence; empty where there is one.
  ImageSize stored;     ///< Of its file.
  std::int64_t file_bytes = 0;
  bool grey = false;
  std::vector<std::uint8_t> planes;  ///< [3, height, width], see resized_planes.
};

/// Decodes images on all cores that this process may use, and hands them on in the order in which they came.
/// Of what is decoded and not yet handed on there is at most 600 MB at a time.
class ImageDecoder {
 public:
  using Take = std::function<void(DecodedImage&& image)>;
  ImageDecoder(const ImageSize& size, Take take) : size_(size), take_(std::move(take)) {}

  void add(ImageFile file);
  void finish();  ///< Those that wait to be decoded.

 private:
  ImageSize size_;
  Take take_;
  std::vector<ImageFile> waiting_;
  std::size_t waiting_bytes_ = 0;
};

}  // namespace dtrain::data
