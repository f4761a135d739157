#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/sampler.hpp"
#include "data/shards/array.hpp"
#include "data/shards/dataset.hpp"

namespace dtrain::data {

/// One micro-batch in host memory, as stored: preparation (bytes to floats, augmentation) is the trainer's.
/// The loader never writes to arrays that something still refers to: a tensor over an array that keeps a
/// pointer to it stays valid, however long it is kept.
struct Batch {
  std::int64_t step = 0;
  int micro_batch = 0;
  std::vector<std::int64_t> samples;         ///< Their ids, in the order of the rows.
  std::shared_ptr<const HostArray> inputs;   ///< [n, ...]; see SampleSource::gather.
  std::shared_ptr<const HostArray> targets;  ///< [n] (or [n, T]).
};

struct LoaderOptions {
  /// What fills the batches: next() itself, or a thread of the loader's own where a core is spare.
  enum class Drive { inline_call, thread };
  Drive drive = Drive::inline_call;
  int prefetch = 4;     ///< Batches that the thread keeps ready; at least 1.
  Allocator allocator;  ///< For pinned memory; empty: aligned_allocator().
};

/// Hands out batches in the order in which they were asked for. Arrays are allocated once, and filled again
/// when the batch they were in is gone.
class Loader {
 public:
  /// Returns false when there is nothing more. Called on the loader's thread, if it has one.
  using RequestStream = std::function<bool(PieceRequest& request)>;

  explicit Loader(std::shared_ptr<const SampleSource> source, LoaderOptions options = {});
  Loader(const Dataset& dataset, const std::string& split, LoaderOptions options = {},
         const ReadOptions& read = {});
  ~Loader();  ///< Stops the thread; what was asked for and not taken is dropped.
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// Begins a run of batches; whatever was left of the one before is dropped.
  void start(std::vector<PieceRequest> requests);
  void start(RequestStream requests);

  /// The next batch, which outlives the loader if need be. Throws data_error when the data are damaged, and
  /// Error when nothing more was asked for.
  Batch next();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain::data
