"""Programs for the problems about generators."""

from tests.problems.solution import But, Solution

SOLUTIONS = {
    "windows": Solution(
        right="""
        from collections import deque

        def windows(items, size):
            last = deque(maxlen=size)
            for item in items:
                last.append(item)
                if len(last) == size:
                    yield tuple(last)
        """,
        wrong={
            "lists, not tuples": But("yield tuple(last)", "yield list(last)"),
            "steps of the size": But("yield tuple(last)", "yield tuple(last)\n            last.clear()"),
            "a short one where there are too few": """
            def windows(items, size):
                items = list(items)
                for at in range(max(len(items) - size + 1, 1)):
                    yield tuple(items[at : at + size])
            """,
            "all of it first": """
            def windows(items, size):
                items = list(items)
                for at in range(len(items) - size + 1):
                    yield tuple(items[at : at + size])
            """,
            "one element ahead": """
            from collections import deque

            def windows(items, size):
                last = deque(maxlen=size)
                for item in items:
                    if len(last) == size:
                        yield tuple(last)
                    last.append(item)
                if len(last) == size:
                    yield tuple(last)
            """,
        },
    ),
    "interleave": Solution(
        right="""
        def interleave(*iterables):
            waiting = [iter(one) for one in iterables]
            while waiting:
                left = []
                for one in waiting:
                    try:
                        item = next(one)
                    except StopIteration:
                        continue
                    left.append(one)
                    yield item
                waiting = left
        """,
        wrong={
            "the shortest ends it": """
            def interleave(*iterables):
                for row in zip(*iterables):
                    yield from row
            """,
            "None fills the gaps": """
            from itertools import zip_longest

            def interleave(*iterables):
                for row in zip_longest(*iterables):
                    yield from row
            """,
            "None is taken for a gap": """
            from itertools import zip_longest

            def interleave(*iterables):
                for row in zip_longest(*iterables):
                    yield from (item for item in row if item is not None)
            """,
            "a whole round is taken ahead": """
            from itertools import zip_longest

            GAP = object()

            def interleave(*iterables):
                for row in zip_longest(*iterables, fillvalue=GAP):
                    yield from (item for item in row if item is not GAP)
            """,
            "lists of all": But("iter(one) for one in iterables", "iter(list(one)) for one in iterables"),
            "one after the other": """
            def interleave(*iterables):
                for one in iterables:
                    yield from one
            """,
            "removed while going through": """
            def interleave(*iterables):
                waiting = [iter(one) for one in iterables]
                while waiting:
                    for one in waiting:
                        try:
                            yield next(one)
                        except StopIteration:
                            waiting.remove(one)
            """,
        },
    ),
    "merge_streams": Solution(
        right="""
        import heapq

        def merge_streams(*streams):
            heads = []

            def take(number, stream, floor):
                for value in stream:
                    if floor is not None and value < floor:
                        raise ValueError("a stream must be in ascending order")
                    heapq.heappush(heads, (value, number, stream))
                    return

            for number, stream in enumerate(map(iter, streams)):
                take(number, stream, None)
            last = None
            while heads:
                value, number, stream = heapq.heappop(heads)
                if last is None or value > last:
                    yield value
                    last = value
                take(number, stream, value)
        """,
        wrong={
            "repeats stay": But("if last is None or value > last", "if True"),
            "the order is not looked at": But("value < floor", "value < floor and False"),
            "a repeat is a fault": But("value < floor", "value <= floor"),
            "the latest argument first": But("map(iter, streams)", "map(iter, streams[::-1])"),
            "sorted sets": """
            def merge_streams(*streams):
                yield from sorted(set().union(*streams))
            """,
            "all of it first": """
            import heapq

            def merge_streams(*streams):
                last = None
                for value in heapq.merge(*map(list, streams)):
                    if value != last:
                        yield value
                    last = value
            """,
            "the standard library's merge": """
            import heapq
            from itertools import groupby

            def merge_streams(*streams):
                for value, _ in groupby(heapq.merge(*streams)):
                    yield value
            """,
            "1 and 1.0 are two numbers": But("value > last:", "(value, type(value)) != (last, type(last)):"),
        },
    ),
}
