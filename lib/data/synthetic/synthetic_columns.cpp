#include "data/synthetic/synthetic_columns.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "data/sample_sources.hpp"
#include "kernels/fill.hpp"
#include "kernels/philox.hpp"

namespace dtrain::data {
namespace {

using Columns = std::vector<std::shared_ptr<const Column>>;

/// The stream called `name` of sample (or class) `id`.
kernels::RandomKey key_of(const SyntheticSpec& spec, std::string_view name, std::int64_t id) {
  return {.seed = spec.seed,
          .purpose = kernels::Purpose::synthetic,
          .major = static_cast<std::uint32_t>(id >> 32),
          .minor = static_cast<std::uint32_t>(id),
          .stream = kernels::stream_of(name)};
}

/// Whole numbers of a stream, one by one.
class Draws {
 public:
  explicit Draws(const kernels::RandomKey& key) : key_(key) {}
  std::int64_t below(std::int64_t bound) {
    if (next_ % 4 == 0) block_ = kernels::philox_block(key_, next_ / 4);
    const std::uint64_t word = block_[next_++ % 4];
    return static_cast<std::int64_t>(word * static_cast<std::uint64_t>(bound) >> 32);
  }

 private:
  kernels::RandomKey key_;
  std::uint64_t next_ = 0;
  std::array<std::uint32_t, 4> block_{};
};

std::int64_t class_of(const SyntheticSpec& spec, std::int64_t id) {
  return Draws(key_of(spec, "class", id)).below(spec.classes);
}

HostArray make_array(ElementType type, std::int64_t rows, const std::vector<std::int64_t>& row_shape) {
  std::vector<std::int64_t> shape = {rows};
  shape.insert(shape.end(), row_shape.begin(), row_shape.end());
  HostArray array;
  array.reset(type, shape);
  return array;
}

std::shared_ptr<const Column> class_column(const SyntheticSpec& spec, std::int64_t first,
                                           std::int64_t samples) {
  HostArray targets = make_array(ElementType::int64, samples, {});
  for (std::int64_t i = 0; i < samples; ++i) targets.as<std::int64_t>()[i] = class_of(spec, first + i);
  return MemoryColumn::of(std::move(targets));
}

/// A smooth picture: random heights on a coarse grid, interpolated linearly. Values in [78, 178].
std::vector<float> prototype(const SyntheticSpec& spec, std::int64_t name) {
  constexpr std::int64_t kGrid = 5;
  const std::vector<std::int64_t> shape = spec.sample_shape();
  std::vector<float> knots(static_cast<std::size_t>(shape[0] * kGrid * kGrid));
  kernels::fill_uniform(knots.data(), knots.size(), key_of(spec, "prototype", name), 0, 78.0F, 178.0F);
  std::vector<float> picture;
  const auto place = [](std::int64_t at, std::int64_t extent) {
    return static_cast<float>(at) * (kGrid - 1) / static_cast<float>(std::max<std::int64_t>(extent - 1, 1));
  };
  for (std::int64_t channel = 0; channel < shape[0]; ++channel)
    for (std::int64_t y = 0; y < shape[1]; ++y)
      for (std::int64_t x = 0; x < shape[2]; ++x) {
        const float row = place(y, shape[1]);
        const float column = place(x, shape[2]);
        const auto top = std::min(static_cast<std::int64_t>(row), kGrid - 2);
        const auto left = std::min(static_cast<std::int64_t>(column), kGrid - 2);
        const float down = row - static_cast<float>(top);
        const float right = column - static_cast<float>(left);
        const float* knot = knots.data() + (channel * kGrid + top) * kGrid + left;
        picture.push_back((knot[0] * (1 - right) + knot[1] * right) * (1 - down) +
                          (knot[kGrid] * (1 - right) + knot[kGrid + 1] * right) * down);
      }
  return picture;
}

Columns images(const SyntheticSpec& spec, std::int64_t first, std::int64_t samples) {
  std::vector<std::vector<float>> prototypes;
  for (std::int64_t name = 0; name < spec.classes; ++name) prototypes.push_back(prototype(spec, name));
  HostArray inputs = make_array(ElementType::uint8, samples, spec.sample_shape());
  const std::size_t pixels = prototypes[0].size();
  std::vector<std::uint32_t> words((pixels + 15) / 16 * 4);  // a byte of noise per pixel
  for (std::int64_t i = 0; i < samples; ++i) {
    kernels::philox_words(words.data(), words.size() / 4, key_of(spec, "noise", first + i), 0);
    const std::vector<float>& picture = prototypes[class_of(spec, first + i)];
    std::uint8_t* out = inputs.as<std::uint8_t>().data() + static_cast<std::size_t>(i) * pixels;
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      const auto noise = static_cast<float>((words[pixel / 4] >> (pixel % 4 * 8)) & 255U) - 127.5F;
      out[pixel] = static_cast<std::uint8_t>(std::clamp(picture[pixel] + 0.8F * noise, 0.0F, 255.0F));
    }
  }
  return {MemoryColumn::of(std::move(inputs)), class_column(spec, first, samples)};
}

/// A prototype per class plus noise as large as it.
Columns classified_table(const SyntheticSpec& spec, std::int64_t first, std::int64_t samples) {
  HostArray inputs = make_array(ElementType::float32, samples, spec.sample_shape());
  const auto features = static_cast<std::size_t>(element_count(spec.sample_shape()));
  std::vector<std::vector<float>> prototypes(static_cast<std::size_t>(spec.classes),
                                             std::vector<float>(features));
  for (std::int64_t name = 0; name < spec.classes; ++name)
    kernels::fill_normal(prototypes[name].data(), features, key_of(spec, "prototype", name), 0, 0.0F, 1.0F);
  for (std::int64_t i = 0; i < samples; ++i) {
    float* row = inputs.as<float>().data() + static_cast<std::size_t>(i) * features;
    kernels::fill_normal(row, features, key_of(spec, "noise", first + i), 0, 0.0F, 1.0F);
    const std::vector<float>& centre = prototypes[class_of(spec, first + i)];
    for (std::size_t feature = 0; feature < features; ++feature) row[feature] += centre[feature];
  }
  return {MemoryColumn::of(std::move(inputs)), class_column(spec, first, samples)};
}

/// y = a.x + sin(b.x) with a and b of length about 1.
Columns regression_table(const SyntheticSpec& spec, std::int64_t first, std::int64_t samples) {
  HostArray inputs = make_array(ElementType::float32, samples, spec.sample_shape());
  HostArray targets = make_array(ElementType::float32, samples, {});
  const auto features = static_cast<std::size_t>(element_count(spec.sample_shape()));
  const float length = 1.0F / std::sqrt(static_cast<float>(features));
  std::vector<float> linear(features);
  std::vector<float> bent(features);
  kernels::fill_normal(linear.data(), features, key_of(spec, "linear", 0), 0, 0.0F, length);
  kernels::fill_normal(bent.data(), features, key_of(spec, "bent", 0), 0, 0.0F, length);
  for (std::int64_t i = 0; i < samples; ++i) {
    float* row = inputs.as<float>().data() + static_cast<std::size_t>(i) * features;
    kernels::fill_normal(row, features, key_of(spec, "noise", first + i), 0, 0.0F, 1.0F);
    double straight = 0;
    double angle = 0;
    for (std::size_t feature = 0; feature < features; ++feature) {
      straight += double{row[feature]} * linear[feature];
      angle += double{row[feature]} * bent[feature];
    }
    targets.as<float>()[i] = static_cast<float>(straight + std::sin(angle));
  }
  return {MemoryColumn::of(std::move(inputs)), MemoryColumn::of(std::move(targets))};
}

/// Sequences under construction: tokens and offsets, as a shard has them.
struct GrowingSequences {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> offsets = {0};

