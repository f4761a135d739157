#include <mpi.h>

#include <cstring>
#include <utility>

#include "comm/collectives/message_steps.hpp"
#include "comm/collectives/reduce.hpp"
#include "comm/mpi/mpi_check.hpp"
#include "comm/mpi/transfer.hpp"
#include "comm/mpi/ulfm.hpp"

namespace dtrain::comm {
namespace {

template <DataType type, ReduceOp op>
void reduce_for_mpi(void* in, void* inout, int* count, MPI_Datatype*) {
  reduce_into(inout, in, static_cast<std::size_t>(*count), type, op);
}

/// MPI has no sum of 16-bit floats: an operation of our own. Frees it.
class OwnOp {
 public:
  OwnOp(DataType type, ReduceOp op) {
    if (type == DataType::bfloat16) make<DataType::bfloat16>(op);
    if (type == DataType::float16) make<DataType::float16>(op);
  }
  ~OwnOp() {
    if (handle_ != MPI_OP_NULL) MPI_Op_free(&handle_);
  }
  OwnOp(const OwnOp&) = delete;
  OwnOp& operator=(const OwnOp&) = delete;
  MPI_Op handle() const { return handle_; }

 private:
  template <DataType type>
  void make(ReduceOp op) {
    MPI_User_function* function = reduce_for_mpi<type, ReduceOp::sum>;
    if (op == ReduceOp::max) function = reduce_for_mpi<type, ReduceOp::max>;
    if (op == ReduceOp::min) function = reduce_for_mpi<type, ReduceOp::min>;
    check_mpi(MPI_Op_create(function, 1, &handle_), "MPI_Op_create");
  }
  MPI_Op handle_ = MPI_OP_NULL;
};

MPI_Datatype mpi_type(DataType type) {
  switch (type) {
    case DataType::float32:
      return MPI_FLOAT;
    case DataType::float64:
      return MPI_DOUBLE;
    case DataType::bfloat16:
    case DataType::float16:
      return MPI_UINT16_T;
    case DataType::int32:
      return MPI_INT32_T;
    case DataType::int64:
      return MPI_INT64_T;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op mpi_op(ReduceOp op) {
  if (op == ReduceOp::sum) return MPI_SUM;
  return op == ReduceOp::max ? MPI_MAX : MPI_MIN;
}

class MpiAllReduce final : public Step {
 public:
  MpiAllReduce(const Channel& channel, int ranks, Buffer values, ReduceOp op, ByteCount* by_rank)
      : channel_(channel), values_(std::move(values)), used_(values_), op_(op), own_op_(values_.type, op) {
    bytes_sent_ = 2 * static_cast<std::int64_t>(values_.bytes()) * (ranks - 1) / ranks;
    bytes_received_ = bytes_sent_;
    by_rank_ = by_rank;
  }

  ~MpiAllReduce() override {
    if (request_ == MPI_REQUEST_NULL) return;
    ulfm::revoke(channel_.comm);  // which ends it
    abandon(request_, used_.data, used_.bytes(), used_.owner);
  }
  MpiAllReduce(const MpiAllReduce&) = delete;
  MpiAllReduce& operator=(const MpiAllReduce&) = delete;

  bool advance() override {
    if (!started_) {
      const MPI_Op op = own_op_.handle() != MPI_OP_NULL ? own_op_.handle() : mpi_op(op_);
      const int count = checked_int(values_.count, "all_reduce by MPI");
      if (!values_.owner) copy_values();
      check_mpi(
          MPI_Iallreduce(MPI_IN_PLACE, used_.data, count, mpi_type(used_.type), op, channel_.comm, &request_),
          "MPI_Iallreduce", channel_.comm);
      started_ = true;
    }
    int complete = 0;
    check_mpi(MPI_Test(&request_, &complete, MPI_STATUS_IGNORE), "MPI_Test of MPI_Iallreduce", channel_.comm);
    if (complete != 0 && used_.data != values_.data) std::memcpy(values_.data, used_.data, values_.bytes());
    return complete != 0;
  }

 private:
  void copy_values() {
    const auto copy = std::make_shared_for_overwrite<std::byte[]>(values_.bytes());
    if (values_.count > 0) std::memcpy(copy.get(), values_.data, values_.bytes());
    used_.data = copy.get();
    used_.owner = Owner(copy, copy.get());
  }

  Channel channel_;
  Buffer values_;
  Buffer used_;  ///< By MPI: the values, or a copy where nothing keeps them.
  ReduceOp op_;
  OwnOp own_op_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool started_ = false;
};

}  // namespace

std::unique_ptr<Step> make_mpi_all_reduce(const Channel& channel, int ranks, Buffer values, ReduceOp op,
                                          ByteCount* by_rank) {
  return std::make_unique<MpiAllReduce>(channel, ranks, std::move(values), op, by_rank);
}

}  // namespace dtrain::comm
