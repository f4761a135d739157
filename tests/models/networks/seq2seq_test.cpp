#include "core/error.hpp"
#include "models/layers/lstm.hpp"
#include "models/layers/packing.hpp"
#include "models/networks/seq2seq_layers.hpp"
#include "models/networks/torch_modules.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kHidden = 16;
constexpr std::int64_t kEmbedding = 12;

struct TorchWords : torch::nn::Module {
  explicit TorchWords(std::int64_t vocabulary)
      : embedding(register_module("embedding", torch::nn::Embedding(vocabulary, kEmbedding))),
        rnn(register_module("rnn",
                            torch::nn::LSTM(torch::nn::LSTMOptions(kEmbedding, kHidden).num_layers(2)))) {}
  torch::nn::Embedding embedding;
  torch::nn::LSTM rnn;
};

struct TorchDecoder : TorchWords {
  explicit TorchDecoder(std::int64_t vocabulary)
      : TorchWords(vocabulary), fc_out(register_module("fc_out", torch::nn::Linear(kHidden, vocabulary))) {}
  torch::nn::Linear fc_out;
};

struct TorchSeq2Seq : torch::nn::Module {
  TorchSeq2Seq()
      : encoder(register_module("encoder", std::make_shared<TorchWords>(20))),
        decoder(register_module("decoder", std::make_shared<TorchDecoder>(25))) {}
  /// Logits [T - 1, vocabulary] of one sentence, all words given.
  at::Tensor forward(const at::Tensor& source, const at::Tensor& target) {
    const auto state = std::get<1>(encoder->rnn(encoder->embedding(source).unsqueeze(1)));
    const at::Tensor read = decoder->embedding(target.narrow(0, 0, target.size(0) - 1)).unsqueeze(1);
    return decoder->fc_out(std::get<0>(decoder->rnn(read, state)).squeeze(1));
  }
  std::shared_ptr<TorchWords> encoder;
  std::shared_ptr<TorchDecoder> decoder;
};

DatasetFacts pairs() {
  return {
      .task = "translation", .sample_shape = {9}, .classes = 0, .vocabulary = 20, .target_vocabulary = 25};
}

std::unique_ptr<Model> small_model(const ModelOptions& extra = {}) {
  ModelOptions options = {{"embedding", "12"}, {"hidden", "16"}, {"dropout", "0"}};
  for (const auto& [key, value] : extra) options[key] = value;
  return find_model("seq2seq").make(pairs(), options);
}

struct Pairs {
  at::Tensor source;  // int32 [5, 9]
  at::Tensor target;  // int32 [5, 8]
};

/// Sentences of different lengths, start and end tokens included.
Pairs some_pairs() {
  torch::manual_seed(4);
  Pairs made{at::randint(4, 20, {5, 9}, at::kInt), at::randint(4, 25, {5, 8}, at::kInt)};
  const std::vector<std::int64_t> source_lengths = {4, 9, 3, 9, 6};
  const std::vector<std::int64_t> target_lengths = {8, 3, 5, 2, 5};
  for (std::int64_t i = 0; i < 5; ++i) {
    const auto at = static_cast<std::size_t>(i);
    made.source[i].narrow(0, source_lengths[at], 9 - source_lengths[at]).zero_();
    made.target[i].narrow(0, target_lengths[at], 8 - target_lengths[at]).zero_();
    made.source[i][0] = 2;
    made.target[i][0] = 2;
  }
  return made;
}

Tensors run_pairs(Model& model, const Pairs& pairs, const Context& context) {
  Tensors values = {pairs.source, pairs.target};
  for (auto& layer : model.layers()) values = layer->forward(values, context);
  return values;
}

TEST(Seq2SeqTest, HasTheNamesOfTorchsModules) {
  const auto model = small_model();
  TorchSeq2Seq theirs;
  const auto named = theirs.named_parameters();
  EXPECT_EQ(named.size(), model->parameters().size());
  for (const Parameter* parameter : model->parameters()) {
    ASSERT_TRUE(named.contains(parameter->name)) << parameter->name;
    EXPECT_EQ(named[parameter->name].sizes(), parameter->value.sizes()) << parameter->name;
  }
}

