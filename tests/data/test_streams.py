"""Streams: rows are dealt out as said, data goes away, and every property is declared."""

import pytest
import torch

from vestige.core.errors import DataGone, InputError, UnknownName
from vestige.data.dataset import DataSet
from vestige.data.stream import seen_outputs
from vestige.data.streams import Rotate, blurred, continuous, domains, long, overlapping, permuted, split, two_task


def toy(counts=(6, 5, 4, 3), test_each=3, side=4, name="toy"):
    """Images whose first pixel is the class and whose second is a running number, so rows can be recognised."""
    y = torch.cat([torch.full((n,), c) for c, n in enumerate(counts)])
    test_y = torch.arange(len(counts)).repeat_interleave(test_each)

    def images(labels, start):
        x = torch.zeros(len(labels), side, side, dtype=torch.uint8)
        x[:, 0, 0] = labels.to(torch.uint8)
        x[:, 0, 1] = (torch.arange(len(labels)) + start).to(torch.uint8)
        return x

    names = tuple("abcdefghij"[: len(counts)])
    return DataSet(name, images(y, 0), y, images(test_y, 100), test_y, names, "none", "made up")


def first_pixels(x):
    return (x[:, 0, 0] * 255).round().long()


def ids(x):
    return (x[:, 0, 1] * 255).round().long().tolist()


