"""``memory``: what the cache of a model costs, and with a device how much of it fits and how fast it is read.

Like every command it starts with the standard library alone, and unlike the others it needs nothing else.
"""

import argparse
import json
import os
import sys
import warnings

from kvlab import memory
from kvlab.commands import CommandError

BYTES = (
    "cache of all sequences",
    "on one rank",
    "of it, one more token of a sequence",
    "fixed part of a sequence, at this length",
)
ON_A_DEVICE = ("weights_dtype", "reserve")  # options that say nothing without one
MOST = 10**18  # beyond any model; the floating-point numbers of the table end far above it


def main(argv):
    parser = argparse.ArgumentParser(
        prog="python3 -m kvlab memory",
        description="Exact bytes of a model's KV cache, layer by layer.",
        epilog="GiB are 2**30 bytes and GB are 10**9. All sizes are ideal unless --block-size asks what an "
        "engine with paged memory allocates.",
    )
    parser.add_argument(
        "model", nargs="?", help="a name of the catalogue (--list), or a path to a config.json"
    )
    parser.add_argument("--tokens", type=int, default=4096, help="length of each sequence (default: 4096)")
    parser.add_argument("--sequences", type=int, default=1, help="how many at once (default: 1)")
    parser.add_argument("--dtype", help="format of the cache (default: the model's own)")
    parser.add_argument("--tp", type=int, default=1, help="ranks of tensor parallelism (default: 1)")
    parser.add_argument(
        "--block-size", type=int, help="also say what a pool with blocks of this size allocates"
    )
    parser.add_argument("--device", help="also say what fits on this device, and how fast a token can be")
    parser.add_argument("--weights-dtype", help="format of the weights (default: the model's own)")
    parser.add_argument(
        "--parameters", type=float, help="of a model that is not in the catalogue, such as 7e9"
    )
    parser.add_argument("--reserve", type=float, help="share of the device kept back (default: 0)")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of a table")
    parser.add_argument("--list", action="store_true", help="the models, devices and dtypes that are known")
    options = parser.parse_args(argv)
    if options.list:
        return show(listing())
    if not options.model:
        raise CommandError(
            "which model? A name of the catalogue (--list) or a path to a config.json", status=2
        )
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", memory.TokenLimitWarning)
            _check(options)
            spec = _spec(options)
            answer = answers(spec, options)
            remarks = [*(str(each.message) for each in caught), *spec.notes]
            if options.json:
                said = json.dumps(answer | {"notes": remarks}, indent=2)
            else:
                lines = [table(spec, answer, options.block_size, options.reserve)]
                said = "\n".join(lines + [""] * bool(remarks) + [f"Note: {remark}" for remark in remarks])
    except OverflowError as error:
        raise CommandError("the model's numbers are too large to work with", status=2) from error
    except (ValueError, TypeError) as error:
        raise CommandError(" ".join(str(error).split()), status=2) from error
    return show(said)


def show(text):
    """Print it, and end quietly where nobody reads on, as after ``| head`` -> exit status."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # What could not be written would be tried again, and fail, when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _check(options):
    """Refuse by its option what would be overlooked, or be worked with to no end."""
    for name, value in vars(options).items():
        option = f"--{name.replace('_', '-')}"
        if name in ON_A_DEVICE and value is not None and options.device is None:
            raise ValueError(f"{option} says nothing without a device: name one with --device")
        if value == "":
            raise ValueError(f"{option} is empty: leave it out, or choose a name of --list")
        if isinstance(value, int) and value > MOST:
            raise ValueError(f"{option} is above {MOST:,}: give a smaller number")


def _spec(options):
    spec, parameters = memory.spec_of(options.model), options.parameters
    if parameters is None:
        return spec
    if not 1 <= parameters <= MOST or not parameters.is_integer():
        raise ValueError(
            f"--parameters {parameters:g} is no number of parameters: give a whole one, 7e9 for 7 billion"
        )
    return spec.with_parameters(int(parameters))


def answers(spec, options):
    """What the contract's JSON holds -> dict."""
    cost = memory.cost(spec, options.tokens, options.sequences, options.dtype, options.tp)
    answer = {
        "model": spec.name,
        "bytes_total": cost.bytes_total,
        "bytes_per_rank": cost.bytes_per_rank,
        "bytes_per_token": cost.bytes_per_token,
        "bytes_constant": cost.bytes_constant,
        "tokens": cost.tokens,
        "sequences": cost.sequences,
        "dtype": cost.dtype,
        "tp": cost.tp,
    }
    asked = {"dtype": options.dtype, "tp": options.tp}
    if options.block_size is not None:
        pool = memory.allocation(
            spec, options.tokens, options.sequences, block_size=options.block_size, **asked
        )
        answer["allocated_per_rank"] = pool.total
        answer["allocated_more"] = {"rounding": pool.rounding, "windows": pool.windows, "spare": pool.spare}
    if options.device is not None:
        answer |= _on_device(spec, options, asked)
    return answer


