"""All classes of wrong and hostile input."""

import archives
import arrays
import dataset_json
import manifests
import new_data
import options
import outputs
import packed_arrays
import pictures
import private
import programs
import results
import shards
import special_files
import tables
import texts
import weights

ALL = [manifests.FAMILY, weights.SAFE, weights.H5, shards.FAMILY, dataset_json.FAMILY, arrays.NPY, packed_arrays.FAMILY, arrays.IDX, arrays.CIFAR,
       arrays.H5, pictures.FAMILY, tables.FAMILY, texts.FAMILY, archives.FAMILY, results.FAMILY, new_data.FAMILY, programs.FAMILY,
       special_files.FAMILY, outputs.FAMILY, private.FEDERATED, private.PRIVACY, options.OPTIONS, options.TOML, options.NAMES]