TEST(Seq2SeqTest, OutputsAndGradientsAreTorchsSentenceBySentence) {
  at::set_num_threads(1);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto model = small_model();
    model->to(type, at::kCPU);
    model->initialise(5);
    TorchSeq2Seq theirs;
    theirs.to(type);
    copy_into(theirs, *model);
    const Pairs batch = some_pairs();
    const Tensors outputs = run_pairs(*model, batch, {.feedback = Feedback::targets});
    const LossSums sums = model->loss(outputs, batch.target);
    sums.loss.backward();

    at::Tensor loss = at::zeros({}, type);
    double words = 0;
    for (std::int64_t i = 0; i < 5; ++i) {
      const at::Tensor source = batch.source[i].masked_select(batch.source[i].ne(0)).to(at::kLong);
      const at::Tensor target = batch.target[i].masked_select(batch.target[i].ne(0)).to(at::kLong);
      const at::Tensor wanted = target.narrow(0, 1, target.size(0) - 1);
      loss = loss + at::cross_entropy_loss(theirs.forward(source, target), wanted, {}, at::Reduction::Sum);
      words += static_cast<double>(wanted.size(0));
    }
    loss.backward();
    const double tolerance = type == at::kFloat ? 1e-5 : 1e-11;
    EXPECT_EQ(sums.weight, words);
    EXPECT_NEAR(sums.loss.item<double>(), loss.item<double>(), tolerance * 100);
    const auto named = theirs.named_parameters();
    for (Parameter* parameter : model->parameters()) {
      EXPECT_TRUE(at::allclose(parameter->value.grad(), named[parameter->name].grad(), tolerance * 10,
                               tolerance * 10))
          << parameter->name;
    }
  }
}

TEST(Seq2SeqTest, ItsOwnWordsAreThoseOfStepwiseGreedyDecoding) {
  const auto model = small_model();
  model->to(at::kDouble, at::kCPU);
  model->initialise(5);
  for (Parameter* parameter : model->parameters()) {
    const at::NoGradGuard no_grad;
    parameter->value.mul_(12.0);  // so that the likeliest word changes with the state
  }
  const at::NoGradGuard no_grad;
  const Pairs batch = some_pairs();
  const Tensors outputs =
      run_pairs(*model, batch, {.mode = Mode::evaluation, .feedback = Feedback::own_words});
  const Tensors encoded =
      model->layers()[0]->forward({batch.source, batch.target}, {.mode = Mode::evaluation});
  auto& decoder = dynamic_cast<Decoder&>(*model->layers()[1]);
  double loss = 0;
  bool differs = false;
  for (std::int64_t i = 0; i < 5; ++i) {
    auto state = states_of(encoded[0].narrow(1, i, 1), encoded[1].narrow(1, i, 1));
    at::Tensor word = batch.target[i].narrow(0, 0, 1);
    for (std::int64_t t = 1; t < 8 && batch.target[i][t].item<int>() != 0; ++t) {
      const at::Tensor logits = decoder.logits(word, state);
      loss -= logits.log_softmax(1)[0][batch.target[i][t].item<int>()].item<double>();
      word = logits.argmax(1).to(at::kInt);
      differs = differs || word.item<int>() != batch.target[i][t].item<int>();
    }
  }
  EXPECT_TRUE(differs);
  EXPECT_NEAR(model->loss(outputs, batch.target).loss.item<double>(), loss, 1e-9);
}

TEST(Seq2SeqTest, PaddingChangesNothing) {
  const auto model = small_model();
  model->initialise(5);
  const Pairs batch = some_pairs();
  const Pairs wider{at::constant_pad_nd(batch.source, {0, 3}, 0),
                    at::constant_pad_nd(batch.target, {0, 2}, 0)};
  for (const auto feedback : {Feedback::targets, Feedback::own_words}) {
    const Context context{.mode = Mode::evaluation, .feedback = feedback};
    EXPECT_TRUE(at::equal(run_pairs(*model, batch, context)[0], run_pairs(*model, wider, context)[0]));
  }
}

