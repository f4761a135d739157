#include "data/images/image_decoder.hpp"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "data/images/codecs.hpp"
#include "data/images/decode.hpp"
#include "data/images/resize.hpp"

namespace dtrain::data {
namespace {

constexpr std::size_t kMostWaiting = 1024;
constexpr std::size_t kMostWaitingBytes = std::size_t{64} << 20;
constexpr std::int64_t kBytesOfAPixel =
    9;  // decoded, resized in one direction and in both, three colours each
constexpr std::int64_t kMostDecodedBytes = kBytesOfAPixel * kMostPixels;

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
  } catch (const std::bad_alloc&) {
    refusal = data_error("takes more memory than there is", file.origin, "make it smaller with --image-size");
  }
  result.file_bytes = static_cast<std::int64_t>(file.content.size());
  return result;
}

/// Images that several threads decode while one takes them in their order. What is decoded at once, or waits
/// to be taken, is limited, whatever sizes the files claim.
class Batch {
 public:
  Batch(std::vector<ImageFile>& files, const ImageSize& size)
      : files_(files), size_(size), slots_(files.size()) {
    const auto workers = std::min<std::size_t>(static_cast<std::size_t>(cores()), files.size());
    for (std::size_t i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Batch() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }  // then the threads are joined, which are the last member
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  /// Waits for image `i`. Throws its Error where the fault is not the image's.
  DecodedImage take(std::size_t i) {
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[i];
    changed_.wait(lock, [&] { return slot.ready; });
    used_ -= slot.bytes;
    changed_.notify_all();
    if (slot.refusal) throw Error(*slot.refusal);
    return std::move(slot.image);
  }

 private:
  struct Slot {
    DecodedImage image;
    std::optional<Error> refusal;
    std::int64_t bytes = 0;  // that it takes now, or may take
    bool ready = false;
  };

  void work() {
    for (auto i = admit(); i; i = admit()) {
      std::optional<Error> refusal;
      DecodedImage image = decoded(files_[*i], size_, refusal);
      files_[*i].content = {};
      const std::lock_guard lock(mutex_);
      Slot& slot = slots_[*i];
      used_ -= slot.bytes;
      slot.bytes = static_cast<std::int64_t>(image.planes.size());
      used_ += slot.bytes;
      slot.image = std::move(image);
      slot.refusal = std::move(refusal);
      slot.ready = true;
      changed_.notify_all();
    }
  }

  /// The next image, as soon as there is room for it. In order, so that none waits for room that is held by
  /// images behind it.
  std::optional<std::size_t> admit() {
    const std::lock_guard one_at_a_time(order_);
    if (next_ == slots_.size()) return std::nullopt;
    const auto pixels = std::clamp<std::int64_t>(named_pixels(files_[next_].content), 0, kMostPixels);
    std::unique_lock lock(mutex_);
    changed_.wait(
        lock, [&] { return stopped_ || used_ == 0 || used_ + kBytesOfAPixel * pixels <= kMostDecodedBytes; });
    if (stopped_) return std::nullopt;
    used_ += slots_[next_].bytes = kBytesOfAPixel * pixels;
    return next_++;
  }

  std::vector<ImageFile>& files_;
  const ImageSize size_;
  std::vector<Slot> slots_;
  std::mutex order_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t next_ = 0;
  std::int64_t used_ = 0;
  bool stopped_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace

void ImageDecoder::add(ImageFile file) {
  waiting_bytes_ += file.content.size();
  waiting_.push_back(std::move(file));
  if (waiting_.size() >= kMostWaiting || waiting_bytes_ >= kMostWaitingBytes) finish();
}

void ImageDecoder::finish() {
  {
    Batch batch(waiting_, size_);
    for (std::size_t i = 0; i < waiting_.size(); ++i) take_(batch.take(i));
  }
  waiting_.clear();
  waiting_bytes_ = 0;
}

}  // namespace dtrain::data
