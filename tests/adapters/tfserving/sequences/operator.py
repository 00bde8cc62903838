"""The operator of a TensorFlow Serving: deploys, withdraws, moves labels, edits files, restarts.

He does nothing that would lose requests or an older model by itself, were no tuner there.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from tests.adapters.tfserving.sequences.server import BROKEN, WEIGHTS, PretendedServer
from tuner.adapters.tfserving.batching import FILE
from tuner.adapters.tfserving.client import VersionState
from tuner.adapters.tfserving.schema import message
from tuner.adapters.tfserving.versions.folders import MARKER
from tuner.errors import AdapterError

__all__ = ["MODEL", "Operator"]

MODEL, OTHER = "mlp", "bert"
BATCHING = (None, "max_batch_size { value: 16 } # mine\n", "max_batch_size { value: 4 }\n")


class Operator:
    """What he has deployed, and what he will do next.

    Args:
        rng: Draws what he does.
        root: Where the models and the configuration are.
        policy: The text of his version policy; empty for a server without a configuration file.
        label: The label that clients ask for, if they do.
    """

    def __init__(self, rng: random.Random, root: Path, policy: str, label: str) -> None:
        self.rng = rng
        self.base, self.file = root / MODEL, root / "models.config"
        self.other = root / OTHER
        self.label = label
        self.policy = policy
        self.deployed: dict[int, tuple[str, str | None]] = {}
        """Version -> weights and parameters."""
        self.stable = 1
        """The version of his that clients shall get, where they ask for a label."""
        self.canary = 1
        self.words = 0
        self.edited = False
        """Whether he has changed the file as the tuner left it, and not written it anew."""
        self.text = ""
        self.server: PretendedServer | None = None
        self.later: list[Any] = []
        self.acted = False
        self.ever: set[int] = set()
        """Versions that were his at any time."""
        self.withdrawn = False
        """Whether a version of ours may still have what he has withdrawn: nobody has told it."""
        self.journal: list[str] = []
        for base in (self.base, self.other):
            base.mkdir()
        (self.other / "1").mkdir()
        (self.other / "1" / WEIGHTS).write_text("bert")
        for number in range(1, rng.randint(1, 2) + 1):
            self._put(number, f"w{number}", rng.choice(BATCHING))
        if policy:
            self.write_anew()

    def _put(self, number: int, weights: str, batching: str | None) -> None:
        partial = self.base / f"tmp-{number}"
        partial.mkdir()
        (partial / "variables").mkdir()
        (partial / WEIGHTS).write_text(weights)
        (partial / "variables" / "data").write_text(weights)
        if batching is not None:
            (partial / FILE).write_text(batching)
        partial.rename(self.base / str(number))
        self.deployed[number] = (weights, batching)
        self.ever.add(number)

    def start(self, polls: bool) -> PretendedServer:
        """Start his server."""
        config = message("ModelServerConfig")()
        config.model_config_list.config.add(name=MODEL, base_path=str(self.base))
        loading = self.rng.choice([0.1, 0.7, 2.5])
        self.server = PretendedServer(
            config, file=self.file if self.policy else None, polls=polls, loading=loading
        )
        return self.server

    def numbers(self) -> list[int]:
        """All versions that are there, ours and his."""
        return sorted(int(child.name) for child in self.base.iterdir() if child.name.isdigit())

    def newest(self) -> int:
        """The newest of his that can be loaded."""
        good = [n for n, (weights, _) in self.deployed.items() if weights != BROKEN]
        return max(good)

    def target(self) -> int:
        """The version of his whose weights clients shall get."""
        return self.stable if self.label else self.newest()

    def template(self) -> str:
        """The text of his configuration, with his own words."""
        labels = ""
        if self.label:
            labels = f'version_labels {{ key: "stable" value: {self.stable} }}\n    '
            labels += f'version_labels {{ key: "canary" value: {self.canary} }}'
        policy = self.policy
        if policy == "specific":
            named = {self.stable, self.canary, self.newest()} & set(self.deployed)
            policy = f"specific {{ {' '.join(f'versions: {n}' for n in sorted(named))} }}"
        return f"""# word {self.words}