TEST(Seq2SeqTest, TeacherForcingIsDrawnPerSentenceAndStep) {
  const Pairs batch = some_pairs();
  const auto losses = [&](const char* share, Feedback feedback) {
    const auto model = small_model({{"teacher-forcing", share}});
    model->initialise(5);
    std::vector<float> all;
    for (std::uint32_t step = 1; step <= 8; ++step) {
      const Tensors outputs = run_pairs(*model, batch, {.step = step, .feedback = feedback});
      all.push_back(model->loss(outputs, batch.target).loss.item<float>());
    }
    return all;
  };
  const auto forced = losses("1", Feedback::by_chance);
  const auto free = losses("0", Feedback::by_chance);
  const auto half = losses("0.5", Feedback::by_chance);
  EXPECT_EQ(forced, losses("0.5", Feedback::targets));
  EXPECT_EQ(free, losses("0.5", Feedback::own_words));
  EXPECT_EQ(half, losses("0.5", Feedback::by_chance)) << "not a pure function of its key";
  EXPECT_NE(half[0], half[1]);
}

TEST(Seq2SeqTest, StartsUniformWithinTheBound) {
  const auto model = find_model("seq2seq").make(pairs(), {});
  model->initialise(3);
  for (const Parameter* parameter : model->parameters()) {
    EXPECT_LE(parameter->value.abs().max().item<double>(), 0.08) << parameter->name;
    EXPECT_NEAR(parameter->value.abs().max().item<double>(), 0.08, 0.01) << parameter->name;
  }
}

TEST(Seq2SeqTest, RefusesWhatDoesNotFit) {
  const auto make = find_model("seq2seq").make;
  EXPECT_THROW(make(images({3, 32, 32}), {}), Error);
  EXPECT_THROW(make(pairs(), {{"heads", "3"}}), Error);
  EXPECT_THROW(make(pairs(), {{"teacher-forcing", "2"}}), Error);
  EXPECT_NO_THROW(make(pairs(), {{"teacher-forcing", "1.0"}}));
  const auto model = small_model();
  model->initialise(1);
  Pairs batch = some_pairs();
  batch.source[0][1] = 20;
  EXPECT_THROW(run_pairs(*model, batch, {}), Error);
}

TEST(PackingTest, StepsHoldTheSequencesThatAreLongEnough) {
  const Packing packing = pack({2, 0, 3, 2}, 4);
  EXPECT_EQ(packing.batch_sizes, (std::vector<std::int64_t>{3, 3, 1}));
  EXPECT_TRUE(at::equal(packing.order, at::tensor({2L, 0L, 3L, 1L})));
  EXPECT_TRUE(at::equal(packing.place, at::tensor({1L, 3L, 0L, 2L})));
  EXPECT_TRUE(at::equal(packing.positions, at::tensor({8L, 0L, 12L, 9L, 1L, 13L, 10L})));
}

TEST(LstmTest, DropoutLiesBetweenTheLayersAndBelongsToTheStep) {
  const auto model = small_model({{"dropout", "0.5"}});
  model->initialise(5);
  const Pairs batch = some_pairs();
  const auto outputs = [&](Mode mode, std::uint32_t step) {
    return run_pairs(*model, batch, {.mode = mode, .step = step, .feedback = Feedback::targets})[0];
  };
  EXPECT_TRUE(at::equal(outputs(Mode::training, 1), outputs(Mode::training, 1)));
  EXPECT_FALSE(at::equal(outputs(Mode::training, 1), outputs(Mode::training, 2)));
  EXPECT_TRUE(at::equal(outputs(Mode::evaluation, 1), outputs(Mode::evaluation, 2)));
}

}  // namespace
}  // namespace dtrain::models
