#include "record/rows.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace dtrain::record {
namespace {

Column integer(std::string name, std::string units, std::size_t offset) {
  return {std::move(name), std::move(units), ColumnKind::integer, offset, sizeof(std::int64_t)};
}

Column real(std::string name, std::string units, std::size_t offset) {
  return {std::move(name), std::move(units), ColumnKind::real, offset, sizeof(double)};
}

template <std::size_t N>
Column text(std::string name, std::size_t offset, const FixedText<N>& /*field*/) {
  return {std::move(name), "", ColumnKind::text, offset, N};
}

// The phases of a row whose PhaseTimes begin at `offset`, in the order of the files.
void add_phases(std::vector<Column>& columns, std::size_t offset) {
  const auto add = [&](const char* name, std::size_t at) { columns.push_back(real(name, "s", offset + at)); };
  add("data_time_s", offsetof(PhaseTimes, data_time_s));
  add("forward_time_s", offsetof(PhaseTimes, forward_time_s));
  add("backward_time_s", offsetof(PhaseTimes, backward_time_s));
  add("communication_time_s", offsetof(PhaseTimes, communication_time_s));
  add("exposed_communication_time_s", offsetof(PhaseTimes, exposed_communication_time_s));
  add("pipeline_idle_time_s", offsetof(PhaseTimes, pipeline_idle_time_s));
  add("optimizer_time_s", offsetof(PhaseTimes, optimizer_time_s));
  add("checkpoint_time_s", offsetof(PhaseTimes, checkpoint_time_s));
  add("other_time_s", offsetof(PhaseTimes, other_time_s));
  add("transfer_time_s", offsetof(PhaseTimes, transfer_time_s));
}

}  // namespace

bool is_measurement(std::string_view kind) {
  constexpr std::array<std::string_view, 4> kKinds = {"activation_memory", "tensor_memory", "device_time",
                                                      "gpu"};
  return std::ranges::find(kKinds, kind) != kKinds.end();
}

bool is_routine(std::string_view kind) { return kind == "checkpoint" || kind == "straggler"; }

PhaseTimes& PhaseTimes::operator+=(const PhaseTimes& other) {
  data_time_s += other.data_time_s;
  forward_time_s += other.forward_time_s;
  backward_time_s += other.backward_time_s;
  communication_time_s += other.communication_time_s;
  exposed_communication_time_s += other.exposed_communication_time_s;
  pipeline_idle_time_s += other.pipeline_idle_time_s;
  optimizer_time_s += other.optimizer_time_s;
  checkpoint_time_s += other.checkpoint_time_s;
  other_time_s += other.other_time_s;
  transfer_time_s += other.transfer_time_s;
  return *this;
}

double PhaseTimes::exclusive_s() const {
  return data_time_s + forward_time_s + backward_time_s + exposed_communication_time_s +
         pipeline_idle_time_s + optimizer_time_s + checkpoint_time_s + other_time_s;
}

template <>
std::vector<Column> columns_of<TopologyRow>() {
  using Row = TopologyRow;
  const Row row;
  return {integer("rank", "1", offsetof(Row, rank)),
          integer("node", "1", offsetof(Row, node)),
          text("hostname", offsetof(Row, hostname), row.hostname),
          integer("local_rank", "1", offsetof(Row, local_rank)),
          text("device", offsetof(Row, device), row.device),
          text("device_uuid", offsetof(Row, device_uuid), row.device_uuid),
          integer("numa_node", "1", offsetof(Row, numa_node)),
          text("cpus", offsetof(Row, cpus), row.cpus),
          integer("data_index", "1", offsetof(Row, data_index)),
          integer("pipe_index", "1", offsetof(Row, pipe_index)),
          integer("tensor_index", "1", offsetof(Row, tensor_index)),
          integer("generation", "1", offsetof(Row, generation)),
          real("left_at_s", "s", offsetof(Row, left_at_s))};
}

