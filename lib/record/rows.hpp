#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::record {

inline constexpr double kNoValue =
    std::numeric_limits<double>::quiet_NaN();  ///< Where there is no such notion.

/// UTF-8 of at most N bytes, padded with zeros, as the files have it. Longer text is cut between characters.
template <std::size_t N>
struct FixedText {
  std::array<char, N> bytes{};

  FixedText() = default;
  FixedText(std::string_view text) {
    std::size_t length = std::min(N, text.size());
    // Never half a character: step back while the byte after the cut continues one.
    while (length < text.size() && length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U)
      --length;
    std::copy_n(text.data(), length, bytes.data());
  }
  FixedText(const char* text) : FixedText(std::string_view(text)) {}
  FixedText(const std::string& text) : FixedText(std::string_view(text)) {}
  std::string_view view() const {
    return {bytes.data(),
            static_cast<std::size_t>(std::find(bytes.begin(), bytes.end(), '\0') - bytes.begin())};
  }
};

/// Seconds of each phase, in the order of the files. All but communication and transfer exclude one another
/// and add up to the time of the step or epoch.
struct PhaseTimes {
  double data_time_s = 0;
  double forward_time_s = 0;
  double backward_time_s = 0;
  double communication_time_s = 0;  ///< Overlaps: sum over operations from start to end.
  double exposed_communication_time_s = 0;
  double pipeline_idle_time_s = 0;
  double optimizer_time_s = 0;
  double checkpoint_time_s = 0;
  double other_time_s = 0;
  double transfer_time_s = 0;  ///< Overlaps.

  PhaseTimes& operator+=(const PhaseTimes& other);
  double exclusive_s() const;  ///< Sum of those that exclude one another.
};

/// Up to where an earlier part of a run counts; the rest is done again. Events stay.
struct Kept {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
};

/// A row of /topology.
struct TopologyRow {
  std::int64_t rank = 0;
  std::int64_t node = 0;
  FixedText<64> hostname;
  std::int64_t local_rank = 0;
  FixedText<16> device;       ///< `cpu`, `cuda:0`.
  FixedText<48> device_uuid;  ///< Empty for the CPU.
  std::int64_t numa_node = -1;
  FixedText<128> cpus;  ///< `0-3,8`, as number_list() has it.
  std::int64_t data_index = 0;
  std::int64_t pipe_index = 0;
  std::int64_t tensor_index = 0;
  std::int64_t generation = 0;  ///< 0, and one more after each recovery, and each resumption elsewhere.
  double left_at_s = kNoValue;  ///< NaN while alive.
};

/// A row of /epochs, over all ranks. Epochs count from 1.
struct EpochRow {
  std::int64_t epoch = 0;
  double train_loss = kNoValue;
  double train_accuracy = kNoValue;  ///< In [0, 1].
  double validation_loss = kNoValue;
  double validation_accuracy = kNoValue;
  std::int64_t samples = 0;
  double train_time_s = 0;
  double validation_time_s = 0;
  double samples_per_s = 0;
  double model_flops_per_s = 0;
  double learning_rate = kNoValue;  ///< Of the epoch's last step.
};

/// A row of /validations: of one validation, after an epoch or within it.
struct ValidationRow {
  std::int64_t step = 0;  ///< Done so far.
  std::int64_t epoch = 0;
  double loss = kNoValue;
  double accuracy = kNoValue;
  std::int64_t samples = 0;
  double time_s = 0;
};

/// The row of /test.
struct TestRow {
  FixedText<16> split = "test";
  double loss = kNoValue;
  double accuracy = kNoValue;
  std::int64_t samples = 0;
  double time_s = 0;
  FixedText<128> checkpoint;  ///< Relative to the run folder.
};

/// A row of /ranks/NNNNN/epochs: one rank's part.
struct RankEpochRow {
  std::int64_t epoch = 0;
  double train_loss = kNoValue;
  double train_accuracy = kNoValue;
  double validation_loss = kNoValue;
  double validation_accuracy = kNoValue;
  std::int64_t samples = 0;
  double train_time_s = 0;
  double validation_time_s = 0;
  PhaseTimes phases;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_received = 0;
  std::int64_t peak_memory_bytes = 0;
  std::int64_t device_peak_memory_bytes = 0;
};

/// A row of /ranks/NNNNN/steps. Steps count from 1 and run on over the epochs.
struct StepRow {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double loss = kNoValue;  ///< This rank's mean over its weight; NaN with weight 0.
  double weight = 0;       ///< Samples or target tokens.
  double gradient_norm = kNoValue;
  double learning_rate = kNoValue;
  double time_s = 0;
  PhaseTimes phases;
  double ended_at_s = kNoValue;  ///< Since start_time_utc.
};

/// A row of /ranks/NNNNN/traffic: payload between a rank and another in the training of an epoch.
struct TrafficRow {
  std::int64_t epoch = 0;
  std::int64_t peer = 0;  ///< The other rank.
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_received = 0;
};

/// A row of /ranks/NNNNN/events.
struct EventRow {
  double time_s = 0;  ///< Since start_time_utc.
  FixedText<32> kind;
  FixedText<256> detail;
};

/// Whether events of this kind are figures that a rank records again and again, such as an epoch's memory,
/// and not something that happened.
bool is_measurement(std::string_view kind);

/// Whether events of this kind happen in the course of any run, such as a checkpoint, and do not change it.
bool is_routine(std::string_view kind);

