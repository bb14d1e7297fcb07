"""What takes the place of LFIW's models (section 3.1): PixelCNN++, SNGAN and Inception cannot be had here.

    vae, gan        our own conditional generators, the latter an f-GAN for the Jensen-Shannon divergence, trained for
                    less than a minute; conditions are drawn as often as in the data
    under-trained   the VAE, stopped after `early` of its steps
    skewed          real images whose classes are drawn as 1 : ... : 1/skew: the ratio p/q is known, it is that of the
                    class shares. FeatureDraw with replacement from images that nothing else sees
    own files       the reader's samples: fresh draws are resamples of those rows that the classifier did not see

Images are cut into parts that share no row: for the feature map and the generator, for the classifier between real and
generated, for the reference score, for `skewed`; what all are held against are test rows. Features are the 64 of our
own classifier (CDRE App. A.1), whose logits give the Inception Score, or EfficientNet-Lite0's 1280 (the extra
`features`), without one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige import features, generators
from vestige.core import checks, rng
from vestige.data import readers as files
from vestige.features import FeatureMap
from vestige.runner import OnProgress
from vestige_papers.cdre.static import load, shuffled

MODELS = ("vae", "gan", "under-trained", "skewed")
GAN = "fgan"
OWN = "own files"


@dataclass(frozen=True)
class GoodnessSetting:
    """A unit: `model` on `data`, seen through `features`; the tuples say which units there are, and are empty in one.

    `n` rows a side, T of Table 4; `real` and `fake` are files, `features` then a stored map or "" for their columns.
    """

    models: tuple[str, ...] = MODELS
    sets: tuple[str, ...] = ("mnist", "fashion_mnist")
    pretrained: tuple[str, ...] = ("vae", "skewed")  # models that are seen through EfficientNet too, on the first set
    pretrained_n: int = 600
    model: str = ""
    data: str = ""
    features: str = ""
    real: str | None = None
    fake: str | None = None
    digest: str = ""  # of the files, so that others under the same names are another unit
    n: int = 2500
    draws: int = 10
    train: int = 4000  # images for the feature map, and for the generator
    epochs: int = 2  # of the feature map
    steps: int = 1000  # of the VAE
    gan_steps: int = 1500
    early: float = 0.05
    skew: float = 10.0
    size: int = 32  # pixels that the pretrained network sees
    hidden: int = 1000  # units of the classifier between real and generated
    classifier_epochs: int = 20
    min_ess: float = 0.1  # of the tempered weights


@dataclass(frozen=True)
class FeatureDraw:
    """Features of one draw, class predictions where the map makes them, log weights where the truth is known."""

    x: Float[Tensor, "t d"]
    logits: Float[Tensor, "t k"] | None
    true_log_weights: Float[Tensor, " t"] | None = None


@dataclass(frozen=True)
class WeighedModel:
    """Features of real and generated rows for the classifier, of two further real sets, and a source of draws."""

    fit_p: Float[Tensor, "n d"]
    fit_q: Float[Tensor, "m d"]
    test: Float[Tensor, "n d"]
    other: FeatureDraw
    draw: Callable[[int], FeatureDraw]  # number of the draw -> a draw
    map: str  # the kind of feature map that it went through
    said: str


def encoded(fitted: FeatureMap, x: Tensor, log_weights: Tensor | None = None) -> FeatureDraw:
    """Features in float64, and logits if the map is a classifier."""
    codes = fitted.transform(x.flatten(1) if isinstance(fitted, features.PCA) else x)
    with torch.no_grad():
        logits = fitted.net_.head(codes).double() if isinstance(fitted, features.ClassifierFeatures) else None
    return FeatureDraw(codes.double(), logits, log_weights)


def skewed_shares(classes: int, skew: float) -> Float[Tensor, " k"]:
    """Shares that fall geometrically from the first class to the last, 1/skew of it."""
    shares = torch.logspace(0, -math.log10(skew), classes, dtype=torch.float64)
    return shares / shares.sum()


def make(setting: GoodnessSetting, seed: int, on_progress: OnProgress) -> WeighedModel:
    """The case of one unit."""
    return _from_files(setting, seed) if setting.model == OWN else _substitute(setting, seed, on_progress)


def _substitute(setting: GoodnessSetting, seed: int, on_progress: OnProgress) -> WeighedModel:
    source = load(setting.data)
    x, y = shuffled(source, seed)
    n, train = setting.n, setting.train
    needed = train + 2 * n + 2 * len(source.names)
    if len(x) < needed or len(source.test_x) < n:
        checks.refuse("n", "lfiw-table1", f"small enough for {len(x)} + {len(source.test_x)} images", n)
    test = torch.randperm(len(source.test_x), generator=rng.fork(seed, "test"))[:n]
    fitted, said = _map(setting, x[:train], y[:train], seed)
    on_progress(0.2, f"{setting.model}: features")
    shares = torch.bincount(y, minlength=len(source.names)).double()
    shares /= shares.sum()
    if setting.model == "skewed":
        sample = _skewed(x[train + 2 * n :], y[train + 2 * n :], shares, setting.skew)
    else:
        sample = _generated(setting, x[:train], y[:train], shares, seed)
    on_progress(0.4, f"{setting.model}: trained")

    def draw(i: int) -> FeatureDraw:
        drawn, log_weights = sample(n, rng.child_seed(seed, "draw", i))
        return encoded(fitted, drawn, log_weights)

    parts = x[train : train + n], source.floats(source.test_x[test])
    fit_p, tested = (encoded(fitted, part).x for part in parts)
    other = encoded(fitted, x[train + n : train + 2 * n])
    return WeighedModel(fit_p, draw(-1).x, tested, other, draw, fitted.name, said)


def _map(setting: GoodnessSetting, x: Tensor, y: Tensor, seed: int) -> tuple[FeatureMap, str]:
    """The feature map of a unit, and in words."""
    if setting.features != "pretrained":
        fitted = features.ClassifierFeatures(epochs=setting.epochs).fit(x, y, seed=seed)
        return fitted, f"{fitted.width} features of our classifier"
    return features.Pretrained(size=setting.size).fit(x[:2]), f"EfficientNet-Lite0 at {setting.size} pixels"


Sample = Callable[[int, int], tuple[Tensor, Tensor | None]]  # (rows, seed) -> images, true log weights


def _generated(setting: GoodnessSetting, x: Tensor, y: Tensor, shares: Tensor, seed: int) -> Sample:
    """A generator of ours, taught on x."""
    name, shape = GAN if setting.model == "gan" else "vae", tuple(x.shape[1:])
    steps = setting.gan_steps if setting.model == "gan" else setting.steps
    steps = max(1, round(setting.early * steps)) if setting.model == "under-trained" else steps
    model = generators.build(name, shape=shape, conditions=len(shares), steps=steps).fit(x, y, seed=seed)

    def sample(n: int, draw_seed: int) -> tuple[Tensor, Tensor | None]:
        classes = torch.multinomial(shares, n, replacement=True, generator=rng.fork(draw_seed, "classes"))
        return model.sample_each(classes, seed=draw_seed), None

    return sample


def _skewed(x: Tensor, y: Tensor, shares: Tensor, skew: float) -> Sample:
    """Images of `x` whose classes have other shares."""
    wanted = skewed_shares(len(shares), skew)
    log_weight = (shares / wanted).log()  # log p(c)/q(c): within a class both are the same
    chance = (wanted / torch.bincount(y, minlength=len(shares)))[y]

    def sample(n: int, draw_seed: int) -> tuple[Tensor, Tensor | None]:
        rows = torch.multinomial(chance, n, replacement=True, generator=rng.fork(draw_seed, "rows"))
        return x[rows], log_weight[y[rows]]

    return sample


def read_own(setting: GoodnessSetting) -> tuple[Tensor, Tensor, FeatureMap | None]:
    """The two files and the map; what is missing or does not fit is refused."""
    if setting.real is None or setting.fake is None:
        missing = "real" if setting.real is None else "fake"
        checks.refuse(missing, "lfiw-table1", "given where the other file is", "None")
    p, q, _ = files.read_pair(setting.real, setting.fake)
    for name, rows, least in (("real", p, 12), ("fake", q, 8)):
        if len(rows) < least:
            checks.refuse(name, "lfiw-table1", f"a file of at least {least} rows", len(rows))
    if not setting.features:
        return p, q, None
    fitted = features.load(setting.features)
    if math.prod(fitted.shape) != p.shape[1]:
        must = f"a map of samples with {p.shape[1]} numbers each, as the files have"
        checks.refuse("features", "lfiw-table1", must, f"one of shape {fitted.shape}")
    return p, q, fitted


def digest(setting: GoodnessSetting) -> str:
    """A hash of what stands in the files, and of the map."""
    p, q, fitted = read_own(setting)
    hashed = hashlib.sha256((fitted.digest() if fitted else "").encode())
    for rows in (p, q):
        hashed.update(f"{rows.dtype}{tuple(rows.shape)}".encode())
        hashed.update(rows.contiguous().numpy().data.cast("B"))
    return hashed.hexdigest()[:16]


def _from_files(setting: GoodnessSetting, seed: int) -> WeighedModel:
    p, q, fitted = read_own(setting)
    p, q = (x[torch.randperm(len(x), generator=rng.fork(seed, "own", i))] for i, x in enumerate((p, q)))
    n, half = min(setting.n, len(p) // 3), len(q) // 2

    def seen(rows: Tensor) -> FeatureDraw:
        return FeatureDraw(rows.double(), None) if fitted is None else encoded(fitted, rows.unflatten(1, fitted.shape))

    kept = seen(q[half:])
    size = min(setting.n, len(kept.x))

    def draw(i: int) -> FeatureDraw:
        rows = torch.randint(len(kept.x), (size,), generator=rng.fork(seed, "draw", i))
        return FeatureDraw(kept.x[rows], None if kept.logits is None else kept.logits[rows])

    said = "the files' columns" if fitted is None else f"the map in {setting.features}"
    parts = [seen(part) for part in (p[:n], q[: min(half, setting.n)], p[n : 2 * n], p[2 * n : 3 * n])]
    return WeighedModel(parts[0].x, parts[1].x, parts[2].x, parts[3], draw, fitted.name if fitted else "identity", said)
