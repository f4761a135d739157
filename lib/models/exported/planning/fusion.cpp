#include "models/exported/planning/fusion.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "models/exported/operators.hpp"

namespace dtrain::models::exported {
namespace {

/// A whole number, `otherwise` where the node is not given it.
std::optional<std::int64_t> number_or(const Node& node, std::string_view name, std::int64_t otherwise) {
  const auto* argument = node.find(name);
  if (argument == nullptr || argument->kind == Argument::Kind::none) return otherwise;
  if (argument->kind == Argument::Kind::real && argument->reals.at(0) == 1.0) return 1;
  return number_of(node, name);
}

bool is_on(const Node& node, const char* name) {
  const auto* argument = node.find(name);
  return argument != nullptr && argument->kind == Argument::Kind::boolean && argument->booleans.at(0);
}

bool is_given(const Node& node, const char* name) {
  const auto* argument = node.find(name);
  return argument != nullptr && argument->kind != Argument::Kind::none;
}

/// Of two tensors.
bool is_of_tensors(const Node& node, std::string_view name) {
  return calls(node, name) && node.target.ends_with(".Tensor");
}

bool is_relu(const Node& node) { return calls(node, "relu") || calls(node, "relu_"); }

class Fusion {
 public:
  Fusion(const Graph& graph, std::vector<Step>& steps, Plan& plan, Memory& memory)
      : graph_(graph), steps_(steps), plan_(plan), memory_(memory) {
    for (const GraphInput& input : graph.inputs) inputs_.emplace(input.value, input.kind);
    for (const Step& step : steps_) {
      for (const ValueId value : tensors_read(step, graph_)) ++uses_[value];
    }
    ++uses_[plan_.output];
  }

  void fuse() {
    mean_words();
    extend_norms();
    pool_first();
    overwrite();
  }

 private:
  const Node& node(const Step& step) const { return graph_.nodes[step.node]; }
  int uses(ValueId value) const {
    const auto place = uses_.find(value);
    return place == uses_.end() ? 0 : place->second;
  }
  bool is_kept(ValueId value) const {  // a parameter, a buffer or a constant
    const auto place = inputs_.find(value);
    return place != inputs_.end() && place->second != GraphInput::Kind::user;
  }
  /// Whether a value has its memory for itself and is used once.
  bool is_used_up(ValueId value) const {
    return uses(value) == 1 && plan_.same[value] == value && memory_.root(value) == value &&
           !inputs_.contains(value);
  }

  /// From now on `value`, and what is the same tensor, is the tensor `other`.
  void become(ValueId value, ValueId other) {
    const ValueId before = plan_.same[value];
    if (before == other) return;
    for (ValueId& same : plan_.same) {
      if (same == before) same = other;
    }
    memory_.join(value, other);
  }

  /// What was written over `value` is the tensor `other` instead, and `value` stays as it was.
  void move_written(ValueId value, ValueId other) {
    for (ValueId later = 0; later < plan_.same.size(); ++later) {
      if (later != value && plan_.same[later] == value) plan_.same[later] = other;
    }
    memory_.join(value, other);
  }

  const Node* producer(const std::optional<ValueId>& value) const {
    if (!value) return nullptr;
    const auto place = std::ranges::find_if(steps_, [&](const Step& step) {
      return has_one_result(node(step)) && result_of(node(step)) == *value;
    });
    return place == steps_.end() ? nullptr : &node(*place);
  }

  /// What is added to the result of a batch_norm, and whether the sum was written over it.
  struct Addend {
    ValueId value;
    bool overwritten;
  };

