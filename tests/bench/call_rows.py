"""The overhead of a call: of an operation, eager and compiled, beside torch's own; of a
kiln.Kernel beside CuPy's and cuda.core's; and of the parts of which a call is made."""

import functools
from dataclasses import dataclass
from typing import Callable

from pairs import Limit, Row, Sides, each
from place import COLS, ROWS

# What an operation does that no other can leave out: see by_hand().
BY_HAND = "its outputs, a tvm-ffi call of the same tensors, the driver's launch"
DRIVER = "cuLaunchKernel by ctypes, its arguments ready"
TWICE = Limit(ratio=2.0)


@dataclass(frozen=True)
class Case:
    """An operation of kiln and torch's own, of x, and of weight and bias if it has
    them."""

    name: str
    kiln: Callable
    torch: Callable
    inputs: int
    statistics: int  # outputs with one element a row, which the gradient needs


def cases(torch):
    from kiln import ops

    F = torch.nn.functional
    return {
        case.name: case
        for case in (
            Case("softmax", lambda x: ops.softmax(x), lambda x: F.softmax(x, -1), 1, 0),
            Case(
                "layer_norm",
                lambda x, w, b: ops.layer_norm(x, w, b),
                lambda x, w, b: F.layer_norm(x, (COLS,), w, b),
                inputs=3,
                statistics=2,
            ),
            Case(
                "rms_norm",
                lambda x, w: ops.rms_norm(x, w),
                lambda x, w: F.rms_norm(x, (COLS,), w),
                inputs=2,
                statistics=1,
            ),
        )
    }


NAMES = ("softmax", "layer_norm", "rms_norm")


def tensors(place, case, requires_grad=False):
    shapes = ((ROWS, COLS), (COLS,), (COLS,))[: case.inputs]
    return [
        place.torch.ones(shape, device=place.device, requires_grad=requires_grad)
        for shape in shapes
    ]


def by_hand(place, case):
    """A function of the inputs that allocates the outputs, calls tvm-ffi with all of
    them, and launches: what is left of an operation without its checks, its kernel's
    choice and Kiln. Returns it with one that has a gradient, an autograd.Function."""
    torch, nop, launch = place.torch, place.nop, place.launch_by_driver()

    def forward(x, *others):
        outputs = [torch.empty_like(x)]
        for _ in range(case.statistics):
            outputs.append(x.new_empty(ROWS))
        nop(*outputs, x, *others)
        launch()
        return outputs[0]

    class ByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx, dy):
            inputs = ctx.saved_tensors
            gradients = [torch.empty_like(each) for each in inputs]
            nop(*gradients, dy, *inputs)
            launch()
            return tuple(gradients)

    return forward, ByHand.apply


