"""--print-config, --config, --help: one declaration, so that they agree."""
import re
import tomllib
import unittest

from program import ProgramTest

BUILT = """model model-option golden init-from init-skip loss class-weights label-smoothing freeze dataset data-root staging augment augment-padding mesh rank-order strategy
 compression compression-after shard-within dp-clip dp-noise target-epsilon dp-delta dp-sampler dp-accountant noise-source dp-unit dp-adaptive-clip
 sync-period sync-optimizer local-after outer-optimizer outer-learning-rate outer-momentum fragments overlap-steps exchange-type easgd-mode elasticity servers staleness staleness-rate
 partition clients clients-per-round rounds local-epochs local-batch federated-rule proximal-mu server-optimizer server-rate server-momentum drop-rate round-deadline
 secure-aggregation secure-threshold secure-ring secure-bits secure-clip secure-noise
pipeline virtual-stages balance recompute memory-limit
epochs limit-steps global-batch micro-batches optimizer learning-rate momentum nesterov beta1 beta2 epsilon weight-decay decay schedule
adaptive-batch eval-batch min-learning-rate warmup-steps grad-clip batch-norm precision device device-graphs threads kernels comm-backend all-reduce bucket-mb watchdog on-failure spares replicate verify-every inject emulate seed reproducible output name
overwrite record-steps trace trace-steps tensorboard quiet dry-run all-ranks cluster exit-after checkpoint-every keep resume optimizer-state
validate-every best-by early-stopping optimizer-state-bits offload tf32 nccl-shared""".split()
# A value that is not the default for every option.
OTHER = {"model": "cnn", "model-option": ["activation=tanh"], "golden": "off", "init-from": "a.h5", "init-skip": "fc.*", "loss": "mae",
         "class-weights": "balanced", "label-smoothing": 0.125, "freeze": "^fc[12]", "dataset": "a \"quoted\" \\ name", "data-root": "/d",
         "staging": "local=/scratch/a,b", "augment": "crop", "augment-padding": 2, "mesh": "data=2,pipe=1", "rank-order": "launched", "strategy": "ddp", "pipeline": "interleaved",
         "virtual-stages": 3, "balance": "dynamic", "recompute": "auto", "memory-limit": "2GiB", "epochs": 7,
         "limit-steps": 9, "global-batch": 48, "micro-batches": 6, "eval-batch": 5, "optimizer": "sgd", "learning-rate": 3e-05,
         "momentum": 0.25, "nesterov": True, "decay": "matrices", "min-learning-rate": 1e-06, "weight-decay": 0.125, "schedule": "wsd", "warmup-steps": 5, "grad-clip": 2.0,
         "batch-norm": "local", "precision": "fp64", "device": "cpu", "device-graphs": "off", "threads": 3, "kernels": "libtorch", "comm-backend": "mpi", "all-reduce": "ring",
         "bucket-mb": 1.5, "watchdog": 20.0, "on-failure": "abort", "spares": 1, "replicate": "3", "verify-every": 50, "inject": "stop:rank=0,phase=optimizer,step=3", "emulate": "slow.toml", "seed": 9223372036854775807, "reproducible": True, "output": "out", "name": "mine",
         "overwrite": True, "record-steps": 10, "trace": True, "trace-steps": "3-5", "tensorboard": True, "quiet": True, "dry-run": True, "all-ranks": True, "cluster": "2x4",
         "exit-after": "55min", "checkpoint-every": "2epochs", "keep": 5, "resume": "runs/a/checkpoints/best",
         "optimizer-state": "keep", "validate-every": "20steps", "best-by": "accuracy", "early-stopping": 3}
ADAM = {"optimizer": "adamw", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-06, "adaptive-batch": True}  # has other options than sgd; not with reproducible
LOCAL = {"strategy": "local_sgd", "sync-period": "adaptive", "sync-optimizer": "average", "local-after": 40, "outer-optimizer": "nesterov",
         "outer-learning-rate": 0.5, "outer-momentum": 0.75, "fragments": 3, "overlap-steps": 5, "exchange-type": "int8"}
ELASTIC = {"strategy": "easgd", "easgd-mode": "asynchronous", "sync-period": "8", "elasticity": 0.125, "servers": 3}
COMPRESSED = {"strategy": "zero1", "compression": "powersgd=2", "compression-after": 7, "optimizer-state-bits": 8}
OFFLOADED = {"strategy": "ddp", "offload": "optimizer", "device": "auto", "tf32": True, "nccl-shared": True}
SHARDED = {"strategy": "zero3", "shard-within": "node"}
PRIVATE = {"strategy": "ddp", "dp-clip": 0.5, "dp-noise": 1.25, "target-epsilon": 3.5, "dp-delta": 0.0625, "dp-sampler": "once", "dp-accountant": "pld",
           "noise-source": "seeded"}
CLIENTS = {"strategy": "fedavg", "dp-clip": 0.5, "target-epsilon": 3.5, "dp-unit": "client", "dp-adaptive-clip": 0.25}
LATE = {"strategy": "asgd", "servers": 2, "staleness": 7, "staleness-rate": "divided"}
FEDERATED = {"strategy": "fedavg", "partition": "dirichlet=0.5", "clients": 12, "clients-per-round": 3, "rounds": 7, "local-epochs": 2,
             "local-batch": "all", "optimizer": "sgd", "momentum": 0.0, "federated-rule": "scaffold", "proximal-mu": 0.25, "server-optimizer": "yogi", "server-rate": 0.5,
             "server-momentum": 0.75, "drop-rate": 0.125, "round-deadline": 2.5}
