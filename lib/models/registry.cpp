#include <fmt/format.h>
#include <fmt/ranges.h>

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
#include "models/plugins/additions.hpp"

namespace dtrain::models {
namespace {

/// Also trains with the losses of plug-ins.
Registration with_added_losses(Registration registration) {
  registration.make = [make = registration.make](const DatasetFacts& facts, const ModelOptions& options) {
    const AddedLoss* added = find_added_loss(facts.loss);
    if (added == nullptr) return make(facts, options);
    DatasetFacts plain = facts;
    plain.loss.clear();
    return with_added_loss(make(plain, options), *added);
  };
  return registration;
}

}  // namespace

/// The models there are: a new one is its own file and one line here.
const std::vector<Registration>& registry() {
  static const std::vector<Registration> kModels = {
      mlp(), cnn(), vgg11(), resnet18(), conv_autoencoder(), nbow(), seq2seq(), gpt(),
  };
  return kModels;
}

Registration find_model(const std::string& name) {
  if (is_program_file(name)) return exported::registration(name);
  std::vector<std::string> names;
  for (const auto* models : {&registry(), &additions().models}) {
    for (const Registration& registration : *models) {
      if (registration.name == name) return with_added_losses(registration);
      names.push_back(registration.name);
    }
  }
  throw usage_error(
      fmt::format("there is no model {}", name), "--model",
      fmt::format("use one of {}, a file NET.pt2 that torch.export.save wrote, or --plugin with the library "
                  "that adds it",
                  fmt::join(names, ", ")));
}

bool is_program_file(const std::string& name) { return name.ends_with(".pt2"); }

std::string model_title(const std::string& name) {
  return is_program_file(name) ? std::filesystem::path(name).stem().string() : name;
}

}  // namespace dtrain::models
