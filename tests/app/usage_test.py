"""Bad input on the command line and in the configuration file: its exit code, one sentence, no rank left."""
import os
import pathlib
import re
import unittest

import drawn
from program import SHORT, ProgramTest


class UsageTest(ProgramTest):
    def test_mesh_that_does_not_fit_the_ranks(self):
        self.refuse(2, ["--mesh data=3", "4"], "--mesh", "data=3", ranks=4)

    def test_tensor_axis_or_cluster_that_cannot_be(self):
        self.refuse(2, ["6 heads", "tensor=4", "1, 2, 3, 6"], "--model", "gpt", "--mesh", "tensor=4", ranks=4)
        self.refuse(2, ["pipe x tensor", "divide 4"], "--mesh", "tensor=3", ranks=4)
        self.refuse(2, ["--cluster", "--dry-run"], "--cluster", "2x4")
        self.refuse(2, ["--all-ranks", "--dry-run"], "--all-ranks")
        for wrong in "384", "2x", "0x8", "2x4x8", "x", "9999999x9999":
            self.refuse(2, ["--cluster", wrong], "--cluster", wrong, "--dry-run")

    def test_mesh_that_does_not_divide_the_ranks(self):
        self.refuse(2, ["--mesh", "pipe=2", "3"], "--mesh", "pipe=2", ranks=3)

    def test_more_stages_than_layers(self):
        self.refuse(2, ["--mesh", "4 stages are more than the 2 layers of the model nbow", "at most 2"],
                    "--model", "nbow", "--mesh", "pipe=4", ranks=4)
        self.refuse(2, ["--virtual-stages", "8 stages", "mlp"], "--mesh", "pipe=2", "--pipeline", "interleaved",
                    "--virtual-stages", "4", ranks=2)

    def test_fewer_micro_batches_than_stages(self):
        self.refuse(2, ["--micro-batches", "1 for a pipeline of 2 stages", "use 2 or more"], "--mesh", "pipe=2",
                    "--micro-batches", "1", ranks=2)
        self.refuse(2, ["--micro-batches", "use 4 or more"], "--mesh", "data=2,pipe=2", "--micro-batches", "3", ranks=4)

    def test_more_micro_batches_than_samples_in_a_pipeline(self):
        self.refuse(2, ["--micro-batches", "at most 4"], "--mesh", "pipe=2", "--global-batch", "4", "--micro-batches", "8",
                    ranks=2)

    def test_stages_per_rank_without_an_interleaved_schedule(self):
        self.refuse(2, ["--virtual-stages", "--pipeline interleaved"], "--mesh", "pipe=2", "--virtual-stages", "2", ranks=2)

    def test_options_of_a_pipeline_without_one(self):
        few = ["--model", "mlp", "--limit-steps", 1, "--name", "no-pipeline", "--overwrite"]
        for options, words in ((["--balance", "dynamic"], "--balance dynamic is without effect"), (["--pipeline", "gpipe"], "--pipeline gpipe is without effect"),
                               (["--pipeline", "interleaved", "--virtual-stages", 3, "--balance", "dynamic"],
                                "--pipeline interleaved and --balance dynamic are without effect")):
            self.assertIn(words, self.succeed(*few, *options, ranks=2))
        self.assertNotIn("without effect", self.succeed(*few, "--pipeline", "1f1b", ranks=2))
        self.assertNotIn("without effect", self.succeed(*few, "--mesh", "pipe=2", "--pipeline", "gpipe", "--balance", "dynamic", ranks=2))

    def test_memory_limit_below_the_parameters(self):
        given = ["--memory-limit", "1MiB", "--strategy", "ddp", "--recompute", "none", "--micro-batches", 8]
        self.refuse(2, ["--memory-limit 1MiB", "parameters, gradients and optimizer"], *given, ranks=1)
        self.refuse(2, ["--memory-limit 1MiB", "pipeline rank 0"], *given, "--mesh", "pipe=2", ranks=2)
        for options in ["--mesh", "pipe=2"], ["--mesh", "data=2"]:
            self.refuse(2, ["--memory-limit 1MiB", "the nearest, --strategy", "--micro-batches 64", "bytes of a rank", "allow"],
                        "--memory-limit", "1MiB", *options, ranks=2)

    def test_memory_limit_that_is_passed_while_training(self):
        self.refuse(1, ["--memory-limit", "out of memory", "--recompute full"], "--memory-limit", "7MiB",
                    "--global-batch", "4096", "--micro-batches", "1", "--strategy", "ddp", "--recompute", "none", ranks=1)

    def test_schedule_of_a_plan(self):
        self.refuse(2, ["--pipeline", "zigzag"], "plan", "--schedule", "zigzag")
        self.refuse(2, ["--pipe", "from 1 to 64"], "plan", "--pipe", "0")
        self.refuse(2, ["--micro-batches", "from 1 to 64"], "plan", "--micro-batches", "1000")

    def test_options_of_the_doctor(self):
        self.refuse(2, ["--threads -1", "use 0"], "doctor", "--threads", "-1")
        self.refuse(2, ["--device tpu", "auto, cpu or cuda"], "doctor", "--device", "tpu", ranks=2)
        self.refuse(2, ["--ouptut", "did you mean --output?"], "doctor", "--ouptut", "runs")

    @unittest.skipIf(pathlib.Path("/dev/nvidiactl").exists(), "there is a driver")
    def test_gpus_that_are_not_there(self):
        self.refuse(2, ["--device cuda", "no CUDA driver", "or use --device cpu"], "--device", "cuda", ranks=2)

    def test_nccl_without_gpus(self):
        self.refuse(2, ["--comm-backend nccl", "computes on CPUs", "--device cuda"], "--comm-backend", "nccl", "--device", "cpu", ranks=2)

    def test_batch_without_samples(self):
        self.refuse(2, ["--global-batch", "use 1 or more"], "--global-batch", "0", ranks=2)

    def test_negative_epochs(self):
        self.refuse(2, ["--epochs", "-1", "use 1 or more"], "--epochs", "-1", ranks=2)

    def test_learning_rate_that_is_no_number(self):
        self.refuse(2, ["--learning-rate", "nan", "finite"], "--learning-rate", "nan", ranks=2)

    def test_learning_rate_that_trains_nothing(self):
        self.refuse(2, ["--learning-rate", "0 trains nothing"], "--learning-rate", "0", ranks=2)

    def test_schedules_that_contradict_themselves(self):
        self.refuse(2, ["--warmup-steps", "one_cycle warms up by itself"], "--model", "cnn", "--warmup-steps", "100", ranks=2)
        self.refuse(2, ["--min-learning-rate", "below the highest, 0.01"], "--schedule", "cosine", "--learning-rate", "0.01",
                    "--min-learning-rate", "0.01")
        for rate in ("1e-5", "100"):
            self.refuse(2, ["--min-learning-rate", "constant never falls"], "--min-learning-rate", rate)
        self.succeed("--model", "gpt", "--schedule", "one_cycle", "--print-config")  # its recipe's warm-up is not the user's

    def test_warm_up_that_the_run_does_not_outlive(self):
        self.refuse(2, ["--warmup-steps 50", "50 steps", "all of them would be warm-up", "--limit-steps"], "--warmup-steps", 50,
                    "--limit-steps", 50, ranks=2)
        self.succeed("--warmup-steps", 49, "--limit-steps", 50, "--dry-run")
        said = self.succeed("--model", "gpt", "--limit-steps", 60, "--dry-run")  # the recipe has 100
        self.assertIn("30 of the run's 60 steps, not the 100", said)

    def test_options_of_another_optimizer(self):
        self.refuse(2, ["--momentum", "the optimizer adam has none", "sgd"], "--momentum", "0.9")
        self.refuse(2, ["--nesterov", "sgd with momentum"], "--nesterov")
        self.refuse(2, ["--nesterov", "sgd with momentum"], "--nesterov", "--optimizer", "sgd", "--momentum", "0")
        self.refuse(2, ["--beta2", "the optimizer sgd has none", "adam or adamw"], "--model", "cnn", "--beta2", "0.9")
        self.succeed("--model", "cnn", "--optimizer", "adam", "--print-config")  # its recipe's momentum is not the user's

    def test_tf32_where_no_gpu_multiplies_fp32(self):
        self.refuse(2, ["--tf32", "the CPU computes", "--device cuda"], "--tf32", "--device", "cpu", ranks=2)
        self.refuse(2, ["--tf32", "these are in bf16", "--precision fp32"], "--tf32", "--precision", "bf16")

    def test_nccl_set_up_where_there_is_none(self):
        self.refuse(2, ["--nccl-shared", "CPUs", "leave it out"], "--nccl-shared", "--device", "cpu", ranks=2)
        self.refuse(2, ["--nccl-shared", "through the CPU's memory"], "--nccl-shared", "--comm-backend", "mpi")

    def test_padding_without_a_crop(self):
        self.refuse(2, ["--augment-padding", "nothing is cropped"], "--model", "cnn", "--augment", "flip", "--augment-padding", "2")

    def test_more_micro_batches_than_samples(self):
        self.refuse(2, ["--micro-batches", "at most 4"], "--global-batch", "4", "--micro-batches", "8", ranks=2)

    def test_micro_batches_that_the_ranks_cannot_share_evenly(self):
        few = ["--global-batch", 48, "--limit-steps", 2, "--micro-batches"]
        said = self.succeed(*few, 3, ranks=2)
        self.assertIn("some of 2 data ranks compute 2 of a step's 3 micro-batches", said)
        self.assertIn("at most 75 %", said)
        self.assertNotIn("uneven", self.succeed(*few, 4, ranks=2))

    def test_fewer_samples_than_data_ranks(self):
        self.refuse(2, ["--global-batch", "3 samples", "use 4 or more"], "--global-batch", "3", ranks=4)

    def test_values_out_of_range(self):
        for option, value in [("--momentum", "1"), ("--momentum", "-0.1"), ("--weight-decay", "inf"),
                              ("--grad-clip", "-1"), ("--grad-clip", "nan"), ("--warmup-steps", "-1"), ("--learning-rate", "-0.1"),
                              ("--learning-rate", "inf"), ("--beta1", "1"), ("--beta2", "-0.1"), ("--beta2", "nan"), ("--epsilon", "0"), ("--epsilon", "1e-50"),
                              ("--min-learning-rate", "-1"), ("--min-learning-rate", "nan"), ("--decay", "biases"), ("--augment", "rotate"),
                              ("--augment-padding", "0"), ("--label-smoothing", "-0.1"), ("--label-smoothing", "1"), ("--label-smoothing", "nan"), ("--eval-batch", "-1"), ("--limit-steps", "-2"),
                              ("--threads", "-1"), ("--watchdog", "0"), ("--bucket-mb", "-1"),
                              ("--seed", "-1"), ("--seed", "9223372036854775808"), ("--epochs", "1.5"), ("--epochs", "99999999999"),
                              ("--epochs", "many"), ("--record-steps", "some"), ("--trace-steps", "9-3"), ("--trace-steps", "some"), ("--precision", "fp8"),
                              ("--optimizer", "lion"), ("--schedule", "square"), ("--strategy", "zero9"), ("--sync-period", "8"), ("--outer-optimizer", "nesterov"), ("--elasticity", "0.1"),
                              ("--device", "tpu"), ("--device-graphs", "on"), ("--kernels", "mine"), ("--all-reduce", "magic"), ("--comm-backend", "gloo"),
                              ("--staging", "disk"), ("--rank-order", "random"), ("--pipeline", "zigzag"), ("--balance", "static"),
                              ("--recompute", "some"), ("--recompute", "auto"), ("--virtual-stages", "0"),
                              ("--memory-limit", "much"), ("--memory-limit", "-1"), ("--memory-limit", "2 GB"), ("--name", "a/b"), ("--model-option", "hidden")]:
            with self.subTest(option=option, value=value):
                self.refuse(2, [option], option, value, "--print-config")

    def test_unknown_model(self):
        self.refuse(2, ["resnet999", "mlp"], "--model", "resnet999", ranks=2)

    def test_batch_norm_over_all_ranks(self):
        self.refuse(2, ["--batch-norm", "not available", "use local"], "--batch-norm", "sync", ranks=2)

    def test_mistyped_option(self):
        self.refuse(2, ["--lerning-rate", "did you mean --learning-rate?"], "--lerning-rate", "0.1", ranks=2)

    def test_names_that_other_programs_have(self):
        for other, ours in (("--lr", "--learning-rate"), ("--batch-size", "--global-batch"), ("--num-epochs", "--epochs")):
            self.refuse(2, [other, f"did you mean {ours}?"], other, "1")

    def test_a_public_dataset_that_is_not_there_yet(self):
        recipes = {path.stem for path in (pathlib.Path(__file__).resolve().parents[2] / "data").glob("*.recipe")}
        self.assertIn("mnist", recipes)
        for name in recipes:
            self.refuse(3, [f"--dataset {name}", f"data/fetch.sh {name}"], "--dataset", name)

    def test_choice_of_a_mesh(self):
        text = self.succeed("plan", "--model", "gpt", "--model-option", "preset=gpt2", "--cluster", "2x4", "--memory", "40GiB",
                            "--global-batch", 64)
        self.assertIn("124,439,808 parameters", text)
        self.assertIn("2x4", text)
        rows = [line.split() for line in text.splitlines() if "data=" in line and line.split()[0].isdigit()]
        self.assertIn("data=8,pipe=1,tensor=1", [row[1] for row in rows])
        for row in rows:
            sizes = dict(axis.split("=") for axis in row[1].split(","))
            self.assertEqual(int(sizes["data"]) * int(sizes["pipe"]) * int(sizes["tensor"]), 8)
            self.assertEqual("GiB" in row[3] and float(row[2]) > 40, False, row)
        self.assertEqual(len(text[text.index("\nwhy\n"):].splitlines()), 7)  # two lines before, five reasons
        none = self.run_program("plan", "--model", "gpt", "--model-option", "preset=gpt2-xl", "--cluster", "1x2", "--memory", "1GiB")
        self.assertEqual(none.returncode, 1, none.stderr)
        self.assertIn("no mesh fits", none.stdout)
        self.refuse(2, ["--memory", "--cluster"], "plan", "--memory", "4GiB")
        self.refuse(2, ["--cluster", "384x8"], "plan", "--cluster", "many")
        self.refuse(2, ["--pipe", "leave it out"], "plan", "--cluster", "2x2", "--pipe", "2")
        self.refuse(2, ["--virtual-stages", "--schedule interleaved"], "plan", "--cluster", "2x2", "--virtual-stages", "3")
        self.refuse(2, ["--micro-batches", "-3 is too small"], "plan", "--cluster", "2x2", "--micro-batches", "-3")
        self.refuse(2, ["--plugin", "--cluster"], "plan", "--plugin", "nowhere.so")
        self.refuse(2, ["--device auto", "use cpu or cuda"], "plan", "--cluster", "1x2", "--device", "auto")

    def meshes_of(self, *options):
        """What plan says, and the meshes that fit: axes -> memory, sent in a node, sent between nodes."""
        text = self.succeed("plan", "--model", "mlp", "--model-option", "hidden=1024,1024", "--all", *options)
        rows = [re.split(r" {2,}", line.strip()) for line in text.splitlines() if re.match(r" +\d+ +data=", line)]
        return text, {row[1]: row[2:5] for row in rows}

    def test_a_plan_for_gpus_counts_what_each_of_them_holds(self):
        _, cpus = self.meshes_of("--cluster", "1x4")
        _, gpus = self.meshes_of("--cluster", "1x4", "--device", "cuda")
        memory = [float(meshes["data=4,pipe=1,tensor=1"][0].removesuffix(" MiB")) for meshes in (cpus, gpus)]
        held = 4 * (784 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 10) / 2**20  # parameters in MiB
        self.assertGreater(memory[1] - memory[0], held)  # on the CPU the ranks of a node share them

    def test_a_plan_counts_bytes_between_nodes_by_nodes(self):
        _, meshes = self.meshes_of("--cluster", "2x8")
        units = {"KiB": 1, "MiB": 1024}
        sent = [float(number) * units[unit] for number, unit in map(str.split, meshes["data=16,pipe=1,tensor=1"][1:])]
        self.assertAlmostEqual(sent[0] / sent[1], 14, delta=0.2)  # 2 (16 - 2) in nodes, 2 (2 - 1) between them

    def test_reasons_of_a_plan_agree_with_its_table(self):
        text, meshes = self.meshes_of("--cluster", "1x1")
        self.assertEqual((list(meshes), "pipeline" in text[text.index("why"):]), (["data=1,pipe=1,tensor=1"], False))
        text, meshes = self.meshes_of("--cluster", "1x8", "--memory", "25MiB", "--optimizer", "adam")
        self.assertIn("data=8,pipe=1,tensor=1", meshes)  # eight ranks have what none has alone
        self.assertNotIn("must be cut", text)
        self.assertIn("which suffices where the ranks of a node have parameters and optimizer once", text)
        text, meshes = self.meshes_of("--cluster", "1x8", "--memory", "25MiB", "--optimizer", "adam", "--device", "cuda")
        self.assertNotIn("data=8,pipe=1,tensor=1", meshes)
        self.assertIn("so it must be cut", text)
        batch = ("--cluster", "1x2", "--optimizer", "adam", "--global-batch", 8192, "--micro-batches", 2)
        text, meshes = self.meshes_of(*batch, "--memory", "93.8MiB")
        self.assertEqual(list(meshes), ["data=1,pipe=1,tensor=2"], text)
        smallest = re.search(r"no pipeline fits here: the smallest, data=1,pipe=2,tensor=1, takes ([\d.]+) MiB", text)
        self.assertGreater(float(smallest[1]), 93.8, text)
        _, meshes = self.meshes_of(*batch, "--memory", f"{float(smallest[1]) + 0.1:.1f}MiB")
        self.assertEqual(meshes["data=1,pipe=2,tensor=1"][0], f"{smallest[1]} MiB")
        self.assertNotIn("too few", text)

    def test_option_like_no_other(self):
        self.refuse(2, ["--frobnicate", "--help"], "--frobnicate", "1")

    def test_option_of_another_command(self):
        self.refuse(2, ["--benchmark: there is no such option", "see dtrain train --help"], "--benchmark", ranks=2)

    def test_no_folder_for_results(self):
        self.refuse(2, ["--output: the folder for runs has no name", "such as runs"], "--model", "mlp", "--output", "")

    def test_a_dataset_by_a_path_where_nothing_is(self):
        self.refuse(3, ["--dataset ./nowhere: there is no such folder", "'dtrain stage NAME --from PATH'"], "--model", "mlp", "--dataset", "./nowhere")

    def test_option_without_its_value(self):
        self.refuse(2, ["--epochs", "has no value"], "--epochs")

    def test_option_of_a_command_that_is_given_twice(self):
        self.refuse(2, ["--model: is given 2 times", "once"], "plan", "--model", "mlp", "--model", "gpt")
        self.refuse(2, ["--output", "has no value"], "doctor", "--output")
        self.assertIn("epochs = 2\n", self.succeed("--epochs", "1", "--epochs", "2", "--print-config"))  # of train the last one counts

    def test_word_too_many(self):
        self.refuse(2, ["extra", "too many"], "train", "extra")

    def test_unknown_command(self):
        self.refuse(2, ["trian", "did you mean train?"], "trian")

    def test_unknown_key_in_the_file(self):
        file = self.write("bad.toml", "model = \"mlp\"\nepoch = 3\n")
        self.refuse(2, [str(file), "no key epoch", "did you mean epochs?"], "--config", file, ranks=2)

    def test_file_that_is_no_toml(self):
        file = self.write("bad.toml", "model = \"mlp\"\nepochs 3\n")
        self.refuse(2, [str(file), "line 2"], "--config", file, ranks=2)

    def test_table_in_the_file(self):
        file = self.write("bad.toml", "[train]\nepochs = 3\n")
        self.refuse(2, [str(file), "train"], "--config", file)

    def test_bad_value_in_the_file(self):
        file = self.write("bad.toml", "epochs = \"many\"\n")
        self.refuse(2, [str(file), "epochs", "whole number"], "--config", file)

    def test_list_for_a_single_value_in_the_file(self):
        file = self.write("bad.toml", "epochs = [1, 2]\n")
        self.refuse(2, [str(file), "epochs", "one value"], "--config", file)

    def test_file_that_is_not_there(self):
        self.refuse(2, ["absent.toml", "cannot be opened"], "--config", "absent.toml", ranks=2)

    def test_output_that_cannot_be_written(self):
        output = "/sys/runs"  # no one may make folders there, root included
        if os.geteuid() != 0:
            output = self.folder / "read-only"
            output.mkdir(mode=0o555)
        self.refuse(2, [str(output), "cannot be written", "--output"], *SHORT, "--output", output, ranks=2)

    def test_output_that_is_a_file(self):
        self.refuse(2, ["taken", "--output"], *SHORT, "--output", self.write("taken", "x"), ranks=2)

    def test_folder_that_is_not_empty(self):
        (self.folder / "runs/mine").mkdir(parents=True)
        keep = self.write("runs/mine/notes.txt", "x")
        self.refuse(2, ["runs/mine", "not empty", "--overwrite"], *SHORT, "--name", "mine", ranks=2)
        self.assertTrue(keep.exists())

    def test_unfinished_run(self):
        (self.folder / "runs/mine").mkdir(parents=True)
        self.write("runs/mine/state", "running\n")
        self.refuse(2, ["runs/mine", "running", "--overwrite"], *SHORT, "--name", "mine", "--resume", "none", ranks=2)

    def test_srun_that_started_singletons(self):
        self.refuse(2, ["4"], *SHORT, environment={"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"})


if __name__ == "__main__":
    drawn.main()