/// A row of /ranks/NNNNN/samples.
struct SamplesRow {
  std::int64_t epoch = 0;
  std::int64_t hash = 0;  ///< Sum modulo 2^64 of a hash of each sample's id, as a signed number.
};

/// A row of /ranks/NNNNN/virtual_times, in runs that a virtual clock belongs to.
struct VirtualTimeRow {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double virtual_time_s = 0;  ///< After the step, since the run (or its newest part) began.
};

/// A row of /staleness, of strategies whose updates may be late.
struct StalenessRow {
  std::int64_t epoch = 0;
  std::int64_t staleness = 0;  ///< Updates between the parameters that an update was computed on and it.
  std::int64_t updates = 0;    ///< That were so late.
};

/// A row of /rounds, of federated runs.
struct RoundRow {
  std::int64_t round = 0;
  std::int64_t sampled = 0;       ///< Clients.
  std::int64_t handed_in = 0;     ///< Updates; the other clients dropped out or were late.
  std::int64_t samples = 0;       ///< That the clients hold which handed in.
  double update_norm = kNoValue;  ///< Of the mean update.
  double epsilon = kNoValue;      ///< Released up to here; of a run that is not private, none.
};

/// A row of /clients, of federated runs.
struct ClientRow {
  std::int64_t client = 0;
  FixedText<64> name;        ///< Where the dataset names the owners of its rows; else empty.
  std::int64_t samples = 0;  ///< Of the training split.
};

/// A row of /test_sites: the best model on the test samples of one owner, where the dataset names them.
struct SiteRow {
  FixedText<64> site;
  std::int64_t samples = 0;
  double loss = kNoValue;
  double accuracy = kNoValue;
  double f1 = kNoValue;   ///< Of the second of two classes.
  double auc = kNoValue;  ///< Likewise.
};

/// A row of /test_clients: the model on the test samples of one client; its own, where clients train alone.
struct ClientTestRow {
  std::int64_t client = 0;
  FixedText<64> name;        ///< As in /clients.
  std::int64_t samples = 0;  ///< That count for it.
  double loss = kNoValue;
  double accuracy = kNoValue;
  double f1 = kNoValue;   ///< Of the second of two classes.
  double auc = kNoValue;  ///< Likewise.
};

/// A row of /privacy: what a run with differential privacy has released up to a step.
struct PrivacyRow {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::int64_t releases = 0;  ///< Steps that were made, those made again after a failure included.
  double epsilon = 0;         ///< Infinity without noise.
  double delta = 0;
  double noise_multiplier = 0;  ///< Standard deviation of the noise over the clip norm.
  double clip_norm = 0;
  double sampling_rate = 0;  ///< Expected share of the records or clients in a step.
  FixedText<16> unit;        ///< What is one more or less: `record` or `client`.
};

/// A row of /client_privacy: what the records of one client have released, where each has a ledger.
struct ClientPrivacyRow {
  std::int64_t client = 0;
  std::int64_t local_steps = 0;  ///< In the rounds in which it took part, those made again included.
  double sampling_rate = 0;      ///< Expected share of its records in a local step.
  double epsilon = 0;            ///< Infinity without noise.
  double delta = 0;
};

/// A row of /measurements: a collective of `topology --benchmark`.
struct MeasurementRow {
  FixedText<16> group;
  std::int64_t ranks = 0;
  FixedText<32> operation;
  FixedText<16> algorithm;  ///< Of an all_reduce.
  std::int64_t bytes = 0;
  double median_s = 0;
  double least_s = 0;
  double greatest_s = 0;
  double algorithm_bandwidth = 0;
  double bus_bandwidth = 0;
};

enum class ColumnKind { integer, real, text };

/// One field of a row: its name and unit in the file, its place in the struct.
struct Column {
  std::string name;
  std::string units;  ///< `s`, `bytes`, `samples/s`; `1` for a pure number, empty for text.
  ColumnKind kind = ColumnKind::real;
  std::size_t offset = 0;
  std::size_t bytes = 8;
};

/// The columns of a row type, in the order of the contract. Specialised for each struct above.
template <class Row>
std::vector<Column> columns_of();

template <>
std::vector<Column> columns_of<TopologyRow>();
template <>
std::vector<Column> columns_of<EpochRow>();
template <>
std::vector<Column> columns_of<ValidationRow>();
template <>
std::vector<Column> columns_of<TestRow>();
template <>
std::vector<Column> columns_of<RankEpochRow>();
template <>
std::vector<Column> columns_of<StepRow>();
template <>
std::vector<Column> columns_of<TrafficRow>();
template <>
std::vector<Column> columns_of<EventRow>();
template <>
std::vector<Column> columns_of<SamplesRow>();
template <>
std::vector<Column> columns_of<VirtualTimeRow>();
template <>
std::vector<Column> columns_of<StalenessRow>();
template <>
std::vector<Column> columns_of<RoundRow>();
template <>
std::vector<Column> columns_of<ClientRow>();
template <>
std::vector<Column> columns_of<SiteRow>();
template <>
std::vector<Column> columns_of<ClientTestRow>();
template <>
std::vector<Column> columns_of<PrivacyRow>();
template <>
std::vector<Column> columns_of<ClientPrivacyRow>();
template <>
std::vector<Column> columns_of<MeasurementRow>();

}  // namespace dtrain::record