  /// What `add` adds to `made`, which nothing else uses; nothing where it does more than that.
  std::optional<Addend> added_to(const Node& add, ValueId made) const {
    const bool in_place = is_of_tensors(add, "add_");
    if (!(in_place || is_of_tensors(add, "add")) || number_or(add, "alpha", 1) != 1 || uses(made) != 1)
      return std::nullopt;
    const auto self = tensor_of(add, "self");
    const auto other = tensor_of(add, "other");
    if (!self || !other || (*self != made && *other != made)) return std::nullopt;
    const ValueId beside = *self == made ? *other : *self;
    const bool overwritten = in_place && *self != made;
    if (is_kept(beside) || (overwritten && !is_used_up(beside))) return std::nullopt;
    const TensorFacts& one = *graph_[made].tensor;
    for (const ValueId value : {beside, result_of(add)}) {
      const auto& facts = graph_[value].tensor;
      if (!facts || facts->type != one.type || facts->sizes != one.sizes) return std::nullopt;
    }
    return Addend{beside, overwritten};
  }

  bool is_relu_of(const Node& relu, ValueId value) const {
    return is_relu(relu) && tensor_of(relu, "self") == value && uses(value) == 1;
  }

  void extend_norms() {
    std::vector<Step> kept;
    for (std::size_t i = 0; i < steps_.size();) {
      Step step = steps_[i++];
      if (calls(node(step), "batch_norm") && is_given(node(step), "running_mean")) {
        const ValueId made = result_of(node(step));
        ValueId last = made;
        if (const auto added = i < steps_.size() ? added_to(node(steps_[i]), made) : std::nullopt) {
          step.residual = added->value;
          last = result_of(node(steps_[i++]));
          if (added->overwritten) {
            move_written(added->value, made);
          } else {
            become(last, made);
          }
        }
        step.relu_follows = i < steps_.size() && is_relu_of(node(steps_[i]), last);
        if (step.relu_follows) become(result_of(node(steps_[i++])), made);
      }
      kept.push_back(std::move(step));
    }
    steps_ = std::move(kept);
  }

  /// The roots of what is written to.
  std::set<ValueId> overwritten() const {
    std::set<ValueId> found;
    for (const Step& step : steps_) {
      for (const ValueId value : written(node(step), step.handle.schema())) found.insert(memory_.root(value));
    }
    return found;
  }

  /// A ReLU needs its result again, max_pool2d does not: what is written to later stays as it is.
  void pool_first() {
    const auto changed = overwritten();
    std::vector<Step> kept;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Node& relu = node(steps_[i]);
      const bool pooled =
          is_relu(relu) && i + 1 < steps_.size() && calls(node(steps_[i + 1]), "max_pool2d") &&
          tensor_of(node(steps_[i + 1]), "self") == result_of(relu) && uses(result_of(relu)) == 1 &&
          !changed.contains(memory_.root(result_of(node(steps_[i + 1]))));
      const auto input = tensor_of(relu, "self");
      if (!pooled || !input || !is_used_up(*input)) {
        kept.push_back(steps_[i]);
        continue;
      }
      become(result_of(relu), plan_.same[*input]);
      steps_[i + 1].relu_follows = true;
    }
    steps_ = std::move(kept);
  }

  /// Whether backward does not need a step's result, which has room for real numbers, and this is no view:
  /// LibTorch makes a product of more dims from one of two, as a view of it.
  bool is_free(const Step& step) const {
    constexpr std::array<std::string_view, 4> kNames = {"conv2d", "conv_transpose2d", "max_pool2d", "add"};
    constexpr std::array<std::string_view, 3> kProducts = {"linear", "addmm", "mm"};
    const auto calls_it = [&](std::string_view name) { return calls(node(step), name); };
    if (step.relu_follows || !has_one_result(node(step))) return false;
    const auto& facts = graph_[result_of(node(step))].tensor;
    if (!facts || !at::isFloatingType(facts->type)) return false;
    return std::ranges::any_of(kNames, calls_it) ||
           (std::ranges::any_of(kProducts, calls_it) && facts->sizes.size() == 2);
  }

  void overwrite() {
    std::set<ValueId> free;
    for (Step& step : steps_) {
      const Node& one = node(step);
      const auto input = tensor_of(one, "self");
      const bool overwrites = calls(one, "relu") || calls(one, "tanh") || calls(one, "sigmoid");
      step.overwrites_input = overwrites && input && free.contains(*input) && is_used_up(*input);
      if (is_free(step)) free.insert(result_of(one));
    }
  }

