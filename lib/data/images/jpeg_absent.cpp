#include "data/images/codecs.hpp"

namespace dtrain::data {

Image decode_jpeg(std::string_view /*content*/, const std::string& origin) {
  throw usage_error("is a JPEG file, and this dtrain was built without libjpeg", origin,
                    "install libjpeg's headers and build dtrain again");
}

}  // namespace dtrain::data
