"""Users' own networks and learners: every method that can takes any module, and a duck-typed learner runs."""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.nn import functional

import vestige as vs
from test_contracts import LEARNERS
from toys import blobs
from vestige.continual.audit import audit, audited_run
from vestige.continual.learners import METHODS, build
from vestige.continual.protocol import run
from vestige.continual.record import Record
from vestige.core import rng
from vestige.core.errors import InputError, UnknownName
from vestige.data.streams import permuted, split

TAKES_ANY = [name for name in METHODS if not METHODS[name].own_layers]


def stream(**options):
    return split(blobs(per_class=12), 2, **options)


class Net(nn.Module):
    """A small convolutional network with batch norm, dropout, an in-place activation and a layer that is not known."""

    def __init__(self, k=6, slope=0.1, seed=0):
        super().__init__()
        with rng.guard(seed, "net"):
            self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
            self.out = nn.Linear(16, k)
            self.mid, self.scale, self.drop = nn.Linear(64, 16), nn.LayerNorm(16), nn.Dropout(0.3)
        self.slope = slope

    def forward(self, x):
        h = functional.leaky_relu(self.norm(self.conv(x)), self.slope, inplace=True)
        return self.out(self.drop(self.scale(self.mid(h.flatten(1))).relu()))


def plain(k=6, seed=0, activation=nn.ReLU):
    with rng.guard(seed, "plain"):
        return nn.Sequential(nn.Linear(36, 12), activation(), nn.Linear(12, k))


def options(name):
    return {key: value for key, value in LEARNERS[name].fields.items() if key != "hidden"}


# What a name with a memory fills in is tested once.
@pytest.mark.parametrize("name", [name for name in TAKES_ANY if name == "vanilla_s" or not name.endswith("_s")])
def test_every_method_that_can_trains_any_network_and_leaves_the_users_alone(name):
    theirs, stream = Net(), functools.partial(split, blobs(per_class=8), 3)
    before = copy.deepcopy(theirs.state_dict())
    state = torch.random.get_rng_state()
    found = [run(stream(), build(name, stream(), net=theirs, seed=1, **options(name)), batch_size=10) for _ in range(2)]
    assert torch.equal(found[0].R, found[1].R)
    assert found[0].id == found[1].id
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[key], value) for key, value in theirs.state_dict().items())
    assert found[0].details["net"].startswith("the head is 'out'")


def test_what_cannot_take_a_network_says_why():
    assert {name for name in METHODS if name not in TAKES_ANY} >= {"vcl", "mc_dropout", "ensemble", "vgr"}
    with pytest.raises(
        InputError, match=r"'net' of vcl must be a name: it draws from layers that it makes itself; ewc"
    ):
        build("vcl", stream(), net=Net())
    made = build("ewc", stream(), net=Net())
    with pytest.raises(InputError, match="'net' of VCL must be one of mlp"):
        METHODS["vcl"](made.spec, net=made.brought)


@pytest.mark.parametrize("name", ["ewc", "rwalk", "gem", "icarl", "dgr", "joint"])
@pytest.mark.parametrize("head", ["fixed", "grown"])
def test_saved_in_the_middle_it_goes_on_to_the_same_weights(name, head):
    def made():
        return build(name, stream(), net=Net(), head=head, **options(name))

    first, second = made(), made()
    tasks = iter(stream())
    task = next(tasks)
    first.begin_task(task)
    first.observe(task.x[:10], task.y[:10])
    state = first.state_dict()
    second.begin_task(task)
    second.load_state_dict(state)
    for learner in (first, second):
        learner.observe(task.x[10:20], task.y[10:20])
    for key, value in first.net.state_dict().items():
        assert torch.equal(value, second.net.state_dict()[key]), key


def test_which_fisher_was_used_is_said():
    told = run(stream(), build("ewc", stream(), net=Net())).details["fisher"]
    assert told == {
        "exact": ["body.1.conv (Conv2d)", "body.1.norm (BatchNorm2d)", "body.1.mid (Linear)", "head (Linear)"],
        "torch.func": ["body.1.scale (LayerNorm)"],
    }
    assert run(stream(), build("rwalk", stream(), net=plain())).details["fisher"].keys() == {"exact"}
    assert run(stream(), build("ewc", stream(), hidden=(8,))).details == {}


def test_ewc_on_a_sequential_is_ewc_on_the_network_of_the_package():
    """The same weights in another form train to the same numbers."""
    ours = build("ewc", stream(), hidden=(12,), lam=1e3)
    theirs = nn.Sequential(nn.Flatten(), *copy.deepcopy(list(ours.net.body)[1:]), copy.deepcopy(ours.net.head))
    a = run(stream(), ours, epochs=2)
    b = run(stream(), build("ewc", stream(), net=theirs, lam=1e3), epochs=2)
    torch.testing.assert_close(a.R, b.R)
    vanilla = run(stream(), build("vanilla", stream(), net=theirs), epochs=2)
    assert not torch.equal(b.R, vanilla.R)