template <>
std::vector<Column> columns_of<EpochRow>() {
  using Row = EpochRow;
  return {integer("epoch", "1", offsetof(Row, epoch)),
          real("train_loss", "1", offsetof(Row, train_loss)),
          real("train_accuracy", "1", offsetof(Row, train_accuracy)),
          real("validation_loss", "1", offsetof(Row, validation_loss)),
          real("validation_accuracy", "1", offsetof(Row, validation_accuracy)),
          integer("samples", "samples", offsetof(Row, samples)),
          real("train_time_s", "s", offsetof(Row, train_time_s)),
          real("validation_time_s", "s", offsetof(Row, validation_time_s)),
          real("samples_per_s", "samples/s", offsetof(Row, samples_per_s)),
          real("model_flops_per_s", "FLOP/s", offsetof(Row, model_flops_per_s)),
          real("learning_rate", "1", offsetof(Row, learning_rate))};
}

template <>
std::vector<Column> columns_of<ValidationRow>() {
  using Row = ValidationRow;
  return {integer("step", "1", offsetof(Row, step)),
          integer("epoch", "1", offsetof(Row, epoch)),
          real("loss", "1", offsetof(Row, loss)),
          real("accuracy", "1", offsetof(Row, accuracy)),
          integer("samples", "samples", offsetof(Row, samples)),
          real("time_s", "s", offsetof(Row, time_s))};
}

template <>
std::vector<Column> columns_of<TestRow>() {
  using Row = TestRow;
  const Row row;
  return {text("split", offsetof(Row, split), row.split),
          real("loss", "1", offsetof(Row, loss)),
          real("accuracy", "1", offsetof(Row, accuracy)),
          integer("samples", "samples", offsetof(Row, samples)),
          real("time_s", "s", offsetof(Row, time_s)),
          text("checkpoint", offsetof(Row, checkpoint), row.checkpoint)};
}

template <>
std::vector<Column> columns_of<RankEpochRow>() {
  using Row = RankEpochRow;
  std::vector<Column> columns = {integer("epoch", "1", offsetof(Row, epoch)),
                                 real("train_loss", "1", offsetof(Row, train_loss)),
                                 real("train_accuracy", "1", offsetof(Row, train_accuracy)),
                                 real("validation_loss", "1", offsetof(Row, validation_loss)),
                                 real("validation_accuracy", "1", offsetof(Row, validation_accuracy)),
                                 integer("samples", "samples", offsetof(Row, samples)),
                                 real("train_time_s", "s", offsetof(Row, train_time_s)),
                                 real("validation_time_s", "s", offsetof(Row, validation_time_s))};
  add_phases(columns, offsetof(Row, phases));
  columns.push_back(integer("bytes_sent", "bytes", offsetof(Row, bytes_sent)));
  columns.push_back(integer("bytes_received", "bytes", offsetof(Row, bytes_received)));
  columns.push_back(integer("peak_memory_bytes", "bytes", offsetof(Row, peak_memory_bytes)));
  columns.push_back(integer("device_peak_memory_bytes", "bytes", offsetof(Row, device_peak_memory_bytes)));
  return columns;
}

template <>
std::vector<Column> columns_of<StepRow>() {
  using Row = StepRow;
  std::vector<Column> columns = {integer("step", "1", offsetof(Row, step)),
                                 integer("epoch", "1", offsetof(Row, epoch)),
                                 real("loss", "1", offsetof(Row, loss)),
                                 real("weight", "1", offsetof(Row, weight)),
                                 real("gradient_norm", "1", offsetof(Row, gradient_norm)),
                                 real("learning_rate", "1", offsetof(Row, learning_rate)),
                                 real("time_s", "s", offsetof(Row, time_s))};
  add_phases(columns, offsetof(Row, phases));
  columns.push_back(real("ended_at_s", "s", offsetof(Row, ended_at_s)));
  return columns;
}

template <>
std::vector<Column> columns_of<TrafficRow>() {
  using Row = TrafficRow;
  return {integer("epoch", "1", offsetof(Row, epoch)), integer("peer", "1", offsetof(Row, peer)),
          integer("bytes_sent", "bytes", offsetof(Row, bytes_sent)),
          integer("bytes_received", "bytes", offsetof(Row, bytes_received))};
}

template <>
std::vector<Column> columns_of<EventRow>() {
  using Row = EventRow;
  const Row row;
  return {real("time_s", "s", offsetof(Row, time_s)), text("kind", offsetof(Row, kind), row.kind),
          text("detail", offsetof(Row, detail), row.detail)};
}

template <>
std::vector<Column> columns_of<SamplesRow>() {
  return {integer("epoch", "1", offsetof(SamplesRow, epoch)),
          integer("hash", "1", offsetof(SamplesRow, hash))};
}

