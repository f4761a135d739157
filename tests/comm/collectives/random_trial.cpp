#include "comm/collectives/random_trial.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace dtrain::comm {
namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr auto kGuard = std::byte{0xAB};

// Values are small whole numbers, exact in every type, also as sums over all ranks.

void encode(std::byte* place, DataType type, int value) {
  const auto put = [place](auto number) { std::memcpy(place, &number, sizeof(number)); };
  const auto as_float = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &as_float, sizeof(bits));
  switch (type) {
    case DataType::float32:
      return put(as_float);
    case DataType::float64:
      return put(static_cast<double>(value));
    case DataType::int32:
      return put(static_cast<std::int32_t>(value));
    case DataType::int64:
      return put(static_cast<std::int64_t>(value));
    case DataType::bfloat16:
      return put(static_cast<std::uint16_t>(bits >> 16));
    case DataType::float16: {
      const std::uint32_t exponent = (bits >> 23) & 0xFFU;
      const std::uint32_t half =
          value == 0 ? 0 : ((bits >> 31) << 15) | ((exponent - 112) << 10) | ((bits >> 13) & 0x3FFU);
      return put(static_cast<std::uint16_t>(half));
    }
  }
}

int value_of(std::uint64_t salt, int world_rank, std::size_t index) {
  const std::uint64_t mixed =
      (index + salt * 7919 + static_cast<std::uint64_t>(world_rank) * 104729) * 0x9E3779B97F4A7C15ULL;
  return static_cast<int>(mixed >> 61) - 3;
}

}  // namespace

/// GuardedMemory of an operation, with guards around it where it is this rank's own.
class GuardedMemory {
 public:
  GuardedMemory(std::size_t bytes, std::size_t shift)
      : own_(bytes + shift + 2 * kGuardBytes, kGuard),
        data_(own_.data() + kGuardBytes + shift),
        bytes_(bytes) {}
  GuardedMemory(Group& group, std::size_t bytes)
      : shared_(group.allocate(bytes)), data_(static_cast<std::byte*>(shared_->data())), bytes_(bytes) {}

  std::byte* data() const { return data_; }
  bool is_shared() const { return shared_ != nullptr; }
  bool guards_are_whole() const {
    if (shared_) return true;
    const auto whole = [](std::byte b) { return b == kGuard; };
    return std::all_of(own_.data(), static_cast<const std::byte*>(data_), whole) &&
           std::all_of(static_cast<const std::byte*>(data_) + bytes_, own_.data() + own_.size(), whole);
  }

 private:
  std::unique_ptr<SharedBuffer> shared_;
  std::vector<std::byte> own_;
  std::byte* data_;
  std::size_t bytes_;
};

Trial::Trial(const Drawn& drawn, Group& group)
    : drawn_(drawn), group_(group), n_(static_cast<std::size_t>(group.size())) {
  const std::size_t count = drawn.kind == Kind::all_to_all ? drawn.count / n_ * n_ : drawn.count;
  whole_ = count;
  const Range part = part_of(static_cast<std::int64_t>(count), group.rank(), group.size());
  begin_ = static_cast<std::size_t>(part.begin);
  part_ = static_cast<std::size_t>(part.size());
  switch (drawn.kind) {
    case Kind::all_reduce:
    case Kind::reduce_parts:
    case Kind::broadcast:
      input_ = output_ = make(count);
      break;
    case Kind::reduce_scatter:
      input_ = make(count);
      output_ = drawn.in_place ? input_ : make_own(part_);
      break;
    case Kind::all_gather:
      output_ = make(count);
      input_ = drawn.in_place ? output_ : drawn.shared ? output_ : make_own(part_);
      break;
    case Kind::all_to_all:
      input_ = make_own(count);
      output_ = make_own(count);
      break;
    case Kind::barrier:
      break;
    case Kind::messages:
      input_ = make_own(count);
      output_ = make_own(count);
      second_input_ = make_own(drawn.second_count);
      second_output_ = make_own(drawn.second_count);
      break;
  }
  fill();
}

void Trial::submit() {
  const auto type = drawn_.type;
  const auto buffer = [type](const std::shared_ptr<GuardedMemory>& memory, std::size_t first,
                             std::size_t count) {
    return Buffer{memory->data() + first * size_of(type), count, type};
  };
  switch (drawn_.kind) {
    case Kind::all_reduce:
      handles_ = {group_.all_reduce(buffer(input_, 0, whole_), drawn_.op, drawn_.algorithm)};
      break;
    case Kind::reduce_parts:
      reduced_ = group_.reduced_part(buffer(input_, 0, whole_), drawn_.algorithm);
      handles_ = {group_.reduce_parts(buffer(input_, 0, whole_), drawn_.op, drawn_.algorithm)};
      break;
    case Kind::reduce_scatter:
      handles_ = {group_.reduce_scatter(buffer(input_, 0, whole_),
                                        buffer(output_, output_ == input_ ? begin_ : 0, part_), drawn_.op)};
      break;
    case Kind::all_gather:
      handles_ = {group_.all_gather(buffer(input_, output_ == input_ ? begin_ : 0, part_),
                                    buffer(output_, 0, whole_))};
      break;
    case Kind::all_to_all:
      handles_ = {group_.all_to_all(buffer(input_, 0, whole_), buffer(output_, 0, whole_))};
      break;
    case Kind::broadcast:
      handles_ = {group_.broadcast(buffer(input_, 0, whole_), root())};
      break;
    case Kind::barrier:
      handles_ = {group_.barrier()};
      break;
    case Kind::messages:
      if (n_ == 1) break;
      handles_ = {group_.send(buffer(input_, 0, whole_), to()),
                  group_.send(buffer(second_input_, 0, drawn_.second_count), to()),
                  group_.receive(buffer(output_, 0, whole_), from()),
                  group_.receive(buffer(second_output_, 0, drawn_.second_count), from())};
      break;
  }
}

