"""Users' own data: every kind that a user may hold gives the same data set, and streams take each of them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from vestige import data as vd
from vestige.core.errors import InputError, UnknownName

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.repeat([3, 7, 40, 41], 5)
TEST = (X[:8] + 0.5, np.array([3, 7, 40, 41] * 2))


class Pairs(Dataset):
    """A map-style data set that makes its samples as they are asked for."""

    def __init__(self, x, y, classes=None):
        self.x, self.y = x, y
        if classes is not None:
            self.classes = classes

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Frame:
    """What polars and others hand over: an Arrow stream and nothing else."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def columns(x=X, y=Y):
    return {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "label": y}


KINDS = {
    "numpy": (X, Y),
    "torch": (torch.from_numpy(X), torch.from_numpy(Y)),
    "lists": (X.tolist(), Y.tolist()),
    "doubles": (X.astype(np.float64), Y.astype(np.float64)),
    "TensorDataset": TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
    "map-style": Pairs(X, Y),
    "list of pairs": [(x, int(y)) for x, y in zip(X, Y, strict=True)],
    "Subset": Subset(Pairs(X, Y), range(20)),
    "DataLoader": DataLoader(Pairs(X, Y), batch_size=3, shuffle=True),
    "pandas": pd.DataFrame(columns()),
    "arrow": Frame(pa.table(columns())),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_the_same_data_set(kind):
    ours, plain = vd.as_dataset(KINDS[kind]), vd.from_arrays(X, Y)
    assert ours.digest == plain.digest
    assert ours.names == ("3", "7", "40", "41")
    assert ours.held_out == "20 % of each class held out, seed 0"
    assert ours.held_out in repr(ours)


@pytest.mark.parametrize("make", [vd.split, vd.permuted, vd.overlapping, vd.blurred, vd.continuous])
def test_every_stream_takes_any_kind_and_says_what_was_held_out(make):
    of_arrays, of_table = make((X, Y), 2), make(KINDS["pandas"], 2)
    assert of_arrays.config["digest"] == of_table.config["digest"] == vd.from_arrays(X, Y).digest
    assert of_arrays.config["held_out"] == "20 % of each class held out, seed 0"
    assert "held_out" not in make(((X, Y), TEST), 2).config


def test_two_tasks_and_long_streams_take_any_kind():
    stream = vd.two_task((X, Y), KINDS["pandas"])
    assert stream.config["held_out"] == ["20 % of each class held out, seed 0"] * 2
    assert vd.long((X, Y), 3, kinds=("classes", "permutation")).config["data"] == "own"


def test_a_name_and_a_data_set_are_what_they_are():
    digits = vd.load("digits")
    assert vd.as_dataset(digits) is digits
    assert vd.split("digits", 2).config == vd.split(digits, 2).config
    with pytest.raises(UnknownName, match=r"'data' of data.as_dataset.*Did you mean 'digits'"):
        vd.split("digit", 2)


def test_rows_to_test_on_are_the_ones_that_are_given():
    ours = vd.from_arrays(X, Y, test=TEST)
    assert torch.equal(ours.test_x, torch.from_numpy(TEST[0]))
    assert ours.test_y.tolist() == [0, 1, 2, 3] * 2
    assert torch.equal(ours.train_x, torch.from_numpy(X))
    assert (ours.held_out, ours.origin) == ("", "arrays in memory")
    table = vd.as_dataset(pd.DataFrame(columns()), test=pd.DataFrame(columns(*TEST)))
    assert table.digest == ours.digest == vd.as_dataset((Pairs(X, Y), Pairs(*TEST))).digest
    assert vd.as_dataset((X, Y), test=TEST).digest == vd.as_dataset(((X, Y), TEST)).digest == ours.digest


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.integers(2, 30), min_size=1, max_size=6),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 9),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
def test_what_is_held_out_is_the_share_of_each_class_and_the_rest_is_trained_on(counts, share, seed, shape):
    y = np.repeat(np.arange(len(counts)), counts)
    x = np.arange(len(y), dtype=np.float32).reshape(-1, *[1] * len(shape)) * np.ones(shape, dtype=np.float32)
    ours = vd.from_arrays(x, y, test_share=share, seed=seed)
    for c, n in enumerate(counts):
        assert int((ours.test_y == c).sum()) == min(max(round(share * n), 1), n - 1)
        assert int((ours.train_y == c).sum()) + int((ours.test_y == c).sum()) == n
    kept = torch.cat([ours.train_x, ours.test_x]).flatten(1)[:, 0]
    assert sorted(kept.tolist()) == list(range(len(y)))
    assert ours.digest == vd.from_arrays(x, y, test_share=share, seed=seed).digest


