"""A machine with two users besides root: the victim, which runs dtrain, and the attacker, which may write to the same sticky
folder. Each attack has a machine of its own."""

import os
import pwd
import re
import shutil
import signal
import subprocess
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import judge

LIMIT_S = 30  # two processors may be busy with other tests
MARKER = b"the victim's secret"
SENTENCE = re.compile(r"dtrain: (rank \d+: )?\S.*: \S.*; \S.*")


def unused_user(first):
    """The number of a user, and of its group, that the machine does not know."""
    number = first
    while True:
        try:
            pwd.getpwuid(number)
        except KeyError:
            return number
        number += 1


VICTIM = unused_user(64101)
ATTACKER = unused_user(VICTIM + 1)


def become(user):
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    os.umask(0o022)


def as_user(user, action):
    """Runs `action` in a process of that user; fails where it fails."""
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(LIMIT_S)
            become(user)
            action()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError(f"what user {user} was to do failed")


def started_as(user, action):
    """The same without waiting for its end; the process writes a line when it has begun to wait. Ended by stop()."""
    begun, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(begun)
            become(user)
            action()
            os.write(said, b"\n")
            while os.getppid() != 1:
                time.sleep(0.1)
        finally:
            os._exit(0)
    os.close(said)
    os.read(begun, 1)
    os.close(begun)
    return child


def stop(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@dataclass
class Outcome:
    code: int
    output: str
    errors: str
    seconds: float

    @property
    def sentence(self):
        """The last one of dtrain's own; nothing where it has said none."""
        return next((line for line in reversed(self.errors.splitlines()) if SENTENCE.fullmatch(line)), "")


class Machine:
    """root/shared is sticky and open to all, root/victim (0700) holds what belongs to the victim: precious.txt, data/table
    with marked classes, runs/kept. `given` are the fixtures that it is copied from."""

    def __init__(self, root, binary, given):
        self.root, self.binary = root, str(binary)
        root.mkdir()
        root.chmod(0o755)
        self.shared = root / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o1777)
        self.home = root / "victim"
        shutil.copytree(given, self.home, symlinks=True)
        (self.home / "precious.txt").write_bytes(MARKER)
        self.give(self.home, VICTIM)
        self.public = set()  # what is marked and open to all by intent
        self.lair = root / "attacker"
        self.lair.mkdir()
        self.give(self.lair, ATTACKER)

    def give(self, folder, user):
        """All below becomes that user's, and is closed to others."""
        for path in (folder, *folder.rglob("*")):
            os.lchown(path, user, user)
            if not path.is_symlink():
                path.chmod(0o700 if path.is_dir() else 0o600)

    def environment(self):
        kept = {key: value for key, value in os.environ.items()
                if not key.startswith(("SLURM_", "OMPI_", "PMIX_", "PRTE_", "DTRAIN_", "HDF5_", "XDG_", "JUPYTER", "IPYTHON", "MPLCONFIG"))}
        kept |= {key: os.environ[key] for key in ("DTRAIN_MPIRUN",) if key in os.environ}
        return kept | {"HOME": str(self.home), "TMPDIR": str(self.shared), "OMPI_MCA_btl": "^ofi", "OMP_NUM_THREADS": "1"}

    def start(self, command, user=VICTIM, umask=0o022, variables=None, stderr=subprocess.PIPE):
        def prepare():
            become(user)
            os.umask(umask)
        cwd = self.home if user == VICTIM else self.lair
        return subprocess.Popen([str(word) for word in command], cwd=cwd, env=self.environment() | (variables or {}), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=stderr, text=True, preexec_fn=prepare, start_new_session=True)

    def finish(self, process, limit_s=LIMIT_S):
        begin = time.monotonic()
        try:
            output, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise AssertionError(f"still ran after {limit_s} s") from None
        return Outcome(process.returncode, output, errors or "", time.monotonic() - begin)

    def dtrain(self, *arguments, **options):
        return self.finish(self.start([self.binary, *arguments], **options))

    def attack(self, action):
        as_user(ATTACKER, action)

    def belongings(self):
        """Of what the victim has, without what Open MPI and dtrain may keep in a home folder of their own."""
        return judge.fingerprint(self.home / "data") + judge.fingerprint(self.home / "runs") + \
            (self.home / "precious.txt").read_bytes().hex() + str(sorted(path.name for path in self.home.iterdir() if path.name[0] != "."))

    def disclosed(self):
        """Names in places that all can reach whose content, read by the attacker, has the victim's mark."""
        found = self.root / "found"
        found.touch()
        os.chown(found, ATTACKER, ATTACKER)

        def search():
            names = []
            for top in (self.shared, self.home, Path("/dev/shm")):
                for folder, _, files in os.walk(top):
                    for name in files:
                        path = Path(folder, name)
                        try:
                            if path.is_file() and not path.is_symlink() and MARKER in path.read_bytes():
                                names.append(str(path))
                        except OSError:
                            pass
            found.write_text("\n".join(names))
        self.attack(search)
        return sorted(set(found.read_text().splitlines()) - self.public)

    def is_public(self):
        """What is open to all now was so before dtrain is started."""
        self.public.update(self.disclosed())

    def own_copies(self):
        """Folders of the victim's own in the shared one."""
        return [path for path in self.shared.glob(f"dtrain-{VICTIM}-*")
                if path.lstat().st_uid == VICTIM and path.lstat().st_mode & 0o170777 == 0o040700]