class CallRows:
    """Rows that share a place, which is opened by the first that is measured."""

    def __init__(self, open_place, backend_of, calls):
        self.place = functools.cache(open_place)
        self.calls = calls
        self.compiled_by = None  # the backend and why, once it is known
        self._backend_of = backend_of

    def sides(self, measured, floor=None, peer=None):
        """Each of the functions, called in batches."""
        place = self.place()

        def sample(call):
            if call is None:
                return None
            call()  # what only the first call does
            return lambda: each(self.calls, call, place.settle)

        return Sides(sample(measured), sample(floor), sample(peer))

    def rows(self):
        yield from self.part_rows()
        for name in NAMES:
            yield self.eager(name)
        for name in NAMES:
            yield self.with_gradient(name)
        for name in NAMES:
            yield self.both_passes(name)
        for name in NAMES:
            yield self.compiled(name)
        yield from self.kernel_rows()

    # ---- The parts

    def part_rows(self):
        yield Row(
            "parts/empty_like",
            "torch.empty_like",
            lambda: self.sides(functools.partial(*self._empty_like())),
        )
        yield Row(
            "parts/ffi",
            "tvm-ffi function of 2 tensors that does nothing",
            self._ffi,
            floor="both data_ptr()",
        )
        yield Row(
            "parts/launch",
            "the driver's launch, by ctypes",
            self._launch,
            floor="cuDriverGetVersion by ctypes",
        )

    def _empty_like(self):
        place = self.place()
        return place.torch.empty_like, place.torch.ones(ROWS, COLS, device=place.device)

    def _ffi(self):
        place = self.place()
        y, x = (place.torch.ones(ROWS, COLS, device=place.device) for _ in range(2))
        nop = place.nop
        return self.sides(lambda: nop(y, x), lambda: (y.data_ptr(), x.data_ptr()))

    def _launch(self):
        import ctypes

        place = self.place()
        version = ctypes.c_int()
        where, get = ctypes.byref(version), place.driver.cuDriverGetVersion
        return self.sides(place.launch_by_driver(), lambda: get(where))

    # ---- Operations

    def _case(self, name):
        return cases(self.place().torch)[name]

    def eager(self, name):
        def prepare():
            case = self._case(name)
            inputs = tensors(self.place(), case)
            floor, _ = by_hand(self.place(), case)
            return self.sides(
                *(functools.partial(f, *inputs) for f in (case.kiln, floor, case.torch))
            )

        return Row(
            f"eager/{name}", f"{name}", prepare, BY_HAND, f"torch's {name}", TWICE
        )

    def with_gradient(self, name):
        """The forward pass of what has a gradient."""

        def prepare():
            case = self._case(name)
            inputs = tensors(self.place(), case, requires_grad=True)
            _, floor = by_hand(self.place(), case)
            return self.sides(
                *(functools.partial(f, *inputs) for f in (case.kiln, floor, case.torch))
            )

        return Row(
            f"gradient/{name}",
            f"{name} with gradient, forward",
            prepare,
            f"autograd.Function: {BY_HAND}",
            f"torch's {name}",
            TWICE,
        )

    def both_passes(self, name):
        def prepare():
            place, case = self.place(), self._case(name)
            inputs = tensors(place, case, requires_grad=True)
            dy = place.torch.ones(ROWS, COLS, device=place.device)
            grad = place.torch.autograd.grad
            _, floor = by_hand(place, case)

            def both(function):
                return lambda: grad(function(*inputs), inputs, dy)

            return self.sides(both(case.kiln), both(floor), both(case.torch))

        return Row(
            f"both/{name}",
            f"{name}, forward and backward",
            prepare,
            f"autograd.Function, in each pass: {BY_HAND}",
            f"torch's {name}",
        )

    @functools.cached_property
    def backend(self):
        name, why = self._backend_of(self.place())
        self.compiled_by = f"{name} ({why})"
        return name

    def compiled(self, name):
        def prepare():
            place, case = self.place(), self._case(name)
            inputs = tensors(place, case)

            def compiled(function):
                compile = place.torch.compile
                made = compile(function, fullgraph=True, backend=self.backend)
                return functools.partial(made, *inputs)

            empty_like = place.torch.empty_like
            return self.sides(
                compiled(case.kiln),
                compiled(lambda x, *_: empty_like(x)),
                compiled(case.torch),
            )

        return Row(
            f"compiled/{name}",
            f"{name}, compiled",
            prepare,
            "torch.empty_like, compiled",
            f"torch's {name}, compiled",
        )

    # ---- Kernels from a source

    def kernel_rows(self):
        yield Row(
            "kernel/launch",
            "kiln.Kernel, 2 tensors and 2 numbers",
            lambda: self.sides(
                self.place().launch_by_kiln(), self.place().launch_by_driver()
            ),
            DRIVER,
        )
        for name, title, launches in (
            ("cupy", "CuPy's RawKernel", lambda: self.place().launches_by_cupy()),
            ("cuda.core", "cuda.core", lambda: self.place().launches_by_cuda_core()),
        ):
            yield Row(
                f"kernel/{name}",
                f"kiln.Kernel beside {title}",
                functools.partial(self._beside, launches),
                DRIVER,
                f"{title}, the same arguments",
            )

    def _beside(self, launches):
        measured, peer = launches()
        return self.sides(measured, self.place().launch_by_driver(), peer)
