#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "core/span_sink.hpp"
#include "parallel/strategy/servers/parameter_server.hpp"
#include "parallel/strategy/servers/server_roles.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// What this rank does to keep the parameters: nothing, only that, or beside computing, in a thread. The
/// thread sends and receives through the rank's queue, which another thread has to drive (Drive::thread).
class Serving {
 public:
  /// Updates the part of `kept` [n] by what a copy has pushed.
  using Update = std::function<void(const at::Tensor& kept, const at::Tensor& given, const Range& part,
                                    double scale, double rate, std::int64_t number)>;
  struct Rule {
    Update update;
    bool divides_rate = false;
  };
  /// `values` [n]: the parameters of this rank's copy; a rank that only serves keeps its part there. `lines`
  /// is borrowed.
  Serving(const StrategyParts& parts, const ServerRoles& roles, const ServerLines& lines, at::Tensor values,
          Rule rule);
  ~Serving();  ///< Ends a thread that still serves, which the queue does not survive.
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  /// What is kept becomes that of `values` [n].
  void keep(const at::Tensor& values);

  /// Work of `steps` is to be done: a thread begins to serve, unless it does. `updates`: that were done
  /// before.
  void begin(const WorkRange& steps, int staleness, std::int64_t updates);
  /// Returns when all copies are done. How many updates were late by how many others, as
  /// ParameterServer::serve(); empty where this rank serves nothing. Throws what a thread has thrown.
  std::vector<std::int64_t> finish();

  /// Gives all ranks what is kept in `values` [n], and of `more`, each [n], what the servers have there.
  /// Collective over the data axis.
  void spread(const at::Tensor& values, const std::vector<at::Tensor>& more = {});

 private:
  bool serves() const { return server_ != nullptr; }
  std::vector<std::int64_t> serve();
  void serve_in_a_thread();

  StrategyParts parts_;
  ServerRoles roles_;
  Rule rule_;
  Range part_;
  at::Tensor kept_;  // [n], of which the part is used
  NullSpanSink unseen_;
  std::unique_ptr<ParameterServer> server_;  // null: this rank only computes
  std::optional<Dealing> dealing_;           // on the server that deals
  std::int64_t updates_ = 0;
  bool begun_ = false;
  std::vector<std::int64_t> late_;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace dtrain::parallel
