#pragma once

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace dtrain::parallel {

/// Gets a sentence for the log: that something is captured, or why it is not.
using CaptureNews = std::function<void(const std::string&)>;

/// What was captured of a device's work, by what it holds for. Work is done without a graph at first, and for
/// good where it cannot be captured.
template <class Key, class Captured>
class Captures {
 public:
  /// `kinds`: what the keys are, for the log.
  Captures(std::string kinds, CaptureNews tell) : kinds_(std::move(kinds)), tell_(std::move(tell)) {}

  /// For work that is to be done once. `capture` captures it, where it is time for that. Null: it is to be
  /// done without a graph.
  Captured* find(const Key& key, const std::function<std::unique_ptr<Captured>()>& capture) {
    Known& known = known_[key];
    if (known.refused || known.captured != nullptr) return known.captured.get();
    if (known.done++ < kWarmUp) return nullptr;
    if (known_.size() > kMost) {
      refuse(known, fmt::format("there are more than {} {}", kMost, kinds_));
      return nullptr;
    }
    try {
      known.captured = capture();
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace();
      refuse(known, text.substr(0, text.find('\n')));
    } catch (const Error& error) {
      refuse(known, error.what());
    }
    return known.captured.get();
  }

 private:
  /// Times done without a graph before it is captured: libraries choose their algorithms in the first ones,
  /// and take memory that is not the graph's.
  static constexpr int kWarmUp = 3;
  /// Kinds that are captured. An epoch has two: the last step may be smaller.
  static constexpr std::size_t kMost = 4;

  struct Known {
    int done = 0;  // without a graph
    std::unique_ptr<Captured> captured;
    bool refused = false;
  };
  void refuse(Known& known, const std::string& why) {
    known.refused = true;
    tell_(fmt::format("not captured: {}", why));
  }

  std::string kinds_;
  CaptureNews tell_;
  std::map<Key, Known> known_;
};

}  // namespace dtrain::parallel