  /// The nodes of a mean over real words, the embedding first.
  std::optional<std::vector<const Node*>> words_of(const Node& division) const {
    if (!is_of_tensors(division, "div") || is_given(division, "rounding_mode")) return std::nullopt;
    const Node* sum = producer(tensor_of(division, "self"));
    const Node* most = producer(tensor_of(division, "other"));
    if (sum == nullptr || !sums_words(*sum) || is_on(*sum, "keepdim")) return std::nullopt;
    const Node* product = producer(tensor_of(*sum, "self"));
    const bool clamps = most != nullptr && (calls(*most, "clamp") || calls(*most, "clamp_min")) &&
                        number_or(*most, "min", 0) == 1 && !is_given(*most, "max");
    if (product == nullptr || !is_of_tensors(*product, "mul") || !clamps) return std::nullopt;
    const Node* embedding = producer(tensor_of(*product, "self"));
    const Node* real = producer(tensor_of(*product, "other"));
    if (real != nullptr && calls(*real, "embedding")) std::swap(real, embedding);
    const Node* count = producer(tensor_of(*most, "self"));
    const bool looks_up = embedding != nullptr && calls(*embedding, "embedding") && real != nullptr &&
                          calls(*real, "unsqueeze") && count != nullptr && sums_words(*count);
    const auto padding = looks_up ? number_or(*embedding, "padding_idx", -1) : std::nullopt;
    const bool fits_bag = padding && (*padding == 0 || *padding == -1);  // -1: none
    if (!fits_bag || is_on(*embedding, "scale_grad_by_freq")) return std::nullopt;
    const Node* known = producer(tensor_of(*real, "self"));
    const auto ids = tensor_of(*embedding, "indices");
    if (known == nullptr || !calls(*known, "ne") || !known->target.ends_with(".Scalar") || !ids ||
        tensor_of(*known, "self") != ids || number_or(*known, "other", 1) != 0)
      return std::nullopt;
    const auto dim = number_or(*real, "dim", 0);
    // Counted with the dim of the columns, or with that of the words kept.
    const bool counts_real = tensor_of(*count, "self") == result_of(*real) && !is_on(*count, "keepdim");
    const bool counts_known = tensor_of(*count, "self") == result_of(*known) && is_on(*count, "keepdim");
    const bool fits = (dim == 2 || dim == -1) && (counts_real || counts_known) &&
                      graph_[*ids].tensor->sizes.size() == 2 &&
                      !at::isFloatingType(graph_[*ids].tensor->type);
    const std::vector<const Node*> once = {sum, product, embedding, most, count};
    const bool apart =
        std::ranges::all_of(once, [&](const Node* one) { return uses(result_of(*one)) == 1; }) &&
        uses(result_of(*real)) == (counts_real ? 2 : 1) && uses(result_of(*known)) == (counts_real ? 1 : 2);
    if (!fits || !apart) return std::nullopt;
    return std::vector<const Node*>{embedding, real, known, product, sum, count, most, &division};
  }

  /// Over the dim of the words of [n, T] or [n, T, ...].
  bool sums_words(const Node& node) const {
    return calls(node, "sum") && node.target.ends_with(".dim_IntList") && number_or(node, "dim", 0) == 1 &&
           !is_given(node, "dtype");
  }

  /// Whether two sizes are the same number for all inputs, though they may be written otherwise.
  static bool are_alike(const SizeExpression& one, const SizeExpression& other) {
    if (one == other) return true;
    auto names = one.symbols();
    names.merge(other.symbols());
    try {
      for (const std::int64_t first : {3, 16}) {
        Symbols symbols;
        for (const auto& name : names)
          symbols.emplace(name, first + 4 * static_cast<std::int64_t>(symbols.size()));
        if (one.evaluate(symbols) != other.evaluate(symbols)) return false;
      }
    } catch (const Error&) {
      return false;  // one that does not follow from these numbers
    }
    return true;
  }

