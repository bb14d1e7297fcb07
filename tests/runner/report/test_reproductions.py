"""The document says what the Records say, and nothing else."""

from dataclasses import replace

import pytest

from dice import Dice
from vestige import runner
from vestige.cli import main
from vestige.continual.record import FIRST_EDITION, Record
from vestige.core import machine
from vestige.core.errors import InputError
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.report import reproductions
from vestige.runner.report.reproductions import anchor, made


def page(folder):
    return reproductions(folder)["docs/reproductions/dice.md"]


def index(folder):
    return reproductions(folder)["REPRODUCTIONS.md"]


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())
    list(runner.run(runner.plan("dice", tmp_path, preset="paper")))
    return tmp_path


def test_measured_stands_beside_published_with_command_and_verdict(folder):
    text = page(folder)
    mean = Dice().lines([f.record for f in runner.run(runner.plan("dice", folder, preset="paper"))])[0]
    assert f"| die | mean | 3.500 | {mean.ours:.3f} | {mean.se:.3f} | 3 |" in text
    stays = "Without any one of the 3 seeds the same claims hold."
    assert f"**reproduced**: its claim holds. {stays} Holds: the mean is within a tenth of 3.5" in text
    assert "Run by `vestige run dice --preset paper --seeds 3`; 3 Records, seeds 0-2; version 1" in text
    assert f"commit {machine.commit()}." in text if machine.commit() else "commit" not in text
    assert "Rule: (a) the mean is within a tenth of 3.5. Reproduced if (a) holds" in text
    assert "In place of the published setting" not in text


def test_of_many_commands_the_shortest_are_told_and_the_others_counted(folder):
    records = [f.record for f in runner.run(runner.plan("dice", folder, preset="paper"))]
    parts = [replace(records[0], details={"command": f"run dice --set row={'x' * k}"}) for k in (5, 4, 3, 2, 1)]
    told = "Run by `vestige run dice --set row=x`, `vestige run dice --set row=xx`, `vestige run dice --set row=xxx`, "
    assert f"{told}and 2 more for parts of it; 5 Records" in made(parts)


def test_the_same_records_give_the_same_document(folder):
    assert reproductions(folder) == reproductions(folder)


def test_the_shell_writes_it(folder, tmp_path, capsys):
    target = tmp_path / "R.md"
    assert main(["report", str(folder), "--reproductions", "-o", str(target)]) == 0
    assert target.read_text() == index(folder)
    assert (tmp_path / "docs/reproductions/dice.md").read_text() == page(folder)
    assert str(target) in capsys.readouterr().out


def test_a_folder_without_records_is_refused(tmp_path, capsys):
    with pytest.raises(InputError, match="must hold Records"):
        reproductions(tmp_path)
    assert main(["report", "--reproductions", str(tmp_path)]) == 2
    assert "must hold Records" in capsys.readouterr().err


def test_the_index_links_to_a_page_for_each_paper(folder):
    link = "docs/reproductions/dice.md#dice-table-0"
    assert f"| [dice]({link}) | Table 0 | **reproduced** | paper | 3 | the same | version 1 |" in index(folder)
    assert "Pages: [dice](docs/reproductions/dice.md)." in index(folder)
    assert "## dice: Table 0\n" in page(folder)
    assert "## One seed" not in index(folder)


def test_one_seed_stands_apart_from_several(folder):
    list(runner.run(runner.plan("dice", folder, preset="smoke")))
    several, one = index(folder).split("## Several seeds")[1].split("## One seed")
    assert "| paper | 3 |" in several
    assert "| smoke | 1 |" in one
    assert "examples, not as findings" in one


def test_the_first_edition_is_called_so(folder):
    for path in folder.rglob("*.json"):
        found = Record.load(path)
        path.unlink()
        replace(found, version=FIRST_EDITION).save(path.with_name(f"{found.seed}.json"))
    assert "| paper | 3 | the same | first edition |" in index(folder)
    assert "seeds 0-2; first edition" in page(folder)


def test_each_version_is_told_once(folder):
    records = [f.record for f in runner.run(runner.plan("dice", folder, preset="paper"))]
    used = [{"die": 2}, {"die": 2, "cup": 3}, {"die": 1, "cup": 1}]
    mixed = [replace(r, version=version) for r, version in zip(records, used, strict=True)]
    assert "; version cup 3, die 2" in made(mixed)
    assert "; version cup 3, die 2, first edition" in made([*mixed, replace(records[0], version=FIRST_EDITION)])


@pytest.mark.parametrize(
    ("heading", "link"),
    [
        ("rwalk-fig4: RWalk Fig. 4 (MNIST)", "rwalk-fig4-rwalk-fig-4-mnist"),
        ("beyond-chain: 64-d, 30 to 50 steps", "beyond-chain-64-d-30-to-50-steps"),
        ("a_b: C & D", "a_b-c--d"),
    ],
)
def test_links_are_githubs(heading, link):
    assert anchor(heading) == link


def test_what_the_preset_leaves_out_is_said(monkeypatch, tmp_path):
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())
    list(runner.run(runner.plan("dice", tmp_path, preset="smoke")))
    assert "In place of the published setting: 1 of 3 seeds; ten throws." in page(tmp_path)


def test_two_presets_are_two_sections_whose_numbers_do_not_mix(folder):
    list(runner.run(runner.plan("dice", folder, preset="smoke")))
    text = page(folder)
    for words, seeds in (("preset paper", 3), ("preset smoke", 1)):
        assert f"## dice: Table 0 ({words})" in text
        assert f"| {words.removeprefix('preset ')} | {seeds} |" in index(folder)
        assert f"dice.md#{anchor(f'dice: Table 0 ({words})')})" in index(folder)


@pytest.mark.parametrize(("grounds", "said"), [("The die is loaded.", "The die is loaded."), ("", "not known.")])
def test_a_miss_has_its_grounds_or_says_that_they_are_not_known(monkeypatch, tmp_path, grounds, said):
    monkeypatch.setattr(Dice, "grounds", grounds)
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())
    list(runner.run(runner.plan("dice", tmp_path, preset="paper", seeds=2, overrides={"bias": 1.0})))
    assert f"What does not hold, and why: {said}" in page(tmp_path)
    assert f"- [dice](docs/reproductions/dice.md#dice-table-0) **not**: {said}" in index(tmp_path)


def test_rows_of_one_miss_stand_in_one_line(monkeypatch, tmp_path):
    class Twin(Dice):
        """Another die."""

        name = "twin"

    monkeypatch.setattr(Dice, "grounds", "Both are loaded.")
    for experiment in (Dice(), Twin()):
        monkeypatch.setitem(EXPERIMENTS, experiment.name, experiment)
        list(runner.run(runner.plan(experiment.name, tmp_path, seeds=2, overrides={"bias": 1.0})))
    (line,) = [line for line in index(tmp_path).splitlines() if "loaded" in line]
    assert line.startswith("- [dice]")
    assert ") **not**, [twin](" in line


def test_what_holds_has_no_grounds(monkeypatch, folder):
    monkeypatch.setattr(Dice, "grounds", "The die is loaded.")
    assert "loaded" not in page(folder) + index(folder)
    assert "What does not hold" not in index(folder)


def test_seeds_are_told_in_spans():
    records = [Record({}, seed, versions={}) for seed in (0, 1, 2, 5, 7, 8)]
    assert made(records) == "6 Records, seeds 0-2, 5, 7-8; version 1."
