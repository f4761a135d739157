#include "comm/device/device_order.hpp"

#include <fmt/core.h>

#include <utility>

#include "core/error.hpp"

namespace dtrain::comm {

DeviceOrder::DeviceOrder(double limit_s) : limit_s_(limit_s), turn_(RunningTime::gap_for(limit_s)) {}

void DeviceOrder::begin_turn() { turn_ = RunningTime(RunningTime::gap_for(limit_s_)); }

DeviceOrder::Place::Place(std::shared_ptr<DeviceOrder> order, std::string communicator)
    : order_(std::move(order)), communicator_(std::move(communicator)) {
  const std::lock_guard held(order_->mutex_);
  ticket_ = order_->next_++;
  if (order_->waiting_.empty()) order_->begin_turn();
  order_->waiting_.emplace(ticket_, communicator_);
}

bool DeviceOrder::Place::is_turn() {
  const std::lock_guard held(order_->mutex_);
  const auto first = order_->waiting_.begin();
  if (left_ || first->first == ticket_) return true;
  const double kept_s = order_->turn_.look();
  if (order_->limit_s_ <= 0 || kept_s <= order_->limit_s_) return false;
  throw Error(fmt::format("a call of communicator {} has waited {:.0f} s for its turn behind a call of "
                          "communicator {}, which does not come to the device",
                          communicator_, kept_s, first->second),
              {.subject = "order of calls on the device",
               .advice = "look for a rank that makes them in another order, or that is lost: run again with "
                         "--comm-backend mpi to see whether that one ends",
               .code = ExitCode::lost_rank});
}

void DeviceOrder::Place::leave() noexcept {
  const std::lock_guard held(order_->mutex_);
  if (left_) return;
  left_ = true;
  const bool had_turn = order_->waiting_.begin()->first == ticket_;
  order_->waiting_.erase(ticket_);
  if (had_turn) order_->begin_turn();
}

std::string DeviceOrder::Place::behind() const {
  const std::lock_guard held(order_->mutex_);
  if (left_ || order_->waiting_.begin()->first == ticket_) return {};
  return order_->waiting_.begin()->second;
}

DeviceCall::DeviceCall(std::shared_ptr<DeviceOrder> order, std::string communicator)
    : order_(std::move(order)), communicator_(std::move(communicator)) {
  among_all_.emplace(order_, communicator_);
}

DeviceCall::DeviceCall(std::shared_ptr<DeviceOrder> order, std::string communicator,
                       std::shared_ptr<DeviceOrder> way)
    : order_(std::move(order)), communicator_(std::move(communicator)) {
  on_way_.emplace(std::move(way), communicator_);
}

bool DeviceCall::is_next() {
  const std::lock_guard held(mutex_);
  return among_all_ || on_way_->is_turn();
}

bool DeviceCall::is_turn() {
  const std::lock_guard held(mutex_);
  if (!among_all_) {
    if (!on_way_->is_turn()) return false;
    among_all_.emplace(order_, communicator_);
  }
  return among_all_->is_turn();
}

void DeviceCall::given() noexcept {
  const std::lock_guard held(mutex_);
  if (among_all_) among_all_->leave();
}

void DeviceCall::ended() noexcept {
  if (on_way_) on_way_->leave();
}

std::string DeviceCall::behind() const {
  const std::lock_guard held(mutex_);
  return among_all_ ? among_all_->behind() : on_way_->behind();
}

}  // namespace dtrain::comm
