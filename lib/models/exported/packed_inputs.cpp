#include "models/exported/packed_inputs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "models/shape.hpp"

namespace dtrain::models::exported {
namespace {

/// Where an input lies in a sample.
struct Piece {
  InputFacts facts;
  std::int64_t begin = 0;
  std::int64_t count = 0;
  Shape of(std::int64_t samples) const {
    Shape shape = {samples};
    shape.insert(shape.end(), facts.shape.begin(), facts.shape.end());
    return shape;
  }
};

class UnpackInputs final : public Layer {
 public:
  explicit UnpackInputs(std::vector<Piece> pieces) : Layer("inputs"), pieces_(std::move(pieces)) {}

  Tensors forward(const Tensors& inputs, const Context& /*context*/) override {
    const at::Tensor& rows = inputs.at(0);  // [n, F]
    Tensors outputs;
    for (const Piece& piece : pieces_) {
      const at::Tensor part = rows.narrow(1, piece.begin, piece.count).reshape(piece.of(rows.size(0)));
      outputs.push_back(piece.facts.ids > 0 ? part.to(at::kLong) : part);
    }
    outputs.insert(outputs.end(), inputs.begin() + 1, inputs.end());
    return outputs;
  }

  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override {
    std::vector<Shape> outputs;
    for (const Piece& piece : pieces_) outputs.push_back(piece.of(inputs.at(0).at(0)));
    outputs.insert(outputs.end(), inputs.begin() + 1, inputs.end());
    return outputs;
  }

  Cost cost(const std::vector<Shape>& inputs) const override {
    return {.activation_bytes = 4.0 * element_count(inputs.at(0))};
  }

 private:
  std::vector<Piece> pieces_;
};

std::int64_t elements_of(const InputFacts& input) {
  return std::accumulate(input.shape.begin(), input.shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

std::vector<std::size_t> inputs_by_name(const std::vector<InputFacts>& given,
                                        const std::vector<std::string>& wanted, const std::string& subject) {
  std::vector<std::size_t> order;
  for (const std::string& name : wanted) {
    const auto place = std::ranges::find(given, name, &InputFacts::name);
    if (place == given.end()) {
      std::vector<std::string> names;
      for (const InputFacts& input : given) names.push_back(printable(input.name, 50));
      throw usage_error(fmt::format("takes an input {}, and the dataset has {}", printable(name, 50),
                                    fmt::join(names, ", ")),
                        subject, "name the arrays as forward's arguments: stage --inputs NAME=ARRAY,...");
    }
    order.push_back(static_cast<std::size_t>(place - given.begin()));
  }
  return order;
}

std::unique_ptr<Layer> unpack_inputs(const std::vector<InputFacts>& given,
                                     const std::vector<std::size_t>& order) {
  std::vector<Piece> all;
  std::int64_t begin = 0;
  for (const InputFacts& input : given) {
    all.push_back({.facts = input, .begin = begin, .count = elements_of(input)});
    begin += all.back().count;
  }
  std::vector<Piece> pieces;
  for (const std::size_t i : order) pieces.push_back(all.at(i));
  return std::make_unique<UnpackInputs>(std::move(pieces));
}

}  // namespace dtrain::models::exported
