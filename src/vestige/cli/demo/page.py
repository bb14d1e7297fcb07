"""What the demo found, as a page for somebody who has never heard of any of it."""

from __future__ import annotations

from vestige import show as drawing
from vestige.cli.demo.jobs import LEARNERS, REFERENCE, DemoResult
from vestige.cli.demo.kept import LACKING, LIKE, THICKER
from vestige.continual.audit import QUESTIONS
from vestige.runner.report.matrices import ROWS, heat
from vestige.runner.report.reading import Arm
from vestige.show import Heading, Heat, Noted, Page, Part, Picture, Status, Table, Verbatim

LEVEL = 0.05  # a p-value below it says that new digits differ
LEAD = (
    "Vestige kept, judged and corrected 1 797 handwritten digits that ship with it. Read the three answers; below is "
    "how each came about. Next: 'vestige keep' your own data before you delete it."
)
CHANGED = (LACKING, THICKER)
DO_BETTER = (
    "No method against forgetting does better",
    "One of three methods against forgetting does better",
    "Two of three methods against forgetting do better",
    "All three methods against forgetting do better",
)
QUESTIONS_ASKED = ("Has the data changed?", "What was forgotten?", "Can biased samples be corrected?")


def page(found: DemoResult) -> Page:
    """The whole report."""
    out = Page("Vestige: the demo", LEAD, status=status(found), answer=answer(found))
    answers = zip(QUESTIONS_ASKED, sentences(found), strict=True)
    out.section("Three answers", *(part for asked, said in answers for part in (Heading(asked), said)), _plane(found))
    out.section("Keep, delete, compare", *_kept(found))
    out.section("A generator whose data is deleted", *_generator(found))
    out.section("Four learners, one order of the pixels after another", *_learners(found))
    out.section("Was this comparison honest?", *_audits(found))
    out.section("Weights correct a biased sample set", *_weights(found))
    out.section("All figures", summary(found))
    out.section("How to get the same numbers", Verbatim(f"vestige demo --seed {found.seed}"))
    return out


def status(found: DemoResult) -> Status:
    """Whether every part came out as it should."""
    told, falsely = _told(found)
    before, after = found.reweighted.misplaced
    well = told == len(CHANGED) and not falsely and after < before
    return Status("good" if well else "care", "done")


def answer(found: DemoResult) -> str:
    """What was found, in a sentence."""
    told, falsely = _told(found)
    before, after = found.reweighted.misplaced
    gap = 100 * (float(found.last[REFERENCE]["average"] or 0.0) - float(found.last["vanilla"]["average"] or 0.0))
    also = " and, falsely, the unchanged one" if falsely else ""
    size = f"{found.kept.file_bytes / 1e3:.0f} kB"
    return (
        f"The data is gone, and a file of {size} tells {told} of {len(CHANGED)} changed sets{also} from it; plain "
        f"training ends {gap:.0f} points below what all data gives, and weights bring misplaced samples from "
        f"{before:.0%} to {after:.0%}."
    )


def _told(found: DemoResult) -> tuple[int, bool]:
    """How many of the changed sets were told, and whether the unchanged one was."""
    differs = {name: one.p_value < LEVEL for name, one in found.kept.found.items()}
    return sum(differs[name] for name in CHANGED), differs[LIKE]


def sentences(found: DemoResult) -> list[str]:
    """Three answers, a plain sentence or two each."""
    corrected = found.reweighted
    before, after = corrected.misplaced
    last = found.last
    best = max(LEARNERS, key=lambda name: last[name]["average"] or 0.0)
    held = sum(float(last[name]["average"] or 0.0) > float(last["vanilla"]["average"] or 0.0) for name in LEARNERS)
    final = corrected.weighing.final
    like, lacking, thicker = (found.kept.found[name] for name in (LIKE, LACKING, THICKER))
    missed = lacking.reach.missed.value if lacking.reach else 0.0
    said = f", and about {missed:.0%} of the deleted digits are nowhere in it" if missed else ""
    return [
        f"The data is gone: a file of {found.kept.file_bytes / 1e3:.0f} kB stands for {found.kept.rows} images "
        f"({found.kept.row_bytes / 1e3:.0f} kB). New images like them: p = {like.p_value:.2g}. {LACKING.capitalize()}: "
        f"p = {lacking.p_value:.2g}{said}. {THICKER.capitalize()}: p = {thicker.p_value:.2g}.",
        f"The classifier forgets: plain training ends at {last['vanilla']['average']:.0%} over all tasks; with all "
        f"data kept it would be {last[REFERENCE]['average']:.0%}. {DO_BETTER[held]}: "
        f"ewc ends at {last['ewc']['average']:.0%}, and {best} is best with {last[best]['average']:.0%}.",
        f"The biased set can be corrected: {before:.0%} of its samples stand at the wrong digit, by weight "
        f"{after:.0%}. Its {len(corrected.weighing.weights)} samples are then worth {final.ess:.0f} (verdict: "
        f"{final.verdict}).",
    ]


