#include "record/measurements_file.hpp"

#include <filesystem>
#include <system_error>

#include "core/error.hpp"
#include "h5/attribute.hpp"
#include "h5/file.hpp"
#include "record/table_file.hpp"

namespace dtrain::record {
namespace {

constexpr std::uint64_t kMeasurementsPerChunk = 64;

void write_to(const std::string& path, const MeasurementsFile& contents) {
  auto file = h5::create_file(path);
  h5::write_attribute(file.id(), "format", std::string("dtrain.measurements"));
  h5::write_attribute(file.id(), "version", std::int64_t{1});
  h5::write_attribute(file.id(), "mesh", contents.mesh);
  h5::write_attribute(file.id(), "start_time_utc", contents.start_time_utc);
  h5::write_attribute(file.id(), "mpi", contents.mpi);
  make_table<TopologyRow>(file.id(), "topology", kMeasurementsPerChunk)
      .append(contents.topology.data(), contents.topology.size());
  make_table<MeasurementRow>(file.id(), "measurements", kMeasurementsPerChunk)
      .append(contents.measurements.data(), contents.measurements.size());
  file.close();
}

}  // namespace

void MeasurementsFile::write(const std::string& path, h5::Library& library) const {
  const std::string partial = path + ".partial";
  std::error_code failed;
  try {
    const auto lock = library.lock();
    write_to(partial, *this);
  } catch (...) {
    std::filesystem::remove(partial, failed);
    throw;
  }
  std::filesystem::rename(partial, path, failed);
  if (!failed) return;
  throw Error("cannot be written (" + failed.message() + ")",
              {.subject = path, .advice = "name another --output"});
}

}  // namespace dtrain::record
