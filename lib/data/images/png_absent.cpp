#include "data/images/codecs.hpp"

namespace dtrain::data {

Image decode_png(std::string_view /*content*/, const std::string& origin) {
  throw usage_error("is a PNG file, and this dtrain was built without libpng", origin,
                    "install libpng's headers and build dtrain again");
}

}  // namespace dtrain::data
