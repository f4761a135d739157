"""All classes of wrong and hostile input."""

import archives
import arrays
import dataset_json
import manifests
import options
import results
import shards
import special_files
import tables
import texts
import weights

ALL = [manifests.FAMILY, weights.SAFE, weights.H5, shards.FAMILY, dataset_json.FAMILY, arrays.NPY, arrays.IDX, arrays.CIFAR, arrays.H5,
       tables.FAMILY, texts.FAMILY, archives.FAMILY, results.FAMILY, special_files.FAMILY, options.OPTIONS, options.TOML, options.NAMES]