def summary(found: DemoResult) -> Table:
    """The figures in one table, for the page and for the shell."""
    drift, corrected = found.drift, found.reweighted
    (by_monitor, truly), (before, after) = drift.risen, corrected.misplaced
    rows: list[tuple[str, str, float]] = [
        *(("vestige", f"p-value, new digits {name}", one.p_value) for name, one in found.kept.found.items()),
        ("generator", "rise of JS after the data was deleted, by the monitor", by_monitor),
        ("generator", "the same with the data kept", truly),
        ("generator", "mean distance of the two, cell by cell", float(drift.gone.mean())),
    ]
    for name in LEARNERS:
        for symbol, quantity in (("A", "average"), ("F", "forgetting"), ("I", "intransigence")):
            rows.append((name, f"{symbol}: {quantity}", float(found.last[name][quantity] or 0.0)))
    rows += [
        ("weights", "share at the wrong digit, biased", before),
        ("weights", "share at the wrong digit, weighted", after),
        ("weights", "effective share of the samples", corrected.weighing.final.ess_fraction),
    ]
    return Table("The figures", ("", "quantity", "value"), rows)


def _plane(found: DemoResult) -> Picture:
    """Forgetting against intransigence: the picture of the second answer."""
    last = {name: found.last[name] for name in LEARNERS}
    points = {name: (float(v["forgetting"] or 0), float(v["intransigence"] or 0)) for name, v in last.items()}
    told = "; ".join(f"{name} forgetting {f:.2f}, intransigence {i:.2f}" for name, (f, i) in points.items())
    return Picture(drawing.plane(points, title="Forgetting, or refusing to learn?"), f"After the last task: {told}.")


def _kept(found: DemoResult) -> list[Part]:
    kept = found.kept
    rows = [
        (Noted(name, one.conclusion), one.n_q, f"{one.p_value:.2g}", one.divergences["js"])
        for name, one in kept.found.items()
    ]
    note = "p: of no difference, from stored moments. JS: 0 the same, 0.69 nothing in common."
    return [
        f"Half of the digits, {kept.rows} images, were kept as a vestige and deleted: moments, a density and a drift "
        f"test in one file of {kept.file_bytes / 1e3:.0f} kB, and no image. Three sets of new digits, which share no "
        "image with them, were then held against the file.",
        Table("New digits against the file", ("new digits", "images", "p", "JS (nats)"), rows, note),
    ]


