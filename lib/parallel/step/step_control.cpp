#include "parallel/step/step_control.hpp"

#include <span>

namespace dtrain::parallel {

StepControl::StepControl(comm::Group& group)
    : group_(group), memory_(group.allocate(kFields * sizeof(double))) {}

StepControl::Agreed StepControl::agree(const StepTotals& own, const StepRequests& requests,
                                       double next_weight) {
  const std::span<double> message(static_cast<double*>(memory_->data()), kFields);
  message[0] = own.loss;
  message[1] = own.weight;
  message[2] = own.correct;
  message[3] = own.counted;
  message[4] = own.samples;
  message[5] = own.gradient_squares;
  message[6] = own.non_finite;
  message[7] = own.micro_batches;
  message[8] = own.copy_squares;
  message[9] = own.copy_inverse;
  message[10] = own.copies;
  message[11] = requests.stop;
  message[12] = requests.save;
  message[13] = next_weight;
  group_.all_reduce(comm::Buffer::of(message), comm::ReduceOp::sum).wait();
  return {.totals = {.loss = message[0],
                     .weight = message[1],
                     .correct = message[2],
                     .counted = message[3],
                     .samples = message[4],
                     .gradient_squares = message[5],
                     .non_finite = message[6],
                     .micro_batches = message[7],
                     .copy_squares = message[8],
                     .copy_inverse = message[9],
                     .copies = message[10]},
          .requests = {.stop = message[11], .save = message[12]},
          .next_weight = message[13]};
}

}  // namespace dtrain::parallel
