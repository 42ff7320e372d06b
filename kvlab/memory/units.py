"""Bytes for people: GiB are 2**30 and GB are 10**9, and nothing here mixes them."""

BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
DECIMAL = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS = {"B": 1} | BINARY | DECIMAL
GiB, GB = BINARY["GiB"], DECIMAL["GB"]


def size(nbytes, family="binary"):
    """1610612736 -> '1.50 GiB'; with ``family="decimal"`` '1.61 GB'. Exact bytes below the smallest unit."""
    if family not in ("binary", "decimal"):
        raise ValueError(f"{family!r} units are not known: binary (GiB) or decimal (GB)")
    sign, amount = "-" * (nbytes < 0), abs(nbytes)
    # 0.999995: what would be written as 1,024.00 of a unit is 1.00 of the next.
    units = (BINARY if family == "binary" else DECIMAL).items()
    fits = [(unit, one) for unit, one in units if amount >= (one if one < 2**20 else 0.999995 * one)]
    if not fits:
        return f"{sign}{amount} B"
    unit, one = fits[-1]
    return f"{sign}{amount / one:,.2f} {unit}"
