#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/label.hpp"
#include "comm/operation.hpp"
#include "comm/step.hpp"

namespace dtrain::comm {

/// An operation of a group: steps one after another.
class GroupOperation final : public Operation {
 public:
  GroupOperation(const Label& label, std::vector<std::unique_ptr<Step>> steps, const void* lane)
      : label_(label), steps_(std::move(steps)), lane_(lane) {}
  GroupOperation(const Label& label, std::unique_ptr<Step> only, const void* lane)
      : label_(label), only_(std::move(only)), lane_(lane) {}

  bool advance() override {
    if (only_) {
      if (!only_->advance()) return false;
      count(*only_);
      return true;
    }
    while (current_ < steps_.size()) {
      if (!steps_[current_]->advance()) return false;
      count(*steps_[current_]);
      ++current_;
    }
    return true;
  }

  std::string_view name() const override { return label_.operation; }
  std::string describe() const override { return label_.text(); }
  const Label* label() const override { return &label_; }
  std::string missing() const override {
    if (only_) return only_->missing();
    return current_ < steps_.size() ? steps_[current_]->missing() : std::string();
  }
  bool sleep(double limit_s) override {
    if (only_) return only_->sleep(limit_s);
    return current_ < steps_.size() && steps_[current_]->sleep(limit_s);
  }
  const void* lane() const override { return lane_; }

 private:
  void count(const Step& step) {
    bytes_sent_ += step.bytes_sent();
    bytes_received_ += step.bytes_received();
    step.count_by_rank();
  }

  Label label_;
  std::unique_ptr<Step> only_;  ///< The usual case, without a vector to allocate.
  std::vector<std::unique_ptr<Step>> steps_;
  const void* lane_;
  std::size_t current_ = 0;
};

}  // namespace dtrain::comm
