#include "comm/shared_memory/plain_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace dtrain::comm {
namespace {

constexpr std::align_val_t kAlignment{64};

class PlainBuffer final : public SharedBuffer {
 public:
  explicit PlainBuffer(std::size_t bytes)
      : bytes_(bytes), data_(::operator new(std::max<std::size_t>(bytes, 1), kAlignment)) {
    std::memset(data_, 0, bytes_);
  }
  ~PlainBuffer() override { ::operator delete(data_, kAlignment); }
  PlainBuffer(const PlainBuffer&) = delete;
  PlainBuffer& operator=(const PlainBuffer&) = delete;
  void* data() override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  std::size_t bytes_;
  void* data_;
};

}  // namespace

std::unique_ptr<SharedBuffer> make_plain_buffer(std::size_t bytes) {
  return std::make_unique<PlainBuffer>(bytes);
}

}  // namespace dtrain::comm
