#pragma once

#include <mpi.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::comm {

/// Whether a job can go on after a rank died. mpirun --with-ft ulfm sets OMPI_MCA_mpi_ft_enable=1 in the
/// ranks' environment; app reads it, because nothing below app reads the environment.
enum class Recovery { off, on };

/// What those that are left of a job learn of each other.
struct Loss {
  std::vector<int> gone;        ///< In MPI_COMM_WORLD at the start; empty: all are still there.
  bool all_hold_state = false;  ///< What each of world() said of itself.
};

/// How a spare rank's job has ended without it.
struct Dismissal {
  int exit_code = 0;
  std::string why;  ///< Empty where it went well.
};

class OwnWords;

/// MPI from start to end: owns initialisation and finalisation. One per process, alive in main around
/// everything else that touches MPI.
///
/// The ranks of a job work, all of them, unless some are kept as spares, which wait to take lost ranks'
/// places.
class MpiEnvironment {
 public:
  /// Starts MPI with MPI_THREAD_MULTIPLE. Collective over the job. Throws Error when the library cannot. Ends
  /// the process (exit code 5) when it takes more than `limit_s`: MPI would wait for ever for a rank that
  /// dies meanwhile.
  MpiEnvironment(int& argc, char**& argv, Recovery recovery = Recovery::off, double limit_s = 300);

  /// Finalises, unless an exception unwinds: finalising would wait for ranks that wait for us. Where ranks
  /// may be lost, leave by exit_without_finalising() instead.
  ~MpiEnvironment();

  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  /// The ranks that work; on a spare a communicator of spares.
  MPI_Comm world() const noexcept { return world_; }
  int world_rank() const noexcept { return rank_; }
  int world_size() const noexcept { return size_; }  ///< Also on a spare.
  /// This rank in MPI_COMM_WORLD, and how many it had, at the start.
  int first_rank() const noexcept { return me_.first_rank; }
  int first_size() const noexcept { return first_size_; }
  /// Whether some of the first ranks are gone, spares in their places or not.
  bool has_lost_ranks() const noexcept { return static_cast<int>(members_.size()) < first_size_; }

  /// The last `count` ranks of the job become spares. Collective over the job, once.
  void keep_spares(int count);
  bool is_spare() const noexcept { return me_.spare != 0; }
  /// On a spare: returns nothing when ranks were lost and leave_lost_behind() is to be called, or how the job
  /// has ended.
  std::optional<Dismissal> wait_for_call() const;
  /// Ends the wait of all spares; called by rank 0 of world(), or by a rank that fails.
  void dismiss_spares(int exit_code, std::string_view why) const noexcept;

  /// Goes on without the ranks that are gone: from now on world() is of those that are left, in their order.
  /// Every one of them calls it, spares too; communicators of before are of no more use. Nothing has changed
  /// where all are still there. `holds_state`: whether this rank has what it worked on as it was before the
  /// loss. Throws Error (exit code 5) when another rank is lost meanwhile: then it is to be called again.
  /// Ends the process (exit code 5) when not all that are left have come within `limit_s`: some may be far
  /// behind, in a long computation. Throws Error with the exit code of a rank that has an error of its own
  /// and leaves by exit_without_finalising(): the job is not to go on without it.
  Loss leave_lost_behind(bool holds_state, double limit_s);
  /// Spares take places in world() until it has `wanted` ranks, as far as there are some. All call it after
  /// leave_lost_behind(), spares too. Throws Error, and ends the process, as above.
  void call_spares(int wanted, double limit_s);

  /// True when ULFM is on and this library has its functions: peers see a death as an Error of their own
  /// instead of being killed with it.
  bool can_recover() const noexcept { return can_recover_; }

  /// `Open MPI v5.0.11, ...`: one line for the start-up message and for results.h5.
  static std::string library_version();

  /// Ends all ranks of the job, this one with `exit_code`. Called while MPI is alive.
  [[noreturn]] void abort(int exit_code) noexcept;

  /// Ends this process where a rank was lost or may be: MPI_Finalize would wait for it for ever, and the
  /// launcher ends everyone at the first exit code that is not 0, and with them what it has not yet read of
  /// their output. So those that are there meet once more, for at most 5 s, and give it a tenth of a second
  /// to read, before each exits with `exit_code`. Where all leave, each different one of their `words` is
  /// printed once. After an earlier loss a rank with an error of its own calls the others to that meeting and
  /// gives them half a minute. Without ULFM it is abort(). Flushes standard streams.
  [[noreturn]] void exit_without_finalising(int exit_code, std::string_view words = {}) noexcept;

 private:
  /// A rank as it describes itself to the others.
  struct Member {
    int first_rank = 0;
    int spare = 0;
    int holds_state = 0;
    int leaves = 0;  // with exit_code
    int exit_code = 0;
  };
  std::vector<Member> gather_members() const;
  void part(OwnWords& words);
  void split_world(const std::vector<Member>& members);

  MPI_Comm everyone_ = MPI_COMM_WORLD;  // that is left, spares included
  MPI_Comm world_ = MPI_COMM_WORLD;
  Member me_;
  std::vector<Member> members_;  // of everyone_ when all had last agreed
  int rank_ = 0;
  int size_ = 1;
  int first_size_ = 1;
  int exceptions_ = 0;
  bool can_recover_ = false;
  double limit_s_ = 0;  // of the start
};

}  // namespace dtrain::comm
