#include "data/images/image_decoder.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "data/images/decode.hpp"
#include "data/images/resize.hpp"

namespace dtrain::data {
namespace {

constexpr std::size_t kMostWaiting = 1024;
constexpr std::size_t kMostWaitingBytes = std::size_t{64} << 20;

int cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  return ::sched_getaffinity(0, sizeof mask, &mask) == 0 ? std::max(1, CPU_COUNT(&mask)) : 1;
}

/// An option that is wrong, or a library that is not there, is no fault of the image.
DecodedImage decoded(const ImageFile& file, const ImageSize& size, std::optional<Error>& refusal) {
  DecodedImage result{.name = file.name, .origin = file.origin};
  try {
    const Image image = decode_image(file.content, file.origin);
    result.stored = {image.height, image.width};
    result.grey = image.grey;
    result.planes = resized_planes(image, size);
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) refusal = error;
    result.problem = error.problem();
  }
  return result;
}

}  // namespace

void ImageDecoder::add(ImageFile file) {
  waiting_bytes_ += file.content.size();
  waiting_.push_back(std::move(file));
  if (waiting_.size() >= kMostWaiting || waiting_bytes_ >= kMostWaitingBytes) finish();
}

void ImageDecoder::finish() {
  std::vector<DecodedImage> done(waiting_.size());
  const auto workers = std::min<std::size_t>(static_cast<std::size_t>(cores()), waiting_.size());
  std::vector<std::optional<Error>> refusals(workers);
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> threads;
  for (std::size_t worker = 0; worker < workers; ++worker)
    threads.emplace_back([&, worker] {
      for (std::size_t i = next++; i < waiting_.size(); i = next++) {
        done[i] = decoded(waiting_[i], size_, refusals[worker]);
        waiting_[i].content = {};
      }
    });
  threads.clear();  // joins them
  for (const auto& refusal : refusals)
    if (refusal) throw Error(*refusal);
  waiting_.clear();
  waiting_bytes_ = 0;
  for (auto& image : done) take_(std::move(image));
}

}  // namespace dtrain::data
