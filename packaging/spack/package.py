"""dtrain for Spack. The sources are a checkout, so nothing is fetched:

    . SPACK/share/spack/setup-env.sh        # Spack 1.0 or newer
    spack repo create own own
    mkdir -p own/spack_repo/own/packages/dtrain
    cp packaging/spack/package.py own/spack_repo/own/packages/dtrain/
    spack repo add own/spack_repo/own
    spack env create dtrain
    spack env activate dtrain
    spack add dtrain@0.1.0 ^openmpi@5.0.11
    spack develop --path CHECKOUT dtrain@0.1.0
    spack install
"""

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import *


class Dtrain(CMakePackage):
    """Trains neural networks on many ranks of MPI: data, pipeline and tensor parallelism by options."""

    license("BSD-3-Clause")

    version("0.1.0")

    variant("cuda", default=False, description="Train on GPUs over NCCL")
    variant("images", default=True, description="Read PNG and JPEG images")
    variant("sodium", default=True, description="Secret random numbers, for training with differential privacy")
    variant("sentencepiece", default=True, description="Read and make vocabularies of sentencepiece")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")

    # Open MPI 5 alone goes on without a lost rank.
    depends_on("mpi")
    depends_on("hdf5@1.10: ~mpi")
    depends_on("py-torch@2.11.0")
    depends_on("fmt@9:")
    depends_on("nlohmann-json@3.11:")
    depends_on("cli11@2.1:")
    depends_on("tomlplusplus")
    depends_on("openssl@3:")
    depends_on("zlib-api")
    depends_on("xz")
    depends_on("libarchive@3.6:")
    depends_on("hwloc@2.9:")
    depends_on("sentencepiece", when="+sentencepiece")
    depends_on("libsodium", when="+sodium")
    depends_on("libpng", when="+images")
    depends_on("libjpeg-turbo", when="+images")
    depends_on("cuda@13:", when="+cuda")
    depends_on("nccl@2.28:", when="+cuda")
    depends_on("py-torch+cuda", when="+cuda")
    depends_on("py-torch~cuda", when="~cuda")

    conflicts("%gcc@:11", msg="dtrain needs C++20 of GCC 12 or newer")
    conflicts("platform=darwin", msg="dtrain is for Linux")

    generator("ninja")

    def cmake_args(self):
        # torch/share/cmake in the Python package, which has include/ and lib/ two folders above.
        cmake_files = self["py-torch"].cmake_prefix_paths[0]
        return [
            self.define("TORCH_HOME", ancestor(cmake_files, 2)),
            self.define("MPI_HOME", self.spec["mpi"].prefix),
            self.define("DTRAIN_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define("DTRAIN_TESTS", False),
            self.define("DTRAIN_PERF", False),
        ]
