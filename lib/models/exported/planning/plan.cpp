#include "models/exported/planning/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "core/printable.hpp"
#include "models/exported/operators.hpp"
#include "models/exported/planning/fusion.hpp"
#include "models/exported/planning/memory.hpp"

namespace dtrain::models::exported {
namespace {

constexpr std::size_t kNever = static_cast<std::size_t>(-1);

std::vector<ValueId> tensors_used(const Node& node) {
  std::vector<ValueId> found;
  for (const auto& [name, argument] : node.inputs) {
    for (const auto& value : argument.values) {
      if (value) found.push_back(*value);
    }
  }
  return found;
}

std::vector<ValueId> tensors_made(const Node& node) {
  std::vector<ValueId> found;
  for (const auto& output : node.outputs) {
    if (output.kind == Output::Kind::tensor || output.kind == Output::Kind::tensors)
      found.insert(found.end(), output.values.begin(), output.values.end());
  }
  return found;
}

bool is_counter_of_batches(std::string_view buffer) {
  constexpr std::string_view kName = "num_batches_tracked";
  return buffer == kName || buffer.ends_with(fmt::format(".{}", kName));
}

class Planning {
 public:
  explicit Planning(const Graph& graph) : graph_(graph), memory_(graph.values.size()) {
    plan_.same.resize(graph.values.size());
    std::iota(plan_.same.begin(), plan_.same.end(), 0);
    plan_.output = graph.outputs.at(0);
    for (const auto& input : graph.inputs) kinds_[input.value] = &input;
    for (const auto* input : graph.inputs_of(GraphInput::Kind::user))
      plan_.user_inputs.push_back(input->value);
  }

  Plan plan() {
    choose_nodes();
    share_memory();
    drop_unused();
    plan_.output = same(plan_.output);
    fuse_steps(graph_, steps_, plan_, memory_);
    plan_.output = same(plan_.output);
    find_trained();
    count_uses();
    find_writes();
    cut();
    find_flowing();
    return std::move(plan_);
  }

 private:
  const Node& node(const Step& step) const { return graph_.nodes[step.node]; }
  ValueId same(ValueId value) const { return plan_.same[value]; }
  const GraphInput* input(ValueId value) const {
    const auto place = kinds_.find(value);
    return place == kinds_.end() ? nullptr : place->second;
  }

  void choose_nodes() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& one = graph_.nodes[i];
      if (is_about_sizes(one) || counts_batches(one)) continue;
      // What is not needed may be anything: it is looked up only where it is.
      wanted_.push_back(i);
    }
  }

  /// BatchNorm's `num_batches_tracked.add_(1)`: dtrain counts once in a step.
  bool counts_batches(const Node& one) {
    if (!calls(one, "add_") || one.inputs.empty() || one.inputs[0].second.values.empty()) return false;
    const auto* buffer = input(one.inputs[0].second.values[0].value_or(kNever));
    if (buffer == nullptr || buffer->kind != GraphInput::Kind::buffer || !is_counter_of_batches(buffer->name))
      return false;
    const auto* other = one.find("other");
    const bool by_one = other != nullptr && other->kind == Argument::Kind::size && !other->sizes[0].value &&
                        other->sizes[0].number == 1;
    if (!by_one || graph_[buffer->value].tensor->type != at::kLong ||
        !graph_[buffer->value].tensor->sizes.empty())
      return false;
    plan_.counters.push_back(buffer->value);
    for (const ValueId value : tensors_made(one)) plan_.same[value] = buffer->value;
    return true;
  }

