#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace dtrain::privacy {

/// Where the noise comes from.
enum class NoiseSource {
  secure,  ///< ChaCha20 with a key from the system's random numbers, which nothing keeps.
  seeded,  ///< Philox with the run's seed: the same on any number of ranks. Protects nothing: the seed is
           ///< known.
};

/// Throws Error (exit code 2) naming the sources there are.
NoiseSource parse_noise_source(const std::string& text);
std::string name_of(NoiseSource source);

/// Gaussian noise for the elements of a flat tensor. By Box and Muller: in double, but for that of a secure
/// source for floats, which add_normal_floats() makes.
class Noise {
 public:
  virtual ~Noise() = default;

  /// Adds N(0, deviation^2) to each of `values`, elements [first, first + size) of the whole, in step `step`.
  /// No number is used twice, as long as no (step, element) is.
  virtual void add(std::span<float> values, double deviation, std::int64_t step, std::int64_t first) = 0;
  virtual void add(std::span<double> values, double deviation, std::int64_t step, std::int64_t first) = 0;
};

/// `seed`: of a seeded source. Throws Error (exit code 2) where libsodium was not there when dtrain was built
/// and the source is to be secure.
std::unique_ptr<Noise> make_noise(NoiseSource source, std::uint64_t seed);

/// A seed that nothing but this process knows, for what is drawn in secret. Throws Error as make_noise().
std::uint64_t secret_seed();

}  // namespace dtrain::privacy
