#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::data {

/// The pieces of a serialised SentencePiece model, in the order of their ids, after a check of all that the
/// library reads without one: the lengths of the pieces (it recurses over their bytes) and the table of its
/// normaliser, a double array whose offsets must stay inside it. Throws data_error for a model that dtrain
/// would not have trained. Source: sentencepiece_model.proto and darts.h of SentencePiece 0.1.97.
std::vector<std::string> check_sentencepiece_model(std::string_view model);

/// Throws data_error also where the model's pieces are not `vocabulary`.
void require_pieces(std::string_view model, const std::vector<std::string>& vocabulary);

}  // namespace dtrain::data
