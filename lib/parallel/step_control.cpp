#include "parallel/step_control.hpp"

#include <span>

namespace dtrain::parallel {

StepControl::StepControl(comm::Group& group)
    : group_(group), memory_(group.allocate(kFields * sizeof(double))) {}

StepShare StepControl::agree(const StepShare& share) {
  const std::span<double> message(static_cast<double*>(memory_->data()), kFields);
  message[0] = share.loss;
  message[1] = share.weight;
  message[2] = share.correct;
  message[3] = share.counted;
  message[4] = share.samples;
  message[5] = share.gradient_squares;
  message[6] = share.non_finite;
  message[7] = share.micro_batches;
  message[8] = share.stop_requests;
  message[9] = share.save_requests;
  group_.all_reduce(comm::Buffer::of(message), comm::ReduceOp::sum).wait();
  return {.loss = message[0],
          .weight = message[1],
          .correct = message[2],
          .counted = message[3],
          .samples = message[4],
          .gradient_squares = message[5],
          .non_finite = message[6],
          .micro_batches = message[7],
          .stop_requests = message[8],
          .save_requests = message[9]};
}

}  // namespace dtrain::parallel
