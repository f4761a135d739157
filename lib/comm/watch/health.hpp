#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/mpi/communicator.hpp"
#include "comm/shared_memory/shared_memory.hpp"

namespace dtrain::comm {

/// Which ranks of the job are still there. On a node every rank holds a robust mutex in shared memory for as
/// long as it lives; the kernel gives it away when its owner dies, so that a waiter's trylock tells death
/// from slowness. Deaths on other nodes come from MPI, where ULFM is on. The first rank that sees or causes a
/// failure sets a word that all others of its node find.
/// Must be made, checked and destroyed with the making thread alive: the mutex belongs to that thread.
class Health {
 public:
  /// `local` are the ranks that share memory with this one. `first_ranks`: how those of `world` are named to
  /// people. Collective over both.
  Health(const Communicator& world, const Communicator& local, std::vector<int> first_ranks, bool recovery);
  ~Health();
  Health(const Health&) = delete;
  Health& operator=(const Health&) = delete;

  /// Throws Error (exit code 5) naming the rank that is gone or that reported a failure. Called from waits
  /// at any rate: it limits its own cost.
  void check();
  void check_deaths();  ///< Only the ranks that are gone, and without the limit: after something went wrong.

  /// Lets the other ranks know that this one cannot go on, and why, or that `dead_rank` is gone.
  void report_failure(std::optional<int> dead_rank = {}, std::string_view why = {}) noexcept;

  /// Of the shared memory that each rank of a node takes.
  static std::size_t bytes_per_rank();

 private:
  struct Line;
  /// This rank's mutex, held for as long as this object lives.
  class Held {
   public:
    Held() = default;
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    bool take(Line& line);  ///< Makes the line's mutex; false where the kernel has none that is robust.

   private:
    Line* line_ = nullptr;
  };
  void check_node();
  void check_mutexes();
  void check_job();
  Line& line(int local_rank) const;
  [[noreturn]] void throw_lost(int first_rank);
  int first_rank() const { return first_ranks_[static_cast<std::size_t>(world_.rank())]; }

  const Communicator& world_;
  int local_rank_ = 0;
  std::vector<int> first_ranks_;        ///< world rank -> first rank
  std::vector<int> local_ranks_;        ///< local rank -> first rank
  std::optional<SharedMemory> memory_;  ///< one Line per local rank; empty where a node has one rank
  Held held_;  ///< After memory_: the kernel keeps a list of held robust mutexes, and may not find one there
               ///< whose memory is gone.
  bool ask_mpi_ = false;
  std::int64_t next_node_check_ns_ = 0;
  std::int64_t next_job_check_ns_ = 0;
};

}  // namespace dtrain::comm
