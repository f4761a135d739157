"""`dtrain report --html` and `--plots`: pages of runs of every kind need no other file, and have every picture with its axes."""
import html.parser
import os
import shutil
import sys
import unittest

import h5py
import numpy as np
from numpy.lib.recfunctions import repack_fields

import drawn
from program import ProgramTest, has_ulfm

SMALL = ("--model", "mlp", "--global-batch", "512", "--epochs", "2", "--limit-steps", "16", "--quiet")
OF_RUN = ["loss", "metrics", "rate_gradient", "throughput", "phases", "waiting", "timeline", "memory", "traffic"]
OF_RUNS = ["losses", "scaling", "phase_shares"]
# Words along the axes of each picture.
AXES = {"loss": {"step", "loss"}, "metrics": {"epoch", "accuracy"}, "rate_gradient": {"step", "learning rate", "norm of the gradient"},
        "throughput": {"s since the start of the run", "samples/s"}, "phases": {"s of training", "rank"}, "waiting": {"step", "rank", "waiting, part of the step"},
        "timeline": {"rank"}, "memory": {"rank", "peak memory", "epoch"}, "traffic": {"to rank", "from rank"},
        "losses": {"epoch", "s of training and validation"}, "scaling": {"ranks", "samples/s", "efficiency"},
        "phase_shares": {"share of training, mean over the ranks"}}
LOADS = {"src", "srcset", "data", "poster", "action", "background"}
VOID = {"meta", "br", "img", "link", "input"}


