#include "parallel/step/pieces.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace dtrain::parallel {
namespace {

TEST(PiecesTest, EveryPositionOfAnEpochIsInExactlyOnePieceOfOneRank) {
  for (const std::int64_t samples : {1, 7, 64, 1000, 1001}) {
    for (const int micro_batches : {1, 3, 8}) {
      for (const int ranks : {1, 2, 3, 5}) {
        const Pieces pieces{
            .samples = samples, .global_batch = 64, .micro_batches = micro_batches, .data_ranks = ranks};
        std::vector<int> seen(static_cast<std::size_t>(samples), 0);
        for (std::int64_t s = 0; s < pieces.steps(); ++s) {
          for (int r = 0; r < ranks; ++r) {
            const auto mine = pieces.owned_by(r);
            for (auto k = mine.begin; k < mine.end; ++k) {
              const auto piece = pieces.piece(s, static_cast<int>(k));
              for (auto p = piece.begin; p < piece.end; ++p) ++seen[static_cast<std::size_t>(p)];
            }
          }
        }
        EXPECT_EQ(seen, std::vector<int>(static_cast<std::size_t>(samples), 1));
      }
    }
  }
}

TEST(PiecesTest, TheLastStepKeepsItsRemainderAndMayHaveEmptyPieces) {
  const Pieces pieces{.samples = 66, .global_batch = 64, .micro_batches = 4, .data_ranks = 2};
  EXPECT_EQ(pieces.steps(), 2);
  EXPECT_EQ(pieces.step(1).size(), 2);
  EXPECT_EQ(pieces.piece(1, 0).size(), 0);
  EXPECT_EQ(pieces.piece(1, 1).size(), 1);
  EXPECT_EQ((Pieces{.samples = 128, .global_batch = 64}.steps()), 2);
  EXPECT_EQ((Pieces{.samples = 0, .global_batch = 64}.steps()), 0);
}

TEST(PiecesTest, PiecesCoverAStepInOrderWhateverTheirNumber) {
  for (const int number : {1, 2, 3, 8}) {
    const Pieces pieces{.samples = 130, .global_batch = 64, .micro_batches = number};
    const Range step = pieces.step(2);  // two samples
    EXPECT_EQ(step.begin, 128);
    std::int64_t next = step.begin;
    for (int k = 0; k < number; ++k) {
      const Range piece = pieces.piece(2, k);
      EXPECT_EQ(piece.begin, next);
      EXPECT_EQ(piece.end - step.begin, (k + 1) * 2 / number);  // piece k of n: from floor(kn / M)
      next = piece.end;
    }
    EXPECT_EQ(next, step.end);
  }
}

TEST(PiecesTest, WhatAPieceHoldsDoesNotDependOnTheNumberOfRanks) {
  const Pieces one{.samples = 1000, .global_batch = 48, .micro_batches = 5, .data_ranks = 1};
  Pieces many = one;
  many.data_ranks = 4;
  for (std::int64_t s = 0; s < one.steps(); ++s) {
    for (int k = 0; k < 5; ++k) {
      EXPECT_EQ(one.piece(s, k).begin, many.piece(s, k).begin);
      EXPECT_EQ(one.piece(s, k).end, many.piece(s, k).end);
    }
  }
}

}  // namespace
}  // namespace dtrain::parallel
