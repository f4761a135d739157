#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/types.hpp"

namespace dtrain::comm {

/// Adds values up over several ranks by messages in a form of its own, in rounds.
class MessageRounds {
 public:
  struct Round {
    /// By the rank's place among them; the own ones are empty. What one rank sends another one expects.
    std::vector<Buffer> outgoing;
    std::vector<Buffer> incoming;
  };

  virtual ~MessageRounds() = default;
  /// The messages of the next round, called again when all of them have come. Empty: the values are the sums,
  /// the same bits on all ranks.
  virtual std::optional<Round> next() = 0;
};

/// How sums of float32 travel between nodes in fewer bytes. Within a node nothing is encoded.
class Encoding {
 public:
  virtual ~Encoding() = default;

  /// What ranks compare before they begin: above 0, and of another form another number.
  virtual std::uint16_t id() const = 0;
  /// One rank of each node has to have all values of a buffer; else ranks of a node may share them out.
  virtual bool takes_whole_buffers() const = 0;
  /// What stands in the place of `count` values: for the times of emulated links.
  virtual std::size_t bytes(std::size_t count) const = 0;
  /// `values`: of a buffer, the elements from `first` on. They are read at the first next(). This rank
  /// carries them for the `node`th of `nodes` nodes. Null: they travel as they are.
  virtual std::unique_ptr<MessageRounds> begin(std::span<float> values, std::size_t first, int node,
                                               int nodes) = 0;
  /// A part that this rank carried has crossed, in so many seconds from when it was ready.
  virtual void crossed(double /*seconds*/) {}
  /// What a buffer takes on a virtual clock, which counts instead of what crossed() has measured.
  /// `rounding_s`: what rounding and reading back takes, or would take where it does not encode now.
  virtual void counted(double /*seconds*/, double /*rounding_s*/) {}
  /// Whether values are rounded or else computed for their way, now.
  virtual bool encodes() const { return true; }
};

}  // namespace dtrain::comm
