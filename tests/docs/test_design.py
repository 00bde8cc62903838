"""The tree of packages in docs/design.md is that of the repository."""

from __future__ import annotations

import re

from tests.docs.page import ROOT, blocks

ROOTS = ("tuner", "adapters", "profiler", "envs", "agents", "experiments")
ROW = re.compile(r"(?P<indent> *)(?P<folders>(?:\w+/ +)*\w+/)(?: +(?P<text>.*))?")


def rows() -> list[tuple[str, str]]:
    """Return each folder of the tree, such as ``tuner/web``, and what stands beside it."""
    found, above = list[tuple[str, str]](), list[tuple[int, str]]()
    for line in blocks(ROOT / "docs" / "design.md", "")[0].splitlines():
        row = ROW.fullmatch(line)
        assert row is not None, line
        while above and above[-1][0] >= len(row["indent"]):
            above.pop()
        names = [
            f"{above[-1][1]}/{name}" if above else name for name in row["folders"].replace("/", "").split()
        ]
        found += [(name, row["text"] or "") for name in names]
        above.append((len(row["indent"]), names[-1]))
    return found


def test_the_tree_has_every_folder() -> None:
    """Each folder with modules stands in it once, and nothing else."""
    modules = (path.relative_to(ROOT) for root in ROOTS for path in (ROOT / root).rglob("*.py"))
    folders = {str(folder) for path in modules for folder in path.parents if folder.name}

    # Those below `tuner` that are links to other folders are not followed.
    assert sorted(folders) == sorted(name for name, _ in rows())


def test_the_modules_that_the_tree_names_exist() -> None:
    """What stands in a list beside a folder, with two spaces in between, is a module or a folder in it."""
    for folder, text in rows():
        listed = re.split(r" {2,}", text.rpartition(": ")[2])
        names = [re.sub(r" \(.*\)$", "", one) for one in listed] if len(listed) > 1 else []
        for name in names:
            if re.fullmatch(r"[a-z0-9_]+", name):
                here = ROOT / folder / name
                assert here.is_dir() or here.with_suffix(".py").is_file(), f"{folder} has no {name}"