template <>
std::vector<Column> columns_of<VirtualTimeRow>() {
  using Row = VirtualTimeRow;
  return {integer("step", "1", offsetof(Row, step)), integer("epoch", "1", offsetof(Row, epoch)),
          real("virtual_time_s", "s", offsetof(Row, virtual_time_s))};
}

template <>
std::vector<Column> columns_of<StalenessRow>() {
  using Row = StalenessRow;
  return {integer("epoch", "1", offsetof(Row, epoch)), integer("staleness", "1", offsetof(Row, staleness)),
          integer("updates", "1", offsetof(Row, updates))};
}

template <>
std::vector<Column> columns_of<RoundRow>() {
  using Row = RoundRow;
  return {integer("round", "1", offsetof(Row, round)),
          integer("sampled", "1", offsetof(Row, sampled)),
          integer("handed_in", "1", offsetof(Row, handed_in)),
          integer("samples", "samples", offsetof(Row, samples)),
          real("update_norm", "1", offsetof(Row, update_norm)),
          real("epsilon", "1", offsetof(Row, epsilon))};
}

template <>
std::vector<Column> columns_of<ClientRow>() {
  using Row = ClientRow;
  const Row row;
  return {integer("client", "1", offsetof(Row, client)), text("name", offsetof(Row, name), row.name),
          integer("samples", "samples", offsetof(Row, samples))};
}

template <>
std::vector<Column> columns_of<SiteRow>() {
  using Row = SiteRow;
  const Row row;
  return {text("site", offsetof(Row, site), row.site), integer("samples", "samples", offsetof(Row, samples)),
          real("loss", "1", offsetof(Row, loss)),      real("accuracy", "1", offsetof(Row, accuracy)),
          real("f1", "1", offsetof(Row, f1)),          real("auc", "1", offsetof(Row, auc))};
}

template <>
std::vector<Column> columns_of<ClientTestRow>() {
  using Row = ClientTestRow;
  const Row row;
  return {integer("client", "1", offsetof(Row, client)),
          text("name", offsetof(Row, name), row.name),
          integer("samples", "samples", offsetof(Row, samples)),
          real("loss", "1", offsetof(Row, loss)),
          real("accuracy", "1", offsetof(Row, accuracy)),
          real("f1", "1", offsetof(Row, f1)),
          real("auc", "1", offsetof(Row, auc))};
}

template <>
std::vector<Column> columns_of<PrivacyRow>() {
  using Row = PrivacyRow;
  const Row row;
  return {integer("epoch", "1", offsetof(Row, epoch)),
          integer("step", "1", offsetof(Row, step)),
          integer("releases", "1", offsetof(Row, releases)),
          real("epsilon", "1", offsetof(Row, epsilon)),
          real("delta", "1", offsetof(Row, delta)),
          real("noise_multiplier", "1", offsetof(Row, noise_multiplier)),
          real("clip_norm", "1", offsetof(Row, clip_norm)),
          real("sampling_rate", "1", offsetof(Row, sampling_rate)),
          text("unit", offsetof(Row, unit), row.unit)};
}

template <>
std::vector<Column> columns_of<ClientPrivacyRow>() {
  using Row = ClientPrivacyRow;
  return {integer("client", "1", offsetof(Row, client)),
          integer("local_steps", "1", offsetof(Row, local_steps)),
          real("sampling_rate", "1", offsetof(Row, sampling_rate)),
          real("epsilon", "1", offsetof(Row, epsilon)), real("delta", "1", offsetof(Row, delta))};
}

template <>
std::vector<Column> columns_of<MeasurementRow>() {
  using Row = MeasurementRow;
  const Row row;
  return {text("group", offsetof(Row, group), row.group),
          integer("ranks", "1", offsetof(Row, ranks)),
          text("operation", offsetof(Row, operation), row.operation),
          text("algorithm", offsetof(Row, algorithm), row.algorithm),
          integer("bytes", "bytes", offsetof(Row, bytes)),
          real("median_s", "s", offsetof(Row, median_s)),
          real("least_s", "s", offsetof(Row, least_s)),
          real("greatest_s", "s", offsetof(Row, greatest_s)),
          real("algorithm_bandwidth", "bytes/s", offsetof(Row, algorithm_bandwidth)),
          real("bus_bandwidth", "bytes/s", offsetof(Row, bus_bandwidth))};
}

}  // namespace dtrain::record