  /// Works through the nodes whose result is needed, last first. Memory that may be written to keeps its
  /// writers.
  void drop_unused() {
    std::set<ValueId> needed = {memory_.root(plan_.output)};
    const auto is_needed = [&](ValueId value) { return needed.contains(memory_.root(value)); };
    std::vector<Step> kept;
    std::vector<Step> dropped;
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      const Node& one = node(*step);
      auto changed = tensors_made(one);
      std::ranges::copy(written(one, step->handle.schema()), std::back_inserter(changed));
      if (std::ranges::none_of(changed, is_needed)) {
        dropped.push_back(*step);
        continue;
      }
      for (const ValueId value : tensors_used(one)) needed.insert(memory_.root(value));
      kept.push_back(*step);
    }
    std::ranges::reverse(kept);
    steps_ = std::move(kept);
    // Written behind its last use: the next step would begin with it.
    for (const Step& step : dropped) {
      for (const ValueId value : written(node(step), step.handle.schema())) {
        if (is_needed(value)) refuse_state(node(step), memory_.root(value));
      }
    }
    for (const auto& problem : problems_) {
      auto changed = tensors_made(graph_.nodes[problem.first]);
      // What returns nothing is there for what it does to its inputs.
      if (changed.empty()) changed = tensors_used(graph_.nodes[problem.first]);
      if (std::ranges::any_of(changed, is_needed)) throw Error(problem.second);
    }
  }

  void share_memory() {
    for (const std::size_t i : wanted_) {
      const Node& one = graph_.nodes[i];
      try {
        check_operator(one);
      } catch (const Error& error) {
        // Refused only where its result is needed, which is known after all nodes have been seen.
        problems_.emplace_back(i, error);
      }
      const auto handle = find_operator(one);
      if (!handle) continue;
      for (const auto& sharing : shared_memory(one, handle->schema())) {
        memory_.join(sharing.output, sharing.input);
        if (sharing.how == Sharing::How::same) plan_.same[sharing.output] = plan_.same[sharing.input];
      }
      steps_.push_back({.node = i, .handle = *handle});
    }
  }

  /// Which parameters a gradient of the output reaches, and through what. What is written to through a view
  /// counts whole.
  void find_trained() {
    Memory memory(graph_.values.size());  // what detach gives has no gradient, though it is the same memory
    for (const Step& step : steps_) {
      if (calls(node(step), "detach")) continue;
      for (const auto& sharing : shared_memory(node(step), step.handle.schema()))
        memory.join(same(sharing.output), same(sharing.input));
    }
    const auto root = [&](ValueId value) { return memory.root(same(value)); };
    std::set<ValueId> reached = {plan_.output};
    std::set<ValueId> roots = {root(plan_.output)};
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      const Node& one = node(*step);
      if (calls(one, "detach")) continue;
      const auto made = tensors_made(one);
      const bool gives = std::ranges::any_of(made, [&](ValueId value) {
        return reached.contains(same(value)) && at::isFloatingType(graph_[value].tensor->type);
      });
      const auto changed = written(one, step->handle.schema());
      const bool writes =
          std::ranges::any_of(changed, [&](ValueId value) { return roots.contains(root(value)); });
      if (!gives && !writes) continue;
      for (const ValueId value : tensors_read(*step, graph_)) {
        reached.insert(same(value));
        roots.insert(root(value));
      }
    }
    for (const auto* parameter : graph_.inputs_of(GraphInput::Kind::parameter))
      if (reached.contains(parameter->value)) plan_.trained.insert(parameter->value);

    std::set<ValueId> follows;  // from a parameter
    std::set<ValueId> follows_in_memory;
    const auto take = [&](ValueId value) {
      follows.insert(same(value));
      follows_in_memory.insert(root(value));
    };
    const auto depends = [&](ValueId value) {
      return follows.contains(same(value)) || follows_in_memory.contains(root(value));
    };
    for (const auto* parameter : graph_.inputs_of(GraphInput::Kind::parameter)) take(parameter->value);
    for (const Step& step : steps_) {
      if (calls(node(step), "detach") || std::ranges::none_of(tensors_read(step, graph_), depends)) continue;
      std::ranges::for_each(tensors_made(node(step)), take);
      std::ranges::for_each(written(node(step), step.handle.schema()), take);
    }
    for (ValueId value = 0; value < graph_.values.size(); ++value) {
      if ((reached.contains(same(value)) || roots.contains(root(value))) && depends(value))
        plan_.carries.insert(value);
    }
  }

  void count_uses() {
    made_at_.assign(graph_.values.size(), kNever);
    last_use_.assign(graph_.values.size(), kNever);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      for (const ValueId value : tensors_read(steps_[i], graph_)) last_use_[same(value)] = i;
      for (const ValueId value : tensors_made(node(steps_[i]))) {
        if (made_at_[same(value)] == kNever && input(same(value)) == nullptr) made_at_[same(value)] = i;
      }
    }
    last_use_[plan_.output] = steps_.size();
  }

  /// What writes in place, and where a write is seen through a view: such nodes stay together.
  void find_writes() {
    std::map<ValueId, std::vector<ValueId>> members;  // by root
    for (ValueId value = 0; value < graph_.values.size(); ++value) {
      if (same(value) == value && graph_[value].tensor) members[memory_.root(value)].push_back(value);
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      for (const ValueId given : written(node(steps_[i]), steps_[i].handle.schema())) {
        const ValueId value = same(given);
        const ValueId root = memory_.root(value);
        refuse_state(node(steps_[i]), root);
        const auto& sharing = members[root];
        // A view made behind this step is one of what it leaves.
        const bool sole = std::ranges::none_of(sharing, [&](ValueId other) {
          return other != value && last_use_[other] != kNever && last_use_[other] > i &&
                 (made_at_[other] == kNever || made_at_[other] < i);
        });
        if (sole) {
          const bool from_user = input(root) != nullptr;
          steps_[i].copies = from_user || root != value ? Step::Copies::always : Step::Copies::if_leaf;
          continue;
        }
        if (input(root) != nullptr && input(root)->kind != GraphInput::Kind::user)
          throw refused(node(steps_[i]), "writes to a view of a constant", "write to a clone() of it");
        if (made_at_[root] != kNever && graph_[root].tensor->lies_in_order)
          steps_[made_at_[root]].lies_in_order = graph_[root].tensor->sizes.size() >= 3;
        std::size_t first = i;
        for (const ValueId other : sharing) {
          if (other != root && made_at_[other] != kNever) first = std::min(first, made_at_[other]);
          if (made_at_[other] != kNever) steps_[made_at_[other]].is_written_later = true;
        }
        together_.push_back({first, i, root});
      }
    }
  }

  void refuse_state(const Node& one, ValueId root) const {
    const auto* state = input(root);
    if (state == nullptr || state->kind == GraphInput::Kind::user) return;
    if (state->kind == GraphInput::Kind::buffer) {
      throw refused(one, fmt::format("writes to the buffer {}", printable(state->name, 100)),
                    "keep no state but that of BatchNorm between steps");
    }
    if (state->kind == GraphInput::Kind::parameter) {
      throw refused(one, fmt::format("writes to the parameter {}", printable(state->name, 100)),
                    "compute a new tensor from it");
    }
  }

  /// Before which steps a run begins.
  std::vector<std::size_t> begins() const {
    std::set<std::string> inner;  // modules with modules of their own
    for (const Step& step : steps_) {
      const std::string& path = node(step).module;
      if (path.empty()) continue;
      inner.insert("");
      for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1))
        inner.insert(path.substr(0, dot));
    }
    std::vector<std::size_t> found = {0};
    std::string current;
    bool has_leaf = false;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const std::string& path = node(steps_[i]).module;
      if (inner.contains(path)) continue;
      if (has_leaf && path != current && i > 0) found.push_back(i);
      current = path;
      has_leaf = true;
    }
    std::erase_if(found, [&](std::size_t begin) {
      return begin > 0 && std::ranges::any_of(together_, [begin](const Together& span) {
               return begin > span.first && begin <= span.last;
             });
    });
    return found;
  }

  void cut() {
    const auto from = begins();
    std::map<std::string, int> names;
    for (std::size_t k = 0; k < from.size(); ++k) {
      Run run;
      const auto end = k + 1 < from.size() ? from[k + 1] : steps_.size();
      for (std::size_t i = from[k]; i < end; ++i) {
        if (run.name.empty()) run.name = node(steps_[i]).module;
        run.steps.push_back(steps_[i]);
      }
      for (const Together& span : together_) {
        const bool outside = made_at_[span.root] == kNever || made_at_[span.root] < from[k];
        const bool here = span.last >= from[k] && span.last < end;
        if (outside && here && std::ranges::find(run.cloned, span.root) == run.cloned.end())
          run.cloned.push_back(span.root);
      }
      if (run.name.empty()) run.name = "forward";
      if (const int count = ++names[run.name]; count > 1) run.name += fmt::format("#{}", count);
      plan_.runs.push_back(std::move(run));
    }
  }

  /// Symbols that a run needs, in its sizes or those of its results.
  std::set<std::string> symbols_of(const Run& run) const {
    std::set<std::string> found;
    const auto add = [&](const SizeExpression& size) { found.merge(size.symbols()); };
    for (const Step& step : run.steps) {
      for (const auto& [name, argument] : node(step).inputs) {
        for (const Size& size : argument.sizes) {
          if (size.value) add(*graph_[*size.value].number);
        }
      }
      for (const ValueId value : tensors_made(node(step))) {
        for (const auto& size : graph_[value].tensor->sizes) add(size);
      }
    }
    return found;
  }

  void find_flowing() {
    std::vector<std::size_t> run_made(graph_.values.size(), kNever);  // 0: by the user
    std::vector<std::size_t> run_used(graph_.values.size(), 0);
    for (const ValueId value : plan_.user_inputs) run_made[value] = 0;
    for (std::size_t r = 0; r < plan_.runs.size(); ++r) {
      for (const Step& step : plan_.runs[r].steps) {
        for (const ValueId value : tensors_read(step, graph_)) run_used[same(value)] = r;
        for (const ValueId value : tensors_made(node(step))) {
          if (run_made[same(value)] == kNever && input(same(value)) == nullptr) run_made[same(value)] = r + 1;
        }
      }
    }
    run_used[plan_.output] = plan_.runs.size();
    for (const ValueId value : plan_.user_inputs) plan_.runs.front().inputs.push_back({.value = value});
    std::set<std::string> later;
    for (std::size_t r = plan_.runs.size(); r-- > 1;) {
      Run& run = plan_.runs[r];
      later.merge(symbols_of(run));
      std::set<std::string> shown;
      for (ValueId value = 0; value < graph_.values.size(); ++value) {
        const bool lives = run_made[value] != kNever && run_made[value] <= r && run_used[value] >= r;
        if (!lives || same(value) != value || !graph_[value].tensor) continue;
        run.inputs.push_back({.value = value});
        for (const auto& size : graph_[value].tensor->sizes) {
          if (const auto symbol = size.symbol()) shown.insert(*symbol);
        }
      }
      // In the order in which they were made: the main stream of a network comes last.
      std::ranges::stable_sort(run.inputs, {}, [&](const Flowing& one) { return made_order(*one.value); });
      std::ranges::reverse(run.inputs);
      for (const auto& symbol : later) {
        if (!shown.contains(symbol)) run.inputs.push_back({.symbol = symbol});
      }
    }
  }

  std::size_t made_order(ValueId value) const { return made_at_[value] == kNever ? 0 : made_at_[value] + 1; }

  struct Together {
    std::size_t first;
    std::size_t last;
    ValueId root;
  };

  const Graph& graph_;
  Memory memory_;
  Plan plan_;
  std::map<ValueId, const GraphInput*> kinds_;
  std::vector<std::size_t> wanted_;
  std::vector<Step> steps_;
  std::vector<std::pair<std::size_t, Error>> problems_;
  std::vector<std::size_t> made_at_;
  std::vector<std::size_t> last_use_;
  std::vector<Together> together_;
};

}  // namespace

std::vector<ValueId> tensors_read(const Step& step, const Graph& graph) {
  if (step.texts) return {graph.nodes[step.node].find("weight")->values.at(0).value(), *step.texts};
  auto found = tensors_used(graph.nodes[step.node]);
  if (step.residual) found.push_back(*step.residual);
  return found;
}

Plan make_plan(const Graph& graph) {
  Plan plan = Planning(graph).plan();
  return plan;
}

}  // namespace dtrain::models::exported
