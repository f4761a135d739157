#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "topology/mesh.hpp"

namespace dtrain::topology {
namespace {

std::string divisors_of(int n) {
  std::string list;
  for (int divisor = 1; divisor <= n; ++divisor) {
    if (n % divisor == 0) list += (list.empty() ? "" : ", ") + std::to_string(divisor);
  }
  return list;
}

/// Collects `axis=count` pairs; a count of 0 means that the axis was not named.
class MeshParser {
 public:
  MeshParser(std::string_view text, int world_size)
      : subject_(fmt::format("--mesh {}", text)), world_size_(world_size) {}

  void read_item(std::string_view item) {
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) fail(fmt::format("'{}' is not of the form axis=count", item));
    int& count = axis(item.substr(0, equals));
    if (count != 0) fail(fmt::format("axis {} is named twice", item.substr(0, equals)));
    count = read_count(item.substr(equals + 1));
  }

  /// A missing pipe or tensor is 1, a missing data is what remains.
  MeshShape finish() const {
    const long long pipe = pipe_ == 0 ? 1 : pipe_;
    const long long tensor = tensor_ == 0 ? 1 : tensor_;
    const long long model = pipe * tensor;  // two ints fit
    if (model > world_size_ || world_size_ % model != 0) {
      throw usage_error(fmt::format("pipe x tensor = {} does not divide {}", model, ranks()), subject_,
                        fmt::format("let pipe x tensor be one of {}, or start another number of ranks",
                                    divisors_of(world_size_)));
    }
    const int fitting = world_size_ / static_cast<int>(model);
    if (data_ != 0 && data_ != fitting) {
      const long long needed = data_ * model;
      throw usage_error(fmt::format("the mesh needs {} ranks but the job has {}", needed, world_size_),
                        subject_,
                        fmt::format("use data={} with {}, or start {} ranks (data can be {})", fitting,
                                    ranks(), needed, divisors_of(world_size_)));
    }
    return {.data = fitting, .pipe = static_cast<int>(pipe), .tensor = static_cast<int>(tensor)};
  }

  [[noreturn]] void fail(const std::string& problem) const {
    throw usage_error(
        problem, subject_,
        fmt::format("write e.g. --mesh data={}, with the axes data, pipe and tensor", world_size_));
  }

 private:
  int& axis(std::string_view name) {
    if (name == "data") return data_;
    if (name == "pipe") return pipe_;
    if (name == "tensor") return tensor_;
    fail(fmt::format("there is no axis '{}'", name));
  }

  int read_count(std::string_view digits) const {
    const auto count = parse_number<int>(digits);
    if (!count) fail(fmt::format("'{}' is not a count of ranks", digits));
    if (*count < 1) fail(fmt::format("an axis needs at least 1 rank, not {}", *count));
    return *count;
  }

  std::string ranks() const { return counted(world_size_, "rank"); }

  std::string subject_;
  int world_size_;
  int data_ = 0;
  int pipe_ = 0;
  int tensor_ = 0;
};

}  // namespace

std::string MeshShape::to_string() const {
  return fmt::format("data={},pipe={},tensor={}", data, pipe, tensor);
}

MeshShape MeshShape::parse(std::string_view text, int world_size) {
  MeshParser parser(text, world_size);
  if (text.empty()) parser.fail("the mesh is empty");
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    parser.read_item(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return parser.finish();
}

}  // namespace dtrain::topology
