#pragma once

#include "models/model.hpp"

namespace dtrain::models {

/// Translation by an encoder and a decoder of LSTM layers (Sutskever, Vinyals and Le 2014). Pairs begin with
/// the start and end with the end token; the loss is per target token, padding takes no part. Options:
/// embedding=256, hidden=512, layers=2, dropout=0.5, teacher-forcing=0.5 (the share of sentences that read
/// the target's words in training).
Registration seq2seq();

}  // namespace dtrain::models
