#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/types.hpp"

namespace dtrain::parallel {

/// Bytes that travel, in memory of their own. They travel as whole words: up to 3 more.
class WireMessage {
 public:
  WireMessage() : WireMessage(0) {}
  explicit WireMessage(std::size_t bytes)
      : words_(std::make_shared<std::vector<std::int32_t>>(words_of(bytes))), bytes_(bytes) {}

  static std::size_t words_of(std::size_t bytes) {
    return (bytes + sizeof(std::int32_t) - 1) / sizeof(std::int32_t);
  }
  std::span<std::byte> bytes() { return {reinterpret_cast<std::byte*>(words_->data()), bytes_}; }
  std::span<const std::byte> bytes() const {
    return {reinterpret_cast<const std::byte*>(words_->data()), bytes_};
  }
  comm::Buffer buffer() const { return {words_->data(), words_->size(), comm::DataType::int32, words_}; }

 private:
  std::shared_ptr<std::vector<std::int32_t>> words_;
  std::size_t bytes_;
};

}  // namespace dtrain::parallel