@pytest.mark.parametrize("declared", ["single", "multi"])
def test_bare_networks_are_trained_as_vanilla(declared):
    here = stream(head=declared)
    record = run(here, Net(), seed=2)
    assert record.R.shape == (3, 3)
    assert record.config["learner"]["method"] == "Vanilla"
    assert record.details["learner"] == "a bare network was given: it was trained as vanilla is"
    by_name = run(here, build("vanilla", here, net=Net(), seed=2), seed=2)
    assert by_name.id == record.id
    assert torch.equal(by_name.R, record.R)


def test_a_bare_network_learns():
    record = run(stream(head="multi"), Net(), epochs=10, batch_size=8)
    assert float(record.R.diagonal().mean()) > 0.8


def test_rows_take_the_shape_that_the_network_wants():
    images, table = stream(), split((torch.rand(30, 5), [0, 1] * 15), 1)
    assert build("vanilla", images, net=Net()).net.body[0].shape == (1, 6, 6)
    assert build("vanilla", images, net=plain()).net.body[0].shape == (36,)
    recurrent = type("Last", (nn.Module,), {"forward": lambda self, x: self.head(self.rnn(x)[0][:, -1])})()
    recurrent.rnn, recurrent.head = nn.GRU(6, 4, batch_first=True), nn.Linear(4, 6)
    assert build("vanilla", images, net=recurrent).net.body[0].shape == (6, 6)
    over_time = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(6, 2))
    assert build("vanilla", table, net=over_time).net.body[0].shape == (1, 5)
    assert build("vanilla", table, net=nn.Linear(5, 2)).net.head.in_features == 5


def test_a_head_of_another_size_is_made_anew_and_said():
    record = run(stream(), build("ewc", stream(), net=Net(k=1000)))
    assert record.details["net"] == ("the head is 'out'; it was made anew: it had 1000 outputs, the stream has 6")
    assert record.structure[-2:] == ["head.weight 6x16", "head.bias 6"]


def test_the_head_may_be_named_and_frozen_parameters_stay():
    net = Net()
    net.conv.requires_grad_(False)
    learner = build("ewc", stream(), net=net, head="out", lam=10.0)
    run(stream(), learner, epochs=2)
    assert torch.equal(learner.net.body[1].conv.weight, net.conv.weight)
    assert not torch.equal(learner.net.body[1].mid.weight, net.mid.weight)
    assert "body.1.conv.weight" not in learner.weight_
    with pytest.raises(UnknownName, match=r"'head' of the network Net must be one of mid, out. Got 'outt'.*'out'"):
        build("ewc", stream(), net=net, head="outt")


def test_shared_parameters_train_as_one():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.out = nn.Linear(36, 36), nn.Linear(36, 36), nn.Linear(36, 6)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.out(self.b(self.a(x).relu()).relu())

    for name in ("ewc", "pi", "gem"):
        learner = build(name, stream(), net=Tied())
        run(stream(), learner)
        assert learner.net.body[1].a.weight is learner.net.body[1].b.weight


class Two(nn.Module):
    def forward(self, x, mask):
        return x


