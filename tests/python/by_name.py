"""The functions of libkiln_ffi, with what is not given as None."""

from kiln._library import library

LAUNCH = 0


def in_order(function, **values):
    names = [str(each) for each in library().parameters(function)]
    assert set(values) <= set(names), (function, names)
    return [values.get(each) for each in names]


def launch(function, **values):
    """On the device of the tensors, which nothing has looked at."""
    return getattr(library(), function)(LAUNCH, -1, *in_order(function, **values))