  /// Nothing where the node is not given that number.
  std::optional<SizeExpression> size_of(const Node& node, const char* name) const {
    const auto* argument = node.find(name);
    if (argument == nullptr || argument->kind != Argument::Kind::size) return std::nullopt;
    const Size& size = argument->sizes.at(0);
    return size.value ? *graph_[*size.value].number : SizeExpression(size.number);
  }

  /// nn.EmbeddingBag of texts [n, T], the mean with padding 0: the texts, and the nodes that flatten and
  /// divide them.
  struct Bag {
    ValueId texts;
    const Node* flat;
    const Node* begins;
  };
  std::optional<Bag> bag_of(const Node& node) const {
    constexpr std::int64_t kMean = 1;
    const bool means = calls(node, "embedding_bag") && node.target.ends_with(".padding_idx") &&
                       number_or(node, "mode", 0) == kMean && number_of(node, "padding_idx") == 0 &&
                       !is_on(node, "scale_grad_by_freq") && !is_on(node, "include_last_offset") &&
                       !is_given(node, "per_sample_weights");
    if (!means) return std::nullopt;
    const Node* flat = producer(tensor_of(node, "indices"));
    const Node* begins = producer(tensor_of(node, "offsets"));
    if (flat == nullptr || begins == nullptr || !calls(*flat, "reshape") || !calls(*begins, "arange") ||
        !begins->target.ends_with(".start_step") || number_of(*begins, "start") != 0 ||
        uses(result_of(*flat)) != 1 || uses(result_of(*begins)) != 1)
      return std::nullopt;
    const auto texts = tensor_of(*flat, "self");
    const auto end = size_of(*begins, "end");
    if (!texts || !end) return std::nullopt;
    const auto step = size_of(*begins, "step").value_or(SizeExpression(1));
    const auto& facts = graph_[*texts].tensor;
    const bool fits = facts->sizes.size() == 2 && !at::isFloatingType(facts->type) &&
                      graph_[result_of(*flat)].tensor->sizes.size() == 1 &&
                      are_alike(step, facts->sizes[1]) &&
                      are_alike(*end, graph_[result_of(*flat)].tensor->sizes[0]);
    return fits ? std::optional(Bag{*texts, flat, begins}) : std::nullopt;
  }

  void mean_words() {
    std::set<const Node*> gone;
    std::map<const Node*, ValueId> means;  // of which embedding
    std::map<const Node*, ValueId> texts;  // of which embedding or bag
    for (const Step& step : steps_) {
      if (const auto found = words_of(node(step))) {
        gone.insert(found->begin() + 1, found->end());
        means.emplace(found->front(), result_of(node(step)));
        texts.emplace(found->front(), *tensor_of(*found->front(), "indices"));
      } else if (const auto bag = bag_of(node(step))) {
        gone.insert({bag->flat, bag->begins});
        texts.emplace(&node(step), bag->texts);
      }
    }
    if (texts.empty()) return;
    std::erase_if(steps_, [&](const Step& step) { return gone.contains(&node(step)); });
    for (Step& step : steps_) {
      const auto found = texts.find(&node(step));
      if (found == texts.end()) continue;
      step.texts = found->second;
      const auto mean = means.find(&node(step));
      if (mean != means.end()) plan_.same[result_of(node(step))] = mean->second;  // whose shape it has
    }
  }

  const Graph& graph_;
  std::vector<Step>& steps_;
  Plan& plan_;
  Memory& memory_;
  std::map<ValueId, GraphInput::Kind> inputs_;
  std::map<ValueId, int> uses_;
};

}  // namespace

void fuse_steps(const Graph& graph, std::vector<Step>& steps, Plan& plan, Memory& memory) {
  Fusion(graph, steps, plan, memory).fuse();
}

}  // namespace dtrain::models::exported
