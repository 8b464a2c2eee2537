"""The primitives of layers and scans: the forward pass, the backward pass, and the tangents of the forward pass.

The tangents are linear in those of the inputs, and their transpose is the backward pass. So JAX makes reverse mode of
the handlers' two passes, and forward mode and derivatives of higher order of the same passes in its own operations.
"""

import functools

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..errors import Unsupported
from ._forms import WHOLE


def _in_plain(form, inputs, moving):
    """Returns the outputs as a function of the inputs with the indices `moving`, in JAX's operations."""

    def outputs(*values):
        whole = list(inputs)
        for i, value in zip(moving, values):
            whole[i] = value
        return tuple(form.plain(*whole))

    return outputs


# ---- what the primitives compute -------------------------------------------------------------------------------------


def _divide(form, args):
    """Returns the inputs, what was saved, and the rest of the arguments."""
    inputs = len(form.input_axes)
    saved = inputs + len(form.saved_axes)
    return list(args[:inputs]), list(args[inputs:saved]), list(args[saved:])


def _forward(*inputs, form, training, platform):
    return form.forward(inputs, training, platform)


def _backward(*args, form, moving, platform):
    return form.backward(*_divide(form, args), moving, platform)


def _tangents(*args, form, moving):
    inputs, _, tangents = _divide(form, args)
    return jax.jvp(_in_plain(form, inputs, moving), [inputs[i] for i in moving], tangents)[1]


def _plain_backward(*args, form, moving):
    inputs, _, cotangents = _divide(form, args)
    return jax.vjp(_in_plain(form, inputs, moving), *(inputs[i] for i in moving))[1](tuple(cotangents))


# ---- shapes and code -------------------------------------------------------------------------------------------------


def _array(shape, dtype, like):
    """Returns an abstract array that varies over the same axes of a mesh as `like` does, in jax.shard_map()."""
    return like.update(shape=tuple(shape), dtype=dtype, weak_type=False)


def _refuse_device(context, *args, **params):
    raise Unsupported(
        "penstock.jax runs on CPUs and on NVIDIA's GPUs: run the function on jax.devices('cpu') or "
        "jax.devices('cuda')"
    )


@functools.cache
def _compiled(primitive, params):
    return jax.jit(lambda *args: primitive.bind(*args, **dict(params)))


def _run(primitive, *args, **params):
    """Runs an eager call."""
    with jax.disable_jit(False):  # where it is disabled, the function would call itself again
        return _compiled(primitive, tuple(params.items()))(*args)


def _primitive(name, shapes, compute, native):
    """Returns a new primitive, which runs `compute`. `native`: it calls the handlers of a platform."""
    primitive = Primitive(f"penstock_{name}")
    primitive.multiple_results = True
    primitive.def_abstract_eval(lambda *args, **params: [_array(*each, args[0]) for each in shapes(*args, **params)])
    primitive.def_impl(functools.partial(_run, primitive))
    for platform in ("cpu", "cuda") if native else ():
        code = mlir.lower_fun(functools.partial(compute, platform=platform), multiple_results=True)
        mlir.register_lowering(primitive, code, platform=platform)
    mlir.register_lowering(primitive, _refuse_device if native else mlir.lower_fun(compute, multiple_results=True))
    return primitive


forward_p = _primitive("forward", lambda *inputs, form, training: form.results(inputs, training), _forward, True)
backward_p = _primitive(
    "backward", lambda *args, form, moving: [(args[i].shape, args[i].dtype) for i in moving], _backward, True
)
tangents_p = _primitive(
    "tangents", lambda *args, form, moving: form.results(args[: len(form.input_axes)], False), _tangents, False
)


# ---- derivatives -----------------------------------------------------------------------------------------------------


def _moving(tangents):
    return tuple(i for i, tangent in enumerate(tangents) if type(tangent) is not ad.Zero)


def _forward_jvp(inputs, tangents, *, form, training):
    moving = _moving(tangents[: form.floats])
    outputs = forward_p.bind(*inputs, form=form, training=form.taped)
    given = [tangents[i] for i in moving]
    found = tangents_p.bind(*inputs, *form.saved(outputs), *given, form=form, moving=moving)
    tape = [ad.Zero(jax.typeof(outputs[-1]).update(dtype=jax.dtypes.float0))] * (form.taped and training)
    return outputs if training or not form.taped else outputs[:-1], [*found, *tape]


def _jvp_by(primitive, plain):
    """Returns the rule for a primitive whose results `plain` computes, too. What was saved depends on the inputs."""

    def rule(args, tangents, **params):
        inputs = len(params["form"].input_axes)
        saved = inputs + len(params["form"].saved_axes)
        moving = [i for i in _moving(tangents) if not inputs <= i < saved]

        def results(*values):
            whole = list(args)
            for i, value in zip(moving, values):
                whole[i] = value
            return tuple(plain(*whole, **params))

        found = jax.jvp(results, [args[i] for i in moving], [tangents[i] for i in moving])[1]
        return primitive.bind(*args, **params), list(found)

    return rule


