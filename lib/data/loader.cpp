#include "data/loader.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/error.hpp"

namespace dtrain::data {

/// The ring of batches. The thread fills slot `filled_ % size`, next() hands out slot `taken_ % size`; the
/// slot handed out last stays untouched until the following next().
class Loader::Impl {
 public:
  Impl(std::shared_ptr<const SampleSource> source, LoaderOptions options)
      : source_(std::move(source)), drive_(options.drive) {
    const int ready = drive_ == LoaderOptions::Drive::thread ? std::max(options.prefetch, 1) : 0;
    for (int slot = 0; slot < ready + 1; ++slot) {  // one is in the caller's hands
      ring_.emplace_back();
      if (options.allocator.allocate) {
        ring_.back().inputs = HostArray(options.allocator);
        ring_.back().targets = HostArray(options.allocator);
      }
    }
  }
  ~Impl() { stop(); }

  void start(RequestStream requests) {
    stop();
    requests_ = std::move(requests);
    filled_ = 0;
    taken_ = 0;
    held_ = 0;
    ended_ = false;
    stopping_ = false;
    failure_ = nullptr;
    if (drive_ == LoaderOptions::Drive::thread) worker_ = std::thread([this] { work(); });
  }

  const Batch& next() {
    if (drive_ == LoaderOptions::Drive::inline_call) {
      if (!requests_ || !fill(ring_.front())) throw nothing_left();
      return ring_.front();
    }
    std::unique_lock lock(mutex_);
    held_ = 0;  // the batch handed out before may be overwritten now
    room_.notify_one();
    ready_.wait(lock, [this] { return taken_ < filled_ || ended_ || !worker_.joinable(); });
    if (taken_ < filled_) {
      held_ = 1;
      return ring_[taken_++ % ring_.size()];
    }
    if (failure_) std::rethrow_exception(failure_);
    throw nothing_left();
  }

 private:
  static Error nothing_left() {
    return Error("no further batch was asked for",
                 {.subject = "the loader", .advice = "report this as a bug"});
  }

  bool fill(Batch& batch) {
    if (!requests_(request_)) return false;
    batch.step = request_.step;
    batch.micro_batch = request_.micro_batch;
    std::swap(batch.samples, request_.samples);
    for (const std::int64_t id : batch.samples)
      if (id < 0 || id >= source_->samples())
        throw Error("there is no sample " + std::to_string(id),
                    {.subject = "the loader", .advice = "report this as a bug"});
    source_->gather(batch.samples, batch.inputs, batch.targets);
    return true;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      room_.wait(lock, [this] { return stopping_ || filled_ - taken_ + held_ < ring_.size(); });
      if (stopping_) return;
      Batch& slot = ring_[filled_ % ring_.size()];
      lock.unlock();
      bool more = false;
      std::exception_ptr failure;
      try {
        more = fill(slot);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (more) ++filled_;
      if (!more) {
        failure_ = failure;
        ended_ = true;
      }
      ready_.notify_one();
      if (ended_) return;
    }
  }

  void stop() {
    if (!worker_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    room_.notify_one();
    worker_.join();
  }

  std::shared_ptr<const SampleSource> source_;
  LoaderOptions::Drive drive_;
  std::vector<Batch> ring_;
  RequestStream requests_;
  PieceRequest request_;  // of whoever fills
  std::thread worker_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable ready_;
  std::condition_variable room_;
  std::size_t filled_ = 0;  // batches since start()
  std::size_t taken_ = 0;
  std::size_t held_ = 0;  // 1 while the caller looks at a batch
  bool ended_ = false;
  bool stopping_ = false;
  std::exception_ptr failure_;
};

Loader::Loader(std::shared_ptr<const SampleSource> source, LoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(source), std::move(options))) {}

Loader::Loader(const Dataset& dataset, const std::string& split, LoaderOptions options,
               const ReadOptions& read)
    : Loader(dataset.source(split, read), std::move(options)) {}

Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

void Loader::start(std::vector<PieceRequest> requests) {
  start([requests = std::move(requests), next = std::size_t{0}](PieceRequest& request) mutable {
    if (next == requests.size()) return false;
    request = std::move(requests[next++]);
    return true;
  });
}

void Loader::start(RequestStream requests) { impl_->start(std::move(requests)); }

const Batch& Loader::next() { return impl_->next(); }

}  // namespace dtrain::data
