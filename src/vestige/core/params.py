"""Options by name, as scikit-learn asks for them: `clone`, `Pipeline` and `GridSearchCV` then take our estimators.

An estimator is a dataclass whose fields are its options; what it learns are fields that `__init__` does not take. So
these functions serve every one of them: a class takes them over in its body. scikit-learn is loaded when it asks.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from vestige.core import checks

E = TypeVar("E")


def get_params(self: Any, deep: bool = True) -> dict[str, Any]:  # noqa: ANN401 - any estimator
    """The options by name; `deep` adds those of options that have options, as NAME__OPTION."""
    found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}
    for name, value in list(found.items()) if deep else ():
        if hasattr(value, "get_params") and not isinstance(value, type):
            found |= {f"{name}__{inner}": own for inner, own in value.get_params().items()}
    return found


def set_params(self: E, **options: Any) -> E:  # noqa: ANN401 - of the types of the fields
    """Change options, NAME__OPTION those of an option; one that is not known or not allowed changes none."""
    own: Any = self
    names, owner = get_params(own, deep=False), f"{type(self).__name__}.set_params"
    direct = {name: value for name, value in options.items() if "__" not in name}
    for name in options:
        checks.one_of(name.partition("__")[0], names, "options", owner)
    type(own)(**(names | direct))  # refuses what the class refuses
    for name, value in direct.items():
        setattr(own, name, value)
    for name, value in options.items():
        outer, inside, inner = name.partition("__")
        if inside:
            getattr(own, outer).set_params(**{inner: value})
    return self


def tags(*, transformer: bool) -> Any:  # noqa: ANN401 - scikit-learn's own class
    """What scikit-learn wants to know of an estimator before it is fitted."""
    from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags, TransformerTags

    if transformer:
        kind = TransformerTags(preserves_dtype=[])
        return Tags("transformer", TargetTags(required=False), kind, input_tags=InputTags())
    two = ClassifierTags(multi_class=False)  # labels say which of two sides a row is of
    return Tags(None, TargetTags(required=True), classifier_tags=two, input_tags=InputTags())