void Trial::check() const {
  if (drawn_.kind == Kind::barrier || (drawn_.kind == Kind::messages && n_ == 1)) return;
  for (const auto& memory : {input_, output_, second_input_, second_output_}) {
    if (memory && !memory->guards_are_whole()) fail("wrote outside of its memory");
  }
  switch (drawn_.kind) {
    case Kind::all_reduce:
      return compare(*output_, 0, whole_, [this](std::size_t i) { return reduced(i); });
    case Kind::reduce_parts:
      return compare(*output_, static_cast<std::size_t>(reduced_.begin),
                     static_cast<std::size_t>(reduced_.end), [this](std::size_t i) { return reduced(i); });
    case Kind::reduce_scatter: {
      const std::size_t first = output_ == input_ ? begin_ : 0;
      return compare(*output_, first, first + part_,
                     [&](std::size_t i) { return reduced(i - first + begin_); });
    }
    case Kind::all_gather:
      return compare(*output_, 0, whole_, [this](std::size_t i) { return value(owner_of(i), i); });
    case Kind::all_to_all: {
      const std::size_t block = whole_ / n_;
      const auto me = static_cast<std::size_t>(group_.rank());
      return compare(*output_, 0, whole_, [&](std::size_t i) {
        return value(static_cast<int>(i / block), me * block + i % block);
      });
    }
    case Kind::broadcast:
      return compare(*output_, 0, whole_, [this](std::size_t i) { return value(root(), i); });
    case Kind::messages:
      compare(*output_, 0, whole_, [this](std::size_t i) { return value(from(), i); });
      return compare(*second_output_, 0, drawn_.second_count,
                     [this](std::size_t i) { return value(from(), i + 1); });
    case Kind::barrier:
      return;
  }
}

std::string Trial::text() const {
  return std::string(name_of(drawn_.kind)) + " of " + std::to_string(whole_) + " " +
         std::string(name_of(drawn_.type)) + " (" + std::string(name_of(drawn_.op)) + ", " +
         std::string(name_of(drawn_.algorithm)) + (drawn_.shared ? ", shared" : "") +
         (drawn_.in_place ? ", in place" : "") + ") in group " + group_.name() + " of " + std::to_string(n_);
}

std::shared_ptr<GuardedMemory> Trial::make_own(std::size_t count) const {
  const std::size_t size = size_of(drawn_.type);
  return std::make_shared<GuardedMemory>(count * size, drawn_.shift * size);
}

std::shared_ptr<GuardedMemory> Trial::make(std::size_t count) const {
  if (!drawn_.shared) return make_own(count);
  return std::make_shared<GuardedMemory>(group_, count * size_of(drawn_.type));
}

int Trial::value(int group_rank, std::size_t index) const {
  return value_of(drawn_.salt, group_.world_rank_of(group_rank), index);
}

int Trial::reduced(std::size_t index) const {
  int result = value(0, index);
  for (int rank = 1; rank < group_.size(); ++rank) {
    const int other = value(rank, index);
    result = drawn_.op == ReduceOp::sum   ? result + other
             : drawn_.op == ReduceOp::max ? std::max(result, other)
                                          : std::min(result, other);
  }
  return result;
}

int Trial::owner_of(std::size_t index) const {
  for (int rank = 0;; ++rank) {
    if (static_cast<std::int64_t>(index) <
        part_of(static_cast<std::int64_t>(whole_), rank, group_.size()).end)
      return rank;
  }
}

void Trial::put(const GuardedMemory& memory, std::size_t place, int number) const {
  encode(memory.data() + place * size_of(drawn_.type), drawn_.type, number);
}

void Trial::fill() {
  const int me = group_.rank();
  if (drawn_.kind == Kind::all_gather) {
    const std::size_t first = output_ == input_ ? begin_ : 0;
    for (std::size_t i = 0; i < part_; ++i) put(*input_, first + i, value(me, begin_ + i));
    return;
  }
  if (drawn_.kind == Kind::broadcast && me != root()) return;
  for (std::size_t i = 0; input_ && i < whole_; ++i) put(*input_, i, value(me, i));
  for (std::size_t i = 0; second_input_ && i < drawn_.second_count; ++i)
    put(*second_input_, i, value(me, i + 1));
}

void Trial::compare(const GuardedMemory& memory, std::size_t first, std::size_t end,
                    const Expected& expected) const {
  const std::size_t size = size_of(drawn_.type);
  std::array<std::byte, 8> wanted{};
  for (std::size_t i = first; i < end; ++i) {
    encode(wanted.data(), drawn_.type, expected(i));
    if (std::memcmp(memory.data() + i * size, wanted.data(), size) == 0) continue;
    fail("element " + std::to_string(i) + " is not " + std::to_string(expected(i)));
  }
}

}  // namespace dtrain::comm
