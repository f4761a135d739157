#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.hpp"
#include "models/model.hpp"
#include "models/networks/cnn.hpp"
#include "models/networks/conv_autoencoder.hpp"
#include "models/networks/gpt.hpp"
#include "models/networks/mlp.hpp"
#include "models/networks/nbow.hpp"
#include "models/networks/resnet18.hpp"
#include "models/networks/seq2seq.hpp"
#include "models/networks/vgg11.hpp"

namespace dtrain::models {

/// The models there are: a new one is its own file and one line here.
const std::vector<Registration>& registry() {
  static const std::vector<Registration> kModels = {
      mlp(), cnn(), vgg11(), resnet18(), conv_autoencoder(), nbow(), seq2seq(), gpt(),
  };
  return kModels;
}

const Registration& find_model(const std::string& name) {
  const auto place = std::ranges::find(registry(), name, &Registration::name);
  if (place != registry().end()) return *place;
  std::vector<std::string> names;
  for (const Registration& registration : registry()) names.push_back(registration.name);
  throw usage_error(fmt::format("there is no model {}", name), "--model",
                    fmt::format("use one of {}", fmt::join(names, ", ")));
}

}  // namespace dtrain::models