class Page(html.parser.HTMLParser):
    """What a browser would load, the pictures by the name of their heading, the words in each, and names that are used twice."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.loads, self.tags, self.ids, self.links = [], set(), [], []
        self.pictures, self.notes, self.text = {}, {}, []
        self.name, self.open = None, []
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in given:
            self.ids.append(given["id"])
        for key, value in attributes:
            target = key.split(":")[-1]
            if target == "href" and value.startswith("#"):
                self.links.append(value[1:])
            elif target in LOADS | {"href"} and not value.startswith("data:image/png;base64,"):
                self.loads.append((tag, key, value))
        if tag == "h3" and "id" in given:
            self.name = given["id"]
        if tag == "svg" and self.name:
            self.pictures[self.name] = set()

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        if "svg" in self.open:
            self.pictures[self.name].add(data.strip())
        elif self.open[-1:] == ["p"] and self.name:
            self.notes[self.name] = data
        self.text.append(data)


class PicturesTest(ProgramTest):
    def page_of(self, *runs, pictures=OF_RUN, without=()):
        """The page of runs, after all that holds for every page."""
        self.succeed("report", *runs, "--html", "page.html")
        text = (self.folder / "page.html").read_text()
        page = Page(text)
        self.assertEqual(page.loads, [], "the page needs no other file")
        self.assertFalse(page.tags & {"script", "link", "iframe", "object", "embed"}, page.tags)
        self.assertNotIn("@import", text)
        self.assertEqual(len(page.ids), len(set(page.ids)), "a name is there twice")
        self.assertEqual(set(page.links) - set(page.ids), set(), "a link that leads nowhere")
        for name in pictures:
            if name in without:
                self.assertNotIn(name, page.pictures)
                self.assertRegex(page.notes[name], r"\w.*\.$")
                continue
            self.assertIn(name, page.pictures, page.notes)
            for word in AXES[name]:
                self.assertIn(word, page.pictures[name], name)
        return page

    def says(self, page, *sentences):
        """Somewhere among its words."""
        words = " ".join(" ".join(page.text).split())
        for sentence in sentences:
            self.assertTrue(sentence in words, sentence)

    def train(self, name, *options, ranks=1, **how):
        return self.run_program("--name", name, *SMALL, *options, ranks=ranks, **how)

    def test_a_run_that_lost_a_rank_and_was_resumed_on_fewer(self):
        first = self.train("kills", "--checkpoint-every", "2steps", "--inject", "kill:rank=1,phase=backward,step=7", ranks=2)
        self.assertNotEqual(first.returncode, 0)
        self.says(self.page_of("runs/kills", without=["metrics", "memory", "traffic"]), "failed: what was recorded is shown", "rank 1 is gone")
        again = self.train("kills", "--checkpoint-every", "2steps")
        self.assertEqual(again.returncode, 0, again.stderr)
        page = self.page_of("runs/kills", without=["traffic"])  # the rank that is left sends nothing
        self.says(page, "from step-00000006 on 1 ranks")
        for picture in ("loss", "throughput"):
            self.assertTrue(any(words.endswith("resumed: 1 rank, one copy") for words in page.pictures[picture]), page.pictures[picture])
        with h5py.File(self.folder / "runs/kills/results.h5") as file:
            events = file["ranks/00000/events"][:]
            resumed = float(events["time_s"][events["kind"] == b"resumed"][0])
            steps = file["ranks/00000/steps"][:]
        self.assertEqual(" ".join(page.text).count("tensor memory"), 1, "of each epoch and rank the newest")
        self.assertTrue((np.diff(steps["ended_at_s"]) > 0).all(), "times go on where the run began")
        self.assertEqual(steps["step"][steps["ended_at_s"] > resumed].tolist(), list(range(7, 17)))

    def test_survivors_are_marked_with_their_number(self):
        if not has_ulfm():
            self.skipTest("this MPI has no ULFM")
        self.train("survives", "--inject", "kill:rank=1,phase=backward,step=9", "--mesh", "data=3", ranks=3,
                   environment={"DTRAIN_MPIRUN_FLAGS": "--with-ft ulfm"})
        self.assertIn("completed", (self.folder / "runs/survives/state").read_text())
        page = self.page_of("runs/survives")
        self.says(page, "rank 1 lost: 2 ranks agreed after")
        self.assertIn("rank lost, then recovered: 2 ranks, data=2", page.pictures["loss"])

    def test_a_pipeline_with_the_trace_of_some_steps(self):
        self.assertEqual(self.train("pipe", "--mesh", "pipe=2", "--trace-steps", "6-8", ranks=2).returncode, 0)
        page = self.page_of("runs/pipe")
        self.assertIn("ms, steps 6 to 8", page.pictures["timeline"])
        self.assertIn("pipeline idle", page.pictures["phases"])
        self.assertIn("communication", page.pictures["timeline"])

        with h5py.File(self.folder / "runs/pipe/results.h5") as file:
            for rank in ("00000", "00001"):
                epochs, traffic = file[f"ranks/{rank}/epochs"][:], file[f"ranks/{rank}/traffic"][:]
                for column in ("bytes_sent", "bytes_received"):
                    self.assertEqual([int(traffic[column][traffic["epoch"] == epoch].sum()) for epoch in epochs["epoch"]],
                                     epochs[column].tolist(), f"rank {rank}: {column} by peer add up")
                self.assertEqual(set(traffic["peer"]), {1 - int(rank)})

    def test_files_of_an_older_version_say_what_they_lack(self):
        self.assertEqual(self.train("old", ranks=2).returncode, 0)
        with h5py.File(self.folder / "runs/old/results.h5", "r+") as file:
            for rank in file["ranks"].values():
                rows = rank["steps"][:]
                units = rank["steps"].attrs["units"]
                del rank["steps"], rank["traffic"]
                rank["steps"] = repack_fields(rows[[name for name in rows.dtype.names if name != "ended_at_s"]])
                rank["steps"].attrs["units"] = units[:-1]
        page = self.page_of("runs/old", without=["throughput", "timeline", "traffic"])
        for picture in ("throughput", "timeline", "traffic"):
            self.assertIn("an older dtrain wrote it", page.notes[picture])
        self.assertIn("accuracy", self.succeed("report", "runs/old"))

    def test_copies_that_agree_after_rounds(self):
        self.assertEqual(self.train("rounds", "--strategy", "local_sgd", "--sync-period", "4", ranks=2).returncode, 0)
        self.assertIn("order within a step not recorded", " ".join(self.page_of("runs/rounds").pictures["timeline"]))

    def test_one_rank_and_several_runs(self):
        self.assertEqual(self.train("one").returncode, 0)
        self.page_of("runs/one", without=["waiting", "traffic"])
        self.assertEqual(self.train("<b>two", "--learning-rate", "0.002", ranks=2).returncode, 0)
        page = self.page_of("runs/one", "runs/<b>two", pictures=OF_RUNS)
        self.says(page, "<b>two", "learning-rate 0.001 0.002", "ranks 1 2")
        self.assertNotIn("epochs 2 2", " ".join(" ".join(page.text).split()))
        self.assertIn("mlp, ideal", page.pictures["scaling"])
        self.succeed("report", "runs/one", "--plots", "pictures/")
        drawn = {path.stem for path in (self.folder / "pictures").iterdir()}
        self.assertEqual(drawn, set(OF_RUN) - {"waiting", "traffic"})
        for path in (self.folder / "pictures").iterdir():
            self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
            self.assertGreater(path.stat().st_size, 5000, path.name)
        self.succeed("report", "runs/one", "runs/<b>two", "--plots", "both")
        self.assertEqual({path.stem for path in (self.folder / "both").glob("*.png")}, set(OF_RUNS))
        self.bad_input()

    def bad_input(self):
        """On a run that is there: what is refused, and with which sentence."""
        self.refuse(2, ["no such folder", "runs/none"], "report", "runs/none", "--html", "page.html")
        self.refuse(2, ["there is no folder", "nowhere", "--html"], "report", "runs/one", "--html", "nowhere/page.html")
        self.refuse(2, ["is a folder", "page.html"], "report", "runs/one", "--html", "runs")
        self.refuse(2, ["is not a folder", "--plots page.html"], "report", "runs/one", "--plots", "page.html")
        self.refuse(2, ["--csv", "--html"], "report", "runs/one", "--html", "page.html", "--csv")
        self.refuse(2, ["cannot be started", "DTRAIN_PYTHON"], "report", "runs/one", "--html", "page.html",
                    environment={"DTRAIN_PYTHON": "/no/such/python"})
        # A Python without its packages.
        bare = self.write("bare", f"#!/bin/sh\nexec {sys.executable} -S \"$@\"\n")
        bare.chmod(0o755)
        self.refuse(2, ["h5py, matplotlib and numpy", "jobs/setup.sh --with-tools"], "report", "runs/one", "--html", "page.html",
                    environment={"DTRAIN_PYTHON": str(bare)})
        killed = self.write("killed", "#!/bin/sh\nkill -9 $$\n")
        killed.chmod(0o755)
        self.refuse(1, ["ended by signal 9"], "report", "runs/one", "--html", "page.html", environment={"DTRAIN_PYTHON": str(killed)})
        # A matplotlibrc of the current folder, where others may write, is not followed.
        self.write("matplotlibrc", "text.usetex: True\nfont.size: 300\n")
        self.page_of("runs/one", without=["waiting", "traffic"])
        (self.folder / "runs/broken").mkdir()
        whole = (self.folder / "runs/one/results.h5").read_bytes()
        (self.folder / "runs/broken/results.h5").write_bytes(whole[: len(whole) // 2])
        self.refuse(3, ["runs/broken"], "report", "runs/broken", "--html", "page.html")
        # Steps that were never written would fill the memory: the rank is left out.
        sparse = self.folder / "runs/sparse"
        shutil.copytree(self.folder / "runs/one", sparse)
        with h5py.File(sparse / "results.h5", "r+") as file:
            kind = file["ranks/00000/steps"].dtype
            del file["ranks/00000/steps"]
            file["ranks/00000"].create_dataset("steps", (2**26,), kind, chunks=(1024,))
        self.says(self.page_of("runs/sparse", pictures=()), "/steps: says that it has more rows than its file holds")
        # Nothing is written through a link.
        kept = self.write("kept", "kept")
        os.symlink(kept, self.folder / "linked.html")
        self.succeed("report", "runs/one", "--html", "linked.html")
        self.assertEqual(kept.read_text(), "kept")

    def test_a_run_that_has_recorded_nothing(self):
        self.train("empty", "--inject", "kill:rank=0,phase=forward,step=1")
        page = self.page_of("runs/empty", without=OF_RUN)
        self.says(page, "mlp on synthetic")
        shutil.rmtree(self.folder / "runs/empty/ranks")
        self.page_of("runs/empty", without=OF_RUN)


if __name__ == "__main__":
    drawn.main()