model_config_list {{
  config {{ name: "{OTHER}" base_path: "{self.other}" }}  # the other one
  config {{
    name: "{MODEL}" base_path: "{self.base}"
    model_version_policy {{ {policy} }}
    {labels}
  }}
}}
"""

    def write_anew(self) -> None:
        """Write the file from his template."""
        self.text, self.edited = self.template(), False
        self.file.write_text(self.text)

    def act(self) -> None:
        """Do one thing."""
        assert self.server is not None
        if self.later:
            self.later.pop(0)()
            return
        actions = [self.deploy, self.deploy, self.deploy_slowly, self.deploy_broken, self.clean_up]
        actions += [self.restart]
        if not self.label:
            actions += [self.withdraw, self.redeploy]
        if self.policy:
            actions += [self.reword, self.cut, self.edit_in_place]
        if self.label:
            actions += [self.move_label, self.move_label]
        action = self.rng.choice(actions)
        if action.__name__.startswith("deploy") and not self._has_room():
            return
        self.journal.append(f"  operator: {action.__name__}")
        self.acted = True
        action()

    def finish(self) -> None:
        """Do what is still to be done."""
        if self.later:
            self.later.pop(0)()

    def _has_room(self) -> bool:
        """Whether a further version of his pushes none out that has a label, with room for two of ours."""
        places = self.policy.partition("num_versions: ")[2].rstrip(" }")
        counted = [n for n in self.numbers() if n >= min(self.stable, self.canary) and n not in self.ours()]
        return not self.label or not places or len(counted) + 3 <= int(places)

    def _next(self) -> int:
        """A number that is free, in the server, too: it would not notice that a version is another one."""
        assert self.server is not None
        states = self.server.states(MODEL) if self.server.up else {}
        held = [n for n, status in states.items() if status.state is not VersionState.END]
        return max([*self.numbers(), *self.ever, *held]) + self.rng.choice([1, 1, 5])

    def deploy(self) -> None:
        """A new version, whole at once."""
        self._put(number := self._next(), f"w{number}", self.rng.choice(BATCHING))
        self._name_newest()

    def _name_newest(self) -> None:
        if self.policy == "specific":
            newer = [n for n in self.ours() if n > self.newest()]
            self.withdrawn |= bool(newer) and not self.label
            self.write_anew() if self.rng.random() < 0.5 else self._change(lambda entry: None)
            self._tell()

    def deploy_slowly(self) -> None:
        """A new version that is first a folder, then has files."""
        number = self._next()
        folder = self.base / str(number)
        folder.mkdir()

        def complete() -> None:
            if not folder.exists():
                return
            (folder / "variables").mkdir()
            (folder / "variables" / "data").write_text(f"w{number}")
            (folder / WEIGHTS).write_text(f"w{number}")
            self.deployed[number] = (f"w{number}", None)
            self._name_newest()

        self.later.append(complete)

    def deploy_broken(self) -> None:
        """A new version that cannot be loaded."""
        if self.policy == "specific":
            return  # it is not named, so nobody would load it
        self._put(number := self._next(), BROKEN, None)

        def remove() -> None:
            if number in self.deployed:
                self._remove(number)

        self.later += [lambda: None, remove]

    def clean_up(self) -> None:
        """Remove his oldest version, if it is none that anybody asks for."""
        kept = {self.stable, self.canary, self.target()}
        old = [n for n in self.deployed if n not in kept and n < self.newest()]
        if old:
            self.journal.append(f"    removes {min(old)}")
            self.withdrawn |= not self.label
            self._remove(min(old))

    def _remove(self, number: int) -> None:
        del self.deployed[number]
        gone = self.base / f"gone-{number}"
        (self.base / str(number)).rename(gone)
        shutil.rmtree(gone)

    def withdraw(self) -> None:
        """Go back from his newest version to the one before, by removing it."""
        good = sorted(n for n, (weights, _) in self.deployed.items() if weights != BROKEN)
        newer = {n for n in self.numbers() if n > good[-1]}
        his = sorted(self.deployed)
        if good[-2:] == his[-2:] and len(his) > 1 and newer <= set(self.ours()) and self.policy != "specific":
            self.journal.append(f"    removes {good[-1]}")
            self._remove(good[-1])
            self.withdrawn |= any(number > good[-2] for number in self.ours())

    def redeploy(self) -> None:
        """Replace his newest version by another with the same number, which was withdrawn before."""
        good = sorted(n for n, (weights, _) in self.deployed.items() if weights != BROKEN)
        if len(good) < 2 or self.policy == "specific" or len(good) < len(self.deployed) or self.later:
            return
        number = good[-1]
        if any(n > number for n in self.numbers()):
            return
        self._remove(number)
        self.withdrawn = True

        def again() -> None:
            assert self.server is not None
            states = self.server.states(MODEL) if self.server.up else {}
            if not self.server.up or (number in states and states[number].state is not VersionState.END):
                self.later.append(again)  # the server would not notice that it is another one
            elif not any(n >= number for n in self.numbers()):
                self._put(number, f"w{number}b", None)

        self.later.append(again)

    def restart(self) -> None:
        """Restart the server; it is away for a moment."""
        assert self.server is not None
        if self.later or any(weights == BROKEN for weights, _ in self.deployed.values()):
            return  # it would serve nothing
        self.server.up = False

        def again() -> None:
            assert self.server is not None
            self.server.up = True
            self.server.restart()
            if self.server.failed_start:
                self.journal.append(f"    start failed: {self.server.failed_start}")

        self.later.append(again)

    def _tell(self) -> None:
        """Have the server take the file, now or soon; a server that polls is not told."""
        assert self.server is not None
        if not self.server._polls:
            self.later += [self._send] if self.rng.random() < 0.5 else [lambda: None, self._send]

    def _send(self) -> None:
        assert self.server is not None
        try:
            if self.server.up:
                self.server.reload(self.server._read())
        except AdapterError as error:
            self.journal.append(f"    his reload is refused: {error}")

    def reword(self) -> None:
        """Write the file anew with other comments."""
        self.words += 1
        self.write_anew()
        self._tell()

    def cut(self) -> None:
        """An editor that empties the file before it writes it."""
        text = self.file.read_text()
        self.file.write_text(text[: self.rng.choice([0, len(text) // 2])])
        self.later.append(lambda: self.file.write_text(text))

    def edit_in_place(self) -> None:
        """Change another model's entry in the file as it is."""
        self._change(lambda entry: None)
        self._tell()

    def _change(self, change: Any) -> None:
        """Change the file as it is now, whoever wrote it."""
        config = text_format.Parse(self.file.read_text(), message("ModelServerConfig")())
        other, entry = config.model_config_list.config
        other.logging_config.sampling_config.sampling_rate = self.rng.random()
        if self.policy == "specific":
            named = {self.stable, self.canary, self.newest()} & set(self.deployed)
            named |= {n for n in entry.model_version_policy.specific.versions if n in self.numbers()}
            del entry.model_version_policy.specific.versions[:]
            entry.model_version_policy.specific.versions.extend(sorted(named))
        change(entry)
        self.file.write_text(text_format.MessageToString(config))
        self.edited = True

    def move_label(self) -> None:
        """Give a label to another version of his that the server has, and is not about to unload."""
        assert self.server is not None
        if not self.server.up:
            return
        states, kept = self.server.states(MODEL), self.server.keeps(MODEL) & set(self.deployed)
        there = [n for n in sorted(kept) if n in states and states[n].state is VersionState.AVAILABLE]
        if not there:
            return
        label, number = self.rng.choice(["stable", "canary"]), self.rng.choice(there)
        self.journal.append(f"    {label} -> {number}")
        setattr(self, label, number)
        if self.rng.random() < 0.5:
            self.write_anew()
        else:
            self._change(lambda entry: entry.version_labels.update({label: number}))
        self._tell()

    def ours(self) -> list[int]:
        """Versions with a marker."""
        return [n for n in self.numbers() if (self.base / str(n) / MARKER).exists()]
