"""The benchmark without the commands of kvlab, each row as it comes."""

from kvlab.benchmarks.kernel import kernel

if __name__ == "__main__":
    kernel(say=lambda row: print("  ".join(filter(None, row)), flush=True))
