"""Programs and tests of what passes between the two sides of the jail."""

from textwrap import dedent

import pytest


def case(name, code, tests):
    """A program and the body of its check, under a name."""
    return pytest.param(dedent(code), dedent(tests).strip(), id=name)


HONEST = [
    case(
        "plain values",
        """
        def f():
            return 1, 2.5, "a", None, True, b"x", {1: "a", (1, 2): [3]}, {1}, frozenset([2]), 1j, -0.0
        """,
        """
        got = candidate()
        assert got == (1, 2.5, "a", None, True, b"x", {1: "a", (1, 2): [3]}, {1}, frozenset([2]), 1j, 0.0)
        assert [type(one) for one in got[:6]] == [int, float, str, type(None), bool, bytes]
        assert str(got[-1]) == "-0.0"
        """,
    ),
    case(
        "rare values",
        """
        def f():
            return float("nan"), float("inf"), 10**5000, chr(0xD83D), range(3), slice(1, 2), ..., {1: 2}.keys(), int
        """,
        """
        nan, inf, big, lone, steps, cut, dots, keys, kind = candidate()
        assert nan != nan and inf > 1e308 and big == 10**5000 and lone == chr(0xD83D)
        assert steps == range(3) and cut == slice(1, 2) and dots is ... and keys == {1} and kind is int
        """,
    ),
    case(
        "library values",
        """
        import datetime
        from collections import *
        from decimal import Decimal
        from fractions import Fraction
        def f():
            first = Counter("aab"), deque([1], 3), OrderedDict(a=1), defaultdict(list, {1: [2]})
            return *first, Decimal("1.10"), Fraction(1, 3), datetime.date(2020, 1, 2)
        """,
        """
        import collections, datetime, fractions
        count, queue, ordered, default, exact, third, day = candidate()
        assert count == collections.Counter("aab") and queue.maxlen == 3
        assert ordered == collections.OrderedDict(a=1)
        default[2].append(1)
        assert default == {1: [2], 2: [1]} and str(exact) == "1.10"
        assert third == fractions.Fraction(1, 3) and day == datetime.date(2020, 1, 2)
        """,
    ),
    case(
        "named tuples",
        """
        from collections import namedtuple
        def f():
            return namedtuple("P", "x y")(1, 2)
        """,
        "assert candidate() == (1, 2) and candidate().y == 2",
    ),
    case(
        "cycles",
        """
        def f():
            ring = [1]
            ring.append(ring)
            return ring
        """,
        """
        got = candidate()
        assert got[1] is got
        """,
    ),
    case(
        "depth",
        """
        def f():
            deep = []
            for _ in range(5000):
                deep = [deep]
            return deep
        """,
        """
        got, depth = candidate(), 0
        while got:
            got, depth = got[0], depth + 1
        assert depth == 5000
        """,
    ),
    case(
        "arguments that change",
        """
        def f(xs, box):
            xs.sort()
            box["it"] = xs
            return xs
        """,
        """
        xs, box = [2, 1], {}
        got = candidate(xs, box)
        assert xs == [1, 2] and got is xs and box["it"] is xs
        """,
    ),
    case(
        "arguments that stay",
        """
        def f(xs):
            return sorted(xs)
        """,
        """
        xs = [2, 1]
        assert candidate(xs) == [1, 2] and xs == [2, 1]
        """,
    ),
    case(
        "generators",
        """
        def f(n):
            for i in range(n):
                yield i
            raise KeyError("end")
        """,
        """
        import itertools
        assert list(itertools.islice(candidate(9), 3)) == [0, 1, 2]
        try:
            list(candidate(1))
        except KeyError:
            return
        assert False
        """,
    ),
    case(
        "closures",
        """
        def f(n):
            return lambda x: x + n
        """,
        "assert candidate(3)(4) == 7",
    ),
    case(
        "callbacks",
        """
        def f(g, xs):
            return [g(x) for x in xs]
        """,
        'assert candidate(lambda x: -x, [1]) == [-1] and candidate(len, ["ab"]) == [2]',
    ),
    case(
        "what one does with a callback besides calling it",
        """
        def f(xs, key=None):
            print(key)
            assert "secret" not in repr(key)
            known = {key: 1}
            assert callable(key) and known[key] == 1 and key == key and not key != key and key in [f, key]
            return sorted(xs, key=key) if key else xs
        """,
        """
        class Judge:
            def key(self, x):
                return -x
            def __repr__(self):
                return "secret"
        assert candidate([1, 2], lambda x: -x) == candidate([1, 2], Judge().key) == [2, 1]
        """,
    ),
    case(
        "iterators as arguments",
        """
        def f(items):
            return (sorted(items), items == items) if items else None
        """,
        "assert candidate(iter([2, 1])) == candidate(n for n in (2, 1)) == ([1, 2], True)",
    ),
    case(
        "callbacks that raise",
        """
        def f(g):
            try:
                g()
            except ValueError as error:
                return str(error)
        """,
        """
        def bad():
            raise ValueError("seen")
        assert candidate(bad) == "seen"
        """,
    ),
    case(
        "exceptions of its own",
        """
        class Odd(ValueError):
            pass
        def f():
            raise Odd("why")
        """,
        """
        try:
            candidate()
        except ValueError as error:
            assert str(error) == "why" and type(error).__name__ == "Odd"
        else:
            assert False
        """,
    ),
    case(
        "coroutines",
        """
        import asyncio
        async def f(x):
            await asyncio.sleep(0)
            return x + 1
        """,
        """
        import asyncio
        assert asyncio.run(candidate(1)) == 2
        """,
    ),
    case(
        "threads",
        """
        import threading
        def f(n):
            got = []
            work = [threading.Thread(target=got.append, args=(i,)) for i in range(n)]
            for one in work:
                one.start()
            for one in work:
                one.join()
            return sorted(got)
        """,
        "assert candidate(20) == list(range(20))",
    ),
    case(
        "a class",
        """
        class f:
            def __init__(self):
                self.held = []
            def push(self, x):
                self.held.append(x)
            def __len__(self):
                return len(self.held)
            def __eq__(self, other):
                return self.held == other.held
        """,
        """
        one, two = candidate(), candidate()
        one.push(1)
        assert len(one) == 1 and one.held == [1] and one != two
        two.push(1)
        assert one == two and not candidate()
        """,
    ),
    case(
        "a class of the tests",
        """
        def f(box):
            box.held += 1
            return box
        """,
        """
        class Box:
            pass
        box = Box()
        box.held = 1
        got = candidate(box)
        assert got is box and box.held == 2
        """,
    ),
]