def _generator(found: DemoResult) -> list[Part]:
    drift = found.drift
    digits = [str(j) for j in range(drift.truth.shape[1])]
    side = round(drift.pictures.shape[-1] ** 0.5)
    looks = ["real", "when learnt", "at the end"]
    pictures = drift.pictures.reshape(-1, side, side)
    seen = drawing.images(pictures, title="One of each digit", columns=len(digits), rows=looks)
    first = drawing.curves(
        {"monitor": drift.monitor[:, 0]},
        digits,
        title="Digit 0, as other digits come",
        x_label="newest digit",
        y_label="JS (nats)",
        bands={"monitor": (drift.low[:, 0], drift.high[:, 0])},
        reference={"with the data kept": drift.truth[:, 0]},
    )
    top = max(float(d.nan_to_num(0).max()) for d in (drift.monitor, drift.truth))
    limits = (0.0, top) if top > 0 else None
    counted = ", ".join(f"{n} {word}" for word, n in drift.verdicts.items())
    by_monitor, truly = drift.risen
    return [
        f"After a digit's data is deleted the generator's samples move away from it by {truly:.3f} nats of "
        f"Jensen-Shannon divergence on average. The monitor, which keeps no data, says {by_monitor:.3f}; its values "
        f"are {float(drift.gone.mean()):.3f} off those computed with the data.",
        "A small generator learns one digit after another. A digit's images are deleted when its turn is over; from "
        "then on the generator rehearses the digit with samples of its own, and samples of samples wander off.",
        Picture(seen, "Three rows of digits: real ones, the generator's when each was learnt, and its last ones."),
        "The monitor was handed each digit's images once and keeps none. The truth beside it is the same estimator "
        "with the images at hand at every step, which only a demo can have: how far the monitor is off because the "
        "data is gone. It is no exact divergence; nobody knows the distribution of handwriting. 0 is a "
        "perfect generator, 0.69 one that shares nothing with the data.",
        Picture(first, "The monitor's divergence of digit 0 over steps with its interval, beside the truth, dashed."),
        Heat(drift.monitor, digits, digits, "Monitor, without data", "down", "after", limits),
        Heat(drift.truth, digits, digits, "Truth that only the demo kept", "down", "after", limits),
        f"Rows: after a digit was learnt; columns: the digit that is watched. The monitor's own verdicts: {counted}.",
    ]


def _learners(found: DemoResult) -> list[Part]:
    last = {name: found.last[name] for name in LEARNERS}
    rows = [(name, v["average"], v["forgetting"], v["intransigence"]) for name, v in last.items()]
    note = (
        "A: accuracy over all tasks at the end. F: what was lost of earlier tasks. I: what the last task lacks beside "
        f"{REFERENCE} training, which keeps all data. F and I are good when small."
    )
    return [
        f"The digits come {found.config.learners.tasks} times, each time with their pixels in another order; images of "
        "one order are deleted when the next comes, and a test image does not say which it has. vanilla trains on as "
        "if nothing were; ewc holds on to weights that mattered; rwalk_s does so by another measure and keeps a few "
        "samples; vcl carries a distribution over weights along. Their settings are the defaults.",
        Table("After the last task", ("learner", "A", "F", "I"), rows, note),
        ROWS,
        *(heat(Arm(name, (found.records[name],)), "single") for name in LEARNERS),
    ]


def _audits(found: DemoResult) -> list[Part]:
    audits = found.audits
    rows = [(words, *(audits[name][q].verdict for name in LEARNERS)) for q, words in QUESTIONS.items()]
    flaws = [(name, Noted(QUESTIONS[q], a[q].evidence)) for name, a in audits.items() for q in a.failed]
    why = Table("What fails of the first five", ("learner", "what would hold"), flaws)
    return [
        "Eleven questions about the evaluation itself, answered from what was seen while each learner trained. The "
        "first five should hold, or their failure be said.",
        Table("Verdicts", ("what would hold", *LEARNERS), rows),
        *([why] if flaws else []),
    ]


def _weights(found: DemoResult) -> list[Part]:
    corrected = found.reweighted
    digits = [str(j) for j in range(len(corrected.target))]
    shares = {"biased set": corrected.biased, "weighted": corrected.weighted, "data": corrected.target}
    halves = {"weighted": 1.96 * corrected.error}
    figure = drawing.bars(shares, digits, title="Share of each digit", y_label="share of the samples", errors=halves)
    before, after = corrected.misplaced
    warnings = corrected.weighing.final.warnings
    return [
        "A sample set has too many small digits and too few large ones. Weights, estimated from the images alone, let "
        "it stand for the data: any average over it is then taken by weight. The labels, which the weights never saw, "
        "show how far the shares came back.",
        Picture(figure, f"Shares of the digits; {before:.0%} misplaced before, {after:.0%} after weighting."),
        Table("The average digit", ("data", "biased set", "weighted"), [corrected.mean_digit]),
        *([f"The weights say of themselves: {' '.join(warnings)}"] if warnings else []),
    ]
