"""python -m milkit.coremltools SCRIPT [ARGUMENTS]: runs a script with a coremltools that predicts through milkit."""

import os
import runpy
import sys


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m milkit.coremltools SCRIPT [ARGUMENTS]", file=sys.stderr)
        return 2
    from . import use

    use()
    script = sys.argv[1]
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
