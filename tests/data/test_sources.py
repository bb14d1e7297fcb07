"""Each reader against files written here, independently, in the published format; both routes give one data set."""

import gzip
import io
import tarfile
import zipfile
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from vestige.core.errors import InputError
from vestige.data.formats import open_npz
from vestige.data.sources import SOURCES
from vestige.data.sources.notmnist import EMPTY

DRAW = np.random.default_rng(0)


def from_npz(name, path, **arrays):
    np.savez(path, **arrays)
    with open_npz(path) as npz:
        return SOURCES[name].build(SOURCES[name].read_npz(npz), str(path))


def from_files(name, **paths):
    return SOURCES[name].build(SOURCES[name].read_files(paths), "files")


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def same(a, b):
    for key in ("train_x", "train_y", "test_x", "test_y"):
        assert torch.equal(getattr(a, key), getattr(b, key)), key
    assert (a.names, a.groups) == (b.names, b.groups)


def test_every_source_is_registered_by_its_name_and_can_be_had():
    assert list(SOURCES) == [source.name for source in SOURCES.values()]
    for source in SOURCES.values():
        ways = (source.read_installed, source.read_npz)
        assert sum(way is not None for way in ways) == 1
        assert bool(source.remotes) == (source.read_files is not None)
        assert bool(source.unfetchable) == (source.read_npz is not None and not source.remotes)
        assert source.licence
        assert source.about
        for remote in source.remotes:
            kind, digest = remote.checksum.split(":")
            assert len(digest) == {"md5": 32, "sha256": 64}[kind]
            assert remote.size > 0
            assert all(url.startswith("http") for url in remote.urls)


def test_digits_are_scikit_learns_with_every_fifth_of_a_class_to_test():
    data = SOURCES["digits"].build(SOURCES["digits"].read_installed(), "installed")
    images, labels = load_digits(return_X_y=True)
    assert (len(data.train_x), len(data.test_x)) == (1442, 355)
    assert data.train_x.shape[1:] == (8, 8)
    count = Counter()
    test_rows = []
    for row, label in enumerate(labels):
        count[label] += 1
        if count[label] % 5 == 0:
            test_rows.append(row)
    assert data.test_y.tolist() == labels[test_rows].tolist()
    pixels = data.floats(data.test_x).reshape(-1, 64).numpy()
    np.testing.assert_allclose(pixels, images[test_rows] / 16, atol=0.5 / 255)
    assert pixels.max() == 1.0


def records(n, label_bytes, classes):
    x = DRAW.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
    y = DRAW.integers(0, classes, n)
    coarse = bytes([19] * (label_bytes - 1))
    return x, y, b"".join(coarse + bytes([label]) + image.tobytes() for image, label in zip(x, y, strict=True))


def test_cifar10_from_its_archive_and_from_npz(tmp_path):
    batches = [records(n, 1, 10) for n in (3, 2, 4, 1, 2, 5)]
    names = [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)] + ["cifar-10-batches-bin/test_batch.bin"]
    members = dict(zip(names, (data for _, _, data in batches), strict=True))
    shuffled = dict(sorted(members.items(), reverse=True)) | {"cifar-10-batches-bin/readme.html": b"<html>"}
    path = tar(tmp_path / "cifar-10-binary.tar.gz", shuffled)
    arrays = {
        "train_x": np.concatenate([x for x, _, _ in batches[:5]]),
        "train_y": np.concatenate([y for _, y, _ in batches[:5]]),
        "test_x": batches[5][0],
        "test_y": batches[5][1],
    }
    found = from_files("cifar10", **{path.name: path})
    same(found, from_npz("cifar10", tmp_path / "cifar10.npz", **arrays))
    np.testing.assert_array_equal(found.train_x.numpy(), arrays["train_x"])

    del members["cifar-10-batches-bin/data_batch_3.bin"]
    tar(path, members)
    with pytest.raises(InputError, match=r"must be an archive with cifar-10-batches-bin/data_batch_3.bin"):
        from_files("cifar10", **{path.name: path})