def _transpose_tangents(cotangents, *args, form, moving):
    fixed = len(args) - len(moving)
    given = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    return [None] * fixed + list(backward_p.bind(*args[:fixed], *given, form=form, moving=moving))


ad.primitive_jvps[forward_p] = _forward_jvp
ad.primitive_jvps[backward_p] = _jvp_by(backward_p, _plain_backward)
ad.primitive_jvps[tangents_p] = _jvp_by(tangents_p, _tangents)
ad.primitive_transposes[tangents_p] = _transpose_tangents


# ---- vmap ------------------------------------------------------------------------------------------------------------


def _as_rows(args, dims, axes):
    """Merges the mapped axis of arrays into their axes of rows. Weights and tapes stay."""
    size = _size(args, dims)

    def fold(array, dim, axis):
        if axis is None or axis == WHOLE:
            return array
        array = jnp.broadcast_to(array, (size, *array.shape)) if dim is None else jnp.moveaxis(array, dim, 0)
        array = jnp.moveaxis(array, 0, axis)
        return array.reshape(*array.shape[:axis], -1, *array.shape[axis + 2 :])

    return [fold(*each) for each in zip(args, dims, axes)]


def _divided_rows(results, axes, size):
    def divide(array, axis):
        if axis == WHOLE:
            return array, None
        return array.reshape(*array.shape[:axis], size, -1, *array.shape[axis + 1 :]), axis

    return zip(*(divide(*each) for each in zip(results, axes)))


def _size(args, dims):
    return next(array.shape[dim] for array, dim in zip(args, dims) if dim is not None)


def _one_by_one(primitive, args, dims, params):
    mapped = [i for i, dim in enumerate(dims) if dim is not None]

    def one(values):
        whole = list(args)
        for i, value in zip(mapped, values):
            whole[i] = value
        return tuple(primitive.bind(*whole, **params))

    results = jax.lax.map(one, tuple(jnp.moveaxis(args[i], dims[i], 0) for i in mapped))
    return results, (0,) * len(results)


def _has_mapped(dims, places):
    return any(dims[i] is not None for i in places)


def _batch_forward(args, dims, *, form, training):
    """Runs calls that share their weights as rows of one call with one tape, and others one by one."""
    params = {"form": form, "training": training}
    if _has_mapped(dims, form.weights):
        return _one_by_one(forward_p, args, dims, params)
    results = forward_p.bind(*_as_rows(args, dims, form.input_axes), **params)
    axes = [*form.output_axes, *[WHOLE] * (form.taped and training)]
    return _divided_rows(results, axes, _size(args, dims))


def _batch_saved(args, dims, form):
    """Returns the arguments for calls one by one, without a tape that has the rows of all calls: they run their forward
    passes again."""
    inputs = len(form.input_axes)
    tape = inputs + len(form.saved_axes) - 1
    if form.taped and dims[tape] is None and _has_mapped(dims, range(inputs)):
        args = [*args[:tape], jnp.zeros(0, jnp.uint8), *args[tape + 1 :]]
    return args


def _batch_backward(args, dims, *, form, moving):
    params = {"form": form, "moving": moving}
    inputs = len(form.input_axes)
    own_gradients = set(moving) & set(form.weights)  # each call has its own
    taped = _has_mapped(dims, range(inputs)) or not form.taped
    if own_gradients or _has_mapped(dims, form.weights) or not taped:
        return _one_by_one(backward_p, _batch_saved(args, dims, form), dims, params)
    axes = [*form.input_axes, *form.saved_axes, *form.output_axes]
    results = backward_p.bind(*_as_rows(args, dims, axes), **params)
    return _divided_rows(results, [form.input_axes[i] for i in moving], _size(args, dims))


def _batch_tangents(args, dims, *, form, moving):
    params = {"form": form, "moving": moving}
    inputs = len(form.input_axes)
    fixed = inputs + len(form.saved_axes)
    if not _has_mapped(dims, range(fixed)):  # tangents alone, as in jax.jacfwd()
        return jax.vmap(functools.partial(_tangents, **params), dims)(*args), (0,) * len(form.output_axes)
    of_weights = [fixed + place for place, i in enumerate(moving) if i in form.weights]
    if _has_mapped(dims, [*form.weights, *of_weights]):
        return _one_by_one(tangents_p, _batch_saved(args, dims, form), dims, params)
    axes = [*form.input_axes, *form.saved_axes, *(form.input_axes[i] for i in moving)]
    return _divided_rows(tangents_p.bind(*_as_rows(args, dims, axes), **params), form.output_axes, _size(args, dims))


batching.primitive_batchers[forward_p] = _batch_forward
batching.primitive_batchers[backward_p] = _batch_backward
batching.primitive_batchers[tangents_p] = _batch_tangents


def run(form, inputs):
    """Runs a call with derivatives of all orders and modes, and vmap."""
    return forward_p.bind(*inputs, form=form, training=False)
