#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "comm/comm_config.hpp"

namespace dtrain::app {

// From text to a value and from a value to TOML. Reading throws Error (exit code 2) naming the option `name`.
// What a value may be, beyond its type, is checked by RunConfig::validate().

void read_value(const std::string& text, const std::string& name, int& value);
void read_value(const std::string& text, const std::string& name, std::uint64_t& value);
void read_value(const std::string& text, const std::string& name, double& value);
void read_value(const std::string& text, const std::string& name, bool& value);
void read_value(const std::string& text, const std::string& name, std::string& value);
void read_value(const std::string& text, const std::string& name, comm::Backend& value);
void read_value(const std::string& text, const std::string& name, comm::Algorithm& value);
void read_value(const std::string& text, const std::string& name, topology::RankOrder& value);
/// Adds one `KEY=VALUE`.
void read_value(const std::string& text, const std::string& name, std::map<std::string, std::string>& value);

std::string write_toml(int value);
std::string write_toml(std::uint64_t value);
std::string write_toml(double value);
std::string write_toml(bool value);
std::string write_toml(const std::string& value);  ///< Quoted; nothing for an empty one.
std::string write_toml(comm::Backend value);
std::string write_toml(comm::Algorithm value);
std::string write_toml(topology::RankOrder value);
std::string write_toml(const std::map<std::string, std::string>& value);

}  // namespace dtrain::app