def test_cifar100_takes_the_fine_label_and_knows_its_superclasses(tmp_path):
    train, test = records(6, 2, 100), records(4, 2, 100)
    path = tmp_path / "cifar-100-binary.tar.gz"
    tar(path, {"cifar-100-binary/train.bin": train[2], "cifar-100-binary/test.bin": test[2]})
    found = from_files("cifar100", **{path.name: path})
    arrays = {"train_x": train[0], "train_y": train[1], "test_x": test[0], "test_y": test[1]}
    same(found, from_npz("cifar100", tmp_path / "cifar100.npz", **arrays))
    np.testing.assert_array_equal(found.test_y.numpy(), test[1])
    assert len(found.names) == 100
    assert set(Counter(found.groups).values()) == {5}
    assert len(set(found.groups)) == 20
    assert dict(zip(found.names, found.groups, strict=True))["whale"] == "aquatic_mammals"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (records(3, 2, 100)[2][:-1], "whole records of 3074 bytes. Got 9221"),
        (b"", "whole records"),
        (bytes([0, 100]) + bytes(3072), "labels in 0..99. Got the label 100"),
    ],
)
def test_cifar_records_must_be_whole(tmp_path, data, sentence):
    path = tmp_path / "cifar-100-binary.tar.gz"
    tar(path, {"cifar-100-binary/train.bin": data, "cifar-100-binary/test.bin": records(1, 2, 100)[2]})
    with pytest.raises(InputError, match=sentence):
        from_files("cifar100", **{path.name: path})


def test_omniglot_has_one_order_whatever_the_file(tmp_path):
    # Alphabets in an order of their own in the .npz, people shuffled; sorted names in the zips.
    characters = {"Zeta": 2, "Alpha": 1, "Mid": 2, "Beta": 1}  # the first two are the background set
    alphabets = list(characters)
    of_class = [i for i, name in enumerate(alphabets) for _ in range(characters[name])]
    ink = DRAW.integers(0, 2, (6, 3, 105, 105), dtype=np.uint8)  # class, person
    rows = [(c, p) for c in range(6) for p in (2, 0, 1)]
    arrays = {"alphabet_names": np.array(alphabets), "alphabet_of_class": np.array(of_class)}
    for split, classes in (("train", range(3)), ("test", range(3, 6))):
        chosen = [(c, p) for c, p in rows if c in classes]
        arrays[f"{split}_x"] = np.stack([ink[c, p] for c, p in chosen])
        arrays[f"{split}_y"] = np.array([c for c, _ in chosen])
        arrays[f"{split}_drawer"] = np.array([p for _, p in chosen])
    found = from_npz("omniglot", tmp_path / "omniglot.npz", **arrays)

    # Sorted by set and alphabet: Alpha/1 (old class 2), Zeta/1 Zeta/2 (0, 1) | Beta/1 (5), Mid/1 Mid/2 (3, 4).
    assert found.names == tuple(
        f"{name}/character{i:02d}"
        for name, i in [("Alpha", 1), ("Zeta", 1), ("Zeta", 2), ("Beta", 1), ("Mid", 1), ("Mid", 2)]
    )
    assert found.groups == ("Alpha", "Zeta", "Zeta", "Beta", "Mid", "Mid")
    assert found.train_y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert found.test_y.tolist() == [3, 3, 3, 4, 4, 4, 5, 5, 5]
    np.testing.assert_array_equal(found.floats(found.train_x).numpy(), ink[[2, 0, 1]].reshape(-1, 105, 105))
    np.testing.assert_array_equal(found.test_x.numpy(), 255 * ink[[5, 3, 4]].reshape(-1, 105, 105))

    paths = {}
    for file, classes in (("images_background.zip", range(3)), ("images_evaluation.zip", range(3, 6))):
        paths[file] = tmp_path / file
        with zipfile.ZipFile(paths[file], "w") as archive:
            for c in reversed(classes):
                first = of_class.index(of_class[c])
                for p in (1, 2, 0):
                    folder = f"{file[:-4]}/{alphabets[of_class[c]]}/character{c - first + 1:02d}"
                    archive.writestr(f"{folder}/{c + 400:04d}_{p + 1:02d}.png", png(ink[c, p] == 0))  # ink is black
    same(found, from_files("omniglot", **paths))

    arrays["test_y"] = arrays["test_y"] - 1
    with pytest.raises(InputError, match=r"'test_y' of .* must be above every label of train_y \(2\). Got 2"):
        from_npz("omniglot", tmp_path / "omniglot.npz", **arrays)
    arrays["train_x"] = arrays["train_x"] * np.uint8(255)
    with pytest.raises(InputError, match=r"'train_x' of .* must be 1 for ink and 0 for paper. Got 255"):
        from_npz("omniglot", tmp_path / "omniglot.npz", **arrays)


