#pragma once

#include "data/import/originals.hpp"
#include "data/import/stage.hpp"

namespace dtrain::data {

/// Whether options.from is an HDF5 file. Throws data_error for a file that is no regular file.
bool is_hdf5_source(const StageOptions& options);

/// Whether options.from is a .npy file, or a folder in which options.inputs names one (also a missing or
/// damaged one, of which the reader then says what is wrong).
bool is_npy_source(const StageOptions& options);

/// The arrays `inputs` and `targets` of one HDF5 file, see from_arrays. Throws usage_error for a folder and
/// for missing --inputs or --targets, data_error naming file and array: not there, a type or count that does
/// not fit.
Originals read_hdf5(const StageOptions& options, h5::Library& library);

/// The files `inputs` and `targets` of a folder, or of the folder of options.from, which then is the inputs.
/// Throws like read_hdf5 and open_npy.
Originals read_npy(StageOptions options);

}  // namespace dtrain::data
