// One operation as drawn, and what must come of it.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/collectives/random_drawing.hpp"
#include "comm/group.hpp"
#include "core/slice.hpp"

namespace dtrain::comm {

class WrongResult final : public std::exception {
 public:
  explicit WrongResult(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

class GuardedMemory;

/// One operation of this rank: submitted, waited for, and compared with a plain computation of its result.
class Trial {
 public:
  Trial(const Drawn& drawn, Group& group);

  void submit();
  std::vector<Handle>& handles() { return handles_; }
  void check() const;  ///< Throws WrongResult.
  std::string text() const;
  Group& group() const { return group_; }

 private:
  std::shared_ptr<GuardedMemory> make_own(std::size_t count) const;
  std::shared_ptr<GuardedMemory> make(std::size_t count) const;
  int value(int group_rank, std::size_t index) const;
  int reduced(std::size_t index) const;
  int owner_of(std::size_t index) const;
  int root() const { return static_cast<int>(drawn_.turn % n_); }
  int to() const { return static_cast<int>((static_cast<std::size_t>(group_.rank()) + distance()) % n_); }
  int from() const {
    return static_cast<int>((static_cast<std::size_t>(group_.rank()) + n_ - distance()) % n_);
  }
  std::size_t distance() const { return 1 + drawn_.turn % (n_ - 1); }
  void put(const GuardedMemory& memory, std::size_t place, int number) const;
  void fill();
  using Expected = std::function<int(std::size_t)>;
  void compare(const GuardedMemory& memory, std::size_t first, std::size_t end,
               const Expected& expected) const;
  [[noreturn]] void fail(const std::string& why) const { throw WrongResult(text() + ": " + why); }

  Drawn drawn_;
  Group& group_;
  std::size_t n_;
  std::size_t whole_ = 0;  // elements
  std::size_t begin_ = 0;  // of this rank's part
  std::size_t part_ = 0;
  Range reduced_;
  std::shared_ptr<GuardedMemory> input_;
  std::shared_ptr<GuardedMemory> output_;
  std::shared_ptr<GuardedMemory> second_input_;
  std::shared_ptr<GuardedMemory> second_output_;
  std::vector<Handle> handles_;
};

}  // namespace dtrain::comm
