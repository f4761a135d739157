"""Mistakes that parallel training may make without any rank noticing, planted in copies of the sources.

    mutate.py LIB OUT

writes to OUT a copy of each source of LIB that MISTAKES names, with the mistakes in it. The environment variable
DTRAIN_FAULT names the one that the program makes. A test shows that the comparison with one rank finds each.
"""

import sys
from pathlib import Path

OWN_TOKENS = "const Range own = models::share_of_tokens({whole}.size(1), ranks.rank(), ranks.size());"

# Source: what stands there once, and what stands there with the mistake. `planted` is of planted_fault.hpp.
MISTAKES = {
    # A bucket of gradients stays each rank's own.
    "parallel/gradients/gradient_buckets.cpp": [
        ("if (exchanges()) buckets_[bucket].handle = sum(bucket);",
         'if (exchanges() && !planted("skipped_all_reduce")) buckets_[bucket].handle = sum(bucket);')],
    # A tied weight's gradient from the other rank is added twice.
    "parallel/gradients/tied_parameters.cpp": [
        ("gradients_.add_share(tied.parameter, tied.memory);",
         'if (planted("share_counted_twice")) tied.memory.mul_(2);\n'
         "gradients_.add_share(tied.parameter, tied.memory);")],
    # A rank drops elements by another micro-batch's mask.
    "parallel/step/pipeline_engine.cpp": [
        (".micro_batch = index_of(m),",
         '.micro_batch = index_of(m) + (planted("wrong_mask") && !is_first_rank() ? 1U : 0U),')],
    # A stage hands on no gradient of one micro-batch, or goes back with the gradient of an earlier one.
    "parallel/pipeline/pipeline.cpp": [
        ("gradients = messages_.receive_gradients(action.stage, action.micro_batch);",
         """gradients = messages_.receive_gradients(action.stage, action.micro_batch);
            if (planted("dropped_micro_batch") && action.micro_batch == 1) {
              for (auto& gradient : gradients) gradient = gradient.defined() ? gradient * 0 : gradient;
            }
            static models::Tensors first;
            if (planted("stale_gradient")) {
              if (first.empty()) first = gradients;
              if (first[0].sizes() == gradients[0].sizes()) gradients = first;
            }""")],
    # The gradient of what slices share is one slice's only.
    "parallel/tensor/tensor_ranks.cpp": [
        ("return {ranks_of(context).summed(gradients[0]), at::Tensor()};",
         """if (planted("unsummed_slice")) return {gradients[0], at::Tensor()};
            return {ranks_of(context).summed(gradients[0]), at::Tensor()};"""),
        ("return {ranks.summed_share(whole), at::Tensor(), at::Tensor()};",
         'if (planted("unsummed_slice")) {' + OWN_TOKENS.format(whole="whole") +
         """return {whole.narrow(1, own.begin, own.size()), at::Tensor(), at::Tensor()};
            }
            return {ranks.summed_share(whole), at::Tensor(), at::Tensor()};"""),
        ("const auto sum = ranks.summing_share(of_whole);",
         'if (planted("unsummed_slice")) {' + OWN_TOKENS.format(whole="of_whole") +
         """return {of_whole.narrow(1, own.begin, own.size()), {}, rows.t().mm(saved[0].flatten(0, 1)),
                    has_bias ? rows.sum(0) : at::Tensor(), {}};
            }
            const auto sum = ranks.summing_share(of_whole);""")],
    # Every slice is dropped by the first one's part of the mask.
    "models/layers/dropout.cpp": [
        ("static_cast<std::uint64_t>(flow.part.begin) * each",
         'static_cast<std::uint64_t>(planted("wrong_slice_of_mask") ? 0 : flow.part.begin) * each')],
    # A bias that all slices share is added by each of them.
    "models/layers/linear.cpp": [
        ("return {group_->leave(part) + bias.value};",
         """if (planted("bias_on_every_slice")) return {group_->leave(part + bias.value)};
            return {group_->leave(part) + bias.value};""")],
}


def main():
    lib, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name, mistakes in MISTAKES.items():
        text = (lib / name).read_text()
        for good, bad in mistakes:
            assert text.count(good) == 1, f"{name} has this {text.count(good)} times, not once: {good}"
            text = text.replace(good, bad)
        mutated = f'#include "support/planted_fault.hpp"\n#line 1 "{name}"\n{text}'
        copy = out / Path(name).name
        if not copy.exists() or copy.read_text() != mutated:
            copy.write_text(mutated)


if __name__ == "__main__":
    main()