MAKERS = {
    "split": lambda d, **k: split(d, 2, **k),
    "domains": lambda d, **k: domains(d, 2, **k),
    "permuted": lambda d, **k: permuted(d, 3, **k),
    "blurred": lambda d, **k: blurred(d, 2, **k),
    "continuous": lambda d, **k: continuous(d, 3, spread=0.3, **k),
    "overlapping": lambda d, **k: overlapping(d, 2, **k),
    "long": lambda d, **k: long(d, 7, samples_per_task=4, **k),
    "two_task": lambda d, **k: two_task(d, toy((4, 4), name="other"), **k),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
class TestEveryStream:
    def test_a_past_task_is_gone(self, make):
        stream = iter(make(toy()))
        first = next(stream)
        kept_x, kept_y, n = first.x, first.y, len(first)
        assert kept_x.isfinite().all()
        next(stream)
        for name in ("x", "y", "val_x", "val_y"):
            with pytest.raises(DataGone, match="is gone"):
                getattr(first, name)
        assert kept_x.isnan().all()  # a reference that was kept holds nothing
        assert (kept_y == -1).all()
        assert len(first) == n
        assert first.gone

    def test_the_last_task_is_gone_when_the_stream_ends(self, make):
        tasks = list(make(toy()))
        assert all(task.gone for task in tasks)

    def test_the_current_task_stays_while_no_next_one_begins(self, make):
        task = next(iter(make(toy())))  # nothing holds the pass any more
        assert task.x.isfinite().all()

    def test_withdrawal_leaves_the_data_set_whole(self, make):
        data = toy()
        before = data.train_x.clone()
        list(make(data))
        assert torch.equal(data.train_x, before)

    def test_same_seed_same_tasks_and_a_second_pass_repeats_the_first(self, make):
        one, two = make(toy(), seed=3), make(toy(), seed=3)
        for _ in range(2):
            for a, b in zip(one, two, strict=True):
                assert torch.equal(a.x, b.x)
                assert torch.equal(a.y, b.y)
                assert a.info == b.info
        assert one.config == two.config

    def test_labels_are_outputs_of_the_task(self, make):
        stream = make(toy())
        for task, test in zip(stream, stream.test_sets(), strict=True):
            assert set(task.y.tolist()) <= set(task.info.outputs)
            assert set(task.info.outputs) <= set(task.info.train_outputs) or stream.declared.ordered
            assert max(task.info.train_outputs) < stream.n_outputs
            assert set(test.y.tolist()) <= set(test.outputs)
            assert task.x.dtype == torch.float32
            assert float(task.x.max()) <= 1

    def test_the_config_is_plain_json(self, make):
        from vestige.store import canonical

        assert canonical(make(toy()).config)


@pytest.mark.parametrize("name", ["split", "blurred", "continuous", "overlapping", "two_task"])
def test_every_training_row_comes_exactly_once(name):
    data = toy()
    seen = [i for task in MAKERS[name](data) for i in ids(task.x)]
    expected = list(range(18)) + (list(range(8)) if name == "two_task" else [])
    assert sorted(seen) == sorted(expected)


def test_split_deals_classes_in_order():
    stream = split(toy(), 2, order=[3, 1, 0, 2])
    groups = [sorted(first_pixels(task.x).unique().tolist()) for task in stream]
    assert groups == [[1, 3], [0, 2]]
    for task in stream:  # output i is the i-th class of the order
        assert [[3, 1, 0, 2][o] for o in task.y.tolist()] == first_pixels(task.x).tolist()
    assert [stream.info(k).name for k in range(2)] == ["d/b", "a/c"]


def test_split_takes_unequal_groups_and_a_remainder():
    assert [stream_size.info.outputs for stream_size in split(toy(), [1, 3])] == [(0,), (1, 2, 3)]
    assert [task.info.outputs for task in split(toy(), 3)] == [(0, 1, 2), (3,)]


@pytest.mark.parametrize(
    ("logits", "expected"),
    [("current", [(0, 1), (2, 3)]), ("seen", [(0, 1), (0, 1, 2, 3)]), ("all", [(0, 1, 2, 3)] * 2)],
)
def test_train_logits(logits, expected):
    stream = split(toy(), 2, train_logits=logits)
    assert [task.info.train_outputs for task in stream] == expected
    assert stream.declared.train_logits == logits


def test_heads_set_their_defaults():
    single, multi = split(toy()).declared, split(toy(), head="multi").declared
    assert (single.train_logits, single.task_labels_at_test) == ("seen", False)
    assert (multi.train_logits, multi.task_labels_at_test) == ("current", True)
    assert permuted(toy(), 3, head="multi").n_outputs == 12
    assert seen_outputs(split(toy()), 0) == [0, 1]


def test_validation_rows_leave_training_and_one_sample_stays():
    data = toy((10, 10, 1, 4))
    for task in split(data, 2, val_fraction=0.3):
        rows, held = set(ids(task.x)), set(ids(task.val_x))
        assert not rows & held
        assert len(held) == {0: 6, 1: 1}[task.info.index]
        assert set(task.y.tolist()) == set(task.info.outputs)


def test_per_class_caps_the_rows():
    counts = [torch.bincount(task.y, minlength=4).tolist() for task in split(toy(), 4, per_class=3)]
    assert counts == [[3, 3, 3, 3]]


def test_a_class_with_one_sample_works_and_an_empty_one_is_named():
    assert sum(len(task) for task in split(toy((1, 1, 1, 1)))) == 4
    with pytest.raises(InputError, match=r"Got none for class 1 \('b'\) of toy"):
        split(toy((3, 0, 2, 2)))


def test_permuted_moves_pixels_and_keeps_them():
    plain, moved, other = (task.x.clone() for task in permuted(toy(), 3))
    assert torch.equal(plain.flatten(1).sort(1).values, moved.flatten(1).sort(1).values)
    assert not torch.equal(plain, moved)
    assert not torch.equal(moved, other)


def test_permuted_tests_with_the_permutation_of_its_task():
    data = toy(test_each=6)
    data = DataSet("same", data.train_x, data.train_y, data.train_x, data.train_y, data.names, "none", "made up")
    stream = permuted(data, 3)
    for task, test in zip(stream, stream.test_sets(), strict=True):
        assert torch.equal(task.x, test.x)


def test_blurred_mixes_neighbours_only_and_tells_no_border():
    data = toy((60, 60, 60, 60), test_each=40)
    stream = blurred(data, 1, width=0.3)
    assert not stream.declared.boundaries_told
    assert stream.declared.ordered
    shares = torch.stack([torch.bincount(first_pixels(t.x), minlength=4) / len(t) for t in stream])
    assert (shares.diagonal() > 0.6).all()
    assert shares[0, 1] > 0
    assert shares[0, 2] == 0  # a width of 0.3 reaches the neighbour, not beyond it
    first = next(iter(blurred(toy((600,) * 4), 1, width=0.3)))
    early = float((first_pixels(first.x) == 1).sum()) / 600
    assert early == pytest.approx(0.3 / 4, abs=0.035)  # P(u + width * v < 0) is width / 4
    sharp = torch.stack([torch.bincount(first_pixels(t.x), minlength=4) for t in blurred(data, 1, width=0)])
    assert torch.equal(sharp, torch.eye(4, dtype=sharp.dtype) * 60)


def test_continuous_drifts_from_the_first_class_to_the_last():
    stream = continuous(toy((90,) * 4, test_each=60), 6, spread=0.2)
    means = [float(first_pixels(task.x).float().mean()) for task in stream]
    assert means == sorted(means)
    assert means[0] < 0.8
    assert means[-1] > 2.2
    assert stream.declared.continuous
    with pytest.raises(InputError, match="would tell the border"):
        continuous(toy(), train_logits="current")


def test_overlapping_deals_at_the_rates_asked():
    stream = overlapping(toy((100,) * 4, test_each=50), 2, main_share=0.8)
    counts = torch.stack([torch.bincount(first_pixels(task.x), minlength=4) for task in stream])
    assert counts.tolist() == [[80, 80, 20, 20], [20, 20, 80, 80]]
    tests = torch.stack([torch.bincount(t.y, minlength=4) for t in stream.test_sets()])
    assert tests.tolist() == [[40, 40, 10, 10], [10, 10, 40, 40]]
    assert stream.declared.overlapping


def test_long_has_as_many_tasks_as_asked_and_recurring_classes():
    stream = long(toy(), 200, samples_per_task=4)
    assert len(stream) == 200
    names = [stream.info(k).name for k in range(3)]
    assert [n.split("(")[1] for n in names] == ["classes)", "rotation)", "permutation)"]
    multi = long(toy(), 5, head="multi")
    assert [multi.info(k).outputs for k in range(5)] == [(2 * k, 2 * k + 1) for k in range(5)]


def test_a_quarter_turn_is_exact_and_a_full_turn_changes_nothing():
    x = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Rotate(360.0)(x), x, atol=1e-5, rtol=0)
    quarter = Rotate(90.0)(x)
    matches = [torch.allclose(quarter, torch.rot90(x, k, (1, 2)), atol=1e-5) for k in (1, 3)]
    assert sum(matches) == 1
    wide = torch.rand(1, 3, 6, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(Rotate(180.0)(wide), wide.flip(1, 2), atol=1e-5, rtol=0)
    framed = torch.nn.functional.pad(x, (3, 3))  # pixels stay square where the image is not
    torch.testing.assert_close(Rotate(90.0)(framed)[:, :, 3:-3], quarter, atol=1e-5, rtol=0)


def test_two_tasks_have_outputs_of_their_own_and_one_shape():
    stream = two_task(toy(), toy((2, 2), name="other"))
    assert [t.info.outputs for t in stream] == [(0, 1, 2, 3), (4, 5)]
    with pytest.raises(InputError, match="one input shape"):
        two_task(toy(), toy(side=5))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda d: split(d, 0), "'classes_per_task' of split must be at least 1"),
        (lambda d: split(d, 9), "must be at most 4"),
        (lambda d: split(d, [2, 1]), "must sum to 4"),
        (lambda d: split(d, 2, order=[0, 0, 1]), "must be distinct classes"),
        (lambda d: split(d, 2, order=[0, 7]), "'order' of split must be at most 3"),
        (lambda d: split(d, 2, val_fraction=1.0), r"in \[0, 1\)"),
        (lambda d: split(d, 2, head="multi", task_labels_at_test=False), "must be True with head='multi'"),
        (lambda d: permuted(d, 0), "'n_tasks' of permuted must be at least 1"),
        (lambda d: blurred(d, 2, width=2), r"'width' of blurred must be in \[0, 1\]"),
        (lambda d: long(d, 3, kinds=[]), "at least one"),
    ],
)
def test_misuse_gets_one_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call(toy())


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'single'"):
        split(toy(), head="singel")
    with pytest.raises(UnknownName, match="Did you mean 'rotation'"):
        long(toy(), kinds=["rotations"])


