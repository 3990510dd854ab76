"""The worker program: a piece of work on stdin, its result on stdout, both pickled. Started by `broker.beside`.

It reads nothing but what the broker that started it has written, and ends when that is done.
"""

import os
import pickle
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main() -> None:
    work = pickle.load(sys.stdin.buffer)
    pickle.dump(work(), sys.stdout.buffer)


if __name__ == "__main__":
    main()
