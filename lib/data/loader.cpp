#include "data/loader.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "data/shards/array_pool.hpp"

namespace dtrain::data {

/// The thread keeps a few batches ready; without one next() fills the batch that it hands out.
class Loader::Impl {
 public:
  Impl(std::shared_ptr<const SampleSource> source, const LoaderOptions& options)
      : source_(std::move(source)),
        drive_(options.drive),
        prefetch_(static_cast<std::size_t>(std::max(options.prefetch, 1))),
        inputs_(options.allocator),
        targets_(options.allocator) {}
  ~Impl() { stop(); }

  void start(RequestStream requests) {
    stop();
    requests_ = std::move(requests);
    batches_.clear();
    ended_ = false;
    stopping_ = false;
    failure_ = nullptr;
    if (drive_ == LoaderOptions::Drive::thread) worker_ = std::thread([this] { work(); });
  }

  Batch next() {
    if (drive_ == LoaderOptions::Drive::inline_call) {
      auto batch = filled();
      if (!batch) throw nothing_left();
      return *std::move(batch);
    }
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !batches_.empty() || ended_ || !worker_.joinable(); });
    if (!batches_.empty()) {
      Batch batch = std::move(batches_.front());
      batches_.pop_front();
      room_.notify_one();
      return batch;
    }
    if (failure_) std::rethrow_exception(failure_);
    throw nothing_left();
  }

 private:
  static Error nothing_left() {
    return Error("no further batch was asked for",
                 {.subject = "the loader", .advice = "report this as a bug"});
  }

  /// The next batch that was asked for; empty when there is none.
  std::optional<Batch> filled() {
    PieceRequest request;
    if (!requests_ || !requests_(request)) return std::nullopt;
    for (const std::int64_t id : request.samples)
      if (id < 0 || id >= source_->samples())
        throw Error("there is no sample " + std::to_string(id),
                    {.subject = "the loader", .advice = "report this as a bug"});
    const auto inputs = inputs_.take();
    const auto targets = targets_.take();
    source_->gather(request.samples, *inputs, *targets);
    return Batch{.step = request.step,
                 .micro_batch = request.micro_batch,
                 .samples = std::move(request.samples),
                 .inputs = inputs,
                 .targets = targets};
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
      room_.wait(lock, [this] { return stopping_ || batches_.size() < prefetch_; });
      if (stopping_) return;
      lock.unlock();
      std::optional<Batch> batch;
      std::exception_ptr failure;
      try {
        batch = filled();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (batch) {
        batches_.push_back(*std::move(batch));
      } else {
        failure_ = failure;
        ended_ = true;
      }
      ready_.notify_one();
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
  std::size_t prefetch_;
  ArrayPool inputs_;
  ArrayPool targets_;
  RequestStream requests_;
  std::thread worker_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable ready_;
  std::condition_variable room_;
  std::deque<Batch> batches_;  // filled and not yet taken
  bool ended_ = false;
  bool stopping_ = false;
  std::exception_ptr failure_;
};

Loader::Loader(std::shared_ptr<const SampleSource> source, LoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(source), options)) {}

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

Batch Loader::next() { return impl_->next(); }

}  // namespace dtrain::data