class TestScenarios:
    def test_one_argument_decides_what_a_task_brings(self):
        found = {s: split(toy(), 2, scenario=s) for s in ("class", "task", "domain")}
        assert {s: stream.declared.scenario for s, stream in found.items()} == {s: s for s in found}
        assert [found["class"].info(k).outputs for k in (0, 1)] == [(0, 1), (2, 3)]
        assert found["task"].declared.task_labels_at_test
        assert [found["domain"].info(k).outputs for k in (0, 1)] == [(0, 1), (0, 1)]
        assert found["domain"].n_outputs == 2
        assert found["domain"].declared.overlapping
        for task in found["domain"]:
            assert (task.y == first_pixels(task.x) % 2).all()

    def test_the_old_words_give_the_same_streams(self):
        assert split(toy(), 2, scenario="task").config == split(toy(), 2, head="multi").config
        assert split(toy(), 2, scenario="class").config == split(toy(), 2).config
        with pytest.raises(InputError, match="'head' of split must be 'multi'"):
            split(toy(), 2, scenario="task", head="single")
        with pytest.raises(InputError, match="one size"):
            split(toy((3, 3, 3)), 2, scenario="domain")

    def test_the_seed_orders_the_classes(self):
        orders = [tuple(split(toy(), 2, order="random", seed=seed).config["order"]) for seed in range(6)]
        assert len(set(orders)) > 1
        assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
        assert split(toy(), 2, order="random", seed=4).config["order"] == list(orders[4])

    @pytest.mark.parametrize("kind", ["rotation", "permutation"])
    def test_each_domain_is_the_same_rows_under_its_own_map(self, kind):
        stream = domains(toy(), 3, kind)
        tasks = [(task.x.clone(), task.y.clone()) for task in stream]
        assert stream.declared.same_inputs
        assert all(torch.equal(y, tasks[0][1]) for _, y in tasks)
        expected = Rotate(60.0)(tasks[0][0]) if kind == "rotation" else tasks[0][0]
        if kind == "rotation":
            torch.testing.assert_close(tasks[1][0], expected)
        else:
            assert torch.equal(tasks[1][0].flatten(1).sort(1).values, expected.flatten(1).sort(1).values)
        assert not torch.equal(tasks[1][0], tasks[2][0])

    def test_parity_asks_the_same_of_other_classes(self):
        for task in domains(toy((3, 3, 3, 3, 3, 3)), 2):
            assert (task.y == first_pixels(task.x) % 2).all()
            assert task.y.unique().tolist() == [0, 1]
        with pytest.raises(InputError, match="n_tasks"):
            domains(toy(), 4)

    def test_listed_data_sets_are_matched_by_the_names_of_their_classes(self):
        a = toy((3, 3, 3))
        b = DataSet("b", a.train_x, 2 - a.train_y, a.test_x, 2 - a.test_y, ("c", "b", "a"), "none", "made up")
        stream = domains(a, kind=[b])
        assert len(stream) == 2
        assert all((task.y == first_pixels(task.x)).all() for task in stream)
        assert stream.config["data"] == ["toy", "b"]
        other = DataSet("o", a.train_x, a.train_y, a.test_x, a.test_y, ("a", "b", "z"), "none", "made up")
        with pytest.raises(InputError, match="'z' in o"):
            domains(a, kind=[other])

    def test_the_same_domains_with_outputs_of_their_own(self):
        own = domains(toy(), 2, "permutation", scenario="task")
        assert [own.info(k).outputs for k in (0, 1)] == [(0, 1, 2, 3), (4, 5, 6, 7)]
        assert own.declared.head == "multi"
        x, y = torch.rand(6, 3), torch.arange(6) % 2
        table = DataSet("t", x, y, x, y, ("a", "b"), "none", "made up")
        with pytest.raises(InputError, match="table"):
            domains(table, 2, "rotation")