class Chance(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(36, 6)

    def forward(self, x):
        return self.fc(x + torch.rand(36))


class Softmaxed(Net):
    def forward(self, x):
        return super().forward(x).log_softmax(1)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(36, 36)

    def forward(self, x):
        return self.fc(self.fc(x))


def frozen():
    return plain().requires_grad_(False)


@pytest.mark.parametrize(
    ("module", "more", "sentence"),
    [
        (Two(), {}, r"must be one that takes one input, the rows.*Got x and mask"),
        (Chance(), {}, r"without chance in evaluation mode"),
        (Softmaxed(), {}, r"one that ends with its head \('out'.*gives its logits. Got other numbers"),
        (Twice(), {}, r"'head' of the network Twice must be a layer that is called once. Got 'fc', which is called 2"),
        (nn.Sequential(nn.Flatten(), nn.ReLU()), {}, r"one with a linear layer to be its head. Got none"),
        (nn.Linear(7, 6), {}, r"turns rows of shape \(6, 6\) into a row of logits each. Got RuntimeError"),
        (nn.Conv2d(1, 6, 3), {}, r"a row of logits each. Got shape \(2, 6, 4, 4\) for 2 rows"),
        (frozen(), {}, r"one with parameters that learn. Got none"),
        (Net(), {"hidden": (3,)}, r"'hidden' of ewc must be left out with a network of one's own"),
        (nn.Sequential(nn.Flatten(), nn.Linear(36, 6, bias=False)), {"head": "grown"}, r"'fixed' for a head without"),
    ],
)
def test_networks_that_cannot_learn_here_are_refused_in_a_sentence(module, more, sentence):
    with pytest.raises(InputError, match=sentence):
        build("ewc", stream(), net=module, **more)


def test_a_batch_of_one_row_under_batch_norm_is_refused_in_a_sentence():
    with pytest.raises(InputError, match="leaves no batch of one row"):
        run(stream(), Net(), batch_size=23)


def test_two_networks_never_share_an_id(tmp_path):
    class Other(Net):
        def forward(self, x):
            return super().forward(x) * 1.0

    modules = [
        Net(), Net(slope=0.2), Net(seed=1), plain(), plain(activation=nn.Tanh), plain(seed=1),
        nn.Sequential(nn.Flatten(), *plain()), Net().requires_grad_(False),
    ]  # fmt: skip
    modules[-1].out.requires_grad_()
    small = split(blobs(per_class=6), 3)
    records = [run(small, build("vanilla", small, net=module)) for module in modules]
    assert len({record.id for record in records}) == len(records)
    for record in records:
        assert Record.load(record.save(tmp_path)).id == record.id
    assert run(small, build("vanilla", small, net=Net())).id == records[0].id


# Learners by duck typing. ----------------------------------------------------------------------------------------


class NearestMean:
    """The smallest learner: the mean of each class."""

    def __init__(self, k):
        self.sums, self.counts = torch.zeros(k, 36), torch.zeros(k, 1)

    def observe(self, x, y):
        self.sums.index_add_(0, y, x.flatten(1))
        self.counts.index_add_(0, y, torch.ones(len(y), 1))

    def predict(self, x):
        return -torch.cdist(x.flatten(1), self.sums / self.counts.clamp_min(1))


def test_a_learner_of_ten_lines(tmp_path):
    record = run(stream(), NearestMean(6))
    assert float(record.R[-1].mean()) > 0.9
    assert record.learner.endswith("NearestMean")
    assert record.config["learner"] == {"method": "NearestMean"}
    assert record.bytes["method"] == [6 * 37 * 4] * 3
    assert "NearestMean" in record.details["learner"]
    assert Record.load(record.save(tmp_path)).id == record.id
    assert audited_run(stream(), NearestMean(6)).audit is not None
    assert audit(stream(), NearestMean(6)).subject


class Told:
    """Everything that is optional."""

    probabilities, uses_task, version = True, True, 3

    def __init__(self, rate=0.1):
        self.rate, self.heard, self.net = rate, [], plain()

    def begin_task(self, task):
        self.heard.append(("begin", task.info.outputs))

    def observe(self, x, y):
        return functional.cross_entropy(self.net(x.flatten(1)), y)

    def end_task(self, task):
        self.heard.append(("end", len(task.y)))

    def predict(self, x, task):
        self.heard.append(("predict", task is not None))
        return self.net(x.flatten(1)).numpy()

    def describe(self):
        return {"rate": self.rate}

    def bytes(self):
        return {"model": 7}


def test_what_is_optional_is_used_where_it_is_there():
    learner, here = Told(), stream(head="multi")
    record = run(here, learner, uncertainty=True)
    assert [event for event in learner.heard if event[0] != "predict"][:2] == [("begin", (0, 1)), ("end", 24)]
    assert ("predict", True) in learner.heard
    assert record.config["learner"]["rate"] == 0.1
    assert record.version["learner"] == 3
    assert record.bytes == {"model": [7] * 3} | {"peak": record.bytes["peak"]}
    assert "predictive_entropy" in record.values or record.values
    assert run(here, Told(rate=0.2)).id != run(here, Told()).id


class Half:
    def observe(self, x, y): ...


class Labels(Half):
    def predict(self, x):
        return torch.zeros(len(x))


class Missing(Half):
    def predict(self, x):
        return torch.full((len(x), 6), torch.nan)


class Unplain(NearestMean):
    def describe(self):
        return {"x": object()}


@pytest.mark.parametrize(
    ("learner", "sentence"),
    [
        (Half(), r"an object with the methods observe\(x, y\) and predict\(x\). Got a Half without 'predict'"),
        (object(), r"Got a object without 'observe'"),
        ("ewc", r"a learner of methods.build.*Got a str without 'observe'"),
        (NearestMean, r"must be an object. Got the class NearestMean; call it"),
        (Labels(), r"'predict\(x\)' of Labels must be scores of shape \(40, 6\).*Got shape"),
        (Missing(), r"'predict\(x\)' of Missing must be numbers. Got NaN"),
        (Unplain(6), r"'describe\(\)' of Unplain must be plain JSON"),
    ],
)
def test_what_is_no_learner_is_refused_by_what_is_missing(learner, sentence):
    with pytest.raises(InputError, match=sentence):
        run(stream(), learner)


def test_a_permuted_stream_of_own_images_and_a_named_head_in_one_line():
    record = vs.run(permuted(blobs(per_class=12), 2), Net())
    assert record.R.shape == (2, 2)