  void end() { offsets.push_back(static_cast<std::int64_t>(tokens.size())); }
  void append_to(Columns& columns) const {
    HostArray all = make_array(ElementType::int32, static_cast<std::int64_t>(tokens.size()), {});
    std::copy(tokens.begin(), tokens.end(), all.as<std::int32_t>().begin());
    HostArray begins = make_array(ElementType::int64, static_cast<std::int64_t>(offsets.size()), {});
    std::copy(offsets.begin(), offsets.end(), begins.as<std::int64_t>().begin());
    columns.push_back(MemoryColumn::of(std::move(all)));
    columns.push_back(MemoryColumn::of(std::move(begins)));
  }
};

constexpr std::int64_t kFirstWord = 4;  // after padding, unknown, start and end
constexpr std::int32_t kStart = 2;
constexpr std::int32_t kEnd = 3;

/// A length in [half, most].
std::int64_t draw_length(Draws& words, std::int64_t most) {
  const std::int64_t least = std::max<std::int64_t>(1, most / 2);
  return least + words.below(std::max<std::int64_t>(most, 1) - least + 1);
}

/// Every other word, about, is one of the class's own.
Columns texts(const SyntheticSpec& spec, std::int64_t first, std::int64_t samples) {
  const std::int64_t known = spec.vocabulary - kFirstWord;
  GrowingSequences text;
  for (std::int64_t i = first; i < first + samples; ++i) {
    Draws words(key_of(spec, "text", i));
    const std::int64_t name = class_of(spec, i);
    const std::int64_t length = draw_length(words, spec.sample_shape()[0]);
    for (std::int64_t at = 0; at < length; ++at) {
      const bool own = words.below(2) == 0;
      const std::int64_t word = words.below(known);
      text.tokens.push_back(static_cast<std::int32_t>(
          kFirstWord + (own ? (word / spec.classes * spec.classes + name) % known : word)));
    }
    text.end();
  }
  Columns columns;
  text.append_to(columns);
  columns.push_back(class_column(spec, first, samples));
  return columns;
}

/// The target is the source backwards, each word moved on by seven.
Columns pairs(const SyntheticSpec& spec, std::int64_t first, std::int64_t samples) {
  const std::int64_t known = spec.vocabulary - kFirstWord;
  GrowingSequences source;
  GrowingSequences target;
  for (std::int64_t i = first; i < first + samples; ++i) {
    Draws words(key_of(spec, "pair", i));
    std::vector<std::int64_t> sentence(
        static_cast<std::size_t>(draw_length(words, spec.sample_shape()[0] - 2)));
    for (std::int64_t& word : sentence) word = words.below(known);
    source.tokens.push_back(kStart);
    for (const std::int64_t word : sentence)
      source.tokens.push_back(static_cast<std::int32_t>(kFirstWord + word));
    source.tokens.push_back(kEnd);
    source.end();
    target.tokens.push_back(kStart);
    for (auto word = sentence.rbegin(); word != sentence.rend(); ++word)
      target.tokens.push_back(static_cast<std::int32_t>(kFirstWord + (*word + 7) % known));
    target.tokens.push_back(kEnd);
    target.end();
  }
  Columns columns;
  source.append_to(columns);
  target.append_to(columns);
  return columns;
}

/// A chain in which every word has four successors, the first as likely as the others together.
Columns running_text(const SyntheticSpec& spec, std::int64_t first, std::int64_t samples) {
  const std::int64_t known = spec.vocabulary - kFirstWord;
  HostArray tokens = make_array(ElementType::int32, samples * spec.sample_shape()[0] + 1, {});
  Draws words(key_of(spec, "chain", first));
  std::int64_t word = words.below(known);
  for (std::int32_t& token : tokens.as<std::int32_t>()) {
    token = static_cast<std::int32_t>(kFirstWord + word);
    const std::int64_t successor = std::max<std::int64_t>(words.below(6) - 2, 0);
    word = Draws(key_of(spec, "successor", word * 4 + successor)).below(known);
  }
  return {MemoryColumn::of(std::move(tokens))};
}

}  // namespace

std::vector<std::shared_ptr<const Column>> synthetic_columns(const SyntheticSpec& spec, std::int64_t first,
                                                             std::int64_t samples) {
  switch (layout_of_task(spec.task)) {
    case SampleLayout::text:
      return texts(spec, first, samples);
    case SampleLayout::pairs:
      return pairs(spec, first, samples);
    case SampleLayout::blocks:
      return running_text(spec, first, samples);
    case SampleLayout::dense:
      break;
  }
  if (spec.task == "image_classification") return images(spec, first, samples);
  return spec.task == "regression" ? regression_table(spec, first, samples)
                                   : classified_table(spec, first, samples);
}

}  // namespace dtrain::data