def test_omniglot_with_no_drawings_is_refused(tmp_path):
    path = tmp_path / "images_background.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("elsewhere/a.png", b"")
    with pytest.raises(InputError, match="must be drawings"):
        from_files("omniglot", **{path.name: path, "images_evaluation.zip": path})


def test_notmnist_leaves_out_the_two_empty_files_and_no_others(tmp_path):
    x = DRAW.integers(0, 256, (30, 28, 28), dtype=np.uint8)
    letters = ["ABCDEFGHIJ"[i // 10] for i in range(30)]
    names = [f"notMNIST_small/{letter}/font{i:02d}.png" for i, letter in enumerate(letters)]
    members = dict(zip(names, map(png, x), strict=True)) | dict.fromkeys(EMPTY, b"")
    path = tmp_path / "notMNIST_small.tar.gz"
    tar(path, dict(reversed(members.items())))
    found = from_files("notmnist", **{path.name: path})
    y = np.arange(30) // 10
    same(found, from_npz("notmnist", tmp_path / "notmnist.npz", test_x=x, test_y=y))
    assert found.test_y.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_array_equal(found.test_x.numpy(), x[4::5])

    split = from_npz(
        "notmnist", tmp_path / "notmnist.npz", train_x=x[:20], train_y=y[:20], test_x=x[20:], test_y=y[20:]
    )
    assert split.test_y.tolist() == [2] * 10

    tar(path, members | {"notMNIST_small/B/another.png": b""})
    with pytest.raises(InputError, match=r"notMNIST_small/B/another.png in .* cannot be read as PNG"):
        from_files("notmnist", **{path.name: path})
    tar(path, {"readme": b"hello"})
    with pytest.raises(InputError, match="must be letters"):
        from_files("notmnist", **{path.name: path})


def test_electricity_is_split_in_time(tmp_path):
    x, y = DRAW.random((11, 6)), DRAW.integers(0, 2, 11)
    found = from_npz("electricity", tmp_path / "electricity.npz", x=x, y=y)
    np.testing.assert_array_equal(found.train_x.numpy(), x[:8].astype(np.float32))
    np.testing.assert_array_equal(found.test_y.numpy(), y[8:])
    assert found.floats(found.test_x).dtype == torch.float32
    with pytest.raises(InputError, match=r"'y' of .*electricity.npz must be in 0..1"):
        from_npz("electricity", tmp_path / "electricity.npz", x=x, y=y + 1)


@pytest.fixture(scope="module")
def forest():
    x = DRAW.integers(-173, 7174, (15_125, 54)).astype(np.int16)
    return x, np.arange(15_125) % 7 + 1


def test_covtype_from_its_table_and_from_npz(tmp_path, forest):
    x, y = forest
    found = from_npz("covtype", tmp_path / "covtype.npz", x=x, y=y)
    assert found.test_y.tolist() == (y[15_120:] - 1).tolist()
    np.testing.assert_array_equal(found.train_x.numpy(), x[:15_120])
    path = tmp_path / "covtype.data.gz"
    text = io.StringIO()
    np.savetxt(text, np.column_stack([x, y]), fmt="%d", delimiter=",")
    data = gzip.compress(text.getvalue().encode(), compresslevel=1)
    path.write_bytes(data)
    same(found, from_files("covtype", **{path.name: path}))
    for broken in (data[: len(data) // 2], b"text", gzip.compress(b"a,b\n"), gzip.compress(b"")):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"covtype.data.gz cannot be read as a gzipped table"):
            from_files("covtype", **{path.name: path})
    path.write_bytes(gzip.compress(b"1,2,3\n"))
    with pytest.raises(InputError, match=r"must be 54 and a class in 1..7"):
        from_files("covtype", **{path.name: path})


def test_covtype_needs_its_training_rows_and_its_labels_from_1(tmp_path, forest):
    x, y = forest
    with pytest.raises(InputError, match=r"must be more than 15120 rows. Got 15120"):
        from_npz("covtype", tmp_path / "covtype.npz", x=x[:15_120], y=y[:15_120])
    with pytest.raises(InputError, match=r"'y' of .* must be in 1..7. Got 0..6"):
        from_npz("covtype", tmp_path / "covtype.npz", x=x, y=y - 1)
