#include "parallel/gradients/reproducible_sums.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "parallel/agreement.hpp"
#include "parallel/data_types.hpp"

namespace dtrain::parallel {
namespace {

// Of the sums, elements that are brought together at once: few enough for the caches to hold what all ranks
// bring, many enough for a message to be worth sending.
constexpr std::int64_t kWindow = std::int64_t{1} << 18;

std::int64_t rounded_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

at::Tensor ReproducibleSums::Leaf::view(const at::Tensor& sums) const {
  return FlatParameters::view(sums, {.parameter = parameter, .offset = offset});
}

ReproducibleSums::ReproducibleSums(FlatParameters& parameters, models::Model& model, comm::Group& group,
                                   int micro_batches, bool update_parts, std::vector<Range> shared_out,
                                   const comm::Group* sharers)
    : parameters_(parameters),
      group_(group),
      micro_batches_(micro_batches),
      size_(parameters.size()),
      updates_parts_(update_parts && (sharers != nullptr ? *sharers : group).size() > 1),
      shared_out_(std::move(shared_out)) {
  for (const auto& entry : parameters.entries()) {
    auto& place = places_.emplace_back(*entry.parameter);
    leaves_.push_back({.parameter = entry.parameter, .offset = entry.offset, .place = &place});
  }
  add_borrowed(model);
  own(even_ownership(micro_batches, group.size()));
  if (shared_out_.empty()) shared_out_ = {{0, parameters.size()}};
  const comm::Group& all = sharers != nullptr ? *sharers : group;
  for (const Range& range : shared_out_) {
    const auto part = part_of(range.size(), all.rank(), all.size());
    own_parts_.push_back({range.begin + part.begin, range.begin + part.end});
  }
  update_parts_ = updates_parts_ ? own_parts_ : std::vector<Range>{{0, parameters.size()}};
  require_agreement(
      group, parameters.layout_hash() ^ static_cast<std::uint64_t>(micro_batches),
      "the ranks lay out the model's parameters differently",
      {.subject = "gradient sums", .advice = "start the same binary and options on every rank"});
}

void ReproducibleSums::add_borrowed(models::Model& model) {
  for (const auto& borrowed : model.borrowed()) {
    if (borrowed.parameter->frozen) continue;
    auto& parameter = *borrowed.parameter;
    const bool here = model.holds(borrowed.borrower);
    if (model.holds(borrowed.owner)) {
      shares_.push_back(
          {.parameter = &parameter, .leaf = here ? std::optional(leaves_.size()) : std::nullopt});
    }
    if (!here) continue;
    borrowed.use->keep_apart();
    leaves_.push_back({.parameter = &parameter, .offset = size_, .use = borrowed.use});
    size_ += rounded_up(parameter.value.numel(), FlatParameters::kAlignment);
  }
}

ReproducibleSums::~ReproducibleSums() {
  for (const Leaf& leaf : leaves_) {
    leaf.tensor().mutable_grad().reset();
    if (leaf.use != nullptr) leaf.use->join();
  }
}

void ReproducibleSums::own(const Ownership& owned) {
  require(std::ssize(owned) == group_.size(), "has other ranks than the group", {.subject = "an ownership"});
  owned_ = owned[static_cast<std::size_t>(group_.rank())];
  nodes_of_.clear();
  for (const Range& of_rank : owned) nodes_of_.push_back(PieceTree::cover(of_rank));
}

int ReproducibleSums::gradients_held(int micro_batches, int ranks) {
  std::size_t most = 0;
  for (const Range& owned : even_ownership(micro_batches, ranks)) {
    for (auto piece = owned.begin; piece < owned.end; ++piece)  // beside what was there before it
      most = std::max(most, PieceTree::cover({owned.begin, piece}).size() + 1);
  }
  return static_cast<int>(most) + (ranks > 1 ? 1 : 0);
}

std::int64_t ReproducibleSums::exchanged_elements(int micro_batches, int ranks, std::int64_t size) {
  if (ranks == 1) return 0;
  std::size_t most = 0;
  for (const Range& owned : even_ownership(micro_batches, ranks))
    most = std::max(most, PieceTree::cover(owned).size());
  return 2 * ranks * static_cast<std::int64_t>(most) * slice_of({0, std::min(kWindow, size)}, ranks);
}

void ReproducibleSums::begin_step(int micro_batches) {
  require(micro_batches <= owned_.size(), "has more micro-batches than are this rank's",
          {.subject = "a step"});
  gradients_.reset();
  if (total_.defined() && group_.size() == 1)
    tree_.give_back(std::exchange(total_, {}));  // it came from there
  taken_back_.assign(static_cast<std::size_t>(micro_batches_), false);
  done_ = 0;
  for (const Leaf& leaf : leaves_) leaf.tensor().mutable_grad().reset();
  if (owned_.size() > 0) offer_memory();
}

// Where a layer can write its weight's gradient to at once. One use only takes it.
void ReproducibleSums::offer_memory() {
  if (!piece_.defined()) piece_ = tree_.take_free();
  if (!piece_.defined()) piece_ = at::zeros({size_}, parameters_.values().options());
  for (const Leaf& leaf : leaves_) {
    if (leaf.place != nullptr) leaf.place->offer(leaf.view(piece_));
  }
}

void ReproducibleSums::collect(const Leaf& leaf) {
  auto& gradient = leaf.tensor().mutable_grad();
  auto view = leaf.view(piece_);
  if (!gradient.defined()) {
    view.zero_();
  } else if (gradient.data_ptr() != view.data_ptr()) {
    view.copy_(gradient);
  }
  gradient.reset();
  if (leaf.place != nullptr) leaf.place->withdraw();
}

void ReproducibleSums::taken_back(int index) {
  const at::NoGradGuard no_grad;
  require(index >= owned_.begin && index < owned_.end, "is another rank's", {.subject = "a micro-batch"});
  for (const Leaf& leaf : leaves_) collect(leaf);
  tree_.add({.height = 0, .index = index}, std::exchange(piece_, {}));
  taken_back_[static_cast<std::size_t>(index)] = true;
  if (++done_ < owned_.size()) offer_memory();
}

void ReproducibleSums::finish(const std::function<void()>& exchange_shares) {
  const at::NoGradGuard no_grad;
  for (auto index = owned_.begin; index < owned_.end; ++index) {  // those without samples
    if (!taken_back_[static_cast<std::size_t>(index)]) taken_back(static_cast<int>(index));
  }
  for (auto& place : places_) place.withdraw();
  bring_together();
  gradients_ = total_.narrow(0, 0, parameters_.size());
  for (const Leaf& leaf : leaves_) {
    if (leaf.use != nullptr) leaf.tensor().mutable_grad() = leaf.view(total_);
  }
  if (exchange_shares) exchange_shares();
  add_shares();
}

/// Other ranks hand over their shares of a parameter in the order of the layers.
void ReproducibleSums::add_share(const models::Parameter* parameter, const at::Tensor& gradient) {
  const auto share = std::ranges::find_if(shares_, [&](const Share& one) {
    return one.parameter == parameter && !one.leaf && !one.sum.defined();
  });
  require(share != shares_.end(), "has no gradient of its own here", {.subject = parameter->name});
  share->sum = gradient;
}

void ReproducibleSums::add_shares() {
  for (Share& share : shares_) {
    const auto sum = share.leaf ? leaves_[*share.leaf].view(total_) : std::exchange(share.sum, {});
    require(sum.defined(), "has a share that did not come", {.subject = share.parameter->name});
    const auto owner = std::ranges::find(leaves_, share.parameter, &Leaf::parameter);  // the first of them
    owner->view(total_).add_(sum.to(total_.device()));
  }
}

void ReproducibleSums::bring_together() {
  if (group_.size() == 1) {
    total_ = tree_.take_total();
    return;
  }
  const std::int64_t ranks = group_.size();
  const auto most =
      static_cast<std::int64_t>(std::ranges::max(nodes_of_, {}, &std::vector<PieceTree::Node>::size).size());
  if (!total_.defined()) {
    total_ = at::empty({size_ + ranks * FlatParameters::kAlignment}, parameters_.values().options());
  }
  const auto exchanged = ranks * most * slice_of({0, std::min(kWindow, size_)}, ranks);
  if (!sent_.defined() || sent_.numel() < exchanged) {
    sent_ = at::zeros({exchanged}, parameters_.values().options());
    received_ = at::zeros_like(sent_);
  }
  for (std::int64_t begin = 0; begin < size_; begin += kWindow) {
    bring_together({begin, std::min(begin + kWindow, size_)}, most);
  }
  tree_.clear();
}

/// Elements of a window that one rank adds up.
std::int64_t ReproducibleSums::slice_of(Range window, std::int64_t ranks) {
  return rounded_up((window.size() + ranks - 1) / ranks, FlatParameters::kAlignment);
}

// Rank r gets slice r of every rank's nodes, adds them up, and gives the sum to all.
void ReproducibleSums::bring_together(Range window, std::int64_t most_nodes) {
  const std::int64_t ranks = group_.size();
  const auto slice = slice_of(window, ranks);
  const auto blocks = [&](const at::Tensor& memory) {
    return memory.narrow(0, 0, ranks * most_nodes * slice).view({ranks, most_nodes, slice});
  };
  const auto sent = blocks(sent_);
  const auto received = blocks(received_);
  const auto mine = tree_.values();
  for (std::int64_t r = 0; r < ranks; ++r) {
    const auto begin = std::min(window.begin + r * slice, window.end);
    const auto count = std::min(slice, window.end - begin);
    for (std::size_t k = 0; k < mine.size(); ++k) {
      sent[r][static_cast<std::int64_t>(k)].narrow(0, 0, count).copy_(mine[k].narrow(0, begin, count));
    }
  }
  exchange(Exchange::blocks, sent, received);
  PieceTree tree;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const auto& nodes = nodes_of_[static_cast<std::size_t>(r)];
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      tree.add(nodes[k], received[r][static_cast<std::int64_t>(k)]);
    }
  }
  const auto sum = tree.take_total();
  // The last slices may reach beyond the window: the next one overwrites that, or there is room for it.
  const auto all = total_.narrow(0, window.begin, ranks * slice);
  exchange(Exchange::slices, sum, all);
}

void ReproducibleSums::exchange(Exchange what, const at::Tensor& from, const at::Tensor& to) {
  const auto [group, place] = carrier_of(group_, to.device());
  const auto sent = from.to(place);
  const auto received = to.device() == place ? to : at::empty_like(to, place);
  (what == Exchange::blocks ? group.all_to_all(buffer_of(sent), buffer_of(received))
                            : group.all_gather(buffer_of(sent), buffer_of(received)))
      .follow();
  if (!received.is_same(to)) to.copy_(received);
}

}  // namespace dtrain::parallel