def test_another_seed_holds_out_other_rows():
    assert vd.from_arrays(X, Y, seed=1).digest != vd.from_arrays(X, Y).digest


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["cat", "dog"] * 10, ("cat", "dog")),
        (np.array(["cat", "dog"] * 10), ("cat", "dog")),
        (pd.Series(["dog", "cat"] * 10, dtype="category"), ("cat", "dog")),
        ([True, False] * 10, ("False", "True")),
        ([-1, 1] * 10, ("-1", "1")),
        ([10, 9] * 10, ("9", "10")),
        (torch.tensor([[2], [5]] * 10), ("2", "5")),
    ],
)
def test_labels_of_any_kind_keep_their_names(labels, names):
    ours = vd.from_arrays(X, labels)
    assert ours.names == names
    assert torch.cat([ours.train_y, ours.test_y]).bincount().tolist() == [10, 10]


def test_names_of_classes_may_be_given_or_come_with_the_data_set():
    y = [0, 1] * 10
    assert vd.from_arrays(X, y, names=["cat", "dog", "cow"]).names == ("cat", "dog", "cow")
    assert vd.as_dataset(Pairs(X, y, classes=["cat", "dog"])).names == ("cat", "dog")
    assert vd.as_dataset(Pairs(X, Y, classes=["cat", "dog"])).names == ("3", "7", "40", "41")


def test_pictures_of_pillow_and_bytes_with_channels_last_get_them_in_front():
    pixels = np.random.default_rng(0).integers(0, 256, (8, 5, 6, 3), dtype=np.uint8)
    y = [0, 1] * 4
    pictures = vd.as_dataset(Pairs([Image.fromarray(p) for p in pixels], y))
    assert pictures.is_images
    assert pictures.train_x.shape[1:] == (3, 5, 6)
    assert pictures.digest == vd.from_arrays(pixels, y).digest == vd.from_arrays(pixels.transpose(0, 3, 1, 2), y).digest
    grey = vd.as_dataset(Pairs([Image.fromarray(p[..., 0]) for p in pixels], y))
    assert grey.train_x.shape[1:] == (5, 6)


def test_bytes_of_a_table_are_numbers_and_floats_of_images_stay_as_they_are():
    assert vd.from_arrays(X.astype(np.uint8), Y).train_x.dtype == torch.float32
    images = vd.from_arrays(np.full((20, 4, 4), 0.5), Y)
    assert images.train_x.dtype == torch.float32
    assert float(images.floats(images.train_x).max()) == 0.5


def test_words_and_gaps_of_a_table_are_encoded():
    frame = pd.DataFrame(
        {"size": [1.0, None, 3.0, 4.0] * 5, "colour": ["red", "blue"] * 10, "species": ["a", "b"] * 10}
    )
    ours = vd.as_dataset(frame, label="species", name="birds")
    assert ours.train_x.shape[1] == 4  # size, whether it is missing, two colours
    assert (ours.names, ours.name) == (("a", "b"), "birds")


def save_images(folder, classes, n=4, size=(5, 6), mode="RGB"):
    for c, label in enumerate(classes):
        (folder / label).mkdir(parents=True)
        for i in range(n):
            colour = (40 * c + i, 10, 200) if mode == "RGB" else 40 * c + i
            Image.new(mode, size[::-1], colour).save(folder / label / f"{i}.png")


def test_a_folder_of_images_by_class(tmp_path):
    save_images(tmp_path, ["ant", "bee", "cow"])
    ours = vd.as_dataset(tmp_path)
    assert (ours.names, ours.train_x.shape[1:], ours.is_images) == (("ant", "bee", "cow"), (3, 5, 6), True)
    assert sorted(torch.cat([ours.train_x, ours.test_x])[:, 0, 0, 0].tolist()) == [
        *range(4),
        *range(40, 44),
        *range(80, 84),
    ]
    assert len(ours.test_y) == 3
    assert "held out" in ours.origin
    assert vd.split(str(tmp_path), 1).config["digest"] == ours.digest


