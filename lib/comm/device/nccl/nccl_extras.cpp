#include "comm/device/nccl/nccl_extras.hpp"

#include <type_traits>

namespace dtrain::comm {

NcclExtras NcclExtras::found_by(const std::function<void*(const char* name)>& symbol) {
  NcclExtras found;
  const auto find = [&symbol](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol(name));
  };
  find(found.split, "ncclCommSplit");
  find(found.allocate, "ncclMemAlloc");
  find(found.free, "ncclMemFree");
  find(found.register_memory, "ncclCommRegister");
  find(found.deregister_memory, "ncclCommDeregister");
  return found;
}

}  // namespace dtrain::comm
