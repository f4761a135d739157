#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/running_time.hpp"

namespace dtrain::comm {

/// One order of all calls that a rank makes for its device, over all communicators there. A device may have
/// room for one communicator's kernel only: where one rank puts the kernel of A before that of B and another
/// the kernel of B before that of A, each waits for the other for ever. So a call takes its place when it is
/// submitted, by the program that all ranks share, and is made in its turn, whichever thread comes to make it
/// and whenever that thread comes. Thread-safe.
class DeviceOrder {
 public:
  /// `limit_s`: longest that a call may keep the calls behind it; 0: no limit.
  explicit DeviceOrder(double limit_s);

  /// A call's place in the order. Its destructor lets the next call go, made or not.
  class Place {
   public:
    Place(std::shared_ptr<DeviceOrder> order, std::string communicator);
    ~Place() { leave(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    /// Whether all calls before this one are with the device. Throws Error (exit code 5), which names both
    /// communicators, where one of them has kept this call for longer than the limit.
    bool is_turn();
    /// The call is with the device, or will never be made: the next may go.
    void leave() noexcept;
    /// The communicator whose call is now to be made, if that is another call; empty: this one, or none.
    std::string behind() const;

   private:
    std::shared_ptr<DeviceOrder> order_;
    std::string communicator_;
    std::uint64_t ticket_;
    bool left_ = false;
  };

 private:
  void begin_turn();

  mutable std::mutex mutex_;
  double limit_s_;
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, std::string> waiting_;  ///< Communicators by ticket; the first has its turn,
  RunningTime turn_;                              ///< since this began.
};

/// When a call may be given to the device. NCCL lets a kernel start when all kernels that were given to the
/// device before it have started, whatever their communicators (NCCL_LAUNCH_ORDER_IMPLICIT), and a kernel
/// starts when the one before it in its stream has ended. So a call that waits in its stream keeps all later
/// calls of the device from starting: where a rank has asked for the next messages long before they come,
/// also the answer that the peer waits for before it sends them. Collectives are given in the order in which
/// all ranks submit them. A message is given when the one before it on its way has ended; its place among the
/// calls of the device is where it is then.
///
/// Nor may a receive be with the device long before its message: CUDA loads a kernel when it is first used,
/// waits for all that runs until then, and keeps the process's other calls waiting. A rank whose receive
/// waits for a peer then never sends what the peer waits for. So the one that makes the calls asks is_next(),
/// learns from the peer that the message is with its device, and asks is_turn() behind that. Thread-safe.
class DeviceCall {
 public:
  /// A collective.
  DeviceCall(std::shared_ptr<DeviceOrder> order, std::string communicator);
  /// A message on `way`, an order of its own for each communicator that carries messages.
  DeviceCall(std::shared_ptr<DeviceOrder> order, std::string communicator, std::shared_ptr<DeviceOrder> way);
  ~DeviceCall() = default;
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;

  /// Whether none before it on its way is left: of a collective, always.
  bool is_next();
  /// Whether it may be given now. Throws Error as DeviceOrder::Place::is_turn().
  bool is_turn();
  /// The device has it, or it will never be made: the next call may go.
  void given() noexcept;
  /// It has ended there: the next message on its way may go.
  void ended() noexcept;
  /// What it waits for: the communicator whose call is now to be made, or the message before it; empty:
  /// nothing.
  std::string behind() const;

 private:
  std::shared_ptr<DeviceOrder> order_;
  std::string communicator_;
  std::optional<DeviceOrder::Place> on_way_;
  mutable std::mutex mutex_;
  std::optional<DeviceOrder::Place> among_all_;  ///< Nothing: it waits on its way.
};

}  // namespace dtrain::comm
