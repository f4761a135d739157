#include "models/compute/gradient_place.hpp"

#include "core/error.hpp"
#include "models/layer.hpp"

namespace dtrain::models {

GradientPlace::GradientPlace(Parameter& parameter, RowGradients* rows, ProductFactors* factors)
    : parameter_(parameter), rows_(rows), factors_(factors) {
  require(parameter.place == nullptr, "its gradient is collected already",
          {.subject = parameter.name, .advice = "end one collector of gradients before the next begins"});
  require(rows == nullptr || parameter.by_rows, "its layer does not give its gradient by rows",
          {.subject = parameter.name, .advice = "collect it dense"});
  parameter.place = this;
}

GradientPlace::~GradientPlace() { parameter_.place = nullptr; }

at::Tensor GradientPlace::take() {
  left_ =
      offered_.defined() ? offered_.alias() : at::Tensor();  // a further use's gradient is added elsewhere
  return std::exchange(offered_, {});
}

}  // namespace dtrain::models