SECURE = {"strategy": "fedavg", "secure-aggregation": "on", "secure-threshold": 3, "secure-ring": 64, "secure-bits": 20, "secure-clip": 0.5, "secure-noise": 1.5}


def flags(values):
    words = []
    for key, value in values.items():
        if value is True:
            words.append("--" + key)
            continue
        for item in value if isinstance(value, list) else [value]:
            words += ["--" + key, str(item)]
    return words


class ConfigTest(ProgramTest):
    def printed(self, *arguments):
        text = self.succeed(*arguments, "--print-config")
        return text, tomllib.loads(text)

    def test_defaults_come_from_the_model(self):
        _, mlp = self.printed()
        self.assertEqual((mlp["model"], mlp["dataset"], mlp["epochs"], mlp["optimizer"]), ("mlp", "synthetic", 10, "adam"))
        self.assertEqual((mlp["global-batch"], mlp["learning-rate"], mlp["schedule"]), (64, 0.001, "constant"))
        _, cnn = self.printed("--model", "cnn")
        self.assertEqual((cnn["epochs"], cnn["optimizer"], cnn["momentum"]), (20, "sgd", 0.9))
        self.assertEqual((cnn["learning-rate"], cnn["weight-decay"], cnn["schedule"]), (0.01, 5e-4, "one_cycle"))

    def test_flag_before_file_before_model_before_default(self):
        file = self.write("a.toml", "model = \"cnn\"\nepochs = 3\nlearning-rate = 0.5\n")
        _, config = self.printed("--config", file, "--epochs", "4")
        self.assertEqual(config["epochs"], 4)            # flag
        self.assertEqual(config["learning-rate"], 0.5)   # file
        self.assertEqual(config["momentum"], 0.9)        # the model that the file names
        self.assertEqual(config["precision"], "fp32")    # default
        _, config = self.printed("--config", file, "--model", "mlp")
        self.assertEqual((config["momentum"], config["epochs"]), (0.0, 3))

    def test_flag_can_take_back_a_switch_of_the_file(self):
        file = self.write("a.toml", "trace = true\n")
        self.assertIs(self.printed("--config", file)[1]["trace"], True)
        self.assertIs(self.printed("--config", file, "--trace=false")[1]["trace"], False)

    def test_last_of_repeated_flags_counts_and_lists_add_up(self):
        _, config = self.printed("--epochs", "3", "--epochs", "4", "--model-option", "b=2", "--model-option", "a=1")
        self.assertEqual((config["epochs"], config["model-option"]), (4, ["a=1", "b=2"]))

    def test_printed_file_fed_back_prints_the_same(self):
        for arguments in ([], ["--model", "cnn", "--name", "x"], flags(OTHER), flags(ADAM), flags(LOCAL), flags(ELASTIC), flags(LATE), flags(COMPRESSED), flags(OFFLOADED), flags(SHARDED), flags(PRIVATE), flags(CLIENTS), flags(FEDERATED), ["--strategy", "fedavg"]):
            text, _ = self.printed(*arguments)
            again, _ = self.printed("--config", self.write("fed.toml", text))
            self.assertEqual(text, again)

    def test_every_option_reaches_the_file_and_comes_back(self):
        self.assertEqual(sorted({**OTHER, **ADAM, **LOCAL, **ELASTIC, **LATE, **COMPRESSED, **OFFLOADED, **SHARDED, **PRIVATE, **CLIENTS, **FEDERATED, **SECURE}), sorted(BUILT), "a value for every option")
        self.assertEqual(self.printed(*flags(OTHER))[1], OTHER | {"adaptive-batch": False})
        with_adam = self.printed(*flags(ADAM))[1]
        self.assertEqual({key: with_adam[key] for key in ADAM}, ADAM)
        for options in (LOCAL, ELASTIC, LATE, COMPRESSED, OFFLOADED, SHARDED, PRIVATE, CLIENTS, FEDERATED, SECURE):
            printed = self.printed(*flags(options))[1]
            self.assertEqual({key: printed[key] for key in options}, options)

    def test_help_lists_what_is_built_and_nothing_else(self):
        listed = re.findall(r"^  (?:-\w,)?--([\w-]+)", self.succeed("--help"), re.MULTILINE)
        self.assertEqual(sorted(listed), sorted(BUILT + ["help", "config", "plugin", "print-config", "version"]))

    def test_help_and_version_need_no_mpi(self):
        broken = {"OMPI_MCA_pml": "none-of-these", "OMPI_MCA_btl": "none-of-these"}  # MPI_Init fails with these
        self.assertRegex(self.succeed("--version", environment=broken), r"^dtrain \d+\.\d+\.\d+\n$")
        self.assertIn("--learning-rate", self.succeed("train", "--help", environment=broken))
        for command in ("stage", "evaluate", "generate", "report", "export", "topology", "doctor"):
            self.assertIn("Usage: dtrain " + command, self.succeed(command, "--help", environment=broken))

    def test_files_of_jobs_configs_are_understood(self):
        import pathlib
        files = sorted(pathlib.Path(__file__).parents[2].glob("jobs/configs/*.toml"))
        self.assertTrue(files)
        for file in files:
            with self.subTest(file=file.name):
                self.printed("--config", file)


if __name__ == "__main__":
    unittest.main()
