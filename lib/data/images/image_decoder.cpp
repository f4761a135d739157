#include "data/images/image_decoder.hpp"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "core/sha256.hpp"
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
    if (file.wants_sha256) result.sha256 = sha256_of(file.content);
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

}  // namespace

/// Images in a row, which several threads decode while one puts files in at its end and takes images from its
/// front. What is decoded at once, or waits to be taken, is limited, whatever sizes the files claim.
class ImageDecoder::Pool {
 public:
  explicit Pool(const ImageSize& size) : size_(size) {}
  ~Pool() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }  // then the threads are joined, which are the last member
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void put(ImageFile file) {
    const auto pixels = std::clamp<std::int64_t>(named_pixels(file.content), 0, kMostPixels);
    const std::lock_guard lock(mutex_);
    waiting_bytes_ += file.content.size();
    row_.push_back({.file = std::move(file), .bytes = kBytesOfAPixel * pixels});
    changed_.notify_all();
    if (threads_.size() < std::min(most_threads_, row_.size())) threads_.emplace_back([this] { work(); });
  }

  /// Whether the next file has to wait until an image was taken.
  bool is_full() {
    const std::lock_guard lock(mutex_);
    return row_.size() >= kMostWaiting || waiting_bytes_ >= kMostWaitingBytes;
  }

  /// The image at the front: nothing where there is none, or, unless the caller waits, where it is not ready.
  /// Throws its Error where the fault is not the image's.
  std::optional<DecodedImage> take(bool waits) {
    std::unique_lock lock(mutex_);
    if (row_.empty()) return std::nullopt;
    Slot& front = row_.front();  // a deque leaves it where it is
    if (waits) changed_.wait(lock, [&] { return front.ready; });
    if (!front.ready) return std::nullopt;
    Slot slot = std::move(front);
    row_.pop_front();
    --admitted_;
    used_ -= slot.bytes;
    changed_.notify_all();
    if (slot.refusal) throw Error(*slot.refusal);
    return std::move(slot.image);
  }

 private:
  struct Slot {
    ImageFile file;
    DecodedImage image = {};
    std::optional<Error> refusal = {};
    std::int64_t bytes = 0;  // that it takes, or may take, once it was admitted
    bool ready = false;
  };

  void work() {
    std::unique_lock lock(mutex_);
    while (Slot* const slot = admit(lock)) {
      lock.unlock();
      std::optional<Error> refusal;
      const std::size_t file_bytes = slot->file.content.size();
      DecodedImage image = decoded(slot->file, size_, refusal);
      slot->file = {};
      lock.lock();
      waiting_bytes_ -= file_bytes;
      used_ -= slot->bytes;
      slot->bytes = static_cast<std::int64_t>(image.planes.size());
      used_ += slot->bytes;
      slot->image = std::move(image);
      slot->refusal = std::move(refusal);
      slot->ready = true;
      changed_.notify_all();
    }
  }

  /// The next image, as soon as there is one and room for it; null at the end. In order, so that none waits
  /// for room that is held by images behind it.
  Slot* admit(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [this] {
      return stopped_ ||
             (admitted_ < row_.size() && (used_ == 0 || used_ + row_[admitted_].bytes <= kMostDecodedBytes));
    });
    if (stopped_) return nullptr;
    Slot& slot = row_[admitted_++];
    used_ += slot.bytes;
    return &slot;
  }

  const ImageSize size_;
  const std::size_t most_threads_ = static_cast<std::size_t>(cores());
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Slot> row_;
  std::size_t admitted_ = 0;  // of the row, from its front on
  std::size_t waiting_bytes_ = 0;
  std::int64_t used_ = 0;
  bool stopped_ = false;
  std::vector<std::jthread> threads_;
};

ImageDecoder::ImageDecoder(const ImageSize& size, Take take)
    : take_(std::move(take)), pool_(std::make_unique<Pool>(size)) {}

ImageDecoder::~ImageDecoder() = default;

void ImageDecoder::add(ImageFile file) {
  pool_->put(std::move(file));
  while (auto image = pool_->take(pool_->is_full())) take_(std::move(*image));
}

void ImageDecoder::finish() {
  while (auto image = pool_->take(true)) take_(std::move(*image));
}

}  // namespace dtrain::data
