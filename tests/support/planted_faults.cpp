// dtrain with mistakes: DTRAIN_FAULT names the one it makes.
#include <cstdlib>
#include <map>
#include <string>

#include "core/planted_fault.hpp"

namespace dtrain {

bool planted(Fault fault) {
  static const std::map<std::string, Fault> kNames = {{"skipped_all_reduce", Fault::skipped_all_reduce},
                                                      {"share_counted_twice", Fault::share_counted_twice},
                                                      {"wrong_mask", Fault::wrong_mask},
                                                      {"dropped_micro_batch", Fault::dropped_micro_batch},
                                                      {"stale_gradient", Fault::stale_gradient},
                                                      {"unsummed_slice", Fault::unsummed_slice},
                                                      {"wrong_slice_of_mask", Fault::wrong_slice_of_mask},
                                                      {"bias_on_every_slice", Fault::bias_on_every_slice}};
  static const char* const kChosen = std::getenv("DTRAIN_FAULT");
  return kChosen != nullptr && kNames.at(kChosen) == fault;
}

}  // namespace dtrain
