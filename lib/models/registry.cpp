#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "core/error.hpp"
#include "models/exported/exported_model.hpp"
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

Registration find_model(const std::string& name) {
  if (is_program_file(name)) return exported::registration(name);
  const auto place = std::ranges::find(registry(), name, &Registration::name);
  if (place != registry().end()) return *place;
  std::vector<std::string> names;
  for (const Registration& registration : registry()) names.push_back(registration.name);
  throw usage_error(
      fmt::format("there is no model {}", name), "--model",
      fmt::format("use one of {}, or a file NET.pt2 that torch.export.save wrote", fmt::join(names, ", ")));
}

bool is_program_file(const std::string& name) { return name.ends_with(".pt2"); }

std::string model_title(const std::string& name) {
  return is_program_file(name) ? std::filesystem::path(name).stem().string() : name;
}

}  // namespace dtrain::models