def _on_device(spec, options, asked):
    device = memory.device(options.device)
    weights = {"weights_dtype": options.weights_dtype, "tp": options.tp}
    free = memory.free_bytes(spec, device, reserve=options.reserve or 0.0, **weights)
    step = memory.decode(
        spec,
        options.tokens,
        device,
        max(1, options.sequences),
        options.dtype,
        options.weights_dtype,
        options.tp,
    )
    room = {"free": free, "block_size": options.block_size, **asked}
    return {
        "device": device.name,
        "device_bytes": device.memory_bytes,
        "weights_per_rank": memory.weight_bytes(spec, options.weights_dtype, options.tp),
        "free_per_rank": free,
        "fits_sequences": memory.fits_sequences(spec, options.tokens, **room),
        "max_tokens": memory.longest(spec, sequences=max(1, options.sequences), **room),
        "model_limit": spec.max_tokens,
        "tpot_floor_s": step.floor_s,
    }


def table(spec, answer, block_size, reserve):
    """The answers for people."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in spec.kinds().items())
    lines = [
        f"{spec.name}: {len(spec.layers)} layers ({kinds}), {spec.query_heads} query heads",
        "{sequences:,} x {tokens:,} tokens, cache in {dtype}, tp {tp}".format(**answer),
        "",
    ]
    names = ["bytes_total", "bytes_per_rank", "bytes_per_token", "bytes_constant"]
    rows = [(text, answer[name]) for text, name in zip(BYTES, names, strict=True)]
    if block_size is not None:
        rows.append((f"allocated on one rank, in blocks of {block_size}", answer["allocated_per_rank"]))
        rows += [(f"  more than ideal: {why}", more) for why, more in answer["allocated_more"].items()]
    if "device" in answer:
        free = answer["free_per_rank"]
        rows += [
            (f"weights on one {answer['device']}", answer["weights_per_rank"]),
            ("left for caches", free) if free >= 0 else ("lacking before any cache", -free),
        ]
    width, digits = max(len(text) for text, _ in rows), max(len(f"{value:,}") for _, value in rows)
    for text, value in rows:
        sizes = f"{memory.size(value):>12}  {memory.size(value, 'decimal'):>12}"
        lines.append(f"{text:<{width}}  {value:>{digits},} B  {sizes}")
    return "\n".join(lines + (_fits(answer, reserve) if "device" in answer else []))


def _fits(answer, reserve):
    weights, room = answer["weights_per_rank"], answer["device_bytes"]
    if weights >= room:
        alone = f"the weights alone do not fit: {memory.size(weights)} on a device of {memory.size(room)}"
        return ["", alone, "more ranks (--tp), a smaller --weights-dtype or a larger device would help"]
    if answer["free_per_rank"] <= 0:
        return ["", "the weights and what is held back fill the device: nothing is left for caches"]
    length, limit = answer["max_tokens"], answer["model_limit"]
    several = f" of {answer['sequences']} sequences" if answer["sequences"] > 1 else ""
    longest = "no length fills it" if length is None else f"{length:,} tokens"
    if limit is not None and (length is None or length > limit):
        longest += f" (the model was made for {limit:,})"
    fits = answer["fits_sequences"]
    seconds = answer["tpot_floor_s"]
    step = f"{seconds:,.1f} s" if seconds >= 10 else f"{seconds * 1000:,.2f} ms"
    said = [
        "",
        f"sequences of {answer['tokens']:,} tokens that fit: {'any number' if fits is None else f'{fits:,}'}",
        f"longest text{several}: {longest}",
        f"a decode step takes about {step}, by the roofline",
    ]
    if not reserve:
        said.append("nothing is held back for activations; engines keep about a tenth: --reserve 0.1")
    return said


def listing():
    """Everything that has a name here."""
    parts = {
        "models": memory.models(),
        "devices": memory.devices(),
        "dtypes": memory.FORMATS,
        "model_type of a config.json": memory.FAMILIES,
    }
    return "\n\n".join("\n  ".join([f"{what}:", *names]) for what, names in parts.items())
