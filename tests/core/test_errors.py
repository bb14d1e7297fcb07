"""The tree is the one drawn in the docstring, and each leaf can be caught as what Python calls it."""

import inspect
import re

import pytest

from vestige.core import errors


def test_the_tree_is_the_one_that_is_drawn():
    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__)) | {"VestigeError", "VestigeWarning"}
    defined = {name for name, _ in inspect.getmembers(errors, inspect.isclass)}
    assert drawn == defined


@pytest.mark.parametrize(("name", "others"), re.findall(r"── (\w+) \(also (\w+)\)", errors.__doc__))
def test_each_error_is_also_what_python_calls_it(name, others):
    error = getattr(errors, name)
    assert issubclass(error, errors.VestigeError)
    assert issubclass(error, __builtins__[others] if isinstance(__builtins__, dict) else getattr(__builtins__, others))


def test_errors_are_caught_by_one_name_and_warnings_are_not_errors():
    leaves = [c for _, c in inspect.getmembers(errors, inspect.isclass) if c is not errors.VestigeWarning]
    assert all(issubclass(c, errors.VestigeError) for c in leaves)
    assert all(inspect.getdoc(c) for c in leaves)
    assert issubclass(errors.UnknownName, errors.InputError)
    assert issubclass(errors.VestigeWarning, UserWarning)
    assert not issubclass(errors.VestigeWarning, errors.VestigeError)