def _sending(message):
    """A program that finds our end of the channel and sends a message of its own."""
    return f"""
        import gc
        def f():
            for one in gc.get_objects():
                if type(one).__name__ == "Channel":
                    one.send({message})
            return 0
        """


CHEATS = [
    pytest.param(dedent(code), id=name)
    for name, code in {
        "a number equal to all": """
            class I(int):
                __eq__ = lambda self, other: True
            def f():
                return I(0)
            """,
        "a text equal to all": """
            class S(str):
                __eq__ = lambda self, other: True
            def f():
                return S()
            """,
        "a list equal to all": """
            class L(list):
                __eq__ = __contains__ = lambda self, other: True
            def f():
                return L()
            """,
        "an object equal to all": """
            class A:
                __eq__ = __lt__ = __gt__ = __contains__ = lambda self, other: True
                __sub__ = __rsub__ = lambda self, other: 0
                __abs__ = lambda self: 0
                __hash__ = None
            def f():
                return A()
            """,
        "a class equal to all": """
            class M(type):
                __eq__ = lambda self, other: True
                __hash__ = type.__hash__
            class A(metaclass=M):
                pass
            def f():
                return A
            """,
        "a disguise": """
            class A:
                __class__ = property(lambda self: int)
                __eq__ = lambda self, other: True
                __hash__ = None
            def f():
                return A()
            """,
        "an AssertionError": """
            def f():
                raise AssertionError
            """,
        "a quiet exit": """
            import os
            def f():
                os._exit(0)
            """,
        "a StopIteration": """
            def f():
                raise StopIteration(25)
            """,
        "a verdict": _sending('{"outcome": "pass", "done": {"root": True, "nodes": []}}'),
        "a question about the tests": _sending(
            '{"do": "getattr", "on": 0, "with": {"root": [0], '
            '"nodes": [["list", [[1], [2]]], ["list", ["__globals__"]], ["dict", []]]}}'
        ),
        "a function that does things": _sending(
            '{"done": {"root": [0], "nodes": [["list", [[1]]], ["builtin", "exec"]]}}'
        ),
        "a value that holds itself": _sending('{"done": {"root": [0], "nodes": [["list", [[1]]], ["tuple", [[1]]]]}}'),
    }.items()
]
