"""speed.json: what the cases gave, merged over calls, and of which commit and GPU each is."""

import datetime
import json


class Results:
    """`settings`: what a figure is of. A case that was measured under other ones counts as not measured."""

    def __init__(self, file, settings):
        self._file, self._settings = file, settings
        try:
            self._all = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self._all = {"format": "dtrain.gpu_speed", "version": 1, "cases": {}}

    def of(self, case):
        """What is kept of a case, or None."""
        kept = self._all["cases"].get(case.name)
        return kept if kept and kept["settings"] == self._settings else None

    def left(self, cases):
        """Those that have not been tried, then those that failed."""
        untried = [case for case in cases if self.of(case) is None]
        return untried + [case for case in cases if case not in untried and self.of(case)["errors"]]

    def keep(self, case, machine, seconds, found):
        """Replaces what there was of it. The file is whole at every moment."""
        found = {"errors": {}, **found}
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self._all["cases"][case.name] = {"settings": self._settings, "machine": machine, "measured": now, "took_s": round(seconds, 1),
                                         **found}
        part = self._file.with_suffix(".json.part")
        part.write_text(json.dumps(self._all, indent=1) + "\n", encoding="utf-8")
        part.replace(self._file)
        return self._all["cases"][case.name]