def test_a_folder_with_images_to_test_on(tmp_path):
    save_images(tmp_path / "train", ["ant", "bee"], mode="L")
    save_images(tmp_path / "test", ["ant", "bee"], n=2, mode="L")
    ours = vd.as_dataset(tmp_path)
    assert (len(ours.train_y), len(ours.test_y), ours.held_out) == (8, 4, "")
    assert ours.train_x.shape[1:] == (5, 6)


def test_a_table_on_disk(tmp_path):
    pd.DataFrame(columns()).to_csv(tmp_path / "rows.csv", index=False)
    assert vd.as_dataset(tmp_path / "rows.csv").digest == vd.from_arrays(X, Y).digest
    assert vd.as_dataset(tmp_path / "rows.csv", label="label").name == "rows"


class Endless(IterableDataset):
    def __iter__(self):
        yield X[0], 0


@pytest.mark.parametrize(
    ("data", "options", "sentence"),
    [
        (3, {}, r"must be arrays \(x, y\), a torch Dataset.*Got a int"),
        (X, {}, r"'data' of data.as_dataset must be arrays \(x, y\).*Got a ndarray"),
        ((X, Y[:-1]), {}, r"'y' of data.from_arrays must be one label for each of 20 samples. Got 19"),
        ((X, np.linspace(0, 1, 20)), {}, r"must be classes: whole numbers, words or truth values. Got 0.05"),
        ((X, [None, *Y[1:].tolist()]), {}, r"Got a missing one in row 0"),
        ((X, ["a", *Y[1:].tolist()]), {}, r"labels of one kind. Got int and str"),
        ((X, [0] * 19 + [1]), {}, r"two rows of each class at least where none are given to test on. Got one of '1'"),
        ((np.full((20, 3), np.nan), Y), {}, r"must be finite. Got"),
        ((X[:0], Y[:0]), {}, r"at least one sample"),
        ((X, Y), {"test": TEST[0]}, r"'test' of data.as_dataset must be arrays"),
        ((X, Y), {"test": (TEST[0][:, :2], TEST[1])}, r"samples of shape \(3,\). Got \(2,\)"),
        ((X, Y), {"test": (TEST[0], list("abcdabcd"))}, r"labels of one kind to learn from and to test on"),
        ((X, Y), {"test_share": 1.5}, r"'test_share' of data.as_dataset must be in \(0, 1\). Got 1.5"),
        ((X, Y), {"label": "y"}, r"'label' of data.as_dataset must be None for what is no table"),
        (Endless(), {}, r"a Dataset with a length"),
        (Pairs([X[0], X[0, :2]], [0, 1]), {}, r"of samples of one shape and type.*at 1"),
        ([(1, 2, 3)], {}, r"of pairs \(x, y\). Got 3 things at 0"),
        (pd.DataFrame({"a": [1, 2]}), {}, r"a table with one column called label, labels.*Got only a"),
        (pd.DataFrame({"label": [1, 2], "y": [1, 2]}), {}, r"Got 'label' and 'y'"),
        (pd.DataFrame({"label": [1, 2]}), {}, r"columns beside the label"),
        (pd.DataFrame(columns()), {"label": "labl"}, r"must be one of a, b, c, label.*Did you mean 'label'"),
        (pd.DataFrame(columns()), {"test": TEST}, r"'test' of data.as_dataset must be a table"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(data, options, sentence):
    with pytest.raises(InputError, match=sentence):
        vd.as_dataset(data, **options)


def test_folders_that_are_not_of_classes_are_refused(tmp_path):
    save_images(tmp_path, ["ant"])
    Image.new("RGB", (6, 5)).save(tmp_path / "stray.png")
    with pytest.raises(InputError, match=r"must hold folders of images. Got stray.png"):
        vd.as_dataset(tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="a folder of images"):
        vd.as_dataset(tmp_path / "none")
    Image.new("RGB", (9, 9)).save(tmp_path / "ant" / "large.png")
    with pytest.raises(InputError, match="5 x 6 pixels"):
        vd.as_dataset(tmp_path)


def test_arguments_are_left_alone():
    x, y = X.copy(), Y.copy()
    ours = vd.from_arrays(x, y, test=TEST)
    ours.train_x.zero_()
    assert np.array_equal(x, X)
    assert np.array_equal(y, Y)
